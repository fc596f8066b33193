"""Windows along axis 1: each place of axis 0 is a series, as in files of trajectories."""

import json

import h5py
import numpy as np
import pytest
from data_files import as_set, collect, define_windows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramfit.data import HDF5Source, Loader, Windows
from vramfit.errors import InvalidArgumentError, UnsupportedFeatureError

MANY = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write(path, places, times, start=0, **options):
    """Write two datasets of trajectories × time × features whose values say which they are."""
    place, time = np.ogrid[:places, :times]
    numbers = start + 1 + place * 1000 + time
    u = numbers[..., None] + np.arange(3) / 4
    with h5py.File(path, "w", libver=options.pop("libver", None)) as f:
        f.create_dataset("u", data=u.astype("f4"), **options)
        for name in ("chunks", "maxshape"):
            options |= {name: options[name][:2]} if options.get(name) else {}
        f.create_dataset("t", data=numbers.astype("i4"), **options)
    return u, numbers


@st.composite
def layouts(draw, places, times):
    """Draw how datasets are stored."""
    if draw(st.booleans()):
        return {}
    can_grow = draw(st.booleans())
    longest = [length + 2 if can_grow else length for length in (places, times)]
    options = {"chunks": (*(draw(st.integers(1, one)) for one in longest), draw(st.integers(1, 3)))}
    options["maxshape"] = (None, None, 3) if can_grow else None
    options["compression"] = draw(st.sampled_from([None, "gzip", "lzf"]))
    options["shuffle"] = draw(st.booleans())
    options["libver"] = draw(st.sampled_from(["earliest", "latest"]))
    return options


@given(
    data=st.data(),
    places=st.integers(1, 6),
    times=st.integers(1, 12),
    files=st.integers(1, 2),
    length=st.integers(1, 6),
    stride=st.integers(1, 4),
    shift=st.integers(-2, 3),
    pad=st.sampled_from(["none", "zeros", "repeat"]),
    shuffle=st.booleans(),
)
@MANY
def test_windows_lie_in_one_place_of_axis_0(
    tmp_path_factory, data, places, times, files, length, stride, shift, pad, shuffle
):
    folder = tmp_path_factory.mktemp("series")
    series = []
    for number in range(files):
        options = data.draw(layouts(places, times))
        u, _ = write(folder / f"{number}.h5", places, times, number * 100_000, **options)
        series.extend(u.astype("f4"))
    samples = Windows(length=length, stride=stride, pad=pad, axis=1)
    arguments = {"samples": samples, "shift": {"u": shift}}
    # Windows begin where the first of them has all of its rows, and are a stride apart.
    first = max(-shift, 0) if pad == "none" else 0
    expected, masks = define_windows(series, length, stride, pad, shift + first)
    expected = expected.astype("f4")
    if not len(expected):
        with pytest.raises(InvalidArgumentError, match="no sample has all of its rows"):
            Loader(folder, "u", batch_size=3, **arguments)
        return
    loader = Loader(folder, "u", batch_size=3, shuffle=shuffle, **arguments)
    found = collect(loader)
    assert found["u"].shape == expected.shape
    if not shuffle:
        assert np.array_equal(found["u"], expected)
        assert pad == "none" or np.array_equal(found["mask"], masks)
    assert np.array_equal(as_set(found["u"]), as_set(expected))
    source = HDF5Source(folder, "u", **arguments)
    assert np.array_equal(source.read_rows(range(len(source)))["u"], expected)


@given(
    seed=st.integers(0, 100),
    cut=st.integers(1, 8),
    chunks=st.sampled_from([None, (1, 4, 3), (2, 5, 2)]),
    split=st.sampled_from([None, ("train", 0.3), ("validation", 0.3)]),
)
@MANY
def test_a_run_resumes_in_its_series(tmp_path_factory, seed, cut, chunks, split):
    path = tmp_path_factory.mktemp("series") / "f.h5"
    write(path, 7, 11, **({"chunks": chunks, "compression": "gzip"} if chunks else {}))

    def load(**options):
        samples = Windows(length={"u": 3, "t": 2}, pad="repeat", axis=1)
        return Loader(path, ["u", "t"], samples=samples, seed=seed, split=split, **options)

    whole = collect(load(batch_size=4))
    # Both columns are of one place and time.
    assert np.array_equal(whole["u"][:, 0, 0].astype(int), whole["t"][:, 0])
    loader = load(batch_size=4)
    batches = iter(loader)
    count = min(cut, len(loader) - 1)
    before = [next(batches)["u"].copy() for _ in range(count)]
    state = json.dumps(loader.state())
    after = [batch["u"].copy() for batch in load(batch_size=6).restore(state)]
    assert np.array_equal(np.concatenate(before + after), whole["u"])
    with pytest.raises(InvalidArgumentError, match="different `samples`"):
        Loader(path, ["u", "t"], samples=Windows(length=3), batch_size=4, seed=seed).restore(state)


def test_a_split_keeps_places_whole(tmp_path):
    write(tmp_path / "f.h5", 10, 9)
    places = []
    for name in ("train", "validation"):
        samples = Windows(length=4, axis=1)
        loader = Loader(tmp_path / "f.h5", "t", samples=samples, split=(name, 0.3), batch_size=5)
        places.append(set((collect(loader)["t"] // 1000).ravel().tolist()))
    assert not places[0] & places[1]
    assert sorted(len(one) for one in places) == [3, 7]


def test_wildcards_and_places(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        for name, shape in (("a", (2, 6)), ("b", (3, 4))):
            f[f"{name}/u"] = np.arange(np.prod(shape)).reshape(shape) + 100 * (name == "b")
    samples = Windows(length=4, axis=1)
    loader = Loader(tmp_path / "f.h5", "*/u", samples=samples, batch_size=2, shuffle=False)
    assert collect(loader)["*/u"][:, 0].tolist() == [0, 1, 2, 6, 7, 8, 100, 104, 108]
    some = Loader(tmp_path / "f.h5", "*/u", samples=samples, batch_size=2, groups=["b"])
    assert sorted(collect(some)["*/u"][:, 0].tolist()) == [100, 104, 108]


def test_what_has_no_places_is_an_error(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["u"], f["v"], f["label"] = np.zeros((4, 5, 2)), np.zeros((3, 5)), np.zeros(4)
        f["none"] = np.zeros((0, 5))
        layout = h5py.VirtualLayout((4, 5, 2), "f8")
        layout[...] = h5py.VirtualSource(tmp_path / "f.h5", "u", (4, 5, 2))
        f.create_virtual_dataset("virtual", layout)

    def load(*names, **options):
        return Loader(
            tmp_path / "f.h5", list(names), samples=Windows(2, axis=1, **options), batch_size=2
        )

    for names, message in (
        (["u", "label"], r"dataset `label` has shape \[4\], and windows along axis 1"),
        (["u", "v"], "same number of series: `u` has 4 on axis 0, but `v` has 3"),
        (["none"], "dataset `none` has no rows"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            load(*names)
    with pytest.raises(UnsupportedFeatureError, match="`virtual` is virtual"):
        load("virtual")
    with pytest.raises(InvalidArgumentError, match="`within` of `Windows` is 'all'"):
        load("u", within="all")
    for axis in (2, -2, True, "1"):
        with pytest.raises(InvalidArgumentError, match="must be 0, 1 or -1"):
            Windows(2, axis=axis)
