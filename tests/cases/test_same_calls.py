"""A program asks the virtual GPU for what it asks a real device for, in the same order.

The real device is XLA's own CPU backend, as a PJRT plugin with arithmetic: buffers made, executions
with their arguments, donations, reads and deletions are compared. Where they part, the virtual GPU
has changed the program; so has the wrapper that publishes a pool for `vramfit top`.
"""

import ast
from pathlib import Path

import pytest
from commands import ROOT, run_python, run_vramfit
from test_examples import laptop_commands

RECORDER = ROOT / "tests" / "pjrt_recorder.py"
HERE = Path(__file__).parent
CONTROL_FLOW = HERE / "control_flow.py"
SMALL = [
    *("programs/keeps_outputs", "programs/updates_by_lambda", "programs/updates_eagerly"),
    *("wild/buffers_of_that_size", "wild/eager_update_owners", "wild/greek_argument"),
    *("wild/own_xla_dump", "wild/sort_warning"),
]
# The plugin has no LAPACK.
LINEAR_ALGEBRA = {
    *("newton", "gaussian_process", "kalman_filter", "evolution_strategy", "rank_of_a_matrix"),
}


def calls(folder, platform, program, *arguments):
    """Return the calls of a program on a platform."""
    file = folder / f"{platform}.calls"
    command = [RECORDER, platform, file, program, *arguments]
    if platform == "gpu":
        # As many devices as the plugin for the CPU has.
        run_vramfit("dryrun", "--gpu", "h100-80gx4", "--", *command, cwd=folder, code=0)
    else:
        settings = {"VRAMFIT_PUBLISH": "1"} if platform == "published" else {}
        run_python(*command, cwd=folder, env=settings, code=0)
    return file.read_text().splitlines()


def assert_same_calls(folder, program, *arguments):
    """All platforms get the same calls; return them."""
    real = calls(folder, "cpu", program, *arguments)
    assert calls(folder, "published", program, *arguments) == real
    assert calls(folder, "gpu", program, *arguments) == real
    return real


def test_control_flow(tmp_path):
    functions = ast.parse(CONTROL_FLOW.read_text()).body
    decorated = [each for each in functions if getattr(each, "decorator_list", [])]
    names = [each.name for each in decorated if each.name not in LINEAR_ALGEBRA]
    assert len(decorated) - len(names) == len(LINEAR_ALGEBRA)
    assert len(names) >= 25
    assert len(assert_same_calls(tmp_path, CONTROL_FLOW, *names)) > 2000


EXAMPLES = ["fragment", "leak", "no_donation", "train_moe", "train_rnn", "train_sharded"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(tmp_path, name):
    example = ROOT / "examples" / f"{name}.py"
    command = laptop_commands(example)[0]
    arguments = command[command.index(example.name) + 1 :]
    recorded = assert_same_calls(tmp_path, example, *arguments)
    assert sum(line.startswith("execute ") for line in recorded) > 20


@pytest.mark.parametrize("name", SMALL)
def test_small_programs(tmp_path, name):
    assert assert_same_calls(tmp_path, HERE / f"{name}.py", 1)
