"""`vramfit.train.fit` beside a loop written by hand: the same numbers, step by step."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import run_python
from training import by_hand, evaluate, load, same, start, step

from vramfit.errors import InvalidArgumentError, IoError
from vramfit.train import fit


def events(directory, kind):
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == kind]


@pytest.mark.fast
def test_t3_every_loss_is_that_of_a_loop_by_hand(train, tmp_path):
    run = tmp_path / "run"
    result = fit(step, start(), load(train), epochs=2, log_every=1, directory=run, checkpoints=None)
    state, losses = by_hand(train, 2)
    assert same(result.state, state)
    assert [line["loss"] for line in events(run, "steps")] == losses
    assert [line["step"] for line in events(run, "steps")] == list(range(1, 65))
    assert [epoch.steps for epoch in result.epochs] == [32, 32]
    assert result.epochs[1].train["loss"] == pytest.approx(np.mean(losses[32:]), rel=1e-12)
    assert (result.stop_reason, result.steps) == ("finished", 64)


@pytest.mark.parametrize("stacked", [2, 5])
def test_t3_steps_in_one_dispatch_are_the_same_steps(train, tmp_path, stacked):
    # 32 batches are no multiple of 5: the padding of the last stack must not be trained on.
    run = tmp_path / "run"
    result = fit(
        step,
        start(),
        load(train, stacked_batches=stacked),
        epochs=2,
        steps_per_dispatch=stacked,
        log_every=8,
        directory=run,
        checkpoints=None,
    )
    state, losses = by_hand(train, 2)
    assert same(result.state, state)
    assert result.steps == 64
    assert result.epochs[0].train["loss"] == pytest.approx(np.mean(losses[:32]), rel=1e-12)


def test_a_jitted_step_is_used_as_it_is(train):
    state, _ = by_hand(train, 1)
    assert same(fit(jax.jit(step), start(), load(train)).state, state)


def test_any_batches_will_do_that_can_be_gone_through_again(train):
    batches = [{name: part.copy() for name, part in batch.items()} for batch in load(train)]
    state, _ = by_hand(train, 1)
    assert same(fit(step, start(), batches).state, state)
    with pytest.raises(InvalidArgumentError, match="an iterator"):
        fit(step, start(), iter(batches))


def test_batches_of_two_shapes_are_two_programs(train):
    batches = [{name: part.copy() for name, part in batch.items()} for batch in load(train)]
    batches[5] = {name: part[:7] for name, part in batches[5].items()}
    state = start()
    for batch in batches:
        state, _ = jax.jit(step)(state, batch)
    result = fit(step, start(), batches)
    assert same(result.state, state)


def test_validation_is_weighted_by_real_rows(train):
    options = {"split": ("validation", 0.1)}
    result = fit(
        step,
        start(),
        load(train, split=("train", 0.1)),
        eval_step=evaluate,
        eval_data=load(train, mask=True, **options),
        epochs=3,
    )
    rows = next(iter(load(train, batch_size=100, shuffle=False, **options)))
    wanted = float(evaluate(result.state, rows)["loss"])
    assert result.epochs[-1].validation["loss"] == pytest.approx(wanted, rel=1e-5)
    assert result.best == result.evaluations[-1]
    assert result.best.metrics == result.epochs[-1].validation


def test_numpy_in_the_state_is_not_written_to(train):
    weights = np.zeros(4, "f4")
    fit(step, start() | {"w": weights}, load(train))
    assert not weights.any()


@pytest.mark.parametrize("progress", ["none", "plain", "compact", "auto"])
def test_t6_nothing_is_said_when_that_is_requested(train, capfd, progress):
    result = fit(step, start(), load(train), progress=progress)
    out, err = capfd.readouterr()
    assert out == ""
    assert "\r" not in err
    assert (err == "") is (progress == "none")
    if err:
        heading = "epoch 1/1: train loss " if progress == "compact" else "Epoch 1/1 Summary\n"
        assert heading in err
        assert "compiling the training step ...\n" in err
        assert str(result) in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, "`epochs` is 0"),
        ({"log_every": 0}, "`log_every` is 0"),
        ({"steps_per_dispatch": 4}, "stacked_batches=4"),
        ({"progress": "loud"}, "use `auto`, `plain`, `compact` or `none`"),
        ({"device": "tpu"}, "use one of `cpu`"),
        ({"resume": True}, "needs a directory"),
        ({"resume": "perhaps"}, "`resume='perhaps'`"),
        ({"stop_after": 3}, "there is no evaluation"),
        ({"eval_step": step}, "go together"),
        ({"step": lambda state, batch: (state, {"cost": jnp.zeros(())})}, "without a `loss`"),
        ({"step": lambda state, batch: (state, {"loss": batch["y"]})}, "must be a scalar"),
        ({"step": lambda state, batch: ({"w": state["w"]}, 0.0)}, "without `state['momentum']`"),
        (
            {"step": lambda s, b: (s | {"w": s["w"].astype("bfloat16")}, jnp.zeros(()))},
            "changes `state['w']` from float32[4] to bfloat16[4]",
        ),
        ({"state": {"act": print}}, "`state['act']` is a builtin_function_or_method"),
        ({"data": 5}, "which has no batches"),
        ({"data": []}, "has no batches"),
        ({"step": lambda state, batch: state}, "returns a dict, but must return two values"),
        ({"step": 3}, "must be a function, not a int"),
    ],
)
def test_what_cannot_be_met_is_refused_in_words(train, arguments, message):
    given = {"step": step, "state": start(), "data": load(train), **arguments}
    with pytest.raises(InvalidArgumentError) as caught:
        fit(**given)
    assert message in str(caught.value)


def test_a_directory_that_cannot_be_made_is_refused_in_words(train, tmp_path):
    with pytest.raises(IoError, match="cannot create the directory"):
        fit(step, start(), load(train), directory=tmp_path / ("x" * 300) / "run")


def test_a_state_without_arrays_is_a_state(tmp_path):
    for _ in range(2):
        result = fit(
            lambda state, batch: (state, batch.mean()),
            {},
            [np.ones(4)],
            directory=tmp_path / "run",
            progress="none",
        )
    assert (result.state, result.resumed_at) == ({}, 1)


def test_importing_it_loads_neither_numpy_nor_jax():
    code = (
        "import sys, vramfit.train; "
        "print({'jax', 'numpy', 'orbax', 'flax', 'optax'} & set(sys.modules))"
    )
    done = run_python("-c", code, code=0)
    assert done.stdout == "set()\n"
