"""The same training in five libraries (`examples/fit`): learnt, gone on with, and compared."""

import runpy
import sys

import jax
import pytest
from commands import ROOT, run_vramfit
from training import same

from vramfit.train import fit

EXAMPLES = sorted((ROOT / "examples" / "fit").glob("*.py"))


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("examples") / "table.h5"
    words = ["data", "generate", path, "--kind", "tabular", "--samples", "20k"]
    run_vramfit(*words, code=0)
    return path


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_t3_each_library_learns_and_resumes(example, table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(example), str(table), str(tmp_path / "run")])
    losses = []
    for _ in range(2):
        runpy.run_path(str(example), run_name="__main__")
        captured = capsys.readouterr()
        losses.append(float(captured.out.split()[-1]))
    # `vramfit data generate` says that a perfect model reaches 0.5003.
    assert losses[0] < 0.56
    assert losses[1] == losses[0]
    assert "resuming from step 900 (epoch 6)" in captured.err


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_t3_each_library_gets_the_numbers_of_its_own_loop(example, table, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(example), str(table)])
    program = runpy.run_path(str(example), run_name="example")
    result = fit(
        program["step"], program["start"](), program["load"]("train"), donate=False, progress="none"
    )
    state, step = program["start"](), jax.jit(program["step"])
    for batch in program["load"]("train"):
        state, loss = step(state, batch)
    assert same(result.state, state)
    assert loss.shape == ()
