"""Files that are open for writing, or that their writer did not close, are refused; no others."""

import fcntl
import pickle
import struct
import subprocess
import sys
from contextlib import contextmanager

import h5py
import numpy as np
import pytest
from commands import run_python, run_vramfit

from vramfit import errors
from vramfit.data import HDF5Source, Loader

VERSIONS = {"v0": "earliest", "v2": ("v108", "v108"), "v3": "latest"}

# Writes a dataset, says so, and then waits: until it is told to end or is killed.
WRITER = """
import os, sys, h5py
path, libver, mode = sys.argv[1:]
file = h5py.File(path, "w", libver=eval(libver))
x = file.create_dataset("x", (64, 4), "f4", chunks=(16, 4), maxshape=(None, 4))
x[:32] = 1
file.flush()
if mode == "swmr":
    file.swmr_mode = True
elif mode == "unflushed":
    x[32:] = 2
print("ready", flush=True)
sys.stdin.readline()
"""


@contextmanager
def writing(path, libver, mode="open"):
    words = [sys.executable, "-c", WRITER, path, repr(libver), mode]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as writer:
        assert writer.stdout.readline() == "ready\n"
        try:
            yield writer
        finally:
            writer.kill()


def read(path):
    with Loader(path, "x", batch_size=64, shuffle=False) as loader:
        return next(iter(loader))["x"].copy()


@pytest.mark.parametrize("libver", VERSIONS.values(), ids=VERSIONS)
def test_a_file_that_is_open_for_writing_is_refused(tmp_path, libver):
    path = tmp_path / "x.h5"
    with writing(path, libver) as writer, pytest.raises(errors.FileNotClosedError) as caught:
        read(path)
    assert f"is open for writing in process {writer.pid}" in caught.value.message
    assert "close it there" in caught.value.hint


@pytest.mark.parametrize("mode", ["open", "unflushed"])
def test_a_file_whose_writer_was_killed_is_refused(tmp_path, mode):
    path = tmp_path / "x.h5"
    with writing(path, "latest", mode):
        pass
    with pytest.raises(errors.FileNotClosedError) as caught:
        read(path)
    assert "was not closed by the program that wrote it" in caught.value.message
    assert f"`h5clear -s {path}`" in caught.value.hint
    assert caught.value.hint.endswith(", or read it with `allow_unclosed=True`")
    for command in ("inspect", "stats"):
        shown = run_vramfit("data", command, path, code=2).stderr
        assert f"`h5clear -s {path}`" in shown
        assert "allow_unclosed" not in shown, "the command line has no such argument"
    with (
        pytest.warns(RuntimeWarning, match="was not closed"),
        Loader(path, "x", batch_size=64, shuffle=False, allow_unclosed=True) as loader,
    ):
        assert next(iter(loader))["x"][:32].tolist() == [[1] * 4] * 32
    with pytest.raises(errors.FileNotClosedError, match="was not closed") as caught:
        HDF5Source(path, "x")
    assert caught.value.hint.endswith(", or read it with `allow_unclosed=True`")
    with pytest.warns(RuntimeWarning, match="was not closed"):
        source = HDF5Source(path, "x", allow_unclosed=True)
    with pytest.warns(RuntimeWarning, match="was not closed"):
        copy = pickle.loads(pickle.dumps(source))
    assert copy[31]["x"].tolist() == source[31]["x"].tolist() == [1] * 4


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v108")], ids=["v0", "v2"])
def test_an_old_file_that_was_not_closed_is_read_as_libhdf5_does_with_a_warning(tmp_path, libver):
    path = tmp_path / "x.h5"
    with writing(path, libver):
        pass
    with pytest.warns(RuntimeWarning, match="was not closed by the program that wrote it") as seen:
        found = read(path)
    assert len(seen) == 1
    with h5py.File(path) as file:
        assert np.array_equal(found, file["x"][:])
    shown = run_vramfit("data", "inspect", path)
    assert "[not-closed]" in shown.stdout


@pytest.mark.parametrize("ends", [False, True], ids=["while it writes", "after it was killed"])
def test_a_file_in_swmr_mode_is_read(tmp_path, ends):
    path = tmp_path / "x.h5"
    with writing(path, "latest", "swmr"):
        if not ends:
            assert read(path)[:32].tolist() == [[1] * 4] * 32
    if ends:
        assert read(path)[:32].tolist() == [[1] * 4] * 32


def test_a_file_that_this_process_has_open_is_reported(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros(64)
        file.flush()
        with pytest.raises(errors.FileNotClosedError, match="open for writing in this process"):
            read(tmp_path / "x.h5")
    assert not read(tmp_path / "x.h5").any()


def test_inspect_refuses_it_too(tmp_path):
    path = tmp_path / "x.h5"
    with writing(path, "latest"):
        pass
    done = run_vramfit("data", "inspect", path, code=2)
    assert done.stderr.startswith("error[file-not-closed]: ")
    assert "h5clear -s" in done.stderr
    done = run_vramfit("data", "inspect", path, "--allow-unclosed")
    assert "/ [not-closed]: " in done.stdout
    assert "cannot be streamed" not in done.stdout
    done = run_vramfit("data", "stats", path, "--allow-unclosed")
    assert "/x: 64 rows" in done.stdout
    assert "warning: " in done.stderr


def test_files_that_others_read_are_read(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(64.0)
    with h5py.File(path), open(path, "rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert read(path)[-1] == 63
    path.chmod(0o400)
    assert read(path)[-1] == 63


def test_locks_are_left_alone_where_the_user_says_so(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(64.0)
    program = f"from vramfit.data import Loader; Loader({str(path)!r}, 'x', batch_size=64)"
    with open(path, "rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        for setting, status in (("FALSE", 0), ("BEST_EFFORT", 1), ("TRUE", 1)):
            run_python("-c", program, env={"HDF5_USE_FILE_LOCKING": setting}, code=status)


def test_the_flags_of_old_libraries_are_no_writer(tmp_path):
    """Files of HDF5 1.6 and older kept both flags, as those that come with PyTables show."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["x"] = np.arange(64.0)
    whole = bytearray(path.read_bytes())
    assert (whole[8], struct.unpack_from("<I", whole, 20)) == (0, (0,))
    for flags, is_closed in ((3, True), (2, True), (1, False)):
        struct.pack_into("<I", whole, 20, flags)
        # Bytes behind the end, which those files have as well.
        path.write_bytes(whole + b"\n123\n")
        if is_closed:
            assert read(path)[-1] == 63
        else:
            with pytest.warns(RuntimeWarning, match="was not closed"):
                assert read(path)[-1] == 63


def test_an_empty_file_is_called_empty(tmp_path):
    (tmp_path / "x.h5").touch()
    with pytest.raises(errors.InvalidFileError, match="is empty"):
        read(tmp_path / "x.h5")
