"""Whatever records h5py writes: every number in them, however deep, is read as h5py reads it."""

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_hdf5 import assert_same, read

from vramfit import errors
from vramfit.data import Loader

NUMBERS = [
    "?",
    *(
        order + kind
        for order in "<>"
        for kind in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
    ),
]
COLORS = h5py.enum_dtype({"red": 0, "green": 1, "blue": 2}, basetype="i2")
# What is no number, of which only the length matters to what comes after it.
OTHERS = ["S5", COLORS, h5py.string_dtype(), h5py.vlen_dtype("i4"), h5py.opaque_dtype("M8[s]")]
NAMES = st.text("abcXYZ_09 é", min_size=1, max_size=9)


def shapes():
    """Draw the axes of a field, mostly none."""
    return st.lists(st.integers(1, 3), max_size=3).map(tuple) | st.just(())


@st.composite
def records(draw, depth=0):
    """Draw the type of a record: numbers, arrays, other records, and what is not read."""
    fields = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)):
        kinds = [st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.sampled_from(OTHERS)]
        if depth < 2:
            kinds.append(records(depth + 1))
        kind = np.dtype(draw(st.one_of(kinds)))
        # h5py itself writes no arrays of what has a variable length.
        fields.append((name, kind, () if kind.kind == "O" else draw(shapes())))
    plain = np.dtype(fields)
    if draw(st.booleans()):
        return plain
    # With gaps, and in another order than the offsets'.
    offsets, end = [], draw(st.integers(0, 3))
    for name in plain.names:
        offsets.append(end)
        end += plain.fields[name][0].itemsize + draw(st.integers(0, 5))
    parts = [
        (name, plain.fields[name][0], at) for name, at in zip(plain.names, offsets, strict=True)
    ]
    names, formats, offsets = zip(*draw(st.permutations(parts)), strict=True)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end})


def fill(values, draw):
    """Give every number random bits, and every text or sequence something to refer to."""
    if values.dtype.names is not None:
        for name in values.dtype.names:
            fill(values[name], draw)
    elif h5py.check_string_dtype(values.dtype) and values.dtype.kind == "O":
        values[...] = "some text"
    elif values.dtype.kind == "O":
        for place in np.ndindex(values.shape):
            values[place] = draw.integers(0, 9, 2).astype("i4")
    elif values.dtype.kind == "b" or h5py.check_enum_dtype(values.dtype):
        values[...] = draw.integers(0, 2, values.shape)
    elif values.dtype.kind == "S":
        values[...] = b"abc"
    elif values.dtype.kind != "M":
        bits = draw.bytes(values.size * values.dtype.itemsize)
        values[...] = np.frombuffer(bits, values.dtype).reshape(values.shape)


def leaves(values, name=""):
    """Name every number of a record, and every part of a complex one, with its values."""
    if values.dtype.names is not None:
        for inner in values.dtype.names:
            yield from leaves(values[inner], f"{name}.{inner}" if name else inner)
    elif values.dtype.kind == "c":
        for part, numbers in (("r", values.real), ("i", values.imag)):
            yield f"{name}.{part}" if name else part, numbers
    elif values.dtype.kind in "biuf":
        yield name, values


@settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(
    records(),
    st.lists(st.integers(1, 3), max_size=2),
    st.sampled_from([("earliest", "v108"), ("v110", "v114"), ("latest", "latest")]),
    st.sampled_from([{}, {"chunks": True}, {"chunks": True, "compression": "gzip"}]),
    st.integers(0, 2**32 - 1),
)
def test_every_number_of_a_record_is_read(tmp_path_factory, dtype, inner, libver, options, seed):
    path = tmp_path_factory.getbasetemp() / "records.h5"
    values = np.zeros((7, *inner), dtype)
    fill(values, np.random.default_rng(seed))
    with h5py.File(path, "w", libver=libver) as f:
        f.create_dataset("x", data=values, **options)
    with h5py.File(path) as f:
        written = f["x"][()]
    for name, want in leaves(written):
        assert_same(read(path, "x", field=name), want)
        assert_same(read(path, "x", rows=[6, 0, 3], field=name), want[[6, 0, 3]])


def test_the_loader_has_fields_of_fields_and_arrays(tmp_path):
    path = tmp_path / "x.h5"
    dtype = np.dtype([("v", ">f8", (2,)), ("inner", [("many", [("a", "<i8", (3,))], (2,))])])
    values = np.zeros(20, dtype)
    fill(values, np.random.default_rng(1))
    values["v"] = np.arange(40).reshape(20, 2) / 8
    values["inner"]["many"]["a"] = np.arange(120).reshape(20, 2, 3)
    with h5py.File(path, "w") as f:
        f["x"] = values
        f.create_dataset("arrays", (20,), np.dtype(("<i4", (2, 2))))
        f["arrays"][...] = np.arange(80).reshape(20, 2, 2)
    columns = {"v": "x[v]", "a": "x[inner.many.a]"}
    with Loader(path, columns, batch_size=10, shuffle=False) as loader:
        first, second = (dict(batch) for batch in loader)
    assert (first["v"].dtype, first["a"].dtype) == ("float32", "int32")
    assert np.array_equal(np.concatenate([first["v"], second["v"]]), values["v"])
    assert np.array_equal(np.concatenate([first["a"], second["a"]]), values["inner"]["many"]["a"])
    with Loader(path, ["arrays"], batch_size=20, shuffle=False) as loader:
        (batch,) = loader
        assert np.array_equal(batch["arrays"], np.arange(80).reshape(20, 2, 2))
    with pytest.raises(errors.InvalidArgumentError, match="have no field `w`") as caught:
        Loader(path, {"w": "x[w]"}, batch_size=10)
    assert "`v`, `inner.many.a`" in caught.value.hint


def test_the_table_of_pandas_is_read(tmp_path):
    """What `DataFrame.to_hdf(format="table")` writes: an index and one array for all columns."""
    path = tmp_path / "frame.h5"
    table = np.dtype(
        [("index", "<i8"), ("values_block_0", "<f8", (3,)), ("values_block_1", "<i8", (2,))]
    )
    values = np.zeros(5, table)
    values["index"] = np.arange(5)
    values["values_block_0"] = np.arange(15).reshape(5, 3) / 4
    values["values_block_1"] = np.arange(10).reshape(5, 2)
    with h5py.File(path, "w") as f:
        f.create_dataset("df/table", data=values, chunks=(2,), maxshape=(None,))
    with Loader(
        path,
        {"x": "df/table[values_block_0]", "y": "df/table[values_block_1]"},
        batch_size=5,
        shuffle=False,
    ) as loader:
        (batch,) = loader
        assert np.array_equal(batch["x"], values["values_block_0"])
        assert np.array_equal(batch["y"], values["values_block_1"])


def test_brackets_in_names_are_not_mistaken_for_fields(tmp_path):
    path = tmp_path / "x.h5"
    values = np.zeros(5, np.dtype([("a[0]", "<i4"), ("b", "<i4")]))
    values["a[0]"], values["b"] = np.arange(5), 7
    with h5py.File(path, "w") as f:
        f["r"] = values
        f["r[b]"] = np.arange(5, 10)
        f["x[1]"] = np.arange(10, 15)
    columns = {"field": "r[a[0]]", "whole": "r[b]", "other": "x[1]"}
    with Loader(path, columns, batch_size=5, shuffle=False) as loader:
        (batch,) = loader
        assert [batch[name][0] for name in columns] == [0, 5, 10]
