"""HDF5 files, element by element as h5py reads them, or refused by name."""

import random

import h5py
import ml_dtypes
import numpy as np
import pytest
from data_files import read_resumed
from hdf5_cases import CASES

from vramfit import _native, errors
from vramfit.data import Loader

READ = [case for case in CASES if case.refused is None]
# How NumPy calls what are fields of complex numbers in the file.
PARTS = {"r": "real", "i": "imag"}
REFUSED = [case for case in CASES if case.refused is not None]


def read(path, dataset, *rows, **options):
    """Return rows as an array."""
    shape, name, data = _native.read_hdf5_rows(path, dataset, *rows, **options)
    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    return np.frombuffer(data, dtype).reshape(shape)


def expected(path, case):
    """Return what h5py reads."""
    with h5py.File(path) as f:
        values = f[case.dataset][()]
    if case.field is not None:
        for name in case.field.split("."):
            values = getattr(values, PARTS[name]) if values.dtype.kind == "c" else values[name]
    return values.astype(case.dtype) if case.dtype else values


def assert_same(got, want):
    """Compare shapes, types without byte order, and every bit."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype.newbyteorder("=")
    assert got.tobytes() == want.astype(got.dtype).tobytes()


@pytest.mark.fast
@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_all_rows_are_those_of_h5py(case, tmp_path):
    path = tmp_path / f"{case.name}.h5"
    case.make(path)
    want = expected(path, case)
    for threads in 1, 3:
        got = read(path, case.dataset, field=case.field, threads=threads)
        assert_same(got, want)


@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_any_rows_are_those_of_h5py(case, tmp_path):
    path = tmp_path / f"{case.name}.h5"
    case.make(path)
    want = expected(path, case)
    draw = random.Random(case.name)
    for _ in range(10):
        start = draw.randint(0, len(want))
        stop = draw.randint(start, len(want))
        assert_same(read(path, case.dataset, start, stop, field=case.field), want[start:stop])
        rows = draw.choices(range(len(want)), k=draw.randint(0, 40)) if len(want) else []
        got = read(path, case.dataset, rows=rows, field=case.field)
        assert_same(got, want[np.array(rows, int)])


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_is_not_read_is_refused_by_name(case, tmp_path):
    path = tmp_path / f"{case.name}.h5"
    case.make(path)
    with pytest.raises(errors.VramfitError) as caught:
        read(path, case.dataset, field=case.field)
    assert case.refused in caught.value.message
    assert caught.value.id == case.kind


# What our floats become is what ml_dtypes and NumPy make of them.
@pytest.mark.parametrize("source", ["f2", "f4", "f8", ">f4", ">f8"])
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32", "float64"])
def test_floats_are_converted_as_numpy_does(source, target, tmp_path):
    values = np.random.default_rng(3).standard_normal((50, 7)) * 10.0 ** np.arange(-3, 4)
    values[0, :4] = [np.nan, np.inf, -np.inf, -0.0]
    with np.errstate(over="ignore"):
        values = values.astype(source)
        want = values.astype(ml_dtypes.bfloat16 if target == "bfloat16" else target)
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("x", data=values, chunks=(9, 4))
    got = read(tmp_path / "x.h5", "x", dtype=target)
    finite = ~np.isnan(values)
    assert got[finite].tobytes() == want[finite].tobytes()
    assert np.isnan(got.astype("f4")[~finite]).all()


@pytest.mark.parametrize("source", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i8"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int32", "uint32", "int64", "float32"])
def test_integers_are_converted_or_refused(source, target, tmp_path):
    limits = np.iinfo(source)
    for name, values in {
        "small": np.arange(40).reshape(10, 4).astype(source),
        "limits": np.array([[limits.min, limits.max]], source),
    }.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as f:
            f["x"] = values
        fits = target == "float32" or all(
            np.iinfo(target).min <= int(value) <= np.iinfo(target).max for value in values.flat
        )
        if fits:
            got = read(tmp_path / f"{name}.h5", "x", dtype=target)
            assert got.tobytes() == values.astype(target).tobytes()
        else:
            with pytest.raises(errors.InvalidArgumentError, match=f"is out of range for {target}"):
                read(tmp_path / f"{name}.h5", "x", dtype=target)


def test_integers_of_fewer_bits_are_loaded(tmp_path):
    dtype = h5py.h5t.STD_I16BE.copy()
    dtype.set_precision(12)
    dtype.set_offset(4)
    values = np.random.default_rng(0).integers(-2048, 2048, (300, 3)).astype("i2")
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((16, 3))
    plist.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
    with h5py.File(tmp_path / "x.h5", "w") as f:
        x = h5py.h5d.create(f.id, b"x", dtype, h5py.h5s.create_simple((300, 3)), plist)
        x.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
        f["row"] = np.arange(300)
        assert np.array_equal(f["x"][()], values)
        assert f["x"].id.get_storage_size() < values.nbytes

    def make():
        options = {"dtype": {"x": "float32"}, "batch_size": 32, "last_batch": "partial"}
        return Loader(tmp_path / "x.h5", ["x", "row"], **options)

    seen = read_resumed(make, 4)
    rows = np.concatenate([batch["row"] for batch in seen])
    assert sorted(rows) == list(range(300))
    assert np.array_equal(np.concatenate([batch["x"] for batch in seen]), values[rows])
    with pytest.raises(errors.InvalidArgumentError, match="is out of range for int8"):
        read(tmp_path / "x.h5", "x", dtype="int8")


def test_rows_that_are_not_there_are_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["x"] = np.zeros((10, 2))
    with pytest.raises(errors.InvalidArgumentError, match="has 10 rows, not 3 to 11"):
        read(tmp_path / "x.h5", "x", 3, 11)
    with pytest.raises(errors.InvalidArgumentError, match="has 10 rows, not 10"):
        read(tmp_path / "x.h5", "x", rows=[3, 10])


def test_what_is_no_hdf5_is_refused(tmp_path):
    (tmp_path / "text").write_text("not HDF5, though long enough to hold a superblock")
    with pytest.raises(errors.InvalidFileError, match="is not an HDF5 file"):
        read(tmp_path / "text", "x")
    with pytest.raises(errors.IoError, match="there is no file"):
        read(tmp_path / "nothing", "x")
    with pytest.raises(errors.IoError, match="not a regular file"):
        read(tmp_path, "x")


def test_a_file_that_was_cut_short_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["x"] = np.zeros((1000, 2))
    whole = (tmp_path / "x.h5").read_bytes()
    (tmp_path / "x.h5").write_bytes(whole[:-100])
    with pytest.raises(errors.InvalidFileError, match="is truncated"):
        read(tmp_path / "x.h5", "x")
