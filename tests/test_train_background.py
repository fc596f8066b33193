"""A checkpoint is written while training goes on: the state of its step, and nothing later."""

import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training import bits

from vramfit.train import Checkpoints, fit
from vramfit.train.checkpoint.arrays import copy_arrays
from vramfit.train.checkpoint.background import BackgroundThread
from vramfit.train.checkpoint.manager import CheckpointManager


def count(state, batch):
    """Take a step that writes into all memory of the state."""
    return {"w": state["w"] + 1}, batch[0]


def test_t7_training_continues_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    later = threading.Event()
    save = CheckpointManager._save

    def slow(manager, *what):
        assert later.wait(120), "training waited for the checkpoint"
        save(manager, *what)

    class Batches:
        def __iter__(self):
            for number in range(6):
                if number == 4:  # one is on its way, so three steps are done
                    later.set()
                yield np.zeros(1)

    run = tmp_path / "run"
    options = {"directory": run, "progress": "none", "prefetch": 1}
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointManager, "_save", slow)
        policy = Checkpoints(every_steps=2, every_seconds=None, keep_last=9)
        result = fit(count, {"w": jnp.zeros(1000)}, Batches(), checkpoints=policy, **options)
    assert result.notes == ()
    for step in "46":
        shutil.rmtree(run / "checkpoints" / step)
    again = fit(count, {"w": jnp.zeros(1000)}, [np.zeros(1)] * 6, **options)
    assert again.resumed_at == 2
    # With a later state under the name of step 2 it would be more.
    assert set(np.asarray(again.state["w"]).tolist()) == {6.0}


def test_a_copy_has_memory_of_its_own():
    state = {
        "w": jnp.arange(12.0).reshape(3, 4),
        "half": jnp.ones(5, jnp.bfloat16),
        "key": jax.random.key(7),
        "count": jnp.zeros((), jnp.int32),
    }
    copies = copy_arrays(state)
    for name, leaf in state.items():
        assert copies[name].dtype == leaf.dtype
        one, other = bits(leaf), bits(copies[name])
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        assert one.unsafe_buffer_pointer() != other.unsafe_buffer_pointer()


def test_the_first_who_waits_gets_the_error_and_work_continues_behind_it():
    done = []

    def fail():
        raise OSError("no space")

    background = BackgroundThread("test")
    background.start(fail)
    with pytest.raises(OSError, match="no space"):
        background.wait()
    background.wait()
    background.start(lambda: done.append(threading.current_thread().name))
    background.wait()
    assert not background.is_busy()
    background.start(lambda: done.append(threading.current_thread().name))
    background.close()
    assert len(done) == 2
    assert len(set(done)) == 1, "orbax counts the threads that it has told of an error"
