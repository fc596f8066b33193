"""Small HDF5 files, one for each feature of the format: what is read, and what is refused by name.

The tests make them afresh with the h5py that is installed; `scripts/record/hdf5.py` keeps them as
fixtures for the tests in Rust.
"""

from __future__ import annotations

import ctypes
import dataclasses
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np


@dataclasses.dataclass(frozen=True)
class Case:
    """A file with one thing to be read, or refused."""

    name: str
    make: Callable[[Path], None]
    dataset: str = "x"
    field: str | None = None
    # A part of the message with which it is refused; None where it is read.
    refused: str | None = None
    kind: str = "unsupported-feature"
    # The name of the type, where h5py has none for it.
    dtype: str | None = None


CASES: list[Case] = []


def case(**options):
    """Add a case; its name is that of the function."""

    def add(make):
        CASES.append(Case(make.__name__, make, **options))
        return make

    return add


def contents(libver=None, **options):
    """Add a case of a file to which the function writes; its name is that of the function."""

    def add(write):
        def make(path):
            with h5py.File(path, "w", libver=libver) as f:
                write(f)

        CASES.append(Case(write.__name__, make, **options))
        return make

    return add


def numbers(*shape, dtype="f4"):
    """Return values that differ from row to row and compress a little."""
    count = int(np.prod(shape))
    values = np.random.default_rng(count).integers(-99, 99, count) / 8
    return values.astype(dtype).reshape(shape)


def integers(*shape, dtype="i4"):
    """Return small integers."""
    return np.random.default_rng(7).integers(0, 100, shape).astype(dtype)


def simple(name, values, *, libver="earliest", file=None, refused=None, **options):
    """Add a case of one dataset that h5py's own interface can make."""

    def make(path):
        with h5py.File(path, "w", libver=libver, **(file or {})) as f:
            f.create_dataset("x", data=values, **options)

    CASES.append(Case(name, make, refused=refused))


# Where the elements are.
simple("contiguous", numbers(37, 5))
simple("rank_1", numbers(100))
simple("user_block", numbers(11, 3), file={"userblock_size": 1024}, chunks=(4, 3))
simple("superblock_3", numbers(37, 5), libver="v110")
simple("paged_file", numbers(9, 4), file={"fs_strategy": "page", "fs_page_size": 512})
simple("empty_rows", np.zeros((0, 5), "f4"), chunks=(4, 5), maxshape=(None, 5))
simple("empty_columns", np.zeros((5, 0), "f4"))


@contents()
def compact(f):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    low_level(f, numbers(6, 5), plist)


@contents()
def never_written(f):
    f.create_dataset("x", shape=(10, 3), dtype="i2", fillvalue=-5)


@case()
def four_byte_addresses(path):
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_sizes(4, 4)
    with h5py.File(h5py.h5f.create(str(path).encode(), fcpl=plist)) as f:
        f.create_dataset("x", data=numbers(30, 2), chunks=(7, 2), compression="gzip")


def low_level(f, values, plist, *, dtype=None, maxshape=None):
    """Make the dataset `x` from a property list."""
    space = h5py.h5s.create_simple(values.shape, maxshape)
    dtype = dtype or h5py.h5t.py_create(values.dtype, logical=True)
    dataset = h5py.h5d.create(f.id, b"x", dtype, space, plist)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return h5py.Dataset(dataset)


# Chunk indexes.
simple("tree_1", numbers(37, 5), chunks=(8, 5))
simple("tree_1_deep", integers(200, 2, dtype="u1"), chunks=(2, 1))
simple("single", numbers(37, 5), libver="v110", chunks=(37, 5))
simple("single_filtered", numbers(37, 5), libver="v110", chunks=(37, 5), compression="gzip")
simple("fixed_array", numbers(37, 5), libver="v110", chunks=(8, 3))
simple("fixed_array_filtered", numbers(37, 5), libver="v110", chunks=(8, 3), compression="gzip")
simple("fixed_array_larger_maximum", numbers(9, 5), libver="v110", chunks=(2, 3), maxshape=(20, 20))
simple("extensible_array", numbers(37, 5), libver="v110", chunks=(1, 3), maxshape=(None, 5))
simple("extensible_second_axis", numbers(5, 37), libver="v110", chunks=(2, 2), maxshape=(5, None))
simple(
    "extensible_filtered",
    numbers(37, 5),
    libver="v110",
    chunks=(1, 5),
    maxshape=(None, 5),
    compression="gzip",
)
simple("tree_2", numbers(37, 5), libver="v110", chunks=(2, 3), maxshape=(None, None))
simple(
    "tree_2_deep",
    integers(300, 2, dtype="u1"),
    libver="v110",
    chunks=(2, 1),
    maxshape=(None, None),
)
simple(
    "tree_2_filtered",
    numbers(37, 5),
    libver="v110",
    chunks=(2, 3),
    maxshape=(None, None),
    compression="gzip",
    shuffle=True,
)
simple("latest", numbers(37, 5), libver="latest", chunks=(8, 3), compression="gzip", shuffle=True)
simple(
    "latest_extensible",
    numbers(37, 5),
    libver="latest",
    chunks=(8, 3),
    maxshape=(None, 5),
    compression="gzip",
)
simple(
    "latest_tree_2",
    numbers(37, 5),
    libver="latest",
    chunks=(8, 3),
    maxshape=(None, None),
    compression="gzip",
)
simple("latest_single", numbers(37, 5), libver="latest", chunks=(37, 5), compression="gzip")


@contents(libver="v110")
def implicit(f):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 3))
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    low_level(f, numbers(10, 5), plist, maxshape=(12, 9))


@contents(libver="v110")
def fixed_array_pages(f):
    x = f.create_dataset("x", shape=(1050,), dtype="u1", chunks=(1,), fillvalue=9)
    x[5:40] = integers(35, dtype="u1")
    x[1040:1050] = 3


@contents(libver="v110")
def extensible_array_pages(f):
    # The first chunks are in the index block; those around 6000 in a data block that has pages.
    x = f.create_dataset("x", (12000,), "u1", chunks=(1,), maxshape=(None,), fillvalue=9)
    for start in (0, 100, 700, 6000, 11990):
        x[start : start + 10] = integers(10, dtype="u1")


# Chunks that are not all there, or not all alike.
simple("edges", numbers(10, 7, 5), chunks=(4, 3, 2), compression="gzip")
simple("chunk_longer_than_shape", numbers(5, 3), chunks=(8, 4), maxshape=(None, 9))
simple("images", integers(12, 5, 6, 3, dtype="u1"), chunks=(5, 2, 6, 2), compression="gzip")


@contents()
def grown(f):
    x = f.create_dataset("x", data=numbers(7, 3), chunks=(3, 2), maxshape=(None, None))
    x.resize((11, 5))
    x[9:11, 4] = 5


@case()
def shrunk(path):
    for libver, mode, name in (("earliest", "w", "old"), ("v110", "a", "x")):
        with h5py.File(path, mode, libver=libver) as f:
            x = f.create_dataset(name, data=numbers(21, 5), chunks=(3, 2), maxshape=(None, None))
            x.resize((8, 3))


@contents()
def filter_mask(f):
    x = f.create_dataset(
        "x", (12, 4), "f4", chunks=(4, 4), shuffle=True, compression="gzip", fletcher32=False
    )
    values = numbers(12, 4)
    x[:4] = values[:4]
    x.id.write_direct_chunk((4, 0), values[4:8].tobytes(), filter_mask=3)
    # The shuffle is left out, and the deflate is not.
    x.id.write_direct_chunk((8, 0), zlib.compress(values[8:].tobytes()), filter_mask=1)


@contents()
def unallocated(f):
    x = f.create_dataset(
        "x", (20, 6), "f8", chunks=(4, 2), fillvalue=2.5, compression="gzip", shuffle=True
    )
    x[5:7, 1:3] = 1


def short_edge(name, encode, *, refused=None, shape=(22, 3), libver="earliest", **options):
    """Add a case of an edge chunk that is stored without what is not in the dataset."""

    def make(path):
        values = integers(*shape)
        chunk = (8, 2 if shape[1] > 2 else shape[1])
        with h5py.File(path, "w", libver=libver) as f:
            x = f.create_dataset("x", data=values, chunks=chunk, **options)
            for column in range(0, shape[1], chunk[1]):
                whole = np.zeros(chunk, values.dtype)
                edge = values[16:, column : column + chunk[1]]
                whole[: edge.shape[0], : edge.shape[1]] = edge
                used = (edge.shape[0] - 1) * chunk[1] + edge.shape[1]
                stored = encode(whole.tobytes(), used * values.dtype.itemsize)
                x.id.write_direct_chunk((16, column), stored)

    CASES.append(Case(name, make, refused=refused, kind="invalid-file"))


def shuffle_bytes(data):
    """Do what the shuffle filter does to numbers of 4 bytes."""
    return np.frombuffer(data, "u1").reshape(-1, 4).T.tobytes()


def compress_few(data, used):
    """Compress what is in the dataset."""
    return zlib.compress(data[:used])


# Shape (22, 3) has partial chunks on both axes; in (22, 1) chunks are whole rows.
for shape in ((22, 3), (22, 1)):
    columns = shape[1]
    for libver in ("earliest", "latest"):
        options = {"shape": shape, "libver": libver}
        short_edge(f"short_{columns}_{libver}", lambda data, used: data[:used], **options)
        short_edge(f"short_{columns}_{libver}_gzip", compress_few, compression="gzip", **options)
    short_edge(
        f"short_{columns}_shuffle",
        lambda data, used: shuffle_bytes(data[:used]),
        shuffle=True,
        shape=shape,
    )
    short_edge(
        f"short_{columns}_shuffle_gzip",
        lambda data, used: zlib.compress(shuffle_bytes(data[:used])),
        shuffle=True,
        compression="gzip",
        shape=shape,
    )
short_edge("short_zstd", lambda data, used: zstd_frame(data[:used]), **hdf5plugin.Zstd())
short_edge(
    "short_too_much_gzip",
    lambda data, used: zlib.compress(data[: used - 4]),
    compression="gzip",
    refused="44 bytes, expected 48 to 64",
)
short_edge(
    "short_too_much", lambda data, used: data[: used - 4], refused="44 bytes, expected 48 to 64"
)


def zstd_frame(data):
    """Return bytes as the Zstandard filter stores them."""
    with h5py.File("zstd.h5", "w", driver="core", backing_store=False) as f:
        bytes_ = np.frombuffer(data, "u1")
        x = f.create_dataset("x", data=bytes_, chunks=bytes_.shape, **hdf5plugin.Zstd())
        return x.id.read_direct_chunk((0,))[1]


# Filters.
simple("gzip", numbers(37, 5), chunks=(8, 5), compression="gzip", compression_opts=9)
simple("shuffle", numbers(37, 5), chunks=(8, 5), shuffle=True)
simple("shuffle_8", numbers(37, 5, dtype="f8"), chunks=(8, 5), shuffle=True, compression="gzip")
simple("fletcher32", numbers(37, 5), chunks=(8, 5), fletcher32=True)
simple("fletcher32_gzip", numbers(9, 3), chunks=(3, 3), fletcher32=True, compression="gzip")
simple("fletcher32_odd", integers(9, 3, dtype="u1"), chunks=(3, 3), fletcher32=True)
simple("lzf", numbers(40, 25), chunks=(16, 25), compression="lzf", shuffle=True)
simple(
    "lzf_incompressible",
    np.frombuffer(np.random.default_rng(1).bytes(800), "u1"),
    chunks=(100,),
    compression="lzf",
)
simple("scale_offset", integers(37, 5), chunks=(8, 5), scaleoffset=0)
simple("scale_offset_signed", integers(37, 5, dtype="i2") - 50, chunks=(8, 5), scaleoffset=0)
simple("scale_offset_bits", integers(37, 5, dtype="u8"), chunks=(8, 5), scaleoffset=7)
simple("scale_offset_constant", np.full((9, 3), 12, "i4"), chunks=(4, 3), scaleoffset=0)
simple("scale_offset_big_endian", integers(37, 5, dtype=">i4"), chunks=(8, 5), scaleoffset=0)
for order, word in (("<", "little"), (">", "big")):
    for kind in ("i2", "u2", "i4", "u4", "i8", "u8"):
        # With both ends of the range nothing can be saved, and the elements are stored as they are.
        ends = np.iinfo(kind)
        simple(
            f"scale_offset_whole_range_{kind}_{word}_endian",
            np.array([[ends.min, 1, 0x25F], [ends.max, 2, 258]] * 6, order + kind),
            chunks=(4, 3),
            scaleoffset=0,
        )
simple("scale_offset_gzip", integers(37, 5), chunks=(8, 5), scaleoffset=0, compression="gzip")
simple("scale_offset_fill", integers(37, 5), chunks=(8, 5), scaleoffset=0, fillvalue=3)
simple("zstd", numbers(37, 5), chunks=(8, 5), **hdf5plugin.Zstd())
simple("lz4", numbers(40, 25), chunks=(16, 25), **hdf5plugin.LZ4(nbytes=512))
simple("lz4_short", numbers(37, 5), chunks=(8, 5), **hdf5plugin.LZ4())
simple("bitshuffle", numbers(37, 5), chunks=(8, 5), **hdf5plugin.Bitshuffle(cname="none"))
simple("bitshuffle_lz4", numbers(900, 3), chunks=(700, 3), **hdf5plugin.Bitshuffle(cname="lz4"))
simple("bitshuffle_zstd", numbers(900, 3), chunks=(700, 3), **hdf5plugin.Bitshuffle(cname="zstd"))
simple(
    "bitshuffle_8", numbers(90, 3, dtype="f8"), chunks=(70, 3), **hdf5plugin.Bitshuffle(nelems=64)
)
simple("bitshuffle_1", integers(903, dtype="u1"), chunks=(500,), **hdf5plugin.Bitshuffle())
for codec in ("lz4", "lz4hc", "snappy", "zlib", "zstd"):
    for shuffle in (0, 1, 2):
        simple(
            f"blosc_{codec}_{shuffle}",
            numbers(90, 9),
            chunks=(70, 9),
            **hdf5plugin.Blosc(cname=codec, clevel=5, shuffle=shuffle),
        )
simple("blosc_bits", numbers(160, 9), chunks=(80, 9), **hdf5plugin.Blosc(shuffle=2))
simple("blosc_bits_8", numbers(80, 9, dtype="f8"), chunks=(80, 9), **hdf5plugin.Blosc(shuffle=2))
simple("blosc_blosclz", numbers(90, 9), chunks=(70, 9), **hdf5plugin.Blosc(cname="blosclz"))
simple(
    "blosc_incompressible",
    np.frombuffer(np.random.default_rng(1).bytes(800), "u1"),
    chunks=(400,),
    **hdf5plugin.Blosc(cname="lz4", shuffle=0),
)
simple("blosc_large", numbers(3000, 9), chunks=(3000, 9), **hdf5plugin.Blosc(cname="lz4"))
simple("bzip2", numbers(37, 5), chunks=(8, 5), refused="307 (bzip2)", **hdf5plugin.BZip2())
simple("blosc2", numbers(37, 5), chunks=(8, 5), refused="32026 (blosc2)", **hdf5plugin.Blosc2())
simple(
    "zfp", numbers(37, 5), chunks=(8, 5), refused="32013 (zfp)", **hdf5plugin.Zfp(reversible=True)
)
simple("scale_offset_float", numbers(37, 5), chunks=(8, 5), refused="scale-offset", scaleoffset=3)


@contents()
def nbit_whole(f):
    """Numbers that have all their bits are stored as they are."""
    low_level(f, integers(37, 5), with_nbit((8, 5)))


def with_nbit(chunk):
    """Return a property list of chunks with the N-bit filter."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunk)
    plist.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
    return plist


@contents(refused="szip")
def szip(f):
    # The library of this h5py cannot compress so; a chunk that was left alone is enough to refuse.
    f.create_dataset("x", data=numbers(16, 16), chunks=(8, 16), compression="szip")


# Types.
for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"):
    for order in ("<", ">") if name[1] != "1" else ("|",):
        values = (
            integers(21, 3, dtype=order + name)
            if name[0] != "f"
            else numbers(21, 3, dtype=order + name)
        )
        simple(f"type_{name}{'_big_endian' if order == '>' else ''}", values, chunks=(8, 2))
simple("type_bool", integers(21, 3) > 50, chunks=(8, 2))


@contents(dtype="bfloat16")
def type_bfloat16(f):
    dtype = h5py.h5t.IEEE_F16LE.copy()
    dtype.set_fields(15, 7, 8, 0, 7)
    dtype.set_ebias(127)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    # The values are exact in bfloat16: the library converts them.
    space = h5py.h5s.create_simple((21, 3))
    x = h5py.h5d.create(f.id, b"x", dtype, space, plist)
    x.write(h5py.h5s.ALL, h5py.h5s.ALL, integers(21, 3, dtype="f4"))


@contents()
def bit_field(f):
    """What PyTables makes of `bool`."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    low_level(f, integers(21, 3, dtype="u1") % 2, plist, dtype=h5py.h5t.STD_B8LE)


@contents()
def bit_field_big_endian(f):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space = h5py.h5s.create_simple((21, 3))
    x = h5py.h5d.create(f.id, b"x", h5py.h5t.STD_B16BE, space, plist)
    values = integers(21, 3, dtype="u2") * 600
    x.write(h5py.h5s.ALL, h5py.h5s.ALL, values, h5py.h5t.NATIVE_B16)


@contents()
def enumeration(f):
    kinds = h5py.enum_dtype({"red": 0, "green": 1, "blue": 2}, basetype="i2")
    f.create_dataset("x", data=integers(21, 3, dtype="i2") % 3, dtype=kinds)


@contents()
def named_type(f):
    f["type"] = np.dtype("<f8")
    f.create_dataset("x", data=numbers(21, 3, dtype="f8"), dtype=f["type"])


@case()
def named_type_of_an_old_library(path):
    """Refer to the named type as libraries before HDF5 1.6 did, in 24 bytes instead of 10."""
    named_type(path)
    with h5py.File(path) as f:
        header = h5py.h5o.get_info(f["x"].id).addr
        address = h5py.h5o.get_info(f["type"].id).addr
    whole = bytearray(path.read_bytes())
    length = struct.unpack_from("<I", whole, header + 8)[0]
    body, messages = header + 16, []
    while length >= 8:
        kind, size, flags = struct.unpack_from("<HHB", whole, body)
        messages.append((kind, flags, bytes(whole[body + 8 : body + 8 + size])))
        body, length = body + 8 + size, length - 8 - size
    assert (3, 2) in [(kind, flags & 2) for kind, flags, _ in messages]
    packed = bytearray()
    for kind, flags, content in messages:
        if kind == 3:
            content = struct.pack("<BB6xQQ", 1, 0, 8, address)
        if kind == 0:
            # What was free has to make room.
            content = bytes(len(content) - 8)
        packed += struct.pack("<HHB3x", kind, len(content), flags) + content
    whole[header + 16 : body] = packed
    path.write_bytes(whole)


@case()
def cache_image(path):
    """Close the file with the library's cache in it, of which h5py has no way to speak."""
    library = ctypes.CDLL(next(Path(h5py.__file__).parent.with_name("h5py.libs").glob("libhdf5-*")))

    class Config(ctypes.Structure):
        _fields_ = [
            ("version", ctypes.c_int),
            ("generate_image", ctypes.c_bool),
            ("save_resize_status", ctypes.c_bool),
            ("entry_ageout", ctypes.c_int),
        ]

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    set_image = library.H5Pset_mdc_image_config
    set_image.argtypes = [ctypes.c_int64, ctypes.POINTER(Config)]
    assert set_image(access.id, ctypes.byref(Config(1, True, False, -1))) >= 0
    with h5py.File(h5py.h5f.create(str(path).encode(), fapl=access)) as f:
        # Not more: HDF5 2.0 itself cannot read an image of structures that depend on each other.
        f["x"] = numbers(37, 5)


RECORD = np.dtype([("a", "<i2"), ("b", ">f8"), ("c", "u1"), ("name", "S4"), ("v", "f4", (2,))])


def records(name, *, libver="earliest", **options):
    """Add a case of records with fields of several kinds."""

    def make(path):
        values = np.zeros((30,), RECORD)
        values["a"], values["b"], values["c"] = integers(30), numbers(30), integers(30)
        with h5py.File(path, "w", libver=libver) as f:
            f.create_dataset("x", data=values, chunks=(7,), compression="gzip", shuffle=True)

    CASES.append(Case(name, make, **options))


records("record_integer", field="a")
records("record_float_big_endian", field="b", libver="v110")
records("record_text", field="name", refused="field `name`: fixed-length strings")
records("record_array", field="v")


# What is not understood, or is an array, in front of what is read: each has a length of its own.
MIXED = np.dtype(
    [
        ("v", ">f4", (2, 3)),
        ("text", h5py.string_dtype()),
        ("sequence", h5py.vlen_dtype("i4")),
        ("reference", h5py.ref_dtype),
        ("kind", h5py.enum_dtype({"red": 0, "green": 1, "blue": 2}, basetype="i2")),
        ("is_it", "?"),
        ("opaque", h5py.opaque_dtype(np.dtype("M8[s]"))),
        ("inner", [("pairs", "<u2", (2,)), ("deep", [("z", "<f8"), ("c", "<c8")])]),
        ("many", [("a", "i1"), ("b", "<f4", (2,))], (3,)),
        ("last", "<i8"),
    ]
)


def mixed(name, field, *, libver):
    """Add a case of one field of records that have fields of every kind."""

    def make(path):
        values = np.zeros(11, MIXED)
        values["v"], values["kind"], values["is_it"] = numbers(11, 2, 3), 2, integers(11) > 50
        values["text"], values["last"] = "text", integers(11)
        for row in range(11):
            values["sequence"][row] = np.arange(row)
        values["inner"]["pairs"] = integers(11, 2)
        values["inner"]["deep"]["z"] = numbers(11)
        values["inner"]["deep"]["c"] = numbers(11) + 2j
        values["many"]["a"], values["many"]["b"] = integers(11, 3), numbers(11, 3, 2)
        with h5py.File(path, "w", libver=libver) as f:
            values["reference"] = f.ref
            f.create_dataset("x", data=values, chunks=(4,))

    CASES.append(Case(name, make, field=field))


for libver, age in (("earliest", "old"), ("v110", "new"), ("latest", "latest")):
    for field in ("v", "kind", "inner.pairs", "inner.deep.z", "inner.deep.c.i", "many.b", "last"):
        mixed(f"record_{age}_{field.replace('.', '_')}", field, libver=libver)


records("record_without_field", refused="a field is required", kind="invalid-argument")


@contents(field="r")
def complex_real_part(f):
    f["x"] = (integers(21, 3) + 1j).astype("c8")


def refused(name, what, values, dtype=None):
    """Add a case of elements that are no numbers."""

    def make(path):
        with h5py.File(path, "w") as f:
            f.create_dataset("x", data=values, dtype=dtype)

    CASES.append(Case(name, make, refused=what))


refused("text", "variable-length strings", ["a", "bc"], h5py.string_dtype())
refused("text_fixed", "fixed-length strings", np.array([b"ab", b"c"]))
refused(
    "sequences",
    "variable-length sequences",
    np.array([np.arange(2), np.arange(3)], object),
    h5py.vlen_dtype("i4"),
)
refused("opaque", "opaque bytes", np.array([b"ab", b"cd"], "V2"))
refused("times", "opaque bytes", np.arange(3).astype("M8[s]").astype(h5py.opaque_dtype("M8[s]")))


@contents(refused="references")
def references(f):
    f["y"] = 1
    f.create_dataset("x", data=np.array([f["y"].ref], h5py.ref_dtype))


@contents()
def arrays(f):
    f.create_dataset("x", (9, 2), np.dtype((">f4", (3,))))
    f["x"][...] = numbers(9, 2, 3)


@contents(libver="v110")
def arrays_filtered(f):
    options = {"chunks": (4, 1), "compression": "gzip", "shuffle": True}
    f.create_dataset("x", (9, 2), np.dtype(("<i2", (3, 4))), **options)
    f["x"][...] = integers(9, 2, 3, 4, dtype="i2")


@contents(refused="arrays of fixed-length strings")
def arrays_of_text(f):
    f.create_dataset("x", shape=(4,), dtype=np.dtype(("S3", (3,))))


# Numbers that have fewer bits than their bytes.
def with_bits(base, precision, offset):
    """Return the datatype of integers of which only some bits are the value."""
    dtype = base.copy()
    dtype.set_precision(precision)
    dtype.set_offset(offset)
    return dtype


def float_of(size, precision, offset, fields, bias):
    """Return the datatype of a float; `fields` are those of `H5Tset_fields`."""
    dtype = h5py.h5t.IEEE_F32LE.copy() if size == 4 else h5py.h5t.IEEE_F64LE.copy()
    dtype.set_fields(*fields)
    dtype.set_offset(offset)
    dtype.set_precision(precision)
    dtype.set_size(size)
    dtype.set_ebias(bias)
    return dtype


def raw_bits(name, dtype, read_as, *, plist=None):
    """Add a case of elements of which every bit is random, also those that are not used."""

    def make(path):
        size = dtype.get_size()
        raw = bytearray(np.random.default_rng(5).bytes(60 * size))
        if dtype.get_class() == h5py.h5t.FLOAT:
            sign, exponent, exponent_bits, mantissa, mantissa_bits = dtype.get_fields()
            largest = ((1 << exponent_bits) - 1) << exponent
            almost = largest - (1 << exponent) + (((1 << mantissa_bits) - 1) << mantissa)
            special = [0, 1 << sign, largest, largest | 1 << sign, 1 << mantissa, almost]
            special += [1 << exponent, 5 << mantissa | 1 << sign, largest | 1 << mantissa]
            for place, number in enumerate(special):
                raw[place * size : (place + 1) * size] = number.to_bytes(size, "little")
        with h5py.File(path, "w", libver="v110") as f:
            space = h5py.h5s.create_simple((20, 3))
            x = h5py.h5d.create(f.id, b"x", dtype, space, plist and plist((8, 2)))
            x.write(h5py.h5s.ALL, h5py.h5s.ALL, np.frombuffer(raw, "u1").copy(), dtype)

    CASES.append(Case(name, make, dtype=read_as))


for name, base, precision, offset, read_as in (
    ("signed_12", h5py.h5t.STD_I16LE, 12, 0, "int16"),
    ("signed_12_high", h5py.h5t.STD_I16LE, 12, 4, "int16"),
    ("signed_12_big_endian", h5py.h5t.STD_I16BE, 12, 3, "int16"),
    ("unsigned_12", h5py.h5t.STD_U16LE, 12, 1, "uint16"),
    ("unsigned_12_big_endian", h5py.h5t.STD_U16BE, 12, 4, "uint16"),
    ("signed_1", h5py.h5t.STD_I8LE, 1, 7, "int8"),
    ("unsigned_20", h5py.h5t.STD_U32BE, 20, 11, "uint32"),
    ("signed_33", h5py.h5t.STD_I64LE, 33, 30, "int64"),
    ("unsigned_63", h5py.h5t.STD_U64LE, 63, 1, "uint64"),
):
    raw_bits(f"bits_{name}", with_bits(base, precision, offset), read_as)
    raw_bits(f"nbit_{name}", with_bits(base, precision, offset), read_as, plist=with_nbit)

# The example of the library's documentation, and ones that reach farther than float32.
raw_bits("float_20", float_of(4, 20, 7, (26, 20, 6, 7, 13), 31), "float32")
raw_bits("float_20_nbit", float_of(4, 20, 7, (26, 20, 6, 7, 13), 31), "float32", plist=with_nbit)
raw_bits("float_24", float_of(3, 24, 0, (23, 16, 7, 0, 16), 63), "float32")
raw_bits("float_40", float_of(5, 40, 0, (39, 29, 10, 0, 29), 511), "float64")
raw_bits("float_bias", float_of(4, 32, 0, (31, 23, 8, 0, 23), 100), "float64")


@contents(field="v", libver="v110")
def nbit_record(f):
    """Arrays, text and records inside of records, with gaps."""
    inner = h5py.h5t.create(h5py.h5t.COMPOUND, 8)
    inner.insert(b"text", 1, h5py.h5t.py_create(np.dtype("S3")))
    inner.insert(b"few", 5, with_bits(h5py.h5t.STD_U16BE, 9, 2))
    dtype = h5py.h5t.create(h5py.h5t.COMPOUND, 40)
    dtype.insert(b"a", 0, with_bits(h5py.h5t.STD_I32LE, 17, 3))
    dtype.insert(b"inner", 6, inner)
    dtype.insert(b"v", 16, h5py.h5t.array_create(with_bits(h5py.h5t.STD_I16LE, 11, 5), (2, 3)))
    dtype.insert(b"last", 30, h5py.h5t.IEEE_F64LE)
    raw = np.frombuffer(np.random.default_rng(5).bytes(21 * 40), "u1").copy()
    x = h5py.h5d.create(f.id, b"x", dtype, h5py.h5s.create_simple((21,)), with_nbit((8,)))
    x.write(h5py.h5s.ALL, h5py.h5s.ALL, raw, dtype)


@contents(refused="floating-point numbers of 64 bits")
def float_without_leading_one(f):
    dtype = h5py.h5t.IEEE_F64LE.copy()
    dtype.set_norm(h5py.h5t.NORM_NONE)
    h5py.h5d.create(f.id, b"x", dtype, h5py.h5s.create_simple((3,)))


@contents(refused="it is a scalar", kind="invalid-argument")
def scalar(f):
    f["x"] = 3.0


@contents(refused="it has no values", kind="invalid-argument")
def null(f):
    f["x"] = h5py.Empty("f4")


# Groups and links.
@contents(dataset="/a/b/c/x")
def nested(f):
    f["a/b/c/x"] = numbers(7, 2)


@contents(dataset="g/name_0123")
def many_members(f):
    x = f.create_dataset("x", data=numbers(3, 2))
    for number in range(130):
        f[f"g/name_{number:04}"] = x


@contents(dataset="g/name_0123", libver="v110")
def many_members_dense(f):
    x = f.create_dataset("x", data=numbers(3, 2))
    for number in range(150):
        f[f"g/name_{number:04}"] = x


@case(dataset="g/b")
def tracked_order(path):
    with h5py.File(path, "w", track_order=True) as f:
        g = f.create_group("g", track_order=True)
        for name in "cba":
            g[name] = numbers(3, 2)


@contents(libver="v110")
def many_attributes(f):
    x = f.create_dataset("x", data=numbers(3, 2))
    for number in range(40):
        x.attrs[f"attribute_{number:02}"] = number


@contents(dataset="soft")
def soft_link(f):
    f["g/x"] = numbers(7, 2)
    f["g/relative"] = h5py.SoftLink("x")
    f["soft"] = h5py.SoftLink("/g/relative")


@contents(dataset="soft", libver="v110")
def soft_link_new(f):
    f["g/x"] = numbers(7, 2)
    f["soft"] = h5py.SoftLink("g/x")


@contents(dataset="a", refused="more than 40 links", kind="invalid-file")
def soft_circle(f):
    f["a"] = h5py.SoftLink("/b")
    f["b"] = h5py.SoftLink("/a")


@case(dataset="away/y")
def external_link(path):
    with h5py.File(path.with_name("external_link_target.h5"), "w") as f:
        f["g/y"] = numbers(7, 2)
    with h5py.File(path, "w") as f:
        f["away"] = h5py.ExternalLink("external_link_target.h5", "/g")


@contents(dataset="away", refused="outside the directory of this file")
def external_link_elsewhere(f):
    f["away"] = h5py.ExternalLink("../../secret.h5", "/g")


@case(refused="external raw data files")
def external_bytes(path):
    raw = path.with_suffix(".raw")
    with h5py.File(path, "w") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_external(raw.name.encode(), 0, 60)
        h5py.h5d.create(f.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((5, 3)), plist)


@contents(dataset="nothing", refused="contains no `nothing`", kind="invalid-argument")
def missing(f):
    f["x"] = 1


@contents(dataset="g", refused="is not a dataset", kind="invalid-argument")
def group(f):
    f.create_group("g")


# Virtual datasets.
@case(dataset="all")
def virtual_rows(path):
    with h5py.File(path.with_name("virtual_rows_part.h5"), "w") as f:
        f.create_dataset("y", data=numbers(5, 3), chunks=(2, 3), compression="gzip")
    layout = h5py.VirtualLayout((12, 3), "f4")
    with h5py.File(path, "w", libver="v110") as f:
        f["x"] = numbers(4, 3)
        layout[0:5] = h5py.VirtualSource("virtual_rows_part.h5", "y", (5, 3))
        layout[5:9] = h5py.VirtualSource(".", "x", (4, 3))
        # Rows 9 to 11 are in no source.
        f.create_virtual_dataset("all", layout, fillvalue=-1)


def sliced(name, libver):
    """Add a case of a virtual dataset whose one source is a slice of rows."""

    def make(path):
        layout = h5py.VirtualLayout((6, 3), "f4")
        with h5py.File(path, "w", libver=libver) as f:
            f["x"] = numbers(9, 3)
            layout[2:5] = h5py.VirtualSource(".", "x", (9, 3))[4:7]
            f.create_virtual_dataset("all", layout, fillvalue=7)

    CASES.append(Case(name, make, dataset="all"))


sliced("virtual_slice", "v110")
sliced("virtual_slice_newer", "v112")
sliced("virtual_slice_latest", "latest")


@case(dataset="all")
def virtual_columns(path):
    layout = h5py.VirtualLayout((9, 8), "f4")
    with h5py.File(path, "w", libver="v110") as f:
        f.create_dataset("x", data=numbers(9, 3), chunks=(2, 2), compression="gzip")
        f["y"] = numbers(20)
        layout[:, 0:3] = h5py.VirtualSource(".", "x", (9, 3))
        layout[::2, 3:7:3] = h5py.VirtualSource(".", "y", (20,))[3:13]
        f.create_virtual_dataset("all", layout, fillvalue=-1)


@case(dataset="all")
def virtual_images(path):
    layout = h5py.VirtualLayout((3, 4, 5), "f4")
    with h5py.File(path, "w", libver="latest") as f:
        for number in range(3):
            name = f"one_image_with_a_long_name_{number % 2}"
            if name not in f:
                f[name] = numbers(4, 5) + number
            layout[number] = h5py.VirtualSource(".", name, (4, 5))
        f.create_virtual_dataset("all", layout)


@case(dataset="all", refused="a selection is irregular")
def virtual_irregular(path):
    layout = h5py.VirtualLayout((9, 3), "f4")
    with h5py.File(path, "w", libver="v110") as f:
        f["x"] = numbers(3, 3)
        layout[[0, 1, 5]] = h5py.VirtualSource(".", "x", (3, 3))
        f.create_virtual_dataset("all", layout)


@case(dataset="all", refused="two sources overlap")
def virtual_overlap(path):
    layout = h5py.VirtualLayout((9, 3), "f4")
    with h5py.File(path, "w", libver="v110") as f:
        f["x"] = numbers(5, 3)
        layout[:5] = h5py.VirtualSource(".", "x", (5, 3))
        layout[4:9] = h5py.VirtualSource(".", "x", (5, 3))
        f.create_virtual_dataset("all", layout)
