"""Rows and batches of HDF5 files in pipelines of Grain."""

import json
import os
import pickle

import grain
import h5py
import numpy as np
import pytest
from absl import flags
from commands import run_python

from vramfit.data import HDF5IterDataset, HDF5Source, Loader
from vramfit.errors import FileChangedError, InvalidArgumentError

ROWS = 1000
COLUMNS = {"x": "x", "flat": "flat", "label": "points[label]", "where": "points[where]"}


@pytest.fixture(name="file")
def mixed_file(tmp_path):
    random = np.random.default_rng(0)
    points = np.zeros(ROWS, [("label", "<i8"), ("where", "<f4", (3,))])
    points["label"] = np.arange(ROWS)
    points["where"] = random.random((ROWS, 3))
    with h5py.File(tmp_path / "train.h5", "w") as file:
        packed = {"compression": "gzip", "shuffle": True}
        x = random.normal(size=(ROWS, 4, 5))
        file.create_dataset("x", data=x, chunks=(64, 4, 3), **packed)
        file["flat"] = random.integers(0, 255, (ROWS, 7), "u1")
        file.create_dataset("points", data=points, chunks=(100,), **packed)
    return tmp_path / "train.h5"


@pytest.fixture(name="workers")
def two_workers():
    # A program of absl has its flags parsed by `app.run`; Grain's worker processes need that.
    flags.FLAGS.mark_as_parsed()
    return grain.MultiprocessingOptions(num_workers=2)


def by_h5py(file, rows):
    with h5py.File(file) as opened:
        x, flat, points = (opened[name][:] for name in ("x", "flat", "points"))
    found = {"x": x, "flat": flat, "label": points["label"], "where": points["where"]}
    return {name: values[rows] for name, values in found.items()}


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_a_row_is_that_of_h5py_and_the_callers_own(file):
    source = HDF5Source(file, COLUMNS)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    assert len(source) == ROWS
    for row in 0, 999, np.int64(517):
        assert_same(source[row], by_h5py(file, row))
    first = source[3]
    first["x"] += 1
    assert_same(source[3], by_h5py(file, 3))
    rows = [5, 999, 5, 0, 64]
    for found, row in zip(source._getitems(rows), rows, strict=True):
        assert isinstance(found["label"], np.ndarray)
        assert_same(found, by_h5py(file, row))
    assert_same(source.read_rows(np.array(rows)), by_h5py(file, rows))
    for row in -1, ROWS:
        with pytest.raises(IndexError, match=f"row {row} is out of range for 1000 rows"):
            source[row]


def test_a_row_becomes_the_type_that_is_asked_for(file):
    row = HDF5Source(file, ["x", "flat"], dtype="float32")[0]
    assert (row["x"].dtype, row["flat"].dtype) == (np.float32, np.uint8)
    row = HDF5Source(file, COLUMNS, dtype={"label": np.int16})[700]
    assert (row["label"].dtype, row["x"].dtype) == (np.int16, np.float64)
    source = HDF5Source(file, COLUMNS, dtype={"label": "int8"})
    with pytest.raises(InvalidArgumentError, match=r"row 700.*is out of range for int8"):
        source[700]


@pytest.mark.parametrize("cache", ["256MiB", "8KiB", 0])
def test_shuffled_batches_of_many_threads_have_every_row_once(file, cache):
    dataset = grain.MapDataset.source(HDF5Source(file, COLUMNS, cache=cache)).seed(7).shuffle()
    batches = list(dataset.batch(100).to_iter_dataset(grain.ReadOptions(num_threads=8)))
    rows = np.concatenate([batch["label"] for batch in batches])
    assert sorted(rows) == list(range(ROWS))
    assert list(rows) != sorted(rows)
    together = {name: np.concatenate([batch[name] for batch in batches]) for name in COLUMNS}
    assert_same(together, by_h5py(file, rows))


def test_batches_of_row_numbers_are_read_at_once(file):
    source = HDF5Source(file, COLUMNS)
    rows = grain.MapDataset.range(len(source)).seed(7).shuffle().batch(64)
    for numbers, batch in zip(rows, rows.map(source.read_rows), strict=True):
        assert_same(batch, by_h5py(file, numbers))


def test_worker_processes_open_the_file_anew(file, workers, monkeypatch):
    monkeypatch.chdir(file.parent)
    source = HDF5Source("train.h5", COLUMNS, dtype={"x": "float32"})
    monkeypatch.chdir("/")
    assert repr(pickle.loads(pickle.dumps(source))) == repr(source)
    dataset = grain.MapDataset.source(source).batch(50).to_iter_dataset()
    batches = list(dataset.mp_prefetch(workers))
    rows = np.concatenate([batch["label"] for batch in batches])
    assert sorted(rows) == list(range(ROWS))
    assert batches[0]["x"].dtype == np.float32


def test_the_older_interface_of_grain_takes_the_source(file):
    def make(file):
        sampler = grain.samplers.IndexSampler(ROWS, shuffle=True, seed=3, num_epochs=1)
        return grain.DataLoader(data_source=HDF5Source(file, COLUMNS), sampler=sampler)

    rows = iter(make(file))
    for _ in range(10):
        next(rows)
    state = rows.get_state()
    rest = [int(row["label"]) for row in rows]
    assert len(rest) == ROWS - 10
    again = iter(make(file))
    again.set_state(state)
    assert [int(row["label"]) for row in again] == rest


def bytes_read():
    with open("/proc/self/io") as counters:
        return int(counters.readline().split()[1])


def test_chunks_in_the_cache_are_read_once(tmp_path):
    path = tmp_path / "packed.h5"
    values = np.random.default_rng(0).random((20_000, 16))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(200, 16), compression="gzip")
        stored = file["x"].id.get_storage_size()
    order = np.random.default_rng(1).permutation(20_000)[:2000]
    read = {}
    for cache in "64MiB", "1KiB":
        source = HDF5Source(path, "x", cache=cache)
        before = bytes_read()
        for row in order:
            np.testing.assert_array_equal(source[row]["x"], values[row])
        read[cache] = bytes_read() - before
    assert stored <= read["64MiB"] < 2 * stored
    assert read["1KiB"] > 15 * stored


def test_a_file_that_was_changed_is_refused(file):
    source = HDF5Source(file, ["flat"])
    assert source[0]["flat"].shape == (7,)
    os.utime(file, ns=(1, 1))
    with pytest.raises(FileChangedError):
        source[0]


def test_the_data_set_has_the_batches_of_the_loader(file):
    arguments = {"batch_size": 64, "seed": 5, "mask": True, "memory": "16MiB"}
    loader = Loader(file, COLUMNS, **arguments)
    expected = [batch for _ in range(2) for batch in loader]
    dataset = HDF5IterDataset(file, COLUMNS, epochs=2, **arguments)
    for _ in range(2):
        found = list(dataset)
        assert len(found) == len(expected) == 32
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    doubled = dataset.map(lambda batch: {**batch, "x": batch["x"] * 2})
    np.testing.assert_array_equal(next(iter(doubled))["x"], expected[0]["x"] * 2)


@pytest.mark.parametrize("taken", [0, 1, 15, 16, 20, 32])
def test_an_iterator_resumes_from_its_state(file, taken):
    dataset = HDF5IterDataset(file, COLUMNS, batch_size=64, epochs=2, memory="16MiB")
    batches = iter(dataset)
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(batches.get_state()))
    rest = list(batches)
    assert len(rest) == 32 - taken
    again = iter(dataset)
    next(again, None)
    again.set_state(state)
    for one, other in zip(again, rest, strict=True):
        assert_same(one, other)
    assert next(again, None) is None


def test_workers_of_grain_share_the_rows_of_the_data_set(file, workers):
    dataset = HDF5IterDataset(file, COLUMNS, batch_size=50, drop_last=True)
    rows = [batch["label"] for batch in dataset.mp_prefetch(workers)]
    assert {len(labels) for labels in rows} == {50}
    assert sorted(np.concatenate(rows)) == list(range(ROWS))


def test_a_closed_iterator_reads_no_more(file):
    batches = iter(HDF5IterDataset(file, COLUMNS, batch_size=50))
    kept = next(batches)
    batches.close()
    assert kept["x"].shape == (50, 4, 5)
    with pytest.raises(ValueError, match="closed"):
        next(batches)


def test_what_grain_cannot_do_is_refused(file):
    with pytest.raises(InvalidArgumentError, match="which have no `sharding`"):
        HDF5IterDataset(file, COLUMNS, batch_size=50, sharding=None)
    with pytest.raises(InvalidArgumentError, match="`epochs` is 0"):
        HDF5IterDataset(file, COLUMNS, batch_size=50, epochs=0)


def test_without_grain_the_source_works_and_the_data_set_says_what_is_missing(file):
    program = f"""
import sys
sys.modules["grain"] = None
import vramfit.data, vramfit.errors
assert vramfit.data.HDF5Source({str(file)!r}, "x")[0]["x"].shape == (4, 5)
try:
    vramfit.data.HDF5IterDataset
except vramfit.errors.PackageMissingError as error:
    print(error.hint)
"""
    done = run_python("-c", program)
    assert done.stdout == "install it: `pip install 'vramfit[grain]'`\n", done.stderr
