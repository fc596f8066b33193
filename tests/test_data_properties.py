"""Whatever h5py writes, the loader reads: files by chance, compared with h5py bit for bit."""

import h5py
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vramfit.data import Loader

KINDS = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
TYPES = ["?", *(order + kind for order in "<>" for kind in KINDS)]
COMPRESSIONS = [{}, {"compression": "gzip", "compression_opts": 1}, {"compression": "lzf"}]
VERSIONS = [("earliest", "v108"), ("earliest", "v110"), ("v110", "v114"), ("latest", "latest")]


@st.composite
def layouts(draw, shape):
    """Draw how a dataset of that shape is stored."""
    if draw(st.integers(0, 3)) == 0:
        return {}
    growing = [draw(st.booleans()) for _ in shape]
    # A chunk may be longer than an axis that can grow.
    chunks = [
        draw(st.integers(1, length + 3 if can_grow else length))
        for length, can_grow in zip(shape, growing, strict=True)
    ]
    return {
        "chunks": tuple(chunks),
        "maxshape": tuple(
            None if can_grow else length for length, can_grow in zip(shape, growing, strict=True)
        ),
        "shuffle": draw(st.booleans()),
        "fletcher32": draw(st.booleans()),
        **draw(st.sampled_from(COMPRESSIONS)),
    }


@st.composite
def datasets(draw, rows):
    """Draw the values of a dataset, how it is stored, and which of its rows are written."""
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    shape = (rows, *draw(st.lists(st.integers(1, 7), max_size=3)))
    options = draw(layouts(shape))
    options["fillvalue"] = draw(st.none() | hnp.from_dtype(dtype, allow_nan=False))
    seed = draw(st.integers(0, 2**32 - 1))
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(seed).bytes(size)
    values = np.frombuffer(raw, dtype).reshape(shape) if dtype.kind != "b" else None
    if values is None:
        values = (np.frombuffer(raw, "u1") & 1).astype("?").reshape(shape)
    start = draw(st.integers(0, rows))
    return values, options, slice(start, draw(st.integers(start, rows)))


@st.composite
def files(draw):
    """Draw datasets that belong together, and the form of the file."""
    rows = draw(st.integers(1, 40))
    parts = {f"d{n}": draw(datasets(rows)) for n in range(draw(st.integers(1, 3)))}
    return parts, draw(st.sampled_from(VERSIONS)), draw(st.sampled_from([0, 512, 1024]))


def write(path, parts, versions, userblock):
    """Write the file, and return what h5py reads of it, in the order of bytes of this machine."""
    with h5py.File(path, "w", libver=versions, userblock_size=userblock) as f:
        for name, (values, options, written) in parts.items():
            dataset = f.create_dataset(name, values.shape, values.dtype, **options)
            dataset[written] = values[written]
        f["row"] = np.arange(len(values))
    with h5py.File(path) as f:
        return {name: f[name][:].astype(f[name].dtype.newbyteorder("=")) for name in parts}


def read(path, names, **options):
    """Read an epoch, and return its real rows one behind the other."""
    with Loader(path, names, memory="8MiB", mask=True, x64=True, **options) as loader:
        batches = [{name: part.copy() for name, part in batch.items()} for batch in loader]
    real = np.concatenate([batch["mask"].ravel() for batch in batches])
    # Stacks of batches have one more axis in front.
    axis = batches[0]["mask"].ndim
    parts = {name: [batch[name] for batch in batches] for name in names}
    return {
        name: np.concatenate([part.reshape(-1, *part.shape[axis:]) for part in found])[real]
        for name, found in parts.items()
    }


def assert_same(found, expected):
    """Compare bit for bit, so that what is not a number is equal to itself."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


@settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(files(), st.integers(1, 50), st.integers(0, 2**64 - 1), st.sampled_from([None, 2, 3]))
def test_what_h5py_writes_is_read_bit_for_bit(tmp_path_factory, file, batch_size, seed, stack):
    path = tmp_path_factory.getbasetemp() / "property.h5"
    expected = write(path, *file)
    for shuffle in (False, True):
        options = {
            "batch_size": batch_size,
            "stacked_batches": stack,
            "shuffle": shuffle,
            "seed": seed,
        }
        found = read(path, [*expected, "row"], **options)
        order = found.pop("row")
        assert sorted(order) == list(range(len(expected["d0"])))
        if not shuffle:
            assert list(order) == sorted(order)
        for name, values in expected.items():
            assert_same(found[name], values[order])
