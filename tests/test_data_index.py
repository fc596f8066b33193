"""The index of files that is kept from one run to the next."""

import concurrent.futures
import json
import os
import pickle

import h5py
import numpy as np
import pytest
from data_files import COLUMNS, collect, encode, write_series, write_shards

from vramfit.data import Groups, Loader, Ragged, Rows, Windows
from vramfit.errors import FileChangedError, InvalidArgumentError, IoError


def age(folder):
    """Make files older than the resolution of times in any file system."""
    for number, path in enumerate(sorted(folder.iterdir())):
        os.utime(path, (1e9 + number, 1e9 + number))


def write_texts(folder):
    folder.mkdir()
    for number in range(3):
        with h5py.File(folder / f"{number}.h5", "w") as f:
            image = f.create_dataset("image", 4, h5py.vlen_dtype("uint8"))
            for row in range(4):
                image[row] = np.frombuffer(encode(10 * number + row), "uint8")
            f["y"] = np.arange(4) + 10 * number


def write_episodes(folder):
    folder.mkdir()
    for number in range(4):
        write_series(folder / f"{number}.h5", [3, 5 + number, 1], {"chunks": (2, 2)})


def write_trajectories(folder):
    folder.mkdir()
    for number in range(3):
        with h5py.File(folder / f"{number}.h5", "w") as f:
            f["u"] = np.arange(60.0).reshape(3, 10, 2) + 100 * number


def write_rows(folder):
    write_shards(folder, [40, 30, 1, 50], chunks=(8, 5), compression="gzip")


LAYOUTS = {
    "rows": (write_rows, {"datasets": ["x", "y"]}),
    "last axis": (write_rows, {"datasets": ["x"], "samples": Rows(axis={"x": -1})}),
    "converted": (write_rows, {"datasets": ["x"], "dtype": "float16"}),
    "normalized": (write_rows, {"datasets": ["x"], "normalize": {"x": (1.0, 2.0)}}),
    "windows": (write_episodes, {"datasets": COLUMNS, "samples": Windows(3, pad="zeros")}),
    "episodes": (write_episodes, {"datasets": COLUMNS, "samples": Groups()}),
    "trajectories": (write_trajectories, {"datasets": ["u"], "samples": Windows(4, axis=1)}),
    "texts": (write_texts, {"datasets": ["image", "y"], "decode": {"image": None}}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_loader_reads_the_same_with_an_index(tmp_path, layout):
    write, options = LAYOUTS[layout]
    write(tmp_path / "files")
    age(tmp_path / "files")
    if layout == "last axis":
        # Rows of this length only.
        for path in (tmp_path / "files").iterdir():
            with h5py.File(path) as f:
                rows = len(f["x"])
            if rows != 40:
                path.unlink()
        write_shards(tmp_path / "files", [40, 40])
        age(tmp_path / "files")
    options |= {"path": tmp_path / "files", "batch_size": 4, "seed": 3}
    index = tmp_path / "files.index"
    expected, state = Loader(**options), Loader(**options).state()
    want = collect(expected)
    for made in (False, True):
        assert index.exists() == made
        loader = Loader(**options, index=index)
        assert loader.plan == expected.plan
        assert loader.state() == state
        found = collect(loader)
        assert found.keys() == want.keys()
        assert all(np.array_equal(found[name], want[name]) for name in want)
    before = index.stat()
    Loader(**options, index=index)
    assert index.stat().st_mtime_ns == before.st_mtime_ns
    assert not list(tmp_path.glob("files.index.*"))


def opened(folder):
    """Return the names of the files of a folder that this process has open."""
    paths = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return sorted(os.path.basename(path) for path in paths if os.path.dirname(path) == str(folder))


def test_files_that_have_not_changed_are_not_opened_to_begin(tmp_path):
    folder = tmp_path / "files"
    total = write_shards(folder, [10] * 4)
    age(folder)
    options = {"path": folder, "datasets": "y", "batch_size": 5, "shuffle": False}
    index = tmp_path / "files.index"
    first = Loader(**options, index=index)
    assert len(opened(folder)) == 4
    del first
    loader = Loader(**options, index=index)
    # What the first one has, the others must have.
    assert opened(folder) == ["shard_0.h5"]
    assert loader.rows == total
    assert collect(loader)["y"].tolist() == list(range(total))
    again = pickle.loads(pickle.dumps(Loader(**options, index=index)))
    assert again.rows == total


def test_files_that_have_changed_are_opened(tmp_path):
    folder = tmp_path / "files"
    write_shards(folder, [10] * 4)
    age(folder)
    options = {"path": folder, "datasets": "y", "batch_size": 5, "index": tmp_path / "files.index"}
    state = Loader(**options).state()
    with h5py.File(folder / "shard_2.h5", "w") as f:
        f["y"] = np.arange(7)
    assert Loader(**options).rows == 37
    # It was just written, so that another change could leave its time as it is.
    assert "shard_2" not in (tmp_path / "files.index").read_text()
    with pytest.raises(FileChangedError, match="shard_2"):
        Loader(**options).restore(state)
    age(folder)
    assert Loader(**options).rows == 37
    assert "shard_2" in (tmp_path / "files.index").read_text()
    (folder / "shard_1.h5").unlink()
    assert Loader(**options).rows == 27
    with h5py.File(folder / "shard_3.h5", "w") as f:
        f["y"] = np.arange(3.0)
    with pytest.raises(InvalidArgumentError, match=r"shard_3.*float64"):
        Loader(**options)


def test_an_index_is_of_its_options(tmp_path):
    folder = tmp_path / "files"
    write_shards(folder, [10] * 3)
    age(folder)
    index = tmp_path / "files.index"
    options = {"path": folder, "batch_size": 5, "shuffle": False, "index": index}
    for datasets, dtype in (("x", None), ("y", None), ("x", "float16"), ("x", None)):
        found = collect(Loader(datasets=datasets, dtype=dtype, **options))
        want = collect(Loader(folder, datasets, dtype=dtype, batch_size=5, shuffle=False))
        assert np.array_equal(found[datasets], want[datasets])
    # Another selection of the same samples is no other structure.
    before = index.read_text()
    assert Loader(datasets="x", rows=[3, 14], **options).rows == 2
    assert Loader(datasets="x", split=("train", 0.5), **options).rows == 15
    assert index.read_text() == before


def kept(index):
    """Return the names of the files that an index knows."""
    (one,) = json.loads(index.read_text().split("\n")[1])
    return sorted(os.path.basename(path) for path in one["files"])


def write_virtual(path, source):
    layout = h5py.VirtualLayout((10,), "i8")
    layout[:5] = h5py.VirtualSource(source, "y", (10,))[:5]
    with h5py.File(path, "w", libver="latest") as f:
        f.create_virtual_dataset("y", layout, fillvalue=-1)


def write_link(path, target):
    with h5py.File(path, "w") as f:
        f["y"] = np.arange(10)
        f["other"] = h5py.ExternalLink(target, "y")


# What a file has beside numbers of its own, and the dataset that is read.
DEPENDENT = {
    "virtual": (lambda path: write_virtual(path, "source.data"), "y"),
    "virtual, without its source": (lambda path: write_virtual(path, "missing.data"), "y"),
    "link": (lambda path: write_link(path, "source.data"), "other"),
    "wildcard": (lambda path: write_link(path, "source.data"), "o*r"),
    "wildcard, nowhere": (lambda path: write_link(path, "source.data"), "y*"),
}


@pytest.mark.parametrize("kind", DEPENDENT)
def test_files_that_depend_on_others_are_opened_each_time(tmp_path, kind):
    write_dependent, dataset = DEPENDENT[kind]
    folder = tmp_path / "files"
    write_shards(folder, [10] * 2)
    for number in range(2):
        with h5py.File(folder / f"shard_{number}.h5", "a") as f:
            f["other"] = np.arange(10)
    with h5py.File(folder / "source.data", "w") as f:
        f["y"] = np.arange(10)
    write_dependent(folder / "shard_2.h5")
    age(folder)
    options = {"path": folder, "datasets": dataset, "batch_size": 5, "shuffle": False}
    index = tmp_path / "index"
    expected = collect(Loader(**options))
    for _ in range(2):
        loader = Loader(**options, index=index)
        assert collect(loader)[dataset].tolist() == expected[dataset].tolist()
        assert Loader(**options, index=index).state() == Loader(**options).state()
        others = [] if kind != "wildcard, nowhere" else ["shard_2.h5"]
        assert kept(index) == ["shard_0.h5", "shard_1.h5", *others]


def test_what_the_first_file_decides_is_decided_anew(tmp_path):
    """Whether a star is a wildcard, and what values become."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(2):
        with h5py.File(folder / f"{number}.h5", "w") as f:
            f["x1"] = np.arange(3) + 100 * number
            if number:
                f["x*"] = np.arange(3) + 10
    age(folder)
    options = {"path": folder, "datasets": "x*", "batch_size": 3, "shuffle": False}
    index = tmp_path / "index"
    Loader(**options, index=index)
    with h5py.File(folder / "0.h5", "w") as f:
        f["x*"] = np.arange(3)
    for _ in range(2):
        age(folder)
        found = collect(Loader(**options, index=index))["x*"]
        assert found.tolist() == collect(Loader(**options))["x*"].tolist() == [0, 1, 2, 10, 11, 12]


def test_a_field_is_no_dataset_of_that_name(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    records = np.zeros(4, [("x", "f8"), ("z", "f8")])
    with h5py.File(folder / "1.h5", "w") as f:
        f["p[x]"], f["p"] = np.arange(9.0) + 100, records
    options = {"path": folder, "datasets": "p[x]", "batch_size": 3, "shuffle": False}
    for is_literal in (True, False, True):
        with h5py.File(folder / "0.h5", "w") as f:
            f["p[x]" if is_literal else "p"] = np.arange(4.0) if is_literal else records
        age(folder)
        for _ in range(2):
            loader = Loader(**options, index=tmp_path / "index")
            assert loader.state() == Loader(**options).state()
            assert collect(loader)["p[x]"].tolist() == collect(Loader(**options))["p[x]"].tolist()


@pytest.mark.parametrize("code", ["S", "V"])
def test_elements_of_another_size_are_refused(tmp_path, code):
    folder = tmp_path / "files"
    folder.mkdir()

    def write(number, size):
        with h5py.File(folder / f"{number}.h5", "w") as f:
            f["s"] = np.array([b"a" * size] * 4, f"{code}{size}")
        age(folder)

    write(0, 5), write(1, 5)
    options = {"path": folder, "datasets": "s", "decode": {"s": None}, "batch_size": 2}
    Loader(**options, index=tmp_path / "index")
    write(0, 8)
    for index in (None, tmp_path / "index"):
        with pytest.raises(InvalidArgumentError, match="has elements of 5 bytes, and those before"):
            Loader(**options, index=index)


def test_what_is_no_regular_file_is_no_index(tmp_path):
    write_shards(tmp_path / "files", [10] * 2)
    age(tmp_path / "files")
    options = {"path": tmp_path / "files", "datasets": "y", "batch_size": 5}
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", tmp_path / "pipe", tmp_path / "files"):
        with pytest.raises(InvalidArgumentError, match="is not an index of files"):
            Loader(**options, index=path)
    (tmp_path / "link").symlink_to("elsewhere")
    Loader(**options, index=tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert kept(tmp_path / "elsewhere") == ["shard_0.h5", "shard_1.h5"]
    (tmp_path / "elsewhere").chmod(0o660)
    (tmp_path / "files" / "shard_1.h5").unlink()
    write_shards(tmp_path / "files", [10] * 3)
    age(tmp_path / "files")
    Loader(**options, index=tmp_path / "link")
    assert kept(tmp_path / "elsewhere") == ["shard_0.h5", "shard_1.h5", "shard_2.h5"]
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o660


def test_changes_that_leave_size_and_time_are_noticed(tmp_path):
    folder = tmp_path / "files"
    write_shards(folder, [10] * 3)
    age(folder)
    options = {"path": folder, "datasets": "y", "batch_size": 3, "shuffle": False}
    index = tmp_path / "index"
    state = Loader(**options, index=index).state()
    path = folder / "shard_1.h5"
    was = path.stat()
    with h5py.File(path, "r+") as f:
        f["y"][:] = 7
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert path.stat().st_size == was.st_size
    loader = Loader(**options, index=index)
    assert collect(loader)["y"][10:20].tolist() == [7] * 10
    with pytest.raises(FileChangedError, match="shard_1"):
        Loader(**options, index=index).restore(state)


def test_loaders_share_an_index(tmp_path):
    """Those of other columns and other files, in several threads, which write it only once."""
    for name in ("train", "test"):
        write_shards(tmp_path / name, [10] * 3)
        age(tmp_path / name)
    index = tmp_path / "index"

    def load(place):
        dataset, folder = ("x", "y")[place % 2], ("train", "test")[place // 2 % 2]
        loader = Loader(tmp_path / folder, dataset, batch_size=5, index=index)
        return len(collect(loader)[dataset])

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert set(threads.map(load, range(40))) == {30}
    # Of two that write at the same time, one is lost.
    for place in range(4):
        load(place)
    before = index.stat()
    for place in range(8):
        load(place)
    assert index.stat() == before
    sets = json.loads(index.read_text().split("\n")[1])
    assert [len(one["files"]) for one in sets] == [6, 6]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "test", "train"]


def test_what_is_no_index_is_left_alone(tmp_path):
    write_shards(tmp_path / "files", [10] * 2)
    age(tmp_path / "files")
    options = {"path": tmp_path / "files", "datasets": "y", "batch_size": 5}
    for content in (b"\x89HDF\r\n", b"{}", b"[1, 2]"):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(InvalidArgumentError, match="is not an index of files"):
            Loader(**options, index=tmp_path / "other")
        assert (tmp_path / "other").read_bytes() == content
    index = tmp_path / "index"
    Loader(**options, index=index)
    # Of another version, or damaged within: made anew.
    good = index.read_text()
    damaged = good.replace('"vramfit_file_index":1', '"vramfit_file_index":99')
    for text in (damaged, good.replace("[10]", "[11]"), good[:-9], good + " ", ""):
        assert text != good
        index.write_text(text)
        assert Loader(**options, index=index).rows == 20
        assert index.read_text() == good
    with pytest.raises(IoError, match="cannot write the index"):
        Loader(**options, index=tmp_path / "nowhere" / "index")
    with pytest.raises(InvalidArgumentError, match="`index` is 3"):
        Loader(**options, index=3)
    with pytest.raises(InvalidArgumentError, match="not kept where samples or series have bounds"):
        Loader(tmp_path / "files", "x", samples=Ragged("y"), batch_size=2, index=index)
