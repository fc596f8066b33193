"""The index of files that is kept from one run to the next."""

import json
import os
import pickle

import h5py
import numpy as np
import pytest
from data_files import COLUMNS, collect, encode, write_series, write_shards

from vramfit.data import Groups, Loader, Ragged, Rows, Windows
from vramfit.errors import FileChangedError, InvalidArgumentError, IoError, VramfitError


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


def damage(path):
    """Overwrite a file's structure, with the size and the times that it had."""
    was = path.stat()
    with path.open("r+b") as file:
        file.write(b"\0" * was.st_size)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def test_files_that_have_not_changed_are_not_opened_to_begin(tmp_path):
    folder = tmp_path / "files"
    total = write_shards(folder, [10] * 5)
    age(folder)
    options = {"path": folder, "datasets": "y", "batch_size": 5, "shuffle": False}
    index = tmp_path / "files.index"
    Loader(**options, index=index)
    damage(folder / "shard_3.h5")
    with pytest.raises(VramfitError, match="shard_3"):
        Loader(**options)
    loader = Loader(**options, index=index)
    assert loader.rows == total
    with pytest.raises(VramfitError, match="shard_3"):
        collect(loader)
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


def test_files_that_depend_on_others_are_opened_each_time(tmp_path):
    folder = tmp_path / "files"
    write_shards(folder, [10] * 2)
    with h5py.File(folder / "source.data", "w") as f:
        f["y"] = np.arange(10)
    layout = h5py.VirtualLayout((10,), "i8")
    layout[:] = h5py.VirtualSource("source.data", "y", (10,))
    with h5py.File(folder / "shard_2.h5", "w") as f:
        f.create_virtual_dataset("y", layout)
    with h5py.File(folder / "shard_3.h5", "w") as f:
        f["y"] = h5py.ExternalLink("source.data", "y")
    age(folder)
    options = {"path": folder, "datasets": "y", "batch_size": 5, "index": tmp_path / "i"}
    for _ in range(2):
        assert Loader(**options).rows == 40
    files = json.loads((tmp_path / "i").read_text())["files"]
    assert sorted(os.path.basename(path) for path in files) == ["shard_0.h5", "shard_1.h5"]


def test_what_is_no_index_is_left_alone(tmp_path):
    write_shards(tmp_path / "files", [10] * 2)
    age(tmp_path / "files")
    options = {"path": tmp_path / "files", "datasets": "y", "batch_size": 5}
    for content in (b"", b"\x89HDF\r\n", b"{}", b"[1, 2]"):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(InvalidArgumentError, match="is not an index of files"):
            Loader(**options, index=tmp_path / "other")
        assert (tmp_path / "other").read_bytes() == content
    index = tmp_path / "index"
    Loader(**options, index=index)
    # Of another version, or damaged within: made anew.
    damages = [('"vramfit_file_index":1', '"vramfit_file_index":99'), ('"length"', '"lenght"')]
    for old, new in damages:
        good = index.read_text()
        index.write_text(good.replace(old, new))
        assert Loader(**options, index=index).rows == 20
        assert index.read_text() == good
    with pytest.raises(IoError, match="cannot write the index"):
        Loader(**options, index=tmp_path / "nowhere" / "index")
    with pytest.raises(InvalidArgumentError, match="`index` is 3"):
        Loader(**options, index=3)
    with pytest.raises(InvalidArgumentError, match="not kept of ragged samples"):
        Loader(tmp_path / "files", "x", samples=Ragged("y"), batch_size=2, index=index)
