"""Samples that are not rows, against their definitions in NumPy: windows, groups, ragged values."""

import json
import pickle
import random

import numpy as np
import pytest
from data_files import (
    COLUMNS,
    STORAGES,
    as_set,
    collect,
    define_windows,
    read_series,
    write_ragged,
    write_series,
)

from vramfit.data import (
    Groups,
    HDF5Source,
    Loader,
    Ragged,
    Rows,
    Windows,
)
from vramfit.errors import InvalidArgumentError


@pytest.mark.parametrize("pad", ["none", "zeros", "repeat"])
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("length", "stride"), [(4, 1), (5, 3), (3, 8), (1, 1)])
def test_t1_windows_are_those_of_each_group(tmp_path, storage, pad, length, stride):
    lengths = [17, 3, 0, 40, 12, 5, 1, 8, 30, 9, 11]
    path = write_series(tmp_path / "f.h5", lengths, STORAGES[storage])
    samples = Windows(length=length, stride=stride, pad=pad)
    options = {"samples": samples, "batch_size": 8, "memory": "256KiB"}
    obs, mask = define_windows(read_series(path, "obs"), length, stride, pad)
    action, _ = define_windows(read_series(path, "action"), length, stride, pad)
    in_order = collect(Loader(path, COLUMNS, shuffle=False, **options))
    assert np.array_equal(in_order["obs"], obs)
    assert np.array_equal(in_order["action"], action)
    assert ("mask" in in_order) is (pad != "none")
    if pad != "none":
        assert np.array_equal(in_order["mask"], mask)
    shuffled = Loader(path, COLUMNS, **options)
    epochs = [collect(shuffled, epoch) for epoch in range(2)]
    for epoch in epochs:
        assert np.array_equal(as_set(epoch["obs"]), as_set(obs))
        # Both columns are of the same rows.
        assert np.array_equal(epoch["action"], epoch["obs"][..., :2])
    assert len(obs) < 10 or not np.array_equal(epochs[0]["obs"], epochs[1]["obs"])


def test_groups_are_in_the_order_of_their_numbers(tmp_path):
    path = write_series(tmp_path / "f.h5", [1] * 12)
    rows = collect(Loader(path, "data/*/action", shuffle=False, batch_size=5))
    assert rows["data/*/action"][:, 0].tolist() == [1000 * number for number in range(12)]


def test_several_frames_of_one_column_and_several_steps_of_another(tmp_path):
    path = write_series(tmp_path / "f.h5", [9, 4, 20])
    loader = Loader(
        path,
        COLUMNS,
        samples=Windows(length={"obs": 3, "action": 5}, pad="repeat"),
        shift={"obs": -2},
        shuffle=False,
        batch_size=6,
        mask=True,
    )
    found = collect(loader)
    obs, obs_mask = define_windows(read_series(path, "obs"), 3, 1, "repeat", shift=-2)
    action, action_mask = define_windows(read_series(path, "action"), 5, 1, "repeat")
    real = slice(len(obs))
    assert np.array_equal(found["obs"][real], obs)
    assert np.array_equal(found["obs_mask"][real], obs_mask)
    assert np.array_equal(found["action"][real], action)
    assert np.array_equal(found["action_mask"][real], action_mask)
    assert not found["action_mask"][len(obs) :].any(), "padding of the batch is no real row"


def test_transitions_do_not_cross_groups(tmp_path):
    lengths = [9, 1, 20]
    path = write_series(tmp_path / "f.h5", lengths)
    loader = Loader(path, COLUMNS, shift={"next_obs": ("obs", 1)}, shuffle=False, batch_size=6)
    found = collect(loader)
    obs = read_series(path, "obs")
    assert np.array_equal(found["obs"], np.concatenate([rows[:-1] for rows in obs]))
    assert np.array_equal(found["next_obs"], np.concatenate([rows[1:] for rows in obs]))


def test_one_observation_more_than_actions(tmp_path):
    path = write_series(tmp_path / "f.h5", [9, 1, 20], extra=1)
    with pytest.raises(InvalidArgumentError, match="same number of rows") as error:
        Loader(path, COLUMNS, batch_size=6)
    assert "trim=True" in error.value.hint
    loader = Loader(
        path,
        COLUMNS,
        samples=Rows(trim=True),
        shift={"next_obs": ("obs", 1)},
        shuffle=False,
        batch_size=6,
    )
    found = collect(loader)
    obs = read_series(path, "obs")
    # No transition is lost: the last observation is the next one of the last action.
    assert np.array_equal(found["action"], np.concatenate(read_series(path, "action")))
    assert np.array_equal(found["next_obs"], np.concatenate([rows[1:] for rows in obs]))


@pytest.mark.parametrize("pad", ["zeros", "repeat"])
@pytest.mark.parametrize("storage", STORAGES)
def test_a_group_is_a_sample(tmp_path, storage, pad):
    lengths = [17, 3, 40, 12, 5]
    path = write_series(tmp_path / "f.h5", lengths, STORAGES[storage], extra=1)
    loader = Loader(path, COLUMNS, samples=Groups(pad=pad), shuffle=False, batch_size=2)
    found = collect(loader)
    for name, longest in (("obs", 41), ("action", 40)):
        series = read_series(path, name)
        expected, mask = zip(
            *(
                (window[0], real[0])
                for window, real in (define_windows([rows], longest, 99, pad) for rows in series)
            ),
            strict=True,
        )
        assert np.array_equal(found[name], np.array(expected))
        assert np.array_equal(found[f"{name}_mask"], np.array(mask))
    with pytest.raises(InvalidArgumentError, match=r"longest sample of `data/.*` has 41 rows"):
        Loader(path, COLUMNS, samples=Groups(length=10), batch_size=2)
    cut = collect(
        Loader(path, COLUMNS, samples=Groups(length=10, truncate=True), shuffle=False, batch_size=2)
    )
    assert np.array_equal(cut["action"][0], read_series(path, "action")[0][:10])


@pytest.mark.parametrize("seed", range(6))
def test_t7_samples_resume_at_random_places(tmp_path, seed):
    rng = random.Random(seed)
    lengths = [rng.randrange(60) for _ in range(30)]
    path = write_series(tmp_path / "f.h5", lengths, STORAGES[rng.choice(list(STORAGES))])
    arguments = {
        "samples": Windows(length=rng.choice([1, 4, 9]), stride=rng.choice([1, 3]), pad="repeat"),
        "seed": seed,
        "split": rng.choice([None, ("train", 0.2), ("train", 0.6, 0.2, 0.2)]),
        "memory": "512KiB",
    }

    def load(batch_size, **options):
        return Loader(path, COLUMNS, batch_size=batch_size, **{**arguments, **options})

    whole = collect(load(8), epoch=1)["obs"]
    loader = load(8)
    batches = loader.epoch(1)
    stop = rng.randrange(1, len(loader))
    before = [next(batches)["obs"].copy() for _ in range(stop)]
    state = json.dumps(loader.state())
    assert len(state) <= 1024
    world = rng.choice([1, 2])
    others = [
        load(6 * world, rank=rank, world=world, memory="1MiB").restore(state)
        for rank in range(world)
    ]
    after = []
    for parts in zip(*others, strict=True):
        for part in parts:
            after.append(part["obs"][part["mask"].any(axis=1)].copy())
    assert np.array_equal(np.concatenate([*before, *after]), whole)
    with pytest.raises(InvalidArgumentError, match="different `samples`"):
        load(8, samples=Windows(length=2)).restore(state)


def test_t12_a_source_has_the_same_samples(tmp_path):
    path = write_series(tmp_path / "f.h5", [9, 4, 20], STORAGES["gzip"])
    source = HDF5Source(path, COLUMNS, samples=Windows(length=3))
    expected, _ = define_windows(read_series(path, "obs"), 3, 1, "none")
    assert len(source) == len(expected)
    assert np.array_equal(source.read_rows(range(len(source)))["obs"], expected)
    assert np.array_equal(pickle.loads(pickle.dumps(source))[5]["obs"], expected[5])


def test_batches_are_cut_to_buckets(tmp_path):
    lengths = [3, 9, 2, 17, 1, 30, 4, 4]
    path = write_ragged(tmp_path / "f.h5", lengths)
    options = {"batch_size": 2, "shuffle": False}
    samples = Ragged("offsets", per_sample=["label"], buckets=[4, 20, 10])
    whole = list(
        Loader(path, ["tokens", "label"], samples=Ragged("offsets", per_sample="label"), **options)
    )
    cut = list(Loader(path, ["tokens", "label"], samples=samples, **options))
    assert [batch["tokens"].shape[1] for batch in cut] == [10, 20, 30, 4]
    for one, other in zip(cut, whole, strict=True):
        length = one["tokens"].shape[1]
        assert np.array_equal(one["tokens"], other["tokens"][:, :length])
        assert np.array_equal(one["mask"], other["mask"][:, :length])
        assert not other["mask"][:, length:].any()
        assert one["label"].tolist() == other["label"].tolist()
    for wrong, message in (
        ({"mask": False}, "needs the mask"),
        ({"stacked_batches": 2}, "cannot be cut"),
        ({"world": 2, "rank": 0}, "cannot be cut"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            Loader(path, "tokens", samples=Ragged("offsets", buckets=[4]), **options, **wrong)


@pytest.mark.parametrize("choice", ["split", "rows"])
@pytest.mark.parametrize("kind", ["windows", "ragged"])
def test_some_samples_in_file_order(tmp_path, kind, choice):
    """Samples that do not follow each other share fewer rows than those that do."""
    lengths = [1, 100] * 300
    path = write_ragged(tmp_path / "f.h5", lengths, {"chunks": (100,), "compression": "lzf"})
    samples = Windows(16) if kind == "windows" else Ragged("offsets")
    options = {"samples": samples, "batch_size": 8, "shuffle": False}
    whole = collect(Loader(path, "tokens", **options))["tokens"]
    if choice == "split":
        options |= {"split_by": "sample"}
        sets = [
            collect(Loader(path, "tokens", split=(name, 0.5), **options))["tokens"]
            for name in ("train", "validation")
        ]
        assert np.array_equal(as_set(np.concatenate(sets)), as_set(whole))
    else:
        rows = np.arange(0, len(whole), 7)
        found = collect(Loader(path, "tokens", rows=rows, **options))["tokens"]
        assert np.array_equal(found, whole[rows])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": "windows"}, "does not describe a sample"),
        ({"samples": Windows(length=50)}, "longest series has 20"),
        ({"samples": Windows(length={"obs": 2})}, "no length for `action`"),
        ({"samples": Windows(length={"obs": 2, "act": 3})}, "names 'act'"),
        ({"shift": {"next": ("obss", 1)}}, "refers to 'obss'"),
        ({"shift": {"next": ("obs", 1.5)}}, "must be an integer"),
        ({"samples": Groups(), "shift": {"next": ("obs", 1)}}, "neither rows nor windows"),
        ({"samples": Ragged("data/*/nothing")}, "contains no"),
        ({"rows": [1], "groups": ["demo_0"]}, "`rows` and `groups`"),
        ({"rows": [[1]]}, "selects no samples"),
        ({"rows": [-1]}, "not the number of a sample"),
        ({"rows": np.zeros(5, bool) | True}, "mask of 5 values, and there are"),
        ({"rows": [[1, 2], [3]]}, "selects no samples"),
        ({"rows": slice(0.5, 3)}, "must be an integer"),
        ({"groups": 5}, "names of groups"),
        ({"rank": "0", "world": 2}, "must be an integer"),
        ({"shift": {"action": ("obs", 1)}}, "is a column already"),
        ({"split": "train"}, "not a split"),
        ({"split": ("train", 0.5, 0.1, 0.1)}, "do not sum to 1"),
        ({"split": ("train", 0.01)}, "groups are split"),
        ({"last_batch": "padd"}, "must be one of"),
        ({"memory": None}, "`memory` is None"),
        ({"threads": "two"}, "must be an integer"),
        ({"transform": 3}, "must be a function"),
        ({"batch_size": None}, "must be an integer"),
    ],
)
def test_what_cannot_be_is_said_in_words(tmp_path, options, message):
    path = write_series(tmp_path / "f.h5", [9, 4, 20])
    options = {"batch_size": 2, "samples": Windows(length=2), **options}
    if options["samples"].__class__ is Windows and "shift" in options:
        options["samples"] = Rows()
    with pytest.raises(InvalidArgumentError, match=message):
        Loader(path, COLUMNS, **options)
    for path in (None, 3, [None]):
        with pytest.raises(InvalidArgumentError, match="`path` is"):
            Loader(path, COLUMNS, batch_size=2)
    with pytest.raises(InvalidArgumentError, match="matches `demos/\\*/obs`"):
        Loader(tmp_path / "f.h5", "demos/*/obs", batch_size=2)
    with pytest.raises(InvalidArgumentError, match="paths of datasets"):
        Loader(tmp_path / "f.h5", [3], batch_size=2)
