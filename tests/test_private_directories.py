"""The directories that a dry run gives to Orbax: views of the real ones, which stay as they are."""

import os
import shutil
from pathlib import Path

import pytest

from vramfit._inprogram._dryrun_checkpoints._copy import _MAX_COPIED_BYTES
from vramfit._inprogram._dryrun_checkpoints._directories import PrivateDirectories

LARGE = b"x" * (_MAX_COPIED_BYTES + 1)


@pytest.fixture
def folder(tmp_path):
    """Return the folder of the private directories, beside those of the program."""
    return tmp_path / "private"


@pytest.fixture
def directories(folder):
    """Return the private directories of a dry run."""
    return PrivateDirectories(folder)


def write_file(path, data=b"data"):
    """Write a file and the directories that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def list_entries(directory):
    """Return the entries of a directory."""
    return sorted(os.listdir(directory))


def test_data_is_linked_and_metadata_copied(tmp_path, directories):
    write_file(tmp_path / "ck/5/_METADATA", LARGE)
    write_file(tmp_path / "ck/5/small")
    write_file(tmp_path / "ck/5/d/large", LARGE)
    private = Path(directories.resolve_for_writing(str(tmp_path / "ck")))
    assert (private / "5/d/large").is_symlink()
    assert not (private / "5/_METADATA").is_symlink()
    assert not (private / "5/small").is_symlink()
    shutil.rmtree(private / "5")
    assert list_entries(tmp_path / "ck/5") == ["_METADATA", "d", "small"]


def test_a_path_keeps_its_type(tmp_path, directories):
    epath = pytest.importorskip("etils.epath")
    for path in (str(tmp_path / "a"), tmp_path / "a", epath.Path(tmp_path / "a")):
        private = directories.resolve_for_writing(path)
        assert type(private) is type(path)
        assert directories.resolve_for_writing(private) is private
    for other in ("relative", None, 5, b"/bytes"):
        assert directories.resolve_for_writing(other) is other


def test_only_what_may_be_a_checkpoint_is_copied(tmp_path, directories):
    for name in ("7/x", "step_8/x", "checkpoint_9", "_ROOT_METADATA", "data/x", "train.py"):
        write_file(tmp_path / "run" / name)
    private = directories.resolve_for_writing(tmp_path / "run")
    assert list_entries(private) == ["7", "_ROOT_METADATA", "checkpoint_9", "step_8"]


def test_a_directory_of_another_name_is_copied_when_it_is_used(tmp_path, directories):
    write_file(tmp_path / "run/best/manifest.ocdbt")
    directories.resolve_for_writing(tmp_path / "run")
    assert directories.resolve_for_reading(tmp_path / "run/best") == tmp_path / "run/best"
    private = directories.resolve_for_writing(tmp_path / "run/best")
    assert list_entries(private) == ["manifest.ocdbt"]
    assert directories.resolve_for_reading(tmp_path / "run/best") == private


def test_no_link_leads_back_to_the_real_directory(tmp_path, directories, folder):
    write_file(tmp_path / "disk/best/1/x")
    write_file(tmp_path / "ck/3/x")
    os.symlink(tmp_path / "disk/best", tmp_path / "ck/link_0")
    os.symlink(tmp_path / "ck/3", tmp_path / "ck/latest_checkpoint")
    os.symlink("../disk/best/1", tmp_path / "ck/4")
    private = directories.resolve_for_writing(tmp_path / "ck")
    assert list_entries(private) == ["3", "4", "latest_checkpoint", "link_0"]
    assert os.path.realpath(private / "latest_checkpoint") == str(private / "3")
    for name in ("link_0/1/x", "4/x"):
        assert (private / name).read_bytes() == b"data"
        assert Path(os.path.realpath(private / name)).is_relative_to(folder)
    assert directories.resolve_for_writing(tmp_path / "ck/latest_checkpoint") == private / "3"


def test_a_link_and_what_it_names_are_one_directory(tmp_path, directories):
    (tmp_path / "disk").mkdir()
    os.symlink(tmp_path / "disk", tmp_path / "ck")
    private = directories.resolve_for_writing(tmp_path / "ck")
    assert directories.resolve_for_writing(tmp_path / "x/../disk/") == private


def test_files_that_are_links_are_restored(tmp_path, directories):
    """The layout of a Hugging Face cache: each file is a relative link to one elsewhere."""
    write_file(tmp_path / "blobs/0", LARGE)
    (tmp_path / "snapshot").mkdir()
    os.symlink("../blobs/0", tmp_path / "snapshot/manifest.ocdbt")
    private = directories.resolve_for_writing(tmp_path / "snapshot")
    assert (private / "manifest.ocdbt").read_bytes() == LARGE


def test_what_was_removed_does_not_come_back(tmp_path, directories):
    for step in "123":
        write_file(tmp_path / "ck" / step / "manifest.ocdbt")
    shutil.rmtree(directories.resolve_for_writing(tmp_path / "ck/2"))
    assert list_entries(directories.resolve_for_writing(tmp_path / "ck")) == ["1", "3"]


def test_a_directory_is_not_hidden_by_one_below_it(tmp_path, directories):
    write_file(tmp_path / "model/manifest.ocdbt")
    directories.resolve_for_writing(tmp_path / "model/tuned/1")
    assert directories.resolve_for_reading(tmp_path / "model") == tmp_path / "model"
    assert list_entries(directories.resolve_for_writing(tmp_path / "model")) == [
        "manifest.ocdbt",
        "tuned",
    ]


def test_a_file_has_a_private_counterpart(tmp_path, directories):
    path = write_file(tmp_path / "checkpoint_2", LARGE)
    assert directories.resolve_for_writing(path).read_bytes() == LARGE


def test_what_is_overwritten_in_place_is_no_link(tmp_path, directories):
    write_file(tmp_path / "4/manifest.ocdbt")
    write_file(tmp_path / "4/0.0", LARGE)
    assert list_entries(directories.resolve_for_overwriting(tmp_path / "4")) == ["manifest.ocdbt"]


def test_special_files_loops_and_its_own_folder_are_left_out(tmp_path):
    directories = PrivateDirectories(tmp_path / "tmp/private_0")
    os.mkfifo(tmp_path / "pipe_1")
    os.symlink(".", tmp_path / "loop_2")
    os.symlink("nowhere", tmp_path / "broken_3")
    write_file(tmp_path / "4/x")
    os.symlink("..", tmp_path / "4/up")
    private = directories.resolve_for_writing(tmp_path)
    assert list_entries(private) == ["4"]
    assert list_entries(private / "4") == ["x"]
    assert list_entries(directories.resolve_for_writing(tmp_path / "tmp")) == []


def test_a_private_directory_can_be_written_to_and_removed(tmp_path, directories):
    write_file(tmp_path / "ck/5/x")
    for path in (tmp_path / "ck/5", tmp_path / "ck"):
        path.chmod(0o555)
    private = directories.resolve_for_writing(tmp_path / "ck")
    assert private.stat().st_mode & 0o700 == 0o700
    assert (private / "5").stat().st_mode & 0o700 == 0o700


def test_a_remote_directory_is_read_where_nothing_was_saved(directories, folder):
    assert directories.resolve_for_reading("gs://bucket/ck/3") == "gs://bucket/ck/3"
    private = directories.resolve_for_writing("gs://bucket/ck/")
    assert private == str(folder / "remote/gs/bucket/ck")
    assert directories.resolve_for_reading("gs://bucket/ck/3") == f"{private}/3"
    assert directories.resolve_for_reading("gs://bucket/other") == "gs://bucket/other"
