"""Samples that are drawn by weight, with replacement."""

import json

import h5py
import numpy as np
import pytest
from data_files import collect, read_resumed, write_shards
from hypothesis import given, settings
from hypothesis import strategies as st

from vramfit.data import KFold, Loader, Windows
from vramfit.errors import FileChangedError, InvalidArgumentError


def write(path, samples, **options):
    """Write samples with numbers."""
    with h5py.File(path, "w") as f:
        options = {"maxshape": (None, 2), **options} if options else {}
        f.create_dataset("x", data=np.arange(samples)[:, None] * [1, 10], **options)
        f["y"] = np.arange(samples)
    return path


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([0, 0.25, 1, 1, 3, 1e-9, 40]), min_size=1, max_size=300),
    st.integers(0, 2**64 - 1),
    st.sampled_from([{}, {"chunks": (16, 2), "compression": "gzip"}]),
    st.sampled_from(["256KiB", "16MiB"]),
)
def test_each_sample_comes_as_often_as_its_weight_says(
    tmp_path_factory, weights, seed, layout, memory
):
    path = write(tmp_path_factory.mktemp("weights") / "f.h5", len(weights), **layout)
    options = {"weights": weights, "batch_size": 8, "seed": seed, "memory": memory}
    if not any(weights):
        with pytest.raises(InvalidArgumentError, match="are all 0"):
            Loader(path, ["x", "y"], **options)
        return
    loader = Loader(path, ["x", "y"], **options)
    want = np.array(weights) / sum(weights) * len(weights)
    epochs = []
    for epoch in range(3):
        got = collect(loader, epoch)
        assert np.array_equal(got["x"], got["y"][:, None] * [1, 10])
        assert len(got["y"]) == len(weights) == loader.rows
        counts = np.bincount(got["y"], minlength=len(weights))
        # An epoch has one draw in each of as many equal parts of the sum.
        assert (np.abs(counts - want) < 2).all()
        assert not counts[np.array(weights) == 0].any()
        epochs.append(got["y"].tolist())
    again = collect(Loader(path, ["x", "y"], **options), 1)
    assert again["y"].tolist() == epochs[1]


def test_draws_are_shuffled_differ_in_each_epoch_and_are_resumed(tmp_path):
    path = write(tmp_path / "f.h5", 5000, chunks=(50, 2), compression="gzip")
    weights = np.random.default_rng(0).exponential(size=5000)

    def make(**options):
        options = {"batch_size": 64, "memory": "400KiB", "weights": weights, **options}
        return Loader(path, ["x", "y"], **options)

    seen = np.concatenate([batch["y"] for batch in read_resumed(make, 31)])
    assert seen.tolist() == collect(make())["y"].tolist()
    other = collect(make(), 1)["y"]
    assert sorted(seen) != sorted(other)
    assert abs(np.corrcoef(seen, np.arange(5000))[0, 1]) < 0.3
    # The draws do not depend on how much memory there is, nor on what a batch is.
    assert sorted(seen) == sorted(collect(make(memory="64MiB", batch_size=7))["y"])
    total = sum(np.bincount(collect(make(), epoch)["y"], minlength=5000) for epoch in range(40))
    want = weights / weights.sum() * 5000 * 40
    # A draw of an epoch varies by less than one, and epochs are independent.
    assert np.abs(total - want).max() < 6 * np.sqrt(40) / 2 + 2


def test_processes_draw_the_same_samples_together(tmp_path):
    path = write(tmp_path / "f.h5", 640)
    options = {"weights": np.arange(640), "batch_size": 32}
    parts = [
        [batch["y"].copy() for batch in Loader(path, "y", rank=rank, world=2, **options)]
        for rank in range(2)
    ]
    together = [np.concatenate(both).tolist() for both in zip(*parts, strict=True)]
    assert together == [batch["y"].tolist() for batch in Loader(path, "y", **options)]


def test_weights_of_a_dataset_of_windows_and_of_parts(tmp_path):
    write_shards(tmp_path / "shards", [40, 60])
    for path, rows in zip(sorted((tmp_path / "shards").iterdir()), (40, 60), strict=True):
        with h5py.File(path, "a") as f:
            first = f["y"][0]
            f["w"] = (np.arange(first, first + rows)[:, None] % 5 == 0).astype("f4")
    got = collect(Loader(tmp_path / "shards", "y", weights="w", batch_size=8))["y"]
    assert len(got) == 100
    assert sorted(got) == [row for row in range(0, 100, 5) for _ in range(5)]
    # Windows have a weight each.
    path = write(tmp_path / "f.h5", 30)
    windows = {"samples": Windows(length=3), "batch_size": 4}
    weights = np.zeros(28)
    weights[[3, 20]] = 1
    got = collect(Loader(path, "y", weights=weights, **windows))["y"]
    assert sorted(map(tuple, got.tolist())) == [(3, 4, 5)] * 14 + [(20, 21, 22)] * 14
    with pytest.raises(InvalidArgumentError, match="30 weights, and 28 samples"):
        Loader(path, "y", weights=np.ones(30), **windows)
    # Those of other sets do not count.
    for name in ("train", "validation"):
        split = {"split": (name, KFold(3, 1)), "batch_size": 4}
        rows = set(collect(Loader(path, "y", **split))["y"].tolist())
        chosen = max(rows)
        got = collect(Loader(path, "y", weights=np.arange(30) == chosen, **split))["y"]
        assert got.tolist() == [chosen] * len(rows)
    listed = Loader(path, "y", rows=[4, 9, 11], weights=np.arange(30) == 9, batch_size=3)
    assert collect(listed)["y"].tolist() == [9, 9, 9]


def test_a_state_is_of_its_weights(tmp_path):
    path = write(tmp_path / "f.h5", 100)
    state = Loader(path, "y", weights=np.ones(100), batch_size=4).state()
    assert len(json.dumps(state)) < 1024
    for weights in (None, np.arange(100)):
        with pytest.raises(InvalidArgumentError, match="`weights`"):
            Loader(path, "y", weights=weights, batch_size=4).restore(state)
    Loader(path, "y", weights=[1] * 100, batch_size=4).restore(state)
    write(path, 101)
    with pytest.raises((FileChangedError, InvalidArgumentError)):
        Loader(path, "y", weights=np.ones(101), batch_size=4).restore(state)


def test_weights_that_are_none_are_errors(tmp_path):
    path = write(tmp_path / "f.h5", 4)
    for weights, message in (
        ([1, np.nan, 1, 1], "sample 1 is NaN"),
        ([1, 1, -0.5, 1], "sample 2 is -0.5"),
        ([np.inf, 1, 1, 1], "sample 0 is inf"),
        ([0, 0, 0, 0], "all 0"),
        ([1e308] * 4, "infinite sum"),
        ([1, 1, 1], "3 weights, and 4 samples"),
        ([[1, 1, 1, 1]], "shape"),
        ([], "shape"),
        (["a"] * 4, "array"),
        ([1j] * 4, "array"),
        ("x", "rows of shape"),
        ("none", "none"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            Loader(path, "y", weights=weights, batch_size=2)
    with pytest.raises(InvalidArgumentError, match="shuffle"):
        Loader(path, "y", weights=[1] * 4, shuffle=False, batch_size=2)
