"""Evaluations of `vramfit.train.fit`: when they are made, which is the best, more than means."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_train_fit import events
from training import evaluate, load, same, start, step

from vramfit.errors import InvalidArgumentError
from vramfit.train import (
    Checkpoints,
    ConfusionMatrix,
    Evaluation,
    RocAuc,
    confusion_counts,
    fit,
    score_histogram,
)


def by_steps(values, metric="loss"):
    """Return an evaluation that has a value for each number of steps, the last one from then on."""
    table = jnp.array(values)

    def judge(state, batch):
        index = jnp.minimum(state["steps"], len(values) - 1)
        return {"loss": 1.0 + 0 * batch["y"][0], metric: table[index] + 0 * batch["y"][0]}

    return judge


def run(train, judge, **options):
    return fit(
        step,
        start(),
        load(train),
        eval_step=judge,
        eval_data=load(train, split=("validation", 0.1), mask=True),
        **{"progress": "none", **options},
    )


def test_evaluations_are_at_multiples_and_at_the_end(train, tmp_path):
    result = run(train, evaluate, epochs=2, eval_every=12, directory=tmp_path / "run")
    found = [(it.step, it.epoch, it.scheduled) for it in result.evaluations]
    assert found == [
        *[(12, 1, True), (24, 1, True), (36, 2, True), (48, 2, True), (60, 2, True)],
        (64, 2, False),
    ]
    lines = events(tmp_path / "run", "evaluation")
    assert [(line["step"], line["metrics"]) for line in lines] == [
        (it.step, it.metrics) for it in result.evaluations
    ]
    assert result.epochs[0].validation == result.evaluations[1].metrics
    assert result.epochs[1].validation == result.evaluations[5].metrics
    assert same(result.state, fit(step, start(), load(train), epochs=2).state)


def test_evaluations_are_behind_the_dispatch_that_passes_a_multiple(train):
    result = fit(
        step,
        start(),
        load(train, stacked_batches=5),
        eval_step=evaluate,
        eval_data=load(train, split=("validation", 0.1), mask=True),
        eval_every=8,
        steps_per_dispatch=5,
        progress="none",
    )
    assert [it.step for it in result.evaluations] == [10, 20, 25, 32]


def test_an_evaluation_is_not_repeated_by_a_resume(train, tmp_path):
    counted = []

    def judge(state, batch):
        jax.debug.callback(lambda n: counted.append(int(n)), state["steps"])
        return evaluate(state, batch)

    options = {"eval_every": 10, "directory": tmp_path / "run"}
    first = run(train, judge, steps=20, **options)
    second = run(train, judge, steps=20, **options)
    assert second.evaluations == first.evaluations
    third = run(train, judge, steps=45, **options)
    jax.effects_barrier()
    assert [it.step for it in third.evaluations] == [10, 20, 30, 40, 45]
    batches = len(load(train, split=("validation", 0.1)))
    assert counted == [number for number in (10, 20, 30, 40, 45) for _ in range(batches)]
    # A fourth session goes past the evaluation that only the end of the third has made.
    fourth = run(train, judge, steps=50, **options)
    assert [(it.step, it.scheduled) for it in fourth.evaluations][-2:] == [(45, False), (50, True)]


def test_the_best_is_that_of_any_metric_and_its_state_is_there(train, tmp_path):
    accuracy = [0.0] * 10 + [0.5] * 10 + [0.9] * 10 + [float("nan")] * 10 + [0.7]
    judge = by_steps(accuracy, "accuracy")
    options = {
        "eval_every": 10,
        "steps": 50,
        "best_by": "max accuracy",
        "directory": tmp_path / "run",
        "checkpoints": Checkpoints(keep_last=1),
    }
    result = run(train, judge, **options)
    assert [it.best for it in result.evaluations] == [True, True, False, False, False]
    assert result.best_step == 20
    assert result.best == Evaluation(20, 1, {"loss": 1.0, "accuracy": jnp.float32(0.9)}, True)
    kept = sorted(int(path.name) for path in (tmp_path / "run/checkpoints").iterdir())
    assert kept == [20, 50]
    assert same(result.best_state, fit(step, start(), load(train), steps=20).state)
    assert sorted(int(path.name) for path in (tmp_path / "run/checkpoints").iterdir()) == kept
    assert "Best Val Accuracy:  0.900000 (step 20)" in str(result)
    # The last one is at hand.
    last = run(train, judge, eval_every=10, steps=20, best_by="max accuracy")
    assert last.best_state is last.state
    # Another session may see it differently.
    other = run(train, judge, **{**options, "best_by": "min accuracy", "steps": 60})
    assert other.best_step == 10
    with pytest.raises(InvalidArgumentError, match="no checkpoint of step 10"):
        _ = other.best_state


def test_a_best_state_that_is_not_there_says_why(train, tmp_path):
    judge = by_steps([0.0] * 11 + [2.0])
    result = run(train, judge, eval_every=10, steps=30)
    assert result.best_step == 10
    with pytest.raises(InvalidArgumentError, match="pass `directory` to `fit`"):
        _ = result.best_state
    none = run(train, by_steps([float("nan")] * 2), stop_on_nan=False)
    assert (none.best, none.best_step) == (None, None)
    with pytest.raises(InvalidArgumentError, match="no evaluation has a finite metric"):
        _ = none.best_state


def test_a_metric_that_is_not_there_is_an_error(train):
    with pytest.raises(InvalidArgumentError, match="has only `loss`"):
        run(train, evaluate, best_by="max accuracy")


@pytest.mark.parametrize("text", ["loss", "most loss", "min", "max ", 3])
def test_other_criteria_are_refused(train, text):
    with pytest.raises(InvalidArgumentError, match="unknown value `best_by="):
        run(train, evaluate, best_by=text)


def test_patience_counts_evaluations_and_a_run_in_parts_ends_as_one(train, tmp_path):
    # The best of the scheduled ones is at 20; 25, where the second session begins, is better.
    values = [9.0] * 11 + [5.0] * 10 + [9.0] * 4 + [1.0] + [6.0]
    judge = by_steps(values)
    options = {"eval_every": 10, "stop_after": 3}
    whole = run(train, judge, steps=500, **options)
    assert (whole.stop_reason, whole.steps) == ("early", 50)
    assert [epoch.complete for epoch in whole.epochs] == [True, False]
    options["directory"] = tmp_path / "run"
    part = run(train, judge, steps=25, **options)
    assert (part.stop_reason, part.best_step) == ("finished", 25)
    rest = run(train, judge, steps=500, **options)
    assert (rest.stop_reason, rest.steps, rest.best_step) == ("early", 50, 25)
    assert same(rest.state, whole.state)
    again = run(train, judge, steps=500, **options)
    assert (again.stop_reason, again.steps) == ("early", 50)


def test_one_loader_cannot_be_read_twice_within_an_epoch(train):
    loader = load(train)
    for options in ({"eval_every": 3}, {"steps": 3}):
        with pytest.raises(InvalidArgumentError, match="only one position"):
            fit(step, start(), loader, eval_step=evaluate, eval_data=loader, **options)

    def judge(event, control):
        control.evaluate(data=loader)

    options = {"eval_step": evaluate, "eval_data": load(train), "progress": "none"}
    with pytest.raises(InvalidArgumentError, match="create a second `Loader`"):
        fit(step, start(), loader, callbacks=[judge], **options)


def test_a_checkpoint_of_the_version_before_is_restored(train, tmp_path):
    run_directory = tmp_path / "run"
    whole = run(train, evaluate, epochs=4)
    run(train, evaluate, epochs=2, directory=run_directory)
    path = run_directory / "checkpoints/64/run_metadata/metadata"
    content = json.loads(path.read_text())
    metadata = content["metadata"]
    del metadata["callbacks"]
    progress = metadata["progress"]
    for name in ("evaluations", "evaluated_step", "log_windows"):
        del progress[name]
    for epoch in progress["epochs"]:
        del epoch["complete"], epoch["timing"]["callbacks"]
    progress["best_loss"] = min(epoch["validation"]["loss"] for epoch in progress["epochs"])
    progress["epochs_without_improvement"] = 0
    from vramfit.train.checkpoint.manager import _sha256

    content["sha256"] = _sha256(metadata)
    path.write_text(json.dumps(content))
    result = run(train, evaluate, epochs=4, directory=run_directory)
    assert (result.resumed_at, result.notes) == (64, ())
    assert same(result.state, whole.state)
    assert result.evaluations == whole.evaluations
    assert result.best == whole.best


CLASSES = 3


def classify(state, batch):
    """Return counts for numbers that are rounded to classes, with a score of the second half."""
    labels = jnp.clip(jnp.round(batch["y"]), 0, CLASSES - 1).astype(jnp.int32)
    predicted = jnp.clip(jnp.round(batch["x"][:, 3] * 4), 0, CLASSES - 1).astype(jnp.int32)
    score = jax.nn.sigmoid(batch["x"][:, 0])
    return {
        "loss": 0.0 * batch["y"][0],
        "confusion": confusion_counts(labels, predicted, CLASSES, batch["mask"]),
        "auc": score_histogram(score, batch["y"] > 0, mask=batch["mask"]),
    }


def test_accumulators_see_all_rows_and_no_padding(train):
    result = fit(
        step,
        start(),
        load(train, split=("train", 0.3)),
        eval_step=classify,
        eval_data=load(train, split=("validation", 0.3), mask=True, batch_size=48),
        accumulators={"confusion": ConfusionMatrix(), "auc": RocAuc()},
        best_by="max confusion_f1",
        progress="none",
    )
    rows = next(iter(load(train, split=("validation", 0.3), shuffle=False, batch_size=301)))
    x, y = np.asarray(rows["x"]), np.asarray(rows["y"])
    assert len(y) % 48, "the last batch is padded"
    labels = np.clip(np.round(y), 0, 2).astype(int)
    predicted = np.clip(np.round(x[:, 3] * 4), 0, 2).astype(int)
    metrics = result.best.metrics
    assert metrics["confusion_accuracy"] == pytest.approx((labels == predicted).mean())
    shares = []
    for number in range(CLASSES):
        both = ((labels == number) & (predicted == number)).sum()
        precision, recall = both / (predicted == number).sum(), both / (labels == number).sum()
        shares.append((precision, recall, 2 * precision * recall / (precision + recall)))
    wanted = np.mean(shares, axis=0)
    found = [metrics[f"confusion_{name}"] for name in ("precision", "recall", "f1")]
    assert found == pytest.approx(wanted)
    scores, positive = 1 / (1 + np.exp(-x[:, 0])), y > 0
    differences = scores[positive][:, None] - scores[~positive][None]
    assert metrics["auc"] == pytest.approx((differences > 0).mean(), abs=1e-3)
    assert set(metrics) == {
        "loss",
        "auc",
        *(f"confusion_{name}" for name in ("accuracy", "precision", "recall", "f1")),
    }


def test_classes_that_are_nowhere_do_not_count():
    counts = np.asarray(
        confusion_counts(jnp.array([0, 0, 2, -1, 5]), jnp.array([0, 2, 2, 1, 1]), 4)
    )
    assert counts.sum() == 3
    computed = ConfusionMatrix().compute(counts.astype(np.int64))
    assert computed["recall"] == pytest.approx((1 / 2 + 1) / 2)
    assert computed["precision"] == pytest.approx((1 + 1 / 2) / 2)
    assert np.isnan(ConfusionMatrix().compute(np.zeros((4, 4), int))["f1"])


def test_equal_scores_are_half_right_and_one_class_has_no_area():
    counts = score_histogram(jnp.array([0.5, 0.5, 2.0, -1.0]), jnp.array([0, 1, 1, 0]), bins=10)
    assert RocAuc().compute(np.asarray(counts)) == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert np.isnan(RocAuc().compute(np.array([[0, 0], [1, 2]])))


def test_counts_are_merged_in_64_bits(train):
    class Sum:
        def merge(self, total, value):
            assert value.dtype == np.int64
            return value if total is None else total + value

        def compute(self, total):
            return float(total[0])

    def large(state, batch):
        return {"loss": 0.0 * batch["y"][0], "large": jnp.full(1, 2**31 - 1, jnp.int32)}

    result = run(train, large, accumulators={"large": Sum()})
    batches = len(load(train, split=("validation", 0.1)))
    assert result.best.metrics["large"] == batches * (2**31 - 1)


@pytest.mark.parametrize(
    ("judge", "accumulators", "message"),
    [
        (classify, None, "accumulators={'auc': ...}"),
        (classify, {"confusion": ConfusionMatrix()}, "accumulators={'auc': ...}"),
        (evaluate, {"f1": ConfusionMatrix()}, "an accumulator for `f1`, but `eval_step` returns"),
        (
            lambda s, b: {**classify(s, b), "confusion_f1": b["y"][0]},
            {"confusion": ConfusionMatrix(), "auc": RocAuc()},
            "computes `confusion_f1`, which is a metric of `eval_step`",
        ),
        (
            classify,
            {"confusion": RocAuc(), "auc": RocAuc()},
            "cannot be those of `score_histogram`",
        ),
        (classify, {"confusion": ConfusionMatrix(), "auc": ConfusionMatrix()}, "have the shape"),
    ],
)
def test_accumulators_that_do_not_fit_are_refused(train, judge, accumulators, message):
    with pytest.raises(InvalidArgumentError) as caught:
        run(train, judge, accumulators=accumulators)
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [{"eval_every": 3}, {"accumulators": {"f1": RocAuc()}}])
def test_options_of_an_evaluation_need_one(train, options):
    with pytest.raises(InvalidArgumentError, match="there is no evaluation"):
        fit(step, start(), load(train), **options)


def test_programs_for_shapes_of_batches_are_counted(train):
    batches = [{name: part.copy() for name, part in batch.items()} for batch in load(train)]
    shapes = [{name: part[:rows] for name, part in batches[0].items()} for rows in range(1, 6)]
    result = fit(step, start(), shapes, eval_step=evaluate, eval_data=shapes[:2], progress="none")
    assert (result.programs, result.batch_shapes) == (7, 7)
    assert 0 < result.programs_seconds <= result.timing.compile
    text = " ".join(str(result).split())
    assert "Compilation: 7 programs were compiled for 7 shapes of batches: " in text
    usual = fit(step, start(), batches, eval_step=evaluate, eval_data=batches, progress="none")
    assert usual.programs == 2
    assert "Compilation:" not in str(usual)


def test_evaluations_by_steps_are_printed(train, capfd):
    run(train, evaluate, eval_every=20, progress="plain")
    err = capfd.readouterr().err
    assert "step 20: val loss " in err
    assert "(best)" in err
