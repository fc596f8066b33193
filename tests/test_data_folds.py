"""Folds of a cross-validation: every sample is held out once, and no row is in two sets."""

import h5py
import numpy as np
import pytest
from data_files import COLUMNS, collect, read_resumed, write_series, write_shards
from hypothesis import given, settings
from hypothesis import strategies as st

from vramfit.data import KFold, Loader, Windows, compute_statistics
from vramfit.errors import InvalidArgumentError


def read_fold(path, columns, number, folds, *mode, **options):
    """Return the training and the validation set of a fold."""
    return [
        collect(Loader(path, columns, split=(name, KFold(folds, number), *mode), **options))
        for name in ("train", "validation")
    ]


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(2, 9), st.sampled_from(["spread", "blocks"]), st.booleans())
def test_each_sample_is_held_out_once(tmp_path_factory, data, folds, mode, shuffle):
    path = tmp_path_factory.mktemp("folds") / "f.h5"
    samples = data.draw(st.integers(folds, 150))
    listed = data.draw(st.none() | st.lists(st.integers(0, samples - 1), min_size=folds))
    rows = None if listed is None else sorted(set(listed))
    wanted = list(range(samples)) if rows is None else rows
    with h5py.File(path, "w") as f:
        f.create_dataset("y", data=np.arange(samples), chunks=(7,), maxshape=(None,))
    held_out = []
    options = {"batch_size": 8, "shuffle": shuffle, "rows": rows, "split_seed": 3}
    if len(wanted) < folds:
        with pytest.raises(InvalidArgumentError, match="cannot be divided into"):
            read_fold(path, "y", 0, folds, mode, **options)
        return
    for number in range(folds):
        train, validation = (
            part["y"] for part in read_fold(path, "y", number, folds, mode, **options)
        )
        assert sorted([*train, *validation]) == wanted
        assert len(wanted) // folds <= len(validation) <= -(-len(wanted) // folds)
        if mode == "blocks":
            first = wanted.index(min(validation))
            assert sorted(validation) == wanted[first : first + len(validation)]
        held_out.extend(validation)
    assert sorted(held_out) == wanted


def test_folds_are_spread_and_resumed(tmp_path):
    write_shards(tmp_path, [500, 500])
    sets = [read_fold(tmp_path, "y", n, 5, batch_size=32)[1]["y"] for n in range(5)]
    for rows in sets:
        # One of each five rows, at no fixed place among them.
        assert np.array_equal(np.sort(rows) // 5, np.arange(200))
        assert np.bincount(rows % 5, minlength=5).min() > 20
    split = ("train", KFold(5, 2))
    seen = read_resumed(lambda: Loader(tmp_path, "y", split=split, batch_size=32), 7)
    rows = np.concatenate([batch["y"] for batch in seen])
    assert sorted(rows) == sorted(set(range(1000)) - set(sets[2]))
    state = Loader(tmp_path, "y", split=split, batch_size=32).state()
    with pytest.raises(InvalidArgumentError, match="different `rows`, `split`"):
        Loader(tmp_path, "y", split=("train", KFold(5, 1)), batch_size=32).restore(state)
    statistics = compute_statistics(tmp_path, "y", split=split)["y"]
    assert statistics.mean[0] == pytest.approx(rows.mean())


def test_groups_stay_whole(tmp_path):
    path = write_series(tmp_path / "f.h5", [30] * 10)
    held_out = []
    for number in range(5):
        train, validation = (
            {int(rows[0, 0] // 1000) for rows in part["obs"]}
            for part in read_fold(path, COLUMNS, number, 5, samples=Windows(length=4), batch_size=8)
        )
        assert train | validation == set(range(10))
        assert not train & validation
        held_out.extend(validation)
    assert sorted(held_out) == list(range(10))


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 120), st.integers(1, 6), st.integers(1, 4), st.integers(2, 5))
def test_a_series_is_divided_into_blocks_of_time(tmp_path_factory, rows, length, stride, folds):
    path = tmp_path_factory.mktemp("series") / "f.h5"
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(rows)
    options = {"samples": Windows(length=length, stride=stride), "batch_size": 8}
    windows = {tuple(range(start, start + length)) for start in range(0, rows - length + 1, stride)}
    for number in range(folds):
        start, end = number * rows // folds, (number + 1) * rows // folds
        held = {it for it in windows if start <= it[0] and it[-1] < end}
        kept = {it for it in windows if it[-1] < start or it[0] >= end}
        if not held or not kept:
            with pytest.raises(InvalidArgumentError, match="no samples"):
                read_fold(path, "x", number, folds, **options)
            continue
        train, validation = read_fold(path, "x", number, folds, **options)
        assert {tuple(it) for it in validation["x"].tolist()} == held
        assert {tuple(it) for it in train["x"].tolist()} == kept


def test_folds_that_are_none_are_errors(tmp_path):
    write_shards(tmp_path, [20])
    for folds, fold in ((5, 5), (5, -1), (1, 0), (0, 0), (2.5, 0), (5, "0")):
        with pytest.raises(InvalidArgumentError):
            KFold(folds, fold)
    for split in (
        ("test", KFold(5, 0)),
        ("train", KFold(5, 0), "tail"),
        ("train", KFold(5, 0), 0.1),
    ):
        with pytest.raises(InvalidArgumentError):
            Loader(tmp_path, "y", split=split, batch_size=4)
