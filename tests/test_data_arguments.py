"""Numbers that do not fit, and arguments that are wrong: named, with the way out."""

import os

import h5py
import jax
import numpy as np
import pytest
from commands import run_vramfit
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vramfit import errors
from vramfit.data import KFold, Loader, Mixture, Windows


@pytest.fixture(name="path")
def file_of_two(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(64.0).reshape(32, 2)
        f["y"] = np.arange(32)
    return path


def read(path, name="x", **options):
    with Loader(path, name, batch_size=10, **options) as loader:
        return [{key: value.copy() for key, value in batch.items()} for batch in loader]


@pytest.mark.parametrize("chunks", [None, (7, 3), (5, 4)], ids=["contiguous", "divided", "chunks"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("stored", "value", "options", "wanted"),
    [
        ("i8", 1 << 40, {}, "int32"),
        ("f8", 1e300, {}, "float32"),
        (">f8", -1e39, {}, "float32"),
        ("f4", 70000, {"dtype": "float16"}, "float16"),
        ("f8", 1e39, {"dtype": "bfloat16"}, "bfloat16"),
        ("u2", 65535, {"dtype": {"x": "float16"}}, "float16"),
    ],
)
def test_a_number_that_does_not_fit_is_named(
    tmp_path, chunks, shuffle, stored, value, options, wanted
):
    values = np.ones((100, 4), stored)
    values[61, 2] = values[83, 0] = value
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("x", data=values, chunks=chunks)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        read(tmp_path / "x.h5", shuffle=shuffle, **options)
    message = caught.value.message
    # Several threads read ahead; the error is that of the one that met such a number first.
    assert message.startswith(
        ("dataset `x`, row 61: the value ", "dataset `x`, row 83: the value ")
    )
    assert f" is out of range for {wanted}" in message
    assert f'`dtype={{"x": "{np.dtype(stored).newbyteorder("=").name}"}}`' in caught.value.hint


def test_infinities_and_large_numbers_that_fit_are_read(tmp_path):
    values = np.array([[np.inf, -np.inf, np.nan, 3e38, 65504.0]] * 20)
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["x"], f["half"] = values, values[:, [0, 1, 2, 4]]
    assert np.array_equal(
        read(tmp_path / "x.h5")[0]["x"][0], values[0].astype("f4"), equal_nan=True
    )
    (half, _) = read(tmp_path / "x.h5", "half", dtype=np.float16)
    assert half["half"].dtype == np.float16
    assert np.array_equal(half["half"][0], values[0, [0, 1, 2, 4]].astype("f2"), equal_nan=True)


def test_types_are_named_in_every_usual_way(path):
    for kind in ("bfloat16", jax.numpy.bfloat16):
        assert read(path, dtype=kind)[0]["x"].dtype == jax.numpy.bfloat16
    for kind in (np.float16, np.dtype("f2"), "float16", {"x": np.float16}):
        assert read(path, dtype=kind)[0]["x"].dtype == np.float16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": 5}, "`dtype` is 5, which is not a type"),
        ({"dtype": {"x": object()}}, "which is not a type"),
        ({"dtype": "float31"}, "unknown type `float31`"),
        ({"batch_size": 2.5}, "`batch_size` is 2.5, but must be an integer"),
        ({"batch_size": "8"}, "`batch_size` is '8', but must be an integer"),
        ({"batch_size": 1 << 70}, "`batch_size` is"),
        ({"threads": 1.0}, "`threads` is 1.0, but must be an integer"),
        ({"seed": None}, "`seed` is None, but must be an integer"),
        ({"sharding": PartitionSpec("data")}, "which is not a JAX sharding"),
        ({"sharding": {"x": "data"}}, "`sharding` of `x` is 'data', which is not a JAX sharding"),
    ],
)
def test_wrong_arguments_are_reported_by_name(path, options, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        Loader(path, "x", **{"batch_size": 8} | options)
    assert message in caught.value.message


def test_each_column_may_have_a_sharding_of_its_own(path):
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["data"], []))
    shardings = {"x": rows, "y": whole}
    with Loader(path, ["x", "y"], batch_size=8, shuffle=False, sharding=shardings) as loader:
        batches = list(loader.to_device())
    assert np.array_equal(np.concatenate([b["y"] for b in batches]), np.arange(32))
    for name, sharding in shardings.items():
        assert batches[0][name].sharding == sharding
    with pytest.raises(errors.InvalidArgumentError, match="one entry for each column") as caught:
        Loader(path, ["x", "y"], batch_size=8, sharding={"x": rows})
    assert "`x`, `y`" in caught.value.message


def test_numpy_integers_are_whole_numbers(path):
    with Loader(path, "x", batch_size=np.int64(8), seed=np.uint32(3)) as loader:
        assert len(loader) == 4


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        done = run_vramfit("data", "inspect", path, code=2, timeout=120)
        assert "is not a regular file" in done.stderr
        assert "hint: " in done.stderr


def test_more_rows_than_the_maximum_are_refused(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", (2999,), "f4", maxshape=(3001,), chunks=(10,))
    whole = path.read_bytes()
    lengths = (2999).to_bytes(8, "little") + (3001).to_bytes(8, "little")
    assert whole.count(lengths) == 1
    path.write_bytes(whole.replace(lengths, (3002).to_bytes(8, "little") + lengths[8:]))
    with pytest.raises(errors.InvalidFileError, match="exceeds its maximum of 3001"):
        Loader(path, "x", batch_size=8)


def test_integers_of_64_bits_are_rounded_once(tmp_path):
    """The nearest number of fewer bits, and the even one of two, as exact arithmetic finds it."""
    import ml_dtypes

    halfway = [
        (1 << top) + (1 << (top - bits)) + part
        for top in range(26, 64)
        for bits in (8, 9, 24, 25)
        for part in (-1, 0, 1)
    ]
    random = np.random.default_rng(0)
    large = [
        int(x) >> int(n)
        for x, n in zip(*random.integers(0, [[1 << 62], [62]], (2, 500)), strict=True)
    ]
    small = [*range(2040, 2060), *range(4090, 4110), *range(65_470, 65_520), 33_000, 0, 1]
    unsigned = np.array([*halfway, *large], "u8")
    signed = np.array([x for x in unsigned.tolist() if x < 1 << 63], "i8")
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["unsigned"], f["signed"] = unsigned, np.concatenate([signed, -signed])
        f["small"], f["big_endian"] = np.array([*small, *(-x for x in small)]), signed.astype(">i8")
        f["too_large"] = np.array([1, 65_520])

    def load(name, kind):
        with Loader(
            tmp_path / "f.h5", name, batch_size=9999, shuffle=False, dtype={name: kind}
        ) as it:
            return next(iter(it))[name]

    def nearest(integer, digits):
        """Return an integer rounded to so many binary digits."""
        magnitude = abs(integer)
        unit = 1 << max(magnitude.bit_length() - digits, 0)
        below = magnitude // unit
        twice = 2 * (magnitude % unit)
        rounded = (below + (twice > unit or (twice == unit and below % 2 == 1))) * unit
        return rounded if integer >= 0 else -rounded

    for name in ("unsigned", "signed", "big_endian"):
        with h5py.File(tmp_path / "f.h5") as f:
            values = f[name][:].tolist()
        for kind, digits in (("bfloat16", 8), ("float32", 24)):
            found = load(name, kind)
            assert found.dtype == np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
            assert [int(x) for x in found.astype("f8")] == [nearest(x, digits) for x in values]
    with h5py.File(tmp_path / "f.h5") as f:
        assert np.array_equal(load("small", "float16"), f["small"][:].astype("f2"))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"row 1: the value 65520.* range for float16"
    ):
        load("too_large", "float16")


def test_wrong_values_are_named(path):
    loader = Loader(path, "x", batch_size=4)
    wrong = [
        (lambda: KFold(None, 0), "`folds` is None"),
        (lambda: Mixture({"a": loader, "b": None}), r"`loaders\['b'\]` is None"),
        (lambda: loader.epoch(None), "`epoch` is None"),
        (lambda: Loader(path, "\ud800", batch_size=4), "not valid Unicode"),
        (lambda: Loader(path, ["x", "\ud800"], batch_size=4), "not valid Unicode"),
        (lambda: Loader(path, {"a": "\ud800"}, batch_size=4), "not valid Unicode"),
        (lambda: Loader(path, "x", batch_size=4, groups=["\ud800"]), "not valid Unicode"),
        (lambda: Loader(path, "x", batch_size=None), "`batch_size` is None"),
        (lambda: Windows(None), "`length` of `Windows` is None"),
        (lambda: Windows(4, axis=2), "must be 0, 1 or -1"),
        (lambda: Windows(4, axis={"x": 1}), "must be 0 or -1"),
    ]
    for make, message in wrong:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            make()
