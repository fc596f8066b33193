"""Callbacks of `vramfit.train.fit`: what they are told, what they may do, and that runs resume."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_train_fit import events
from training import error, evaluate, load, same, start, step

from vramfit.errors import InvalidArgumentError
from vramfit.train import (
    Checkpoints,
    CheckpointSaved,
    EpochEnd,
    Evaluation,
    LogPoint,
    RunEnd,
    RunStart,
    fit,
)

OPTIMIZER = optax.inject_hyperparams(optax.adam)(learning_rate=0.003)


def begin(optimizer=OPTIMIZER):
    weights = jnp.zeros(4)
    return {"w": weights, "optimizer": optimizer.init(weights)}


def step_by(optimizer):
    def step(state, batch):
        loss, slope = jax.value_and_grad(lambda w: error(w, batch).mean())(state["w"])
        updates, optimizer_state = optimizer.update(slope, state["optimizer"])
        rate = optimizer_state.hyperparams["learning_rate"]
        new = {"w": state["w"] + updates, "optimizer": optimizer_state}
        return new, {"loss": loss, "learning_rate": rate}

    return step


adam_step = step_by(OPTIMIZER)


def listed(data, **options):
    return [{name: part.copy() for name, part in batch.items()} for batch in load(data, **options)]


class Recorder:
    """Remembers what it is told."""

    def __init__(self):
        self.events = []

    def __call__(self, event, run):
        self.events.append((event, run.step, run.epoch))

    def of(self, kind):
        return [event for event, _, _ in self.events if isinstance(event, kind)]


@pytest.mark.fast
def test_events_come_in_order_with_the_numbers_of_the_log(train, tmp_path):
    seen = Recorder()
    run = tmp_path / "run"
    result = fit(
        step,
        start(),
        load(train),
        eval_step=evaluate,
        eval_data=load(train, split=("validation", 0.1), mask=True),
        epochs=2,
        log_every=10,
        directory=run,
        checkpoints=Checkpoints(every_steps=25),
        progress="none",
        callbacks=[seen],
    )
    kinds = [type(event) for event, _, _ in seen.events]
    assert kinds == [
        RunStart,
        *[LogPoint, CheckpointSaved, LogPoint, LogPoint, LogPoint, Evaluation, EpochEnd],
        CheckpointSaved,
        *[LogPoint, CheckpointSaved, LogPoint, LogPoint, LogPoint, Evaluation, EpochEnd],
        *[CheckpointSaved, RunEnd],
    ]
    lines = events(run, "steps")
    points = seen.of(LogPoint)
    assert [(point.step, point.epoch) for point in points] == [
        *[(10, 1), (20, 1), (30, 1), (32, 1)],
        *[(42, 2), (52, 2), (62, 2), (64, 2)],
    ]
    assert [line["step"] for line in lines] == [point.step for point in points]
    assert [line["loss"] for line in lines] == [point.metrics["loss"] for point in points]
    # They are delivered at the next one, whose values are not read yet, or at the epoch's end.
    at = [now for event, now, _ in seen.events if isinstance(event, LogPoint)]
    assert at == [20, 30, 32, 32, 52, 62, 64, 64]
    assert seen.of(Evaluation) == list(result.evaluations)
    assert [end.epoch.number for end in seen.of(EpochEnd)] == [1, 2]
    assert [epoch for _, _, epoch in seen.events] == [1] * 9 + [2] * 9
    assert seen.events[-1][0] == RunEnd("finished", 64)


def test_log_points_have_the_means_of_their_steps_wherever_a_checkpoint_is(train, tmp_path):
    runs = []
    for policy in (None, Checkpoints(every_steps=3), Checkpoints(every_steps=7)):
        seen = Recorder()
        directory = tmp_path / str(policy and policy.every_steps)
        options = {"directory": directory, "checkpoints": policy, "progress": "none"}
        fit(step, start(), load(train), epochs=2, log_every=5, callbacks=[seen], **options)
        runs.append([found for found in seen.events if isinstance(found[0], LogPoint)])
    assert runs[0] == runs[1] == runs[2]


class Plateau:
    """Halves the learning rate when the loss has not improved by a tenth."""

    def __init__(self):
        self.best = None
        self.changes = 0

    def __call__(self, event, run):
        if not isinstance(event, LogPoint):
            return
        loss = event.metrics["loss"]
        if self.best is not None and loss > 0.9 * self.best:
            run.learning_rate = run.learning_rate / 2
            self.changes += 1
        self.best = loss if self.best is None else min(self.best, loss)

    def save_state(self):
        return {"best": self.best, "changes": self.changes}

    def restore_state(self, values):
        self.best, self.changes = values["best"], values["changes"]


class StopAt:
    """Stops the run some time after its log point."""

    name = "stop at"

    def __init__(self, number):
        self.number, self.count = number, 0

    def __call__(self, event, run):
        self.count += isinstance(event, LogPoint)
        if self.count == self.number:
            run.stop(f"log point {self.count}")

    def save_state(self):
        return self.count

    def restore_state(self, count):
        self.count = count


class Killed(Exception):
    """What ends a run at a step."""


class KillAt:
    """Batches that end with an error after some of them, once."""

    def __init__(self, batches, after):
        self.batches, self.after = batches, after

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for batch in self.batches:
            if self.after == 0:
                raise Killed
            self.after -= 1
            yield batch


@pytest.mark.parametrize("every", [1, 4, 7])
def test_t7_a_run_whose_callbacks_change_it_resumes_bit_by_bit(train, tmp_path, every):
    batches = listed(train)

    def go(data, directory=None):
        return fit(
            adam_step,
            begin(),
            data,
            eval_step=evaluate,
            eval_data=batches[:3],
            eval_every=11,
            epochs=4,
            log_every=5,
            directory=directory,
            checkpoints=Checkpoints(every_steps=every),
            progress="none",
            callbacks=[plateau := Plateau(), StopAt(17)],
        ), plateau

    whole, plateau = go(batches)
    assert (whole.stop_reason, whole.stop_message) == ("callback", "log point 17")
    assert 64 < whole.steps < 128
    assert plateau.changes > 2
    run, kills = tmp_path / "run", 0
    for after in (13, 9, 20, 6, 31, 11, 2, 25):
        try:
            result, plateau_again = go(KillAt(batches, after), run)
            break
        except Killed:
            kills += 1
    else:
        result, plateau_again = go(batches, run)
    assert kills >= 3
    assert (result.stop_reason, result.steps) == ("callback", whole.steps)
    assert same(result.state, whole.state)
    assert plateau_again.save_state() == plateau.save_state()
    assert result.evaluations == whole.evaluations
    assert [epoch.train for epoch in result.epochs] == [epoch.train for epoch in whole.epochs]
    steps = [line["step"] for line in events(run, "steps")]
    assert steps == sorted(set(steps)), "each log point is told once"
    # A run that a callback has stopped continues, and is the one that was not stopped.
    longer = fit(
        adam_step,
        begin(),
        batches,
        eval_step=evaluate,
        eval_data=batches[:3],
        eval_every=11,
        epochs=4,
        log_every=5,
        directory=run,
        progress="none",
        callbacks=[Plateau(), StopAt(1000)],
    )
    never = fit(
        adam_step,
        begin(),
        batches,
        epochs=4,
        log_every=5,
        progress="none",
        callbacks=[Plateau(), StopAt(1000)],
    )
    assert same(longer.state, never.state)


@pytest.mark.parametrize("total", [7, 32, 45, 64, 100])
def test_a_budget_of_steps_that_grows_is_one_long_run(train, tmp_path, total):
    batches = listed(train)

    def go(steps, directory=None):
        return fit(
            adam_step,
            begin(),
            batches,
            steps=steps,
            log_every=5,
            directory=directory,
            progress="none",
            callbacks=[Plateau()],
        )

    part = go(total, tmp_path / "run")
    assert (part.stop_reason, part.steps) == ("finished", total)
    whole_epochs, rest = divmod(total, 32)
    assert [epoch.complete for epoch in part.epochs] == [True] * whole_epochs + [False] * (rest > 0)
    assert [epoch.steps for epoch in part.epochs] == [32] * whole_epochs + [rest] * (rest > 0)
    assert ("steps are finished" in str(part)) is (rest > 0)
    both = go(120, tmp_path / "run")
    whole = go(120)
    assert both.resumed_at == total
    assert same(both.state, whole.state)
    assert [epoch.train for epoch in both.epochs] == [epoch.train for epoch in whole.epochs]
    # The line of what was left at the end of the first session is replaced.
    assert [line["step"] for line in events(tmp_path / "run", "steps")] == [
        *[5, 10, 15, 20, 25, 30, 32, 37, 42, 47, 52, 57, 62, 64],
        *[69, 74, 79, 84, 89, 94, 96, 101, 106, 111, 116, 120],
    ]


def test_without_epochs_or_steps_there_is_one_epoch_and_both_limit_a_run(train):
    assert fit(step, start(), load(train), progress="none").steps == 32
    assert fit(step, start(), load(train), steps=70, epochs=2, progress="none").steps == 64
    assert fit(step, start(), load(train), steps=40, epochs=2, progress="none").steps == 40


def test_a_budget_ends_behind_the_dispatch_that_reaches_it(train):
    options = {"steps_per_dispatch": 5, "progress": "none"}
    result = fit(step, start(), load(train, stacked_batches=5), steps=8, **options)
    assert result.steps == 10


def test_the_state_can_be_replaced(train):
    averages = []

    def average(event, run):
        if isinstance(event, EpochEnd):
            # The same array twice, which cannot be donated twice.
            run.state = {**run.state, "w": np.ones(4, "f4"), "momentum": jnp.zeros(4)}
        if isinstance(event, RunStart):
            state = run.state
            run.state = {**state, "momentum": state["w"]}
            averages.append(run.state["w"] is run.state["momentum"])

    result = fit(step, start(), load(train), progress="none", callbacks=[average])
    assert averages == [False]
    assert np.asarray(result.state["w"]).tolist() == [1, 1, 1, 1]
    assert int(result.state["steps"]) == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {"w": s["w"]}, "`state['momentum']`, `state['steps']`"),
        (lambda s: {**s, "w": s["w"][:2]}, "has float32[2] as `state['w']`, which is float32[4]"),
        (lambda s: {**s, "steps": 1.5}, "has float32[] as `state['steps']`, which is int32[]"),
    ],
)
def test_another_kind_of_state_is_refused(train, change, message):
    def assign(event, run):
        run.state = change(run.state)

    with pytest.raises(InvalidArgumentError) as caught:
        fit(step, start(), load(train), progress="none", callbacks=[assign])
    assert message in str(caught.value)


@pytest.mark.parametrize("jitted", [False, True])
def test_another_learning_rate_compiles_nothing(train, jitted):
    rates = []

    def lower(event, run):
        if isinstance(event, LogPoint):
            run.learning_rate = 0.5 * run.learning_rate
            rates.append(run.learning_rate)

    traced = []

    def counted(state, batch):
        traced.append(1)
        return adam_step(state, batch)

    weak = {
        **begin(),
        "optimizer": begin()["optimizer"]._replace(
            hyperparams={**begin()["optimizer"].hyperparams, "learning_rate": jnp.asarray(0.003)}
        ),
    }
    assert weak["optimizer"].hyperparams["learning_rate"].weak_type
    result = fit(
        jax.jit(counted) if jitted else counted,
        weak,
        load(train),
        log_every=8,
        progress="none",
        callbacks=[lower],
    )
    assert np.allclose(rates, [0.003 * 0.5**n for n in range(1, 5)])
    assert result.programs == 1
    assert len(traced) <= 2  # a function that is jitted already is traced for its first call, too
    # That of the last step: the last two log points come at the end of the epoch.
    assert result.epochs[0].train["learning_rate"] == pytest.approx(0.003 * 0.5**2)
    assert result.state["optimizer"].hyperparams["learning_rate"] == pytest.approx(0.003 * 0.5**4)


def test_the_learning_rate_is_found_in_modules_of_flax(train):
    from flax import nnx

    model = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def train_step(state, batch):
        model, optimizer = nnx.merge(graph, state, copy=True)
        loss, slopes = nnx.value_and_grad(
            lambda m: ((m(batch["x"])[:, 0] - batch["y"]) ** 2).mean()
        )(model)
        optimizer.update(model, slopes)
        return nnx.state((model, optimizer)), loss

    rates = []

    def change(event, run):
        if isinstance(event, RunStart):
            rates.append(run.learning_rate)
            run.learning_rate = 0.25
            rates.append(run.learning_rate)

    result = fit(train_step, state, load(train), progress="none", callbacks=[change])
    assert rates == [pytest.approx(0.003), 0.25]
    assert result.steps == 32


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (start(), "no learning rate that can be read or changed"),
        (
            {"a": begin()["optimizer"], "b": begin()["optimizer"]},
            "2 learning rates: `a/hyperparams/learning_rate`, `b/hyperparams/learning_rate`",
        ),
        (
            begin(
                optax.inject_hyperparams(optax.adam)(
                    learning_rate=optax.cosine_decay_schedule(0.1, 10)
                )
            ),
            "is that of a schedule",
        ),
    ],
)
def test_a_learning_rate_that_cannot_be_changed_is_an_error(train, state, message):
    def change(event, run):
        run.learning_rate = 0.1

    with pytest.raises(InvalidArgumentError, match=message):
        fit(
            lambda s, b: (s, 0.0 * b["y"][0]),
            state,
            load(train),
            progress="none",
            callbacks=[change],
        )


def test_a_callback_evaluates_what_it_wants(train):
    validation = load(train, split=("validation", 0.1), mask=True)
    found = []

    def judge(event, run):
        if isinstance(event, EpochEnd):
            zeros = {**run.state, "w": jnp.zeros(4)}
            found.append((run.evaluate(), run.evaluate(zeros), run.evaluate(data=other)))

    other = listed(train)[:2]
    result = fit(
        step,
        start(),
        load(train, split=("train", 0.1)),
        eval_step=evaluate,
        eval_data=validation,
        epochs=2,
        progress="none",
        callbacks=[judge],
    )
    assert [own for own, _, _ in found] == [epoch.validation for epoch in result.epochs]
    rows = next(iter(load(train, batch_size=100, shuffle=False, split=("validation", 0.1))))
    wanted = float(evaluate({"w": jnp.zeros(4)}, rows)["loss"])
    assert found[0][1]["loss"] == found[1][1]["loss"] == pytest.approx(wanted, rel=1e-5)
    wanted = np.mean([float(evaluate(result.state, batch)["loss"]) for batch in other])
    assert found[1][2]["loss"] == pytest.approx(wanted)
    assert len(result.evaluations) == 2


def test_an_exception_of_a_callback_names_it_and_leaves_earlier_checkpoints(train, tmp_path):
    class Broken:
        closed = False

        def __call__(self, event, run):
            if run.step == 20 and isinstance(event, LogPoint):
                raise ZeroDivisionError("here")

        def close(self):
            self.closed = True

    broken = Broken()
    options = {
        "log_every": 5,
        "directory": tmp_path / "run",
        "checkpoints": Checkpoints(every_steps=6),
        "progress": "none",
    }
    with pytest.raises(ZeroDivisionError) as caught:
        fit(step, start(), load(train), callbacks=[broken], **options)
    assert caught.value.__notes__ == ["raised by the callback `Broken` on LogPoint at step 20"]
    assert broken.closed
    result = fit(step, start(), load(train), **options)
    assert result.resumed_at == 18


def test_state_of_callbacks_is_noted_where_it_is_missing(train, tmp_path):
    def plain(event, run):
        pass

    run = tmp_path / "run"
    options = {"directory": run, "progress": "none"}
    fit(step, start(), load(train), callbacks=[StopAt(9), plain], **options)
    result = fit(step, start(), load(train), epochs=2, callbacks=[Plateau(), plain], **options)
    assert result.notes == (
        "callbacks start anew at step 32: `Plateau` is not in the checkpoint, `plain` has no "
        "`save_state`",
        "callbacks of the checkpoint of step 32 are not restored: `stop at` is no longer there",
    )
    saved = json.loads((run / "checkpoints/64/run_metadata/metadata").read_text())["metadata"]
    assert list(saved["callbacks"]) == ["Plateau"]


def test_a_callback_without_state_can_say_so(train, tmp_path):
    options = {"directory": tmp_path / "run", "progress": "none"}
    fit(step, start(), load(train), **options)
    result = fit(step, start(), load(train), epochs=2, tensorboard=True, **options)
    assert result.notes == ()
    assert fit(step, start(), load(train), epochs=3, **options).notes == ()


class Unsized:
    """Batches whose number is not known, or is said to be another one."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


class Undersized(Unsized):
    def __len__(self):
        return 16


def test_a_budget_is_kept_where_the_length_of_the_data_is_wrong(train):
    result = fit(step, start(), Undersized(listed(train)), steps=20, progress="none")
    assert (result.steps, int(result.state["steps"])) == (20, 20)


def test_a_budget_at_the_end_of_an_epoch_of_unknown_length(train, tmp_path):
    batches = Unsized(listed(train))

    def go(steps, directory=None):
        return fit(
            step,
            start(),
            batches,
            eval_step=evaluate,
            eval_data=batches.batches[:2],
            steps=steps,
            directory=directory,
            progress="none",
        )

    part = go(32, tmp_path / "run")
    assert [(epoch.steps, epoch.complete) for epoch in part.epochs] == [(32, False)]
    assert [(it.step, it.scheduled) for it in part.evaluations] == [(32, False)]
    both, whole = go(70, tmp_path / "run"), go(70)
    assert same(both.state, whole.state)
    # The evaluation at the end of the first session becomes that of the epoch.
    assert both.evaluations == whole.evaluations
    assert [it.step for it in both.evaluations] == [32, 64, 70]
    assert [epoch.validation for epoch in both.epochs] == [
        epoch.validation for epoch in whole.epochs
    ]


def test_two_callbacks_of_a_class_have_their_own_state(train, tmp_path):
    options = {"directory": tmp_path / "run", "progress": "none", "log_every": 8}
    fit(step, start(), load(train), steps=24, callbacks=[StopAt(3), StopAt(99)], **options)
    second = [StopAt(5), StopAt(99)]
    fit(step, start(), load(train), epochs=1, callbacks=second, **options)
    assert [callback.count for callback in second] == [4, 4]


def test_a_state_that_json_does_not_have_is_an_error(train, tmp_path):
    class Odd(StopAt):
        def save_state(self):
            return {"when": np.float32(1)}

    with pytest.raises(InvalidArgumentError, match="the callback `stop at` cannot be saved"):
        fit(
            step,
            start(),
            load(train),
            directory=tmp_path / "run",
            callbacks=[Odd(9)],
            progress="none",
        )


def test_a_checkpoint_on_request(train, tmp_path):
    def save(event, run):
        if isinstance(event, LogPoint) and event.step == 10:
            run.save_checkpoint()

    seen = Recorder()
    options = {"log_every": 5, "progress": "none", "callbacks": [save, seen]}
    fit(step, start(), load(train), directory=tmp_path / "run", **options)
    assert [event.step for event in seen.of(CheckpointSaved)] == [15, 32]
    with pytest.raises(InvalidArgumentError, match="has no checkpoints"):
        fit(step, start(), load(train), **options)


@pytest.mark.parametrize("kind", [RunStart, EpochEnd, Evaluation])
def test_a_run_stops_wherever_it_is_asked_to(train, tmp_path, kind):
    def stop(event, run):
        if isinstance(event, kind):
            run.stop("enough of it")

    options = {
        "eval_step": evaluate,
        "eval_data": load(train, mask=True),
        "directory": tmp_path / "run",
        "epochs": 3,
        "progress": "none",
    }
    result = fit(step, start(), load(train), callbacks=[stop], **options)
    assert (result.stop_reason, result.steps) == ("callback", 0 if kind is RunStart else 32)
    assert "  Reason:         enough of it" in str(result).splitlines()
    rest = fit(step, start(), load(train), **options)
    whole = fit(step, start(), load(train), epochs=3, progress="none")
    assert same(rest.state, whole.state)


def test_what_cannot_be_called_is_refused(train):
    with pytest.raises(InvalidArgumentError, match="`callbacks` has a str"):
        fit(step, start(), load(train), callbacks=["print"])


def test_notes_of_callbacks_are_in_the_report(train, capfd):
    def tell(event, run):
        if isinstance(event, RunStart):
            run.note("a sentence")

    result = fit(step, start(), load(train), callbacks=[tell], progress="plain")
    assert result.notes == ("a sentence",)
    assert capfd.readouterr().err.count("note: a sentence") == 2
