"""Virtual datasets: elements of other datasets, as h5py reads them."""

import json

import h5py
import numpy as np
import pytest
from commands import run_vramfit
from data_files import read_resumed
from hypothesis import given, settings
from hypothesis import strategies as st

from vramfit import _native, errors
from vramfit.data import Loader, Rows

UNLIMITED = h5py.h5s.UNLIMITED


def read(path, dataset, *rows, **options):
    """Return rows as an array."""
    shape, name, data = _native.read_hdf5_rows(path, dataset, *rows, **options)
    return np.frombuffer(data, name).reshape(shape)


def add_virtual(file, name, shape, mappings, *, maxshape=None, fill=-1):
    """Make a virtual dataset of int32 from mappings.

    Each is a selection of it, then file, dataset, shape and selection of the source.
    """
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if fill is not None:
        made.set_fill_value(np.array(fill, "i4"))
    for target, source_file, dataset, source_shape, source in mappings:
        here = h5py.h5s.create_simple(shape, maxshape)
        there = h5py.h5s.create_simple(
            source_shape, tuple(UNLIMITED if maxshape else it for it in source_shape)
        )
        for space, selection in ((here, target), (there, source)):
            if selection is not None:
                start, count, stride, block = zip(*selection, strict=True)
                space.select_hyperslab(start, count, stride, block)
        made.set_virtual(here, source_file.encode(), dataset.encode(), there)
    whole = h5py.h5s.create_simple(shape, maxshape)
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_I32LE, whole, made)


@st.composite
def mapped_datasets(draw):
    """Return a shape, and sources whose hyperslabs are mapped to hyperslabs of it, none twice."""
    axes = draw(st.integers(1, 3))
    count = draw(st.integers(1, 4))
    shared = draw(st.integers(0, axes - 1))
    blocks, times, spare = [], [], []
    for _ in range(axes):
        blocks.append(draw(st.integers(1, 3)))
        times.append(draw(st.integers(1, 3)))
        spare.append(draw(st.integers(0, 2)))
    shape, sources = [0] * axes, []
    for number in range(count):
        target = []
        for axis in range(axes):
            block, many, gap = blocks[axis], times[axis], spare[axis]
            if axis == shared:
                # The sources take turns along this axis.
                stride = count * (block + gap)
                start = number * (block + gap)
            else:
                many = draw(st.integers(1, many))
                stride, start = block + gap, draw(st.integers(0, 2))
            target.append((start, many, stride, block))
            shape[axis] = max(shape[axis], start + (many - 1) * stride + block + gap)
        selected = [many * block for _, many, _, block in target]
        # The same elements, with axes joined or added.
        kind = draw(st.sampled_from(["same", "flat", "deeper"]))
        if kind == "flat":
            selected = [int(np.prod(selected))]
        if kind == "deeper":
            selected.insert(draw(st.integers(0, axes)), 1)
        source, source_shape = [], []
        for length in selected:
            block = draw(st.sampled_from([n for n in range(1, length + 1) if length % n == 0]))
            gap, start = draw(st.integers(0, 2)), draw(st.integers(0, 2))
            source.append((start, length // block, block + gap, block))
            source_shape.append(start + (length // block) * (block + gap) + 1)
        chunks = draw(st.booleans())
        sources.append((target, tuple(source_shape), source, chunks))
    return tuple(shape), sources, draw(st.sampled_from(["v110", "v112", "latest"]))


@settings(max_examples=150, deadline=None)
@given(mapped_datasets(), st.randoms(use_true_random=False))
def test_random_mappings_are_those_of_h5py(tmp_path_factory, mapped, draw):
    shape, sources, libver = mapped
    path = tmp_path_factory.mktemp("virtual") / "f.h5"
    numbers = np.random.default_rng(1)
    with h5py.File(path, "w", libver=libver) as f:
        mappings = []
        for number, (target, source_shape, source, is_chunked) in enumerate(sources):
            values = numbers.integers(0, 10**6, source_shape).astype("i4")
            options = {"compression": "gzip", "shuffle": True} if is_chunked else {}
            f.create_dataset(
                f"source_with_a_long_name_{number % 2}_{number}", data=values, **options
            )
            name = f"source_with_a_long_name_{number % 2}_{number}"
            mappings.append((target, ".", name, source_shape, source))
        add_virtual(f, "x", shape, mappings)
    with h5py.File(path) as f:
        want = f["x"][()]
    assert np.array_equal(read(path, "x"), want)
    rows = draw.choices(range(shape[0]), k=12)
    assert np.array_equal(read(path, "x", rows=rows), want[rows])
    start = draw.randint(0, shape[0])
    stop = draw.randint(start, shape[0])
    assert np.array_equal(read(path, "x", start, stop), want[start:stop])

    # Samples on the last axis: that must be the first or the last one of each source.
    def lengths(selection):
        return [many * block for _, many, _, block in selection]

    def is_read(target, source):
        if lengths(target)[-1] == 1:
            return True
        long = [axis for axis, length in enumerate(lengths(source)) if length > 1]
        alike = [n for n in lengths(source) if n > 1] == [n for n in lengths(target) if n > 1]
        return alike and long[-1] in (0, len(source) - 1)

    try:
        loader = Loader(
            path, "x", samples=Rows(axis=-1), batch_size=shape[-1], shuffle=False, memory="64MiB"
        )
    except errors.UnsupportedFeatureError:
        assert not all(is_read(target, source) for target, _, source, _ in sources)
    else:
        # With one axis it is the first one as well.
        assert len(shape) == 1 or all(is_read(target, source) for target, _, source, _ in sources)
        assert np.array_equal(next(iter(loader))["x"], np.moveaxis(want, -1, 0))


def test_images_of_two_axes_are_one_dataset_of_three(tmp_path):
    images = np.arange(30 * 6 * 4, dtype="i4").reshape(30, 6, 4)
    layout = h5py.VirtualLayout((30, 6, 4), "i4")
    for number in range(30):
        with h5py.File(tmp_path / f"image_{number}.h5", "w") as f:
            f.create_dataset("image", data=images[number], chunks=(2, 4), compression="gzip")
        layout[number] = h5py.VirtualSource(f"image_{number}.h5", "image", (6, 4))
    with h5py.File(tmp_path / "all.h5", "w", libver="v110") as f:
        f.create_virtual_dataset("x", layout)
    seen = read_resumed(lambda: Loader(tmp_path / "all.h5", "x", batch_size=4), 3)
    seen = np.concatenate([batch["x"] for batch in seen])
    assert seen.tolist() != images.tolist()
    assert np.array_equal(seen[np.argsort(seen[:, 0, 0])], images)


def test_columns_of_other_files_are_shuffled(tmp_path):
    columns = [np.arange(500, dtype="i4") * 10 + number for number in range(3)]
    layout = h5py.VirtualLayout((500, 3), "i4")
    for number, values in enumerate(columns):
        with h5py.File(tmp_path / f"c{number}.h5", "w") as f:
            f.create_dataset("x", data=values, chunks=(30 + number,), compression="gzip")
        layout[:, number] = h5py.VirtualSource(f"c{number}.h5", "x", (500,))
    with h5py.File(tmp_path / "all.h5", "w", libver="v110") as f:
        f.create_virtual_dataset("x", layout)
    loader = Loader(tmp_path / "all.h5", "x", batch_size=50, memory="256KiB")
    seen = np.concatenate([batch["x"] for batch in loader])
    assert np.array_equal(seen[np.argsort(seen[:, 0])], np.stack(columns, 1))
    assert not np.array_equal(seen, np.stack(columns, 1))


# In selections of v112 "without limit" is a number of 16 bits: 65535 rows, then fill values.
@pytest.mark.parametrize("libver", ["v110", "v112", "latest"])
def test_sources_that_grow_are_as_long_as_they_are(tmp_path, libver):
    path, rows = tmp_path / "f.h5", 70_000
    with h5py.File(path, "w", libver=libver) as f:
        data = np.arange(rows * 2, dtype="i4").reshape(rows, 2)
        f.create_dataset("x", data=data, maxshape=(None, 2), chunks=(1000, 2))
        every = [(0, UNLIMITED, 1, 1), (0, 1, 1, 2)]
        add_virtual(
            f, "all", (5, 2), [(every, ".", "x", (rows, 2), every)], maxshape=(UNLIMITED, 2)
        )
        # Three rows of four, and every second row of the source.
        blocks = [(1, UNLIMITED, 4, 3), (0, 1, 1, 2)]
        second = [(3, UNLIMITED, 2, 1), (0, 1, 1, 2)]
        mapping = (blocks, ".", "x", (rows, 2), second)
        add_virtual(f, "blocks", (5, 2), [mapping], maxshape=(UNLIMITED, 2))
        short = [(0, 1, 1, 2), (0, 1, 1, 2)]
        later = [(2, UNLIMITED, 1, 1), (0, 1, 1, 2)]
        mappings = [(short, ".", "x", (rows, 2), short), (later, ".", "y", (rows, 2), every)]
        f.create_dataset("y", data=data[:9], maxshape=(None, 2), chunks=(1000, 2))
        add_virtual(f, "two", (5, 2), mappings, maxshape=(UNLIMITED, 2))
    with h5py.File(path) as f:
        wanted = {name: f[name][()] for name in ("all", "blocks", "two")}
    assert len(wanted["all"]) == rows
    for name, want in wanted.items():
        assert np.array_equal(read(path, name), want), name
    report = run_vramfit("data", "inspect", path, "--json", "-", code=0).stdout
    shapes = {it["path"]: it["dataset"] for it in json.loads(report)["entries"]}
    assert shapes["/all"]["shape"] == [rows, 2]
    assert shapes["/all"]["memory_bytes"] == rows * 8
    with h5py.File(path, "a", libver=libver) as f:
        f["x"].resize((rows + 13, 2))
        f["x"][rows:] = 7
    with h5py.File(path) as f:
        for name in wanted:
            assert np.array_equal(read(path, name), f[name][()]), name


@pytest.mark.parametrize("libver", ["v110", "latest"])
def test_sources_with_the_number_of_a_block_in_their_names(tmp_path, libver):
    target = [(2, UNLIMITED, 5, 4), (0, 1, 1, 3)]
    for number in (0, 1, 2, 4):
        with h5py.File(tmp_path / f"part-{number}.h5", "w") as f:
            f[f"x%{number}"] = np.arange(12, dtype="i4").reshape(4, 3) + 100 * number
            f["y"] = np.arange(12, dtype="i4").reshape(4, 3) + 100 * number
    with h5py.File(tmp_path / "f.h5", "w", libver=libver) as f:
        for name, dataset in (("files", "y"), ("both", "x%%%b")):
            mapping = (target, "part-%b.h5", dataset, (4, 3), None)
            add_virtual(f, name, (0, 3), [mapping], maxshape=(UNLIMITED, 3))
        mapping = (target, "gone-%b.h5", "y", (4, 3), None)
        add_virtual(f, "none", (0, 3), [mapping], maxshape=(UNLIMITED, 3))
    with h5py.File(tmp_path / "f.h5") as f:
        assert f["files"].shape == (16, 3)
        for name in ("files", "both", "none"):
            assert np.array_equal(read(tmp_path / "f.h5", name), f[name][()]), name
    assert Loader(tmp_path / "f.h5", "files", batch_size=4).rows == 16


def test_missing_sources_are_fill_values_only_where_there_is_one(tmp_path):
    with h5py.File(tmp_path / "there.h5", "w") as f:
        f["x"] = np.arange(6, dtype="i4").reshape(3, 2)
    with h5py.File(tmp_path / "f.h5", "w", libver="v110") as f:
        for name, file, dataset in (("file", "gone.h5", "x"), ("dataset", "there.h5", "gone")):
            for kind, options in (("fill", {"fillvalue": -7}), ("default", {})):
                layout = h5py.VirtualLayout((6, 2), "i4")
                layout[:3] = h5py.VirtualSource("there.h5", "x", (3, 2))
                layout[3:] = h5py.VirtualSource(file, dataset, (3, 2))
                f.create_virtual_dataset(f"{name}_{kind}", layout, **options)
    with h5py.File(tmp_path / "f.h5") as f:
        for name in ("file", "dataset"):
            want = f[f"{name}_fill"][()]
            assert (want[3:] == -7).all()
            assert np.array_equal(read(tmp_path / "f.h5", f"{name}_fill"), want)
            with pytest.raises(
                errors.VramfitError, match="does not exist or has no such"
            ) as caught:
                read(tmp_path / "f.h5", f"{name}_default")
            assert "fillvalue" in caught.value.hint
    report = run_vramfit("data", "inspect", tmp_path / "f.h5", "--json", "-", code=0).stdout
    found = {it["dataset"]: it["message"] for it in json.loads(report)["findings"]}
    assert "gone.h5" in found["/file_fill"]
    assert "there.h5" in found["/dataset_fill"]
    loader = Loader(tmp_path / "f.h5", "file_fill", batch_size=2)
    state = loader.state()
    with h5py.File(tmp_path / "gone.h5", "w") as f:
        f["x"] = np.ones((3, 2), "i4")
    with pytest.raises(errors.FileChangedError, match=r"gone\.h5.* did not exist"):
        list(loader)
    with pytest.raises(errors.FileChangedError):
        Loader(tmp_path / "f.h5", "file_fill", batch_size=2).restore(state)


def test_sources_that_overlap_are_refused(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w", libver="v110") as f:
        f["x"] = np.ones((4, 4), "i4")
        part = [(0, 2, 2, 1), (0, 1, 1, 4)]
        other = [(2, 1, 1, 2), (0, 1, 1, 4)]
        mappings = [(it, ".", "x", (4, 4), part) for it in (part, other)]
        add_virtual(f, "v", (4, 4), mappings)
        add_virtual(f, "t", (2, 4), [(None, ".", "x", (4, 4), [(0, 1, 1, 2), (0, 1, 1, 4)])])
    assert np.array_equal(read(tmp_path / "f.h5", "t"), np.ones((2, 4)))
    with pytest.raises(errors.UnsupportedFeatureError, match="two sources overlap"):
        read(tmp_path / "f.h5", "v")
