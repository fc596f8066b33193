"""Files that links and virtual datasets name are found where libhdf5 finds them."""

import itertools
from pathlib import Path

import h5py
import numpy as np
import pytest

from vramfit.data import Loader
from vramfit.errors import UnsupportedFeatureError, VramfitError

PLACES = ["link", "real", "work"]
"""The directory of the path that is opened, that of the file it leads to, and the working one."""


def write_main(path, kind, name):
    with h5py.File(path, "w", libver="latest") as f:
        if kind == "external":
            f["x"] = h5py.ExternalLink(name, "/x")
        else:
            layout = h5py.VirtualLayout((3,), "i8")
            layout[:] = h5py.VirtualSource(name, "x", (3,))
            f.create_virtual_dataset("x", layout)


def write_part(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as f:
        f["x"] = np.full(3, value)


def read_h5py(path):
    try:
        with h5py.File(path) as f:
            return f["x"][:].tolist()
    except (OSError, KeyError):
        return None


def read(path):
    with Loader(path, "x", batch_size=3, shuffle=False, x64=True) as loader:
        return next(iter(loader))["x"].tolist()


@pytest.mark.parametrize("kind", ["external", "virtual"])
@pytest.mark.parametrize("name", ["part.h5", "sub/part.h5", "{gone}/part.h5", "../{at}/part.h5"])
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_file_is_found_where_libhdf5_finds_it(tmp_path, monkeypatch, kind, name, is_relative):
    name = name.format(gone=tmp_path / "gone", at="link")
    below = Path(Path(name).name if name.startswith("/") else name)
    for place in PLACES:
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    write_main(tmp_path / "real" / "main.h5", kind, name)
    (tmp_path / "link" / "main.h5").symlink_to(tmp_path / "real" / "main.h5")
    path = Path("../link/main.h5") if is_relative else tmp_path / "link" / "main.h5"
    for there in itertools.product([False, True], repeat=len(PLACES)):
        for value, (place, exists) in enumerate(zip(PLACES, there, strict=True), 1):
            part = tmp_path / place / below
            if exists:
                write_part(part, value)
            else:
                part.unlink(missing_ok=True)
        wanted = read_h5py(path)
        if not wanted or wanted == [0] * 3:
            with pytest.raises(VramfitError):
                read(path)
        elif wanted == [3] * 3 and not name.startswith(".."):
            with pytest.raises(UnsupportedFeatureError, match="outside the directory of this file"):
                read(path)
        else:
            assert read(path) == wanted, there


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_an_absolute_path_is_allowed_in_the_directory_of_the_file_alone(tmp_path, kind):
    own = tmp_path / "own"
    write_part(own / "deep" / "part.h5", 7)
    write_part(tmp_path / "part.h5", 8)
    write_part(tmp_path / "owner" / "part.h5", 9)
    (tmp_path / "alias").symlink_to(own)
    names = [own / "deep/part.h5", tmp_path / "alias/deep/part.h5", own / "deep/../deep/part.h5"]
    for name in map(str, names):
        write_main(own / "main.h5", kind, name)
        for path in (own / "main.h5", tmp_path / "alias" / "main.h5"):
            assert read(path) == read_h5py(path) == [7] * 3
    for name in (tmp_path / "part.h5", tmp_path / "owner/part.h5", own / "../part.h5"):
        write_main(own / "main.h5", kind, str(name))
        with pytest.raises(UnsupportedFeatureError, match="outside the directory of this file"):
            read(own / "main.h5")


def test_a_part_may_be_a_symbolic_link(tmp_path):
    # As in caches of models and data, which keep the files elsewhere under other names.
    write_part(tmp_path / "blobs" / "a1", 5)
    write_main(tmp_path / "blobs" / "b2", "virtual", "part.h5")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "part.h5").symlink_to("../blobs/a1")
    (tmp_path / "snapshot" / "main.h5").symlink_to("../blobs/b2")
    assert read(tmp_path / "snapshot" / "main.h5") == [5] * 3
