"""Checkpoints of `vramfit.train.fit`: a run that was interrupted ends as one that was not."""

import os
import shutil

import h5py
import jax.numpy as jnp
import pytest
from test_train_fit import events
from training import by_hand, evaluate, load, same, start, step, write

from vramfit.data import Mixture
from vramfit.errors import FileChangedError, InvalidArgumentError
from vramfit.train import Checkpoints, fit


class Enough(Exception):
    """What ends a run at a step."""


def interrupted(data, after):
    """Return batches that end with an error."""

    class Batches:
        def __iter__(self):
            for number, batch in enumerate(data):
                if number == after:
                    raise Enough
                yield batch

    return Batches()


@pytest.mark.fast
def test_t7_a_run_resumes_in_the_middle_of_an_epoch(train, tmp_path):
    batches = [{name: part.copy() for name, part in batch.items()} for batch in load(train)]
    run = tmp_path / "run"
    policy = Checkpoints(every_steps=5)
    with pytest.raises(Enough):
        fit(step, start(), interrupted(batches, 18), directory=run, checkpoints=policy, log_every=4)
    result = fit(step, start(), batches, directory=run, epochs=2, log_every=4)
    assert result.resumed_at == 15
    whole = fit(step, start(), batches, epochs=2)
    assert same(result.state, whole.state)
    assert [epoch.train for epoch in result.epochs] == [epoch.train for epoch in whole.epochs]
    steps = [line["step"] for line in events(run, "steps")]
    assert steps == sorted(set(steps)), "each step is told once"


def test_t7_epochs_are_added_to_a_run(train, tmp_path):
    for epochs in (1, 3):
        result = fit(step, start(), load(train), directory=tmp_path / "run", epochs=epochs)
    assert result.resumed_at == 32
    assert [epoch.number for epoch in result.epochs] == [1, 2, 3]
    assert same(result.state, by_hand(train, 3)[0])


def test_t7_the_best_and_the_last_are_kept(train, tmp_path):
    # Best behind step 64, where a checkpoint was due before the evaluation as well.
    def distance(state, batch):
        return jnp.abs(state["steps"] - 64) + 0 * batch["y"][0]

    for epochs in (3, 5):
        result = fit(
            step,
            start(),
            load(train),
            eval_step=distance,
            eval_data=load(train, split=("validation", 0.1)),
            epochs=epochs,
            directory=tmp_path / "run",
            checkpoints=Checkpoints(every_steps=16, keep_last=2, keep_best=1),
            progress="none",
        )
        kept = sorted(int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir())
        assert kept == [64, epochs * 32 - 16, epochs * 32]
    assert (result.best.epoch, result.best_step) == (2, 64)


def test_t7_an_evaluation_that_was_interrupted_is_made_anew(train, tmp_path):
    def again(eval_data, **options):
        return fit(
            step,
            start(),
            load(train),
            eval_step=evaluate,
            eval_data=eval_data,
            epochs=2,
            progress="none",
            **options,
        )

    judged = [{name: part.copy() for name, part in batch.items()} for batch in load(train)]
    run, policy = tmp_path / "run", Checkpoints(every_steps=32)
    with pytest.raises(Enough):
        again(interrupted(judged, 3), directory=run, checkpoints=policy)
    result = again(judged, directory=run, checkpoints=policy)
    assert result.resumed_at == 32
    whole = again(judged)
    assert same(result.state, whole.state)
    for name in ("number", "steps", "train", "validation"):
        assert [getattr(epoch, name) for epoch in result.epochs] == [
            getattr(epoch, name) for epoch in whole.epochs
        ]


def test_t7_what_changed_is_refused(train, tmp_path):
    run = tmp_path / "run"
    fit(step, start(), load(train), directory=run, config={"model": {"width": 4}, "rate": 0.1})

    def again(state=None, data=None, **options):
        return fit(step, state or start(), data or load(train), directory=run, epochs=2, **options)

    with pytest.raises(InvalidArgumentError) as caught:
        again(config={"model": {"width": 8}, "rate": 0.1})
    assert "`model.width` was 4 and is 8" in str(caught.value)
    assert "rate" not in caught.value.message
    config = {"model": {"width": 4}, "rate": 0.1}
    with pytest.raises(
        InvalidArgumentError, match="`w` is float32\\[4\\] in it and float32\\[5\\]"
    ):
        again({**start(), "w": start()["w"].repeat(2)[:5]}, config=config)
    write(train, rows=1004)
    with pytest.raises(FileChangedError, match="is not the file that this run started with"):
        again(config=config)
    with pytest.raises(InvalidArgumentError, match="there is no checkpoint to resume from"):
        fit(step, start(), load(train), directory=tmp_path / "other", resume=True)


def test_a_run_resumes_with_a_copy_of_its_data_and_not_with_other_values(train, tmp_path):
    run = tmp_path / "run"
    whole = fit(step, start(), load(train), epochs=3, progress="none")

    def again(epochs, **options):
        return fit(
            step, start(), load(train), epochs=epochs, directory=run, progress="none", **options
        )

    again(1)
    shutil.copyfile(train, tmp_path / "copy.h5")
    os.replace(tmp_path / "copy.h5", train)
    os.utime(train, ns=(0, 0))
    assert again(2).notes == ()
    with h5py.File(train, "r+") as f:
        f["y"][5] += 1
    with pytest.raises(FileChangedError, match="its values differ") as caught:
        again(3)
    assert "`force_resume=True`" in caught.value.hint
    result = again(3, force_resume=True)
    assert (result.resumed_at, result.steps) == (64, whole.steps)
    (note,) = result.notes
    assert note.endswith("although its size and chunks are the same; the run continues with it")
    # From there on it is the data of the run.
    assert again(3).notes == ()
    write(train, rows=1004)
    with pytest.raises(InvalidArgumentError, match="for 1003 rows, but the file has 1004"):
        again(3, force_resume=True)


def test_only_parts_of_a_large_file_are_compared_and_that_is_reported(tmp_path):
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as f:
        f["x"] = jnp.ones((1_200_000, 4))
        f["y"] = jnp.ones(1_200_000)

    def again(epochs):
        data = load(path, batch_size=400_000, memory="256MiB")
        return fit(step, start(), data, epochs=epochs, directory=tmp_path / "run", progress="none")

    again(1)
    os.utime(path, ns=(0, 0))
    (note,) = again(2).notes
    assert "so are the 16.0 MiB that were compared" in note


def mix(train, **options):
    """Return a mixture of two loaders, the second of which has a smaller last batch."""
    loaders = {
        "most": load(train, split=("train", 0.25)),
        "few": load(train, rows=range(100), seed=3),
    }
    return Mixture(loaders, {"most": 2, "few": 1}, batches=20, seed=7, **options)


@pytest.mark.parametrize("stop", [7, 20, 33])
def test_a_run_resumes_in_a_mixture(train, tmp_path, stop):
    whole = fit(step, start(), mix(train), epochs=3, progress="none")
    assert whole.steps == 60
    for limit in ({"steps": stop}, {"epochs": 3}):
        options = {"directory": tmp_path / "run", "progress": "none", **limit}
        result = fit(step, start(), mix(train), **options)
    assert result.resumed_at == stop
    assert same(result.state, whole.state)
    by_hand = start()
    mixture = mix(train)
    for _ in range(3):
        for batch in mixture.to_device():
            by_hand, _ = step(by_hand, batch)
    assert jnp.allclose(by_hand["w"], whole.state["w"], rtol=1e-4)
    # Another mixture is not that of the checkpoint.
    other = Mixture(mix(train).loaders, {"most": 2, "few": 1}, batches=21, seed=7)
    with pytest.raises(InvalidArgumentError, match="another `batches`"):
        fit(step, start(), other, epochs=4, directory=tmp_path / "run", progress="none")


def test_an_evaluation_of_a_loader_of_the_mixture_is_refused(train):
    mixture = mix(train)
    with pytest.raises(InvalidArgumentError, match="loader that training reads"):
        fit(
            step,
            start(),
            mixture,
            eval_step=evaluate,
            eval_data=mixture.loaders["few"],
            eval_every=5,
            epochs=1,
            progress="none",
        )


def test_stacks_of_a_mixture_are_full(train, tmp_path):
    def stacked(last_batch):
        loaders = {
            name: load(train, stacked_batches=4, seed=seed, last_batch=last_batch)
            for seed, name in enumerate("ab")
        }
        return Mixture(loaders, batches=9, seed=2)

    options = {"steps_per_dispatch": 4, "progress": "none"}
    with pytest.raises(InvalidArgumentError, match="pad their last stack"):
        fit(step, start(), stacked("pad"), **options)
    whole = fit(step, start(), stacked("drop"), epochs=2, **options)
    assert whole.steps == 72
    for limit in ({"steps": 20}, {"epochs": 2}):
        run = tmp_path / "run"
        result = fit(step, start(), stacked("drop"), directory=run, **limit, **options)
    assert (result.resumed_at, same(result.state, whole.state)) == (20, True)
