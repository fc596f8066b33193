"""Samples on the last axis, as files of MATLAB have them, as NumPy sees them."""

import json
import subprocess
import sys

import h5py
import numpy as np
import pytest
from commands import run_vramfit
from data_files import collect, read_resumed
from hypothesis import given, settings
from hypothesis import strategies as st

from vramfit.data import HDF5Source, Loader, Rows, Windows, compute_statistics
from vramfit.errors import InvalidArgumentError, UnsupportedFeatureError

LAYOUTS = {
    "contiguous": {},
    "chunks": {"chunks": True},
    "gzip": {"chunks": True, "compression": "gzip", "shuffle": True},
}


def write(path, shape, samples, *, dtype="f4", layout="gzip", chunk=None, **options):
    """Write a dataset with samples on the last axis, and return the samples on the first one."""
    whole = (*shape, samples)
    values = np.random.default_rng(0).integers(0, 250, whole).astype(dtype)
    options |= LAYOUTS[layout]
    if options.get("chunks"):
        options["chunks"] = chunk or tuple(max(1, length // 3) for length in whole)
    with h5py.File(path, "a") as f:
        f.create_dataset("x", data=values, **options)
        f["y"] = np.arange(samples)
        f["row"] = np.arange(samples)[None, :]
    return np.moveaxis(values, -1, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(7,), (6, 5, 3)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_samples_are_shuffled_and_resumed(tmp_path, layout, shape, shuffle):
    chunk = (*shape[:-1], 2, 20)
    want = write(tmp_path / "f.h5", shape, 2000, layout=layout, chunk=chunk)

    def make(**options):
        options = {"batch_size": 32, "memory": "3MiB", "shuffle": shuffle, **options}
        return Loader(tmp_path / "f.h5", ["x", "y", "row"], samples=Rows(axis=-1), **options)

    seen = read_resumed(make, 9)
    order = np.concatenate([batch["y"] for batch in seen])
    assert sorted(order) == list(range(2000))
    assert (order.tolist() == sorted(order)) is not shuffle
    assert np.array_equal(np.concatenate([batch["x"] for batch in seen]), want[order])
    assert np.array_equal(np.concatenate([batch["row"] for batch in seen]), order[:, None])


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(1, 60),
    st.data(),
    st.sampled_from(["u1", ">i2", "f4", "f8", "?"]),
    st.sampled_from(list(LAYOUTS)),
)
def test_any_layout_has_the_values_of_numpy(tmp_path_factory, shape, samples, data, dtype, layout):
    path = tmp_path_factory.mktemp("last") / "f.h5"
    chunk = tuple(data.draw(st.integers(1, length)) for length in (*shape, samples))
    want = write(path, tuple(shape), samples, dtype=dtype, layout=layout, chunk=chunk)
    loader = Loader(
        path,
        ["x", "y"],
        samples=Rows(axis={"x": -1}),
        batch_size=data.draw(st.integers(1, samples)),
        dtype=data.draw(st.sampled_from([None, {"x": "float32"}])),
        x64=True,
    )
    got = collect(loader)
    assert np.array_equal(got["x"], want[got["y"]])
    source = HDF5Source(path, ["x", "y"], samples=Rows(axis=-1))
    rows = data.draw(st.lists(st.integers(0, samples - 1), min_size=1, max_size=9))
    for row in rows:
        assert np.array_equal(source[row]["x"], want[row])


def test_elements_that_were_never_written_or_are_arrays(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        x = f.create_dataset("x", (5, 90), "i2", chunks=(2, 16), fillvalue=-3)
        x[1:3, 20:40] = 7
        f.create_dataset("v", (4, 90), np.dtype(("f4", (3,))), chunks=(3, 16))
        f["v"][...] = np.arange(4 * 90 * 3).reshape(4, 90, 3)
        want = {name: np.moveaxis(f[name][()], 1, 0) for name in "xv"}
    loader = Loader(
        tmp_path / "f.h5", ["x", "v"], samples=Rows(axis=-1), batch_size=8, shuffle=False
    )
    got = collect(loader)
    for name in "xv":
        assert np.array_equal(got[name], want[name]), name


# The reads of a process are those of its system calls: a chunk is read once, not for each sample.
READ_ALL = """
import sys
from vramfit.data import Loader, Rows
def count():
    fields = dict(line.split(": ") for line in open("/proc/self/io"))
    return int(fields["rchar"])
loader = Loader(sys.argv[1], "x", samples=Rows(axis=-1), batch_size=16, memory="7MiB", seed=1)
before = count()
samples = sum(len(batch["x"]) for batch in loader)
print(samples, count() - before)
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_chunk_is_read_for_each_sample(tmp_path, layout):
    path = tmp_path / "f.h5"
    write(path, (300,), 3000, layout=layout, chunk=(100, 50))
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, path], capture_output=True, text=True, check=True
    )
    samples, read = map(int, done.stdout.split())
    assert samples == 3000
    assert read < 1.5 * 300 * 3000 * 4


def write_virtual(folder, layout_of, sources, shape):
    """Write sources, a file for each, and a virtual dataset of them."""
    layout = h5py.VirtualLayout(shape, "i4")
    for number, values in enumerate(sources):
        with h5py.File(folder / f"s{number}.h5", "w") as f:
            f.create_dataset("x", data=values, chunks=True, compression="gzip")
        layout[layout_of(number)] = h5py.VirtualSource(f"s{number}.h5", "x", values.shape)
    with h5py.File(folder / "all.h5", "w", libver="v110") as f:
        f.create_virtual_dataset("x", layout, fillvalue=-1)
        f["y"] = np.arange(shape[-1])


@pytest.mark.parametrize("sources", ["samples", "features", "sample"])
def test_samples_of_virtual_datasets_are_shuffled_and_resumed(tmp_path, sources):
    values = np.arange(40 * 600, dtype="i4").reshape(40, 600)
    if sources == "samples":
        # Twelve files with some of the samples.
        parts = [values[:, n * 50 : n * 50 + 50] for n in range(12)]
        places = [np.s_[:, n * 50 : n * 50 + 50] for n in range(12)]
    elif sources == "features":
        parts, places = list(values), [np.s_[n, :] for n in range(40)]
    else:
        values = values[:, :60]
        parts, places = [values[:, n].reshape(8, 5) for n in range(60)], None
    if places is None:
        shape, layout_of = (8, 5, 60), lambda n: np.s_[..., n]
        values = values.reshape(shape)
    else:
        shape, layout_of = values.shape, lambda n: places[n]
    write_virtual(tmp_path, layout_of, parts, shape)
    want = np.moveaxis(values, -1, 0)

    def make(**options):
        options = {"batch_size": 8, "memory": "16MiB", **options}
        return Loader(tmp_path / "all.h5", ["x", "y"], samples=Rows(axis=-1), **options)

    seen = read_resumed(make, 3)
    order = np.concatenate([batch["y"] for batch in seen])
    assert sorted(order) == list(range(shape[-1]))
    assert order.tolist() != sorted(order)
    assert np.array_equal(np.concatenate([batch["x"] for batch in seen]), want[order])


def test_many_sources_need_the_memory_of_one(tmp_path):
    # 120 sources with chunks of 512 KiB: together they would exceed the budget.
    parts = [np.full((1 << 17, 4), n, "i4") for n in range(120)]
    layout = h5py.VirtualLayout((1 << 17, 480), "i4")
    for number, values in enumerate(parts):
        with h5py.File(tmp_path / f"s{number}.h5", "w") as f:
            f.create_dataset("x", data=values, chunks=(1 << 15, 4), compression="gzip")
        here = np.s_[:, 4 * number : 4 * number + 4]
        layout[here] = h5py.VirtualSource(f"s{number}.h5", "x", values.shape)
    with h5py.File(tmp_path / "all.h5", "w", libver="v110") as f:
        f.create_virtual_dataset("x", layout)
    loader = Loader(
        tmp_path / "all.h5", "x", samples=Rows(axis=-1), batch_size=4, memory="64MiB", threads=1
    )
    first = next(iter(loader))["x"]
    assert (first == first[:, :1]).all()
    assert len(set(first[:, 0])) > 1


def test_files_of_matlab_with_axes_of_both_kinds(tmp_path):
    # MATLAB: images of height x width x channels x samples, and a column of labels.
    images = np.arange(40 * 3 * 4 * 5, dtype="u1").reshape(40, 3, 4, 5)
    with h5py.File(tmp_path / "f.mat", "w", userblock_size=512) as f:
        f.create_dataset("images", data=images, chunks=(8, 3, 4, 5), compression="gzip")
        f["labels"] = np.arange(40.0)[None, :]
    columns = ["images", "labels"]
    with pytest.raises(InvalidArgumentError, match="rows"):
        Loader(tmp_path / "f.mat", columns, batch_size=8)
    options = {"samples": Rows(axis={"labels": -1}), "batch_size": 8, "x64": True}
    got = collect(Loader(tmp_path / "f.mat", columns, **options))
    assert np.array_equal(got["images"], images[got["labels"][:, 0].astype(int)])


def test_samples_are_normalized_by_their_statistics(tmp_path):
    want = write(tmp_path / "f.h5", (6, 2), 500)
    statistics = compute_statistics(tmp_path / "f.h5", ["x", "y"], axis=-1)
    command = ("data", "stats", tmp_path / "f.h5", "--axis", "-1", "--json", "-")
    printed = json.loads(run_vramfit(*command, code=0).stdout)["datasets"]
    for name in ("x", "y"):
        assert printed[f"/{name}"]["mean"] == statistics[name].mean.tolist()
        assert printed[f"/{name}"]["rows"] == 500
    assert statistics["x"].shape == (6, 2)
    mean, std = want.mean((0, 1)), want.std((0, 1))
    assert np.allclose(statistics["x"].mean, mean)
    loader = Loader(
        tmp_path / "f.h5",
        ["x", "y"],
        samples=Rows(axis=-1),
        normalize={"x": statistics["x"]},
        batch_size=50,
    )
    got = collect(loader)
    assert np.allclose(got["x"], ((want - mean) / std)[got["y"]], atol=1e-5)


def test_a_state_is_of_its_axis(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.arange(400).reshape(20, 20)
    state = Loader(tmp_path / "f.h5", "x", samples=Rows(axis=-1), batch_size=4).state()
    with pytest.raises(InvalidArgumentError, match="different `samples`"):
        Loader(tmp_path / "f.h5", "x", batch_size=4).restore(state)


def test_axes_that_cannot_be_read_are_errors(tmp_path):
    for axis in (1, -2, True, None, "last", {"x": 2}):
        with pytest.raises(InvalidArgumentError, match="must be 0 or -1"):
            Rows(axis=axis)
    write(tmp_path / "f.h5", (3,), 9)
    with pytest.raises(InvalidArgumentError, match="names 'z'"):
        Loader(tmp_path / "f.h5", "x", samples=Rows(axis={"z": -1}), batch_size=4)
    for source in ((3, 9, 1), (27,)):
        with h5py.File(tmp_path / "v.h5", "w", libver="v110") as f:
            f["source"] = np.zeros(source, "f4")
            layout = h5py.VirtualLayout((3, 9), "f4")
            layout[:] = h5py.VirtualSource(f["source"])
            f.create_virtual_dataset("x", layout)
        with pytest.raises(UnsupportedFeatureError, match="rows are on the last axis, and"):
            Loader(tmp_path / "v.h5", "x", samples=Rows(axis=-1), batch_size=4)


def test_inspect_names_the_axis(tmp_path):
    def find(**datasets):
        path = tmp_path / "inspected.h5"
        with h5py.File(path, "w") as f:
            for name, values in datasets.items():
                f[name] = values
        report = json.loads(run_vramfit("data", "inspect", path, "--json", "-", code=0).stdout)
        return {
            entry["dataset"]: entry["fix"]
            for entry in report["findings"]
            if entry["id"] == "last-axis"
        }

    labels = np.arange(90, dtype="i4") % 7
    x = np.zeros((5, 90), "f4")
    assert find(x=x, y=labels) == {
        "/x": "read them from there: `Loader(..., samples=Rows(axis=-1))`"
    }
    assert list(find(x=np.zeros((8, 8, 3, 90), "u1"), y=labels[None, :].astype("f8"))) == ["/x"]
    # What MATLAB writes for 90 images of 4 x 3, and a column of labels.
    fixes = find(images=np.zeros((90, 3, 4)), labels=labels[None, :])
    assert list(fixes) == ["/labels"]
    assert 'Rows(axis={"labels": -1})' in fixes["/labels"]
    # Samples on the first axis, with something as long as the last one.
    assert find(x=x.T, y=labels, names=np.arange(5)) == {}
    assert find(x=x.T, mean=np.zeros((1, 5)), scale=np.zeros(5)) == {}
    assert find(x=np.zeros((90, 90)), y=labels) == {}
    assert find(x=x) == {}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=2),
    st.integers(8, 60),
    st.integers(1, 8),
    st.integers(1, 5),
    st.sampled_from(["none", "zeros", "repeat"]),
    st.sampled_from([*LAYOUTS]),
)
def test_windows_of_the_last_axis_are_those_of_numpy(
    tmp_path_factory, shape, samples, length, stride, pad, layout
):
    path = tmp_path_factory.mktemp("windows") / "f.h5"
    want = write(path, shape, samples, layout=layout)
    windows = Windows(length, stride=stride, pad=pad, axis={"x": -1, "row": -1})
    starts = []
    for batch in Loader(path, ["x", "y", "row"], samples=windows, batch_size=5, seed=3):
        for place, rows in enumerate(batch["y"]):
            real = batch["mask"][place] if pad != "none" else np.ones(length, bool)
            starts.append(rows[0])
            assert np.array_equal(batch["x"][place][real], want[rows[real]])
            assert np.array_equal(batch["row"][place][real], rows[real, None])
            if pad == "repeat":
                assert np.array_equal(batch["x"][place], want[rows])
            elif pad == "zeros":
                assert not batch["x"][place][~real].any()
    last = samples if pad != "none" else samples - length + 1
    assert sorted(starts) == list(range(0, last, stride))
    source = HDF5Source(path, ["x", "y"], samples=Windows(length, axis={"x": -1}))
    assert np.array_equal(source[0]["x"], want[:length])
