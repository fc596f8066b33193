"""Control flow that depends on small values beside large state is that of the real run."""

from pathlib import Path

from cli_dryrun import dryrun_of
from commands import run_python

SCRIPT = Path(__file__).with_name("control_flow.py")


def test_control_flow_that_depends_on_small_values_is_that_of_the_real_run(tmp_path):
    real = run_python(SCRIPT, env={"JAX_PLATFORMS": "cpu"}, code=0)
    run = dryrun_of(tmp_path, SCRIPT, code=0)
    assert run.out.splitlines() == real.stdout.splitlines()
    # Nothing was read that was not computed: the answer holds without a condition.
    assert run.summary["unknown_reads"] == []
    assert run.summary["verdict"]["conditions"] == []
