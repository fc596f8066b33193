"""Values packed by the conventions of netCDF (CF), against their definition in NumPy."""

import json

import h5py
import numpy as np
import pytest
from commands import run_vramfit
from data_files import as_set, collect
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramfit.data import Loader, compute_statistics
from vramfit.errors import InvalidArgumentError, UnsupportedFeatureError


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("storage", [{}, {"chunks": (5, 4), "compression": "gzip"}])
def test_packed_values_are_unpacked_by_the_attributes_of_each_file(tmp_path, storage, libver):
    expected = []
    rng = np.random.default_rng(0)
    for number, (kind, fill) in enumerate(
        (("i2", -32767), (">i2", -9), ("f4", 1e20), ("i2", None))
    ):
        raw = rng.integers(-50, 50, (13, 4)).astype(kind)
        values = raw.astype("f8") * (0.5 + number) + 10 * number
        if fill is not None:
            raw[3, 1], values[3, 1] = fill, np.nan
        expected.append(values)
        with h5py.File(tmp_path / f"{number}.h5", "w", libver=libver) as f:
            x = f.create_dataset("x", data=raw, **storage)
            x.attrs["scale_factor"] = 0.5 + number
            x.attrs["add_offset"] = np.float32(10 * number)
            x.attrs["units"] = "K"
            if fill is not None:
                x.attrs["_FillValue"] = np.array([fill], kind)
        loader = Loader(
            tmp_path / f"{number}.h5",
            "x",
            batch_size=4,
            shuffle=False,
            unpack=True,
            dtype="float32",
        )
        assert np.allclose(collect(loader)["x"], values, equal_nan=True)
    files = [tmp_path / f"{number}.h5" for number in (0, 3)]
    for shuffle in (False, True):
        loader = Loader(files, ["x"], batch_size=4, shuffle=shuffle, unpack=True)
        found = collect(loader)["x"]
        assert found.dtype == np.float32
        both = np.concatenate([expected[0], expected[3]])
        assert np.allclose(as_set(found), as_set(both.astype("f4")), equal_nan=True)
    with h5py.File(tmp_path / "0.h5") as f, h5py.File(tmp_path / "plain.h5", "w") as other:
        other["x"] = f["x"][:]
    with pytest.raises(InvalidArgumentError, match="is int16, and unpacked numbers are floats"):
        Loader([tmp_path / "plain.h5", files[0]], "x", batch_size=4, unpack=True)
    plain = collect(Loader(files, "x", batch_size=4))["x"]
    assert plain.dtype == np.int16
    found = compute_statistics(files, "x", unpack=True)["x"]
    assert found.nan.tolist() == [0, 1, 0, 0]
    assert np.allclose(found.mean, np.nanmean(both, axis=0), rtol=1e-5)
    assert "packed-values" in run_vramfit("data", "inspect", files[0]).stdout


def define_unpacked(raw, attributes):
    """Unpack values as the conventions say, in double precision."""
    kind = raw.dtype
    unsigned = {"true": "u", "false": "i"}.get(attributes.get("_Unsigned", "").lower())
    if unsigned and kind.kind in "iu":
        kind = np.dtype(f"{kind.byteorder}{unsigned}{kind.itemsize}")
    values = raw.view(kind).astype("f8")
    missing = np.zeros(raw.shape, bool)
    for name in ("_FillValue", "missing_value"):
        for one in np.atleast_1d(attributes.get(name, np.zeros(0, raw.dtype))):
            missing |= raw.view(kind) == np.array([one], raw.dtype).view(kind)[0]
    unpacked = values * attributes.get("scale_factor", 1.0) + attributes.get("add_offset", 0.0)
    return np.where(missing, np.nan, unpacked)


def write_text(x, name, text, form):
    """Write an attribute of text as programs do: of fixed or variable length, also as an array."""
    x.attrs[name] = {
        "fixed": np.bytes_(text),
        "variable": text,
        "array": np.array([text], h5py.string_dtype()),
        "padded": np.array(text.encode() + b" ", "S8"),
    }[form]


@given(
    kind=st.sampled_from(["i1", "u1", "<i2", ">i2", "<u2", ">u4", "<i4", "<f4", ">f8"]),
    seed=st.integers(0, 2**32 - 1),
    numbers=st.fixed_dictionaries(
        {},
        optional={
            "scale_factor": st.floats(-10, 10).filter(bool),
            "add_offset": st.floats(-1000, 1000),
        },
    ),
    fills=st.integers(0, 1),
    missing=st.integers(0, 3),
    unsigned=st.sampled_from([None, "true", "false", "True", "no"]),
    form=st.sampled_from(["fixed", "variable", "array", "padded"]),
    libver=st.sampled_from(["earliest", "latest"]),
    chunked=st.booleans(),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_unpacked_values_are_those_of_the_definition(
    tmp_path_factory, kind, seed, numbers, fills, missing, unsigned, form, libver, chunked
):
    rng = np.random.default_rng(seed)
    raw = rng.integers(-128, 128, (9, 3)).astype("i8")
    raw = raw.astype(kind) if np.dtype(kind).kind != "u" else (raw & 0xFF).astype(kind)
    # Values at the end of the range as well, and those that stand for missing ones are there.
    raw.ravel()[rng.integers(0, raw.size, 3)] = np.array([-1], "i8").astype(kind)
    attributes = dict(numbers)
    if fills:
        attributes["_FillValue"] = rng.choice(raw.ravel(), 1).astype(kind)
    if missing:
        attributes["missing_value"] = rng.choice(raw.ravel(), missing).astype(kind)
    path = tmp_path_factory.mktemp("packed") / "f.h5"
    with h5py.File(path, "w", libver=libver) as f:
        x = f.create_dataset("x", data=raw, chunks=(4, 2) if chunked else None)
        for name, value in attributes.items():
            x.attrs[name] = value
        if unsigned is not None:
            attributes["_Unsigned"] = unsigned
            write_text(x, "_Unsigned", unsigned, form)
    loader = Loader(
        path, "x", batch_size=4, shuffle=False, unpack=True, dtype={"x": "float64"}, x64=True
    )
    found = collect(loader)["x"]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, define_unpacked(raw, attributes))


def test_a_missing_value_of_more_digits_is_that_of_the_numbers(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.array([1, 1e20, 0.1], "f4")
        f["x"].attrs["missing_value"] = np.array([1e20, 0.1], "f8")
    found = collect(Loader(tmp_path / "f.h5", "x", batch_size=4, shuffle=False, unpack=True))["x"]
    assert np.isnan(found).tolist() == [False, True, True]


def test_integers_of_32_bits_keep_their_digits_where_doubles_are_kept(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.array([2**24 + 1, -5, -1], "i4")
        f["x"].attrs["_FillValue"] = np.int32(-1)
    loader = Loader(tmp_path / "f.h5", "x", batch_size=4, shuffle=False, unpack=True, x64=True)
    np.testing.assert_array_equal(collect(loader)["x"], [2**24 + 1, -5, np.nan])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scale_factor", [0.1, 0.2], "it has 2 values"),
        ("scale_factor", "0.1", "it is text"),
        ("add_offset", np.array([1 + 2j]), "it is (complex|record)"),
        ("missing_value", "none", "it is text"),
        ("_Unsigned", 1, "it is not text"),
    ],
)
def test_attributes_that_are_not_of_the_conventions_are_errors(tmp_path, name, value, message):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.arange(5, dtype="i2")
        f["x"].attrs[name] = value
    with pytest.raises(UnsupportedFeatureError, match=f"`{name}` of dataset `x`.*{message}"):
        Loader(tmp_path / "f.h5", "x", batch_size=4, unpack=True)
    assert len(collect(Loader(tmp_path / "f.h5", "x", batch_size=4))["x"]) == 5


def test_columns_of_text_are_not_unpacked(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"], f["name"] = np.arange(3.0), ["a", "b", "c"]
        f["name"].attrs["_FillValue"] = ""
    loader = Loader(
        tmp_path / "f.h5", ["x", "name"], batch_size=3, decode={"name": bytes.decode}, unpack=True
    )
    assert sorted(next(iter(loader))["name"]) == ["a", "b", "c"]


@pytest.fixture
def packed(tmp_path):
    raw = np.arange(-40, 40, dtype="i2").reshape(20, 4)
    raw[3] = -9
    with h5py.File(tmp_path / "cf.nc", "w") as f:
        f["x"] = raw
        f["x"].attrs.update({"scale_factor": 0.5, "add_offset": 100.0, "_FillValue": np.int16(-9)})
    values = np.where(raw == -9, np.nan, raw * 0.5 + 100)
    return tmp_path / "cf.nc", raw, values


def test_statistics_are_of_unpacked_values_where_that_is_asked_for(packed, tmp_path):
    path, raw, values = packed
    found = {}
    for words, expected in (((), raw.astype("f8")), (("--unpack",), values)):
        output = tmp_path / f"stats{len(words)}.json"
        done = run_vramfit("data", "stats", path, "--output", output, *words)
        assert ("packed" in done.stderr) == (not words)
        one = json.loads(output.read_text())["datasets"]["/x"]
        assert one["unpacked"] == bool(words)
        assert np.allclose(one["mean"], np.nanmean(expected, axis=0), rtol=1e-6)
        assert one["nan"] == np.isnan(expected).sum(axis=0).tolist()
        found[bool(words)] = output
    done = run_vramfit("data", "stats", path)
    assert (
        "`/x` has the attributes `scale_factor`, `add_offset`, `_FillValue`: these are statistics "
        "of values as they are stored" in done.stderr
    )
    batch = collect(Loader(path, "x", batch_size=20, unpack=True, normalize=found[True]))["x"]
    assert np.allclose(np.nanmean(batch, axis=0), 0, atol=1e-5)


@pytest.mark.parametrize("unpack", [False, True])
@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize("form", ["file", "old file", "statistics"])
def test_statistics_of_values_that_are_unpacked_otherwise_are_refused(
    packed, tmp_path, form, unpacked, unpack
):
    path, _, _ = packed
    if form == "statistics":
        normalize = {"x": compute_statistics(path, "x", unpack=unpacked)["x"]}
        assert normalize["x"].unpacked == unpacked
    else:
        normalize = tmp_path / "stats.json"
        run_vramfit(
            "data", "stats", path, "--output", normalize, *(["--unpack"] if unpacked else [])
        )
        if form == "old file":
            # Of before there was `--unpack`.
            found = json.loads(normalize.read_text())
            del found["datasets"]["/x"]["unpacked"]
            normalize.write_text(json.dumps(found))
            unpacked = False
    dtype = {"x": "float32"}
    arguments = {"normalize": normalize, "unpack": unpack, "dtype": dtype, "batch_size": 4}
    if unpack == unpacked:
        assert len(collect(Loader(path, "x", **arguments))["x"]) == 20
        return
    with pytest.raises(InvalidArgumentError, match="unpack") as caught:
        Loader(path, "x", **arguments)
    assert "unpack" in caught.value.hint


def test_inspect_names_bounds_that_are_not_applied(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.arange(5, dtype="i2")
        f["x"].attrs["valid_range"] = np.array([0, 3], "i2")
        f["u"] = np.arange(5, dtype="i1")
        f["u"].attrs["_Unsigned"] = "true"
    shown = run_vramfit("data", "inspect", tmp_path / "f.h5").stdout
    assert "/x [valid-range]: it has the attribute `valid_range`: values outside" in shown
    assert "/u [packed-values]: it has the attribute `_Unsigned`" in shown


def test_a_fill_value_that_is_no_number_packs_nothing(tmp_path):
    """Xarray writes it for every dataset of floats."""
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.arange(30, dtype="f4").reshape(15, 2)
        f["x"].attrs["_FillValue"] = np.float32("nan")
    for action in ("inspect", "stats"):
        done = run_vramfit("data", action, tmp_path / "f.h5")
        assert "packed" not in done.stdout + done.stderr


def test_a_scale_that_is_no_number_is_named(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.arange(30, dtype="f4").reshape(15, 2)
        f["x"].attrs["scale_factor"] = np.float32("nan")
    assert "`scale_factor`" in run_vramfit("data", "inspect", tmp_path / "f.h5").stdout


def test_training_on_packed_values_is_warned_about(packed, tmp_path):
    path, _, values = packed
    with h5py.File(path, "a") as f:
        f["y"] = values[:, 0].astype("f4")
        f["label"] = np.arange(len(values)) % 3
        f["label"].attrs["_FillValue"] = -1
    config = tmp_path / "train.toml"
    config.write_text(f'[data]\npath = "{path}"\ninputs = "x"\ntargets = "y"\nbatch_size = 4\n')
    done = run_vramfit("train", config, "--set", "model.kind=mlp", "--check")
    said = " ".join(done.stdout.split())
    assert "warning `x` has the attributes `scale_factor`, `add_offset`, `_FillValue`" in said
    assert "`y` has" not in said
    words = ["--set", "model.kind=mlp", "--set", "data.targets=label", "--check"]
    said = " ".join(run_vramfit("train", config, *words).stdout.split())
    assert "`label` has the attribute `_FillValue`, for missing values: these are integers" in said
