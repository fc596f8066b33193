"""The command line as people use it: what goes where, and which exit code comes back."""

import json
import os
import pathlib
import signal
import sys
import venv

import pytest
from commands import VRAMFIT, run_python, run_vramfit, start_command

FITS = """
import jax, jax.numpy as jnp
x = jnp.ones((1024, 1024))
jax.block_until_ready(x @ x)
print("done")
"""

# 40 GB on a GPU of 16.
TOO_LARGE = """
import jax, jax.numpy as jnp
jax.block_until_ready(jnp.ones((10_000_000_000,), jnp.float32))
print("not reached")
"""


def dryrun(*args, gpu="t4", stdin="", code=None, **changes):
    command = ["dryrun", "--full", "--gpu", gpu, *args]
    return run_vramfit(*command, env=changes, code=code, input=stdin)


def error_id(done):
    """Return the id of the error a command ended with."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error[")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr.split(lines[0])[1]
    return lines[0].split("[")[1].split("]")[0]


@pytest.mark.fast
def test_a_program_that_fits_keeps_its_output_to_itself(write_script):
    done = dryrun(write_script(FITS), code=0)
    assert done.stdout == "done\n"
    assert "fits" in done.stderr


@pytest.mark.fast
def test_a_program_that_does_not_fit_ends_with_1(write_script):
    done = dryrun(write_script(TOO_LARGE), code=1)
    assert done.stdout == ""
    assert "RESOURCE_EXHAUSTED" in done.stderr
    assert "does not fit" in done.stderr


def test_what_comes_after_the_program_is_the_programs(write_script):
    path = write_script("import sys; print(sys.argv[1:])\n" + FITS)
    for separator in ([], ["--"]):
        done = dryrun(
            "--quiet", *separator, path, "--gpu", "h100", "--json", "-x", "--", "--force", code=0
        )
        assert done.stdout.splitlines()[0] == "['--gpu', 'h100', '--json', '-x', '--', '--force']"


def test_standard_input_is_the_programs(write_script):
    done = dryrun(sys.executable, write_script("print(input()[::-1])\n" + FITS), stdin="abc\n")
    assert done.stdout == "cba\ndone\n"


def test_a_program_that_fails_by_itself_leaves_the_answer_open(write_script):
    done = dryrun(write_script(FITS + "import sys; sys.exit(7)"), code=2)
    assert done.stderr.startswith("unknown: the program ended with exit code 7 after call 1")
    assert "not because of GPU memory" in done.stderr
    assert "to spare" not in done.stderr


def test_json_is_the_last_line_of_standard_output(write_script):
    done = dryrun("--json", "-", write_script(FITS), code=0)
    # Of a pipe nobody knows whether the program has ended its last line: a line feed comes first.
    first, empty, last = done.stdout.splitlines()
    assert (first, empty) == ("done", "")
    summary = json.loads(last)
    assert summary["schema"] == 2
    assert summary["fits"] is True
    assert summary["oom"] is None
    # Two arrays of 1024 x 1024 in float32 live at once.
    assert summary["peak_bytes"] >= 2 * 4 * 1024**2


def test_files_are_written_and_never_overwritten(write_script, tmp_path):
    summary_file, trace = tmp_path / "summary.json", tmp_path / "run.trace"
    args = ["--json", str(summary_file), "--trace", str(trace), write_script(FITS)]
    done = dryrun(*args, code=0)
    assert json.loads(summary_file.read_text())["fits"] is True
    assert trace.stat().st_size > 0
    assert str(summary_file) in done.stderr
    assert str(trace) in done.stderr

    refused = dryrun(*args)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert error_id(refused) == "io"
    assert dryrun("--force", *args).returncode == 0


@pytest.mark.fast
def test_the_page_is_written_at_the_end_and_again_from_the_trace(write_script, tmp_path):
    page, trace = tmp_path / "report.html", tmp_path / "run.trace"
    done = dryrun("--html", str(page), "--trace", str(trace), write_script(TOO_LARGE), code=1)
    assert f"report written to {page}" in done.stderr
    again = tmp_path / "again.html"
    command = ["report", "--full", str(trace), "--html", str(again)]
    result = run_vramfit(*command, code=1)
    assert result.stdout.startswith("does not fit: short by ")
    assert again.read_text() == page.read_text()

    refused = dryrun("--report", str(page), write_script(FITS))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert error_id(refused) == "io"


def test_nothing_is_left_behind(write_script, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert dryrun(write_script(FITS), TMPDIR=str(scratch)).returncode == 0
    assert list(scratch.iterdir()) == []


def limit_of(*args, **changes):
    done = dryrun("--json", "-", *args, **changes, code=0)
    return json.loads(done.stdout.splitlines()[-1])["limit_bytes"]


def test_the_users_settings_hold_until_an_option_says_otherwise(write_script):
    path = write_script(FITS)
    listed = run_vramfit("gpus", "show", "t4", "--json", code=0)
    total = json.loads(listed.stdout)["gpu"]["total_memory_bytes"]
    page = 2 << 20  # to which JAX rounds the limit up since 0.10.2
    assert abs(limit_of(path, XLA_PYTHON_CLIENT_MEM_FRACTION="0.5") - total * 0.5) < page
    assert (
        abs(
            limit_of("--fraction", "0.25", path, XLA_PYTHON_CLIENT_MEM_FRACTION="0.5")
            - total * 0.25
        )
        < page
    )
    limit = limit_of("--limit", "8GiB", path)
    assert abs(limit - 8 * 2**30) < page


@pytest.mark.fast
def test_steps_end_the_run(write_script):
    loop = """
import jax, jax.numpy as jnp
keys = [jax.random.fold_in(jax.random.key(0), i) for i in range(8)]
weights = [jax.random.normal(key, (1024, 1024)) for key in keys]

@jax.jit
def train_step(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return [w - x.mean() for w in weights]

try:
    for i in range(100_000):
        weights = train_step(weights, jnp.ones((64, 1024)))
    print("not reached")
finally:
    print("cleaned up")
"""
    done = dryrun("--steps", "3", "--json", "-", write_script(loop), code=0)
    said, empty, last = done.stdout.splitlines()
    assert (said, empty) == ("cleaned up", "")
    calls = {row["name"]: row["calls"] for row in json.loads(last)["programs"]}
    assert calls["jit_train_step"] == 3


def test_a_program_that_uses_no_gpu_gives_no_answer(write_script):
    done = dryrun(write_script("print('hello')"))
    assert (done.returncode, done.stdout) == (2, "hello\n")
    assert error_id(done) == "gpu-not-used"


ONLY_COMPILES = """
import jax, jax.numpy as jnp
wide = jax.ShapeDtypeStruct((ROWS, 1024), jnp.float32)
compiled = jax.jit(lambda x: jnp.tanh(x) @ x.T).lower(wide).compile()
"""


@pytest.mark.parametrize(("rows", "fits"), [(16384, True), (65536, False)])
def test_a_program_that_only_compiles_is_answered_from_its_plan(write_script, rows, fits):
    done = dryrun("--json", "-", write_script(ONLY_COMPILES.replace("ROWS", str(rows))))
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, summary["fits"]) == (0 if fits else 1, fits)
    # By hand: the argument, tanh of it, and the product, all in float32.
    plan = summary["plan"]
    least = rows * 1024 * 4 + rows * rows * 4
    assert least <= plan["needed_bytes"] <= least + rows * 1024 * 4 + (64 << 20)
    assert plan["capacity_bytes"] == summary["capacity_bytes"]
    (condition,) = summary["verdict"]["conditions"]
    assert (condition["kind"], condition["anything_ran"]) == ("compiled_only", False)
    assert (summary["executions"], summary["peak_bytes"]) == (0, 0)


def test_a_program_that_only_compiles_its_step_is_not_judged_by_its_start(write_script):
    script = ONLY_COMPILES.replace("ROWS", "65536") + "x = jnp.ones(9)\n"
    done = dryrun(write_script(script), code=1)
    assert "does not fit: `jit__lambda`, compiled but not executed, needs" in done.stderr
    # One size was compiled and found too large, another one ran.
    script = ONLY_COMPILES.replace("ROWS", "65536")
    script += """
step = jax.jit(lambda x: jnp.tanh(x) @ x.T)
step(jnp.ones((1024, 1024)))
"""
    done = dryrun(write_script(script), code=0)
    assert "fits: peak" in done.stderr


def test_a_program_that_fails_before_the_gpu_gives_no_answer(write_script):
    done = dryrun(write_script("raise SystemExit(1)"), code=2)
    assert error_id(done) == "gpu-not-used"
    assert "exit code 1" in done.stderr


def test_a_launcher_that_drops_the_environment_is_named(write_script):
    done = dryrun("env", "-i", sys.executable, write_script(FITS), code=2)
    assert error_id(done) == "gpu-not-used"
    assert "`env` must pass `PYTHONPATH`" in done.stderr


def test_a_program_that_knows_no_gpu_gives_no_answer(write_script):
    choice = "jax.config.update('jax_platforms', 'cpu')"
    done = dryrun(write_script(f"import jax\n{choice}\n{FITS}"))
    assert (done.returncode, done.stdout) == (2, "done\n")
    assert error_id(done) == "gpu-not-used"


def test_a_program_that_runs_on_the_cpu_gives_no_answer(write_script):
    choice = "jax.config.update('jax_default_device', jax.devices('cpu')[0])"
    done = dryrun(write_script(f"import jax\n{choice}\n{FITS}"))
    assert (done.returncode, done.stdout) == (2, "done\n")
    text = " ".join(done.stderr.split())
    assert (
        "unknown: what needs most memory ran on the CPU (`jax_default_device` is the CPU)" in text
    )


def test_a_shell_script_passes_the_environment_on(write_script, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    done = dryrun("--verbose", str(script), write_script(FITS))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "cannot find out which Python" in done.stderr


def test_every_process_that_uses_the_gpu_is_seen(write_script, tmp_path):
    worker = write_script(TOO_LARGE, "worker.py")
    path = write_script(
        f"{FITS}import subprocess, sys; subprocess.run([sys.executable, {str(worker)!r}])"
    )
    trace = tmp_path / "run.trace"
    done = dryrun("--trace", str(trace), path, code=1)
    # The program itself fits and ends well; its worker does not fit.
    assert "2 processes used the GPU\n" in done.stderr
    assert len(list(tmp_path.glob("run.trace*"))) == 2

    alone = dryrun("--trace", str(trace), write_script(FITS))
    assert error_id(alone) == "io"
    done = dryrun("--force", "--trace", str(trace), write_script(FITS), code=0)
    assert list(tmp_path.glob("run.trace*")) == [trace]


def test_platforms_without_a_gpu_are_refused(write_script):
    done = dryrun(write_script(FITS), JAX_PLATFORMS="cpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert error_id(done) == "gpu-not-used"


@pytest.mark.parametrize("options", [["-I"], ["-E"], ["-B", "-Es"]])
def test_an_isolated_python_is_refused_before_it_runs(write_script, options):
    done = dryrun(sys.executable, *options, write_script(FITS))
    assert (done.returncode, done.stdout) == (2, "")
    assert error_id(done) == "gpu-not-used"


def test_a_python_without_jax_is_refused_before_it_runs(write_script, tmp_path):
    venv.create(tmp_path / "env", with_pip=False)
    done = dryrun(str(tmp_path / "env/bin/python"), write_script(FITS))
    assert (done.returncode, done.stdout) == (2, "")
    assert error_id(done) == "compiler-missing"
    assert "has no `jax`" in done.stderr


@pytest.mark.fast
def test_a_crash_is_distinguished_from_a_failure(write_script):
    done = dryrun(
        write_script(FITS + "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), code=2
    )
    assert error_id(done) == "compiler-failed"
    assert "SIGSEGV" in done.stderr


def test_a_flag_that_xla_does_not_know_is_a_clear_error(write_script):
    done = dryrun(write_script(FITS), XLA_FLAGS="--xla_no_such_flag=1", code=2)
    # XLA would end the process, in some versions by a signal and in some by an exit code.
    assert error_id(done) == "invalid-argument"
    assert "remove `--xla_no_such_flag` (rule `flag-not-in-this" in done.stderr


WAITS = (
    FITS
    + """
import sys, time
sys.stdout.flush()
time.sleep(100)
"""
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_run_still_gives_its_answer(write_script, number):
    command = [*VRAMFIT, "dryrun", "--full", "--gpu", "t4", write_script(WAITS)]
    process = start_command(*command, start_new_session=True)
    assert process.stdout.readline() == "done\n"
    # Ctrl-C reaches every process of the terminal's group; a SIGTERM comes to one.
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    stderr = process.communicate(timeout=120)[1]
    assert process.returncode == 2, stderr
    assert "unknown: the program" in stderr
    assert "peak in use" in stderr


def test_a_reader_that_went_away_is_no_failure():
    process = start_command(*VRAMFIT, "gpus")
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), stderr) == (0, "")


def test_asking_the_python_first_imports_nothing_heavy():
    root = pathlib.Path(__file__).parent.parent
    scripts = [root / "crates/vramfit-runner/src" / name for name in ("packages.py", "probe.py")]
    question = "".join(script.read_text() for script in scripts)
    check = "print([name for name in ('jax', 'jaxlib', 'numpy') if name in sys.modules])"
    done = run_python("-c", f"{question}\n{check}", code=0)
    packages, heavy = done.stdout.strip().splitlines()
    assert json.loads(packages)["jax"] is not None
    assert heavy == "[]"
