"""How a run ends early: signals, kills, a loss that is no number, patience."""

import json
import signal
import sys
import threading

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT, run_python, start_command
from test_train_fit import events
from training import load, same, start, step

from vramfit.train import Checkpoints, fit


def test_t7_a_run_that_is_killed_ends_as_one_that_is_not():
    # `python scripts/verify/kill_training.py` does it a hundred times.
    done = run_python(
        ROOT / "scripts" / "verify" / "kill_training.py", "--kills", "6", code=0, timeout=570
    )
    assert "6 kills" in done.stdout
    assert "the same to the last bit" in done.stdout


RUN = """
import itertools, os, signal, sys
import jax.numpy as jnp, numpy as np
from vramfit.train import Checkpoints, fit

received, sent = os.pipe()
os.set_blocking(sent, False)
signal.set_wakeup_fd(sent)

def step(state, batch):
    return state + 1, batch.mean()

def evaluate(state, batch):
    return batch.mean()

class Batches:
    def __init__(self, numbers, ready_at):
        self.numbers, self.ready_at = numbers, ready_at

    def __iter__(self):
        for number in self.numbers:
            if number == self.ready_at:
                print("ready", flush=True)
                os.read(received, 1)  # returns when a signal has come
            yield np.ones(4)

result = fit(step, jnp.zeros(()), Batches(range(300), {ready_at}), directory=sys.argv[1],
             {more}progress="none")
print(result.stop_reason, result.signal, result.steps, int(result.state), flush=True)
"""


@pytest.fixture
def begin():
    """Start a run that waits for a signal before it reads a batch; see `RUN`."""
    children = []

    def begin(directory, ready_at=3, more=""):
        lines = RUN.format(ready_at=ready_at, more=more)
        child = start_command(sys.executable, "-c", lines, directory, env={"JAX_PLATFORMS": "cpu"})
        children.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    yield begin
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_t7_a_signal_ends_behind_a_step_with_a_checkpoint(tmp_path, begin, number):
    run = tmp_path / "run"
    child = begin(run)
    child.send_signal(number)
    out, err = child.communicate(timeout=120)
    stopped, received, steps, state = out.split()
    assert (stopped, received) == ("signal", str(int(number))), err
    assert steps == state
    assert 0 < int(steps) < 300
    assert [path.name for path in (run / "checkpoints").glob("[0-9]*")] == [steps]
    assert events(run, "end")[0]["stop_reason"] == "signal"


def test_t7_a_signal_in_an_evaluation_does_not_wait_for_its_end(tmp_path, begin):
    run = tmp_path / "run"
    more = "eval_step=evaluate, eval_data=Batches(itertools.count(), 3), epochs=2, "
    child = begin(run, ready_at=None, more=more)
    # The evaluation has no end.
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=120)
    assert out.split() == ["signal", "15", "300", "300"], err
    saved = json.loads((run / "checkpoints" / "300" / "run_metadata" / "metadata").read_text())
    assert saved["metadata"]["progress"]["epochs"] == [], "the epoch ends with an evaluation"


def test_signals_are_left_alone_outside_of_the_main_thread(train):
    before = signal.getsignal(signal.SIGTERM)
    results = []
    thread = threading.Thread(
        target=lambda: results.append(fit(step, start(), load(train), progress="none"))
    )
    thread.start()
    thread.join()
    assert results[0].stop_reason == "finished"
    assert signal.getsignal(signal.SIGTERM) is before


def nan_at(number):
    """Return a step that goes wrong at a step."""

    def wrong(state, batch):
        new, metrics = step(state, batch)
        bad = jnp.where(state["steps"] == number - 1, jnp.nan, 0.0)
        return jax.tree.map(lambda x: x + bad.astype(x.dtype), new), {
            name: value + bad for name, value in metrics.items()
        }

    return wrong


@pytest.mark.parametrize("every", [1, 7, 50])
def test_t14_a_loss_that_is_nan_stops(train, tmp_path, every):
    run = tmp_path / "run"
    result = fit(
        nan_at(20),
        start(),
        load(train),
        epochs=3,
        directory=run,
        log_every=every,
        checkpoints=Checkpoints(every_steps=6, keep_last=9),
        progress="none",
    )
    assert result.stop_reason == "nan"
    (found,) = events(run, "nan")
    assert found.pop("cause") == result.nan.text
    assert result.nan.in_data is False
    assert found == {"event": "nan", "step": 20, "epoch": 1, "step_of_epoch": 20, "loss": "nan"}
    kept = sorted(int(path.name) for path in (run / "checkpoints").glob("[0-9]*"))
    assert kept == [6, 12, 18], "none of a state behind the NaN"
    assert "the loss is not finite: the data of that step is finite" in " ".join(
        str(result).split()
    )


@pytest.mark.parametrize("stacked", [1, 4])
def test_t14_rows_of_the_file_are_to_blame_where_they_are(train, stacked):
    with h5py.File(train, "r+") as file:
        file["y"][900] = np.inf
    options = {"stacked_batches": stacked} if stacked > 1 else {}
    result = fit(step, start(), load(train, **options), steps_per_dispatch=stacked, progress="none")
    assert result.nan.in_data is True
    assert "`y` is NaN or infinite in row 900 of the file" in result.nan.text


def test_t14_batches_of_ones_own_are_looked_at_again(tmp_path):
    batches = [{"x": np.zeros((8, 4), "f4"), "y": np.zeros(8, "f4")} for _ in range(5)]
    batches[3]["x"][6, 1] = np.nan
    result = fit(step, start(), batches, progress="none")
    assert (result.stop_reason, result.steps >= 4) == ("nan", True)
    assert result.nan.text.endswith("`x` is NaN or infinite in row 6 of the batch")


def test_t14_a_nan_continues_on_request(train):
    result = fit(nan_at(20), start(), load(train), stop_on_nan=False, progress="none")
    assert (result.stop_reason, result.steps) == ("finished", 32)
    assert np.isnan(result.epochs[0].train["loss"])


def test_training_ends_early_without_a_better_loss_also_behind_a_checkpoint(train, tmp_path):
    def worse(state, batch):
        late = jnp.where(state["steps"] > 64, state["steps"], 0)
        return {"loss": 1.0 + late + 0 * batch["y"][0]}

    options = {
        "eval_step": worse,
        "eval_data": load(train, split=("validation", 0.1)),
        "stop_after": 3,
        "directory": tmp_path / "run",
        "progress": "none",
    }
    first = fit(step, start(), load(train), epochs=3, **options)
    assert (first.stop_reason, len(first.epochs)) == ("finished", 3)
    second = fit(step, start(), load(train), epochs=50, **options)
    assert (second.stop_reason, len(second.epochs)) == ("early", 4)
    assert second.best.epoch == 1
    assert "early stopping" in str(second)
    third = fit(step, start(), load(train), epochs=50, **options)
    assert (third.stop_reason, third.steps) == ("early", second.steps)
    assert same(third.state, second.state)
