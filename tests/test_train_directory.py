"""The directory of a run belongs to one process, and nothing stays behind of one that is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import start_command
from train_command import environment, events, generate, until, write
from training import load, start, step

from vramfit.errors import DirectoryInUseError, InvalidArgumentError, IoError
from vramfit.train import fit
from vramfit.train.output.run_lock import LOCK_NAME, RunLock


def test_t7_a_second_run_in_a_directory_is_refused_with_the_name_of_the_first(train, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    lock = RunLock(run)
    assert lock.acquire() is None
    with pytest.raises(DirectoryInUseError) as caught:
        fit(step, start(), load(train), directory=run, progress="none")
    assert caught.value.id == "directory-in-use"
    assert f"`{run}` is in use by process {os.getpid()}, a run started at 20" in str(caught.value)
    assert sorted(path.name for path in run.iterdir()) == [LOCK_NAME], "nothing was touched"
    lock.release()
    assert fit(step, start(), load(train), directory=run, progress="none").steps == 32


def test_t7_the_lock_ends_with_a_killed_process(train, tmp_path):
    code = """
import sys
from pathlib import Path
from vramfit.train.output.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
print("locked", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, tmp_path]
    with start_command(*command, stdin=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryInUseError, match=f"process {holder.pid},"):
            RunLock(tmp_path).acquire()
        holder.kill()
    assert RunLock(tmp_path).acquire() is None


def test_a_lock_with_foreign_content_still_says_that_there_is_another_run(tmp_path):
    lock = RunLock(tmp_path)
    lock.acquire()
    (tmp_path / LOCK_NAME).write_bytes(b"\xff\x00")
    with pytest.raises(DirectoryInUseError, match="in use by another run"):
        RunLock(tmp_path).acquire()


def test_a_directory_that_cannot_be_written_is_refused_before_training(train, tmp_path):
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(IoError, match="cannot write to the directory"):
        fit(step, start(), load(train), directory=tmp_path, progress="none")


def test_a_directory_that_is_a_file_is_refused_by_name(train, tmp_path):
    before = train.read_bytes()
    for directory in (train, train / "run"):
        with pytest.raises(InvalidArgumentError) as caught:
            fit(step, start(), load(train), directory=directory, progress="none")
        assert f"`{directory}`, but `{train}` is a file" in caught.value.message
        assert "with `directory`" in caught.value.hint
    assert train.read_bytes() == before


def test_nothing_is_left_of_a_run_that_was_refused(train, tmp_path):
    run = tmp_path / "made" / "for" / "it"
    with pytest.raises(InvalidArgumentError, match="no checkpoint to resume from"):
        fit(step, start(), load(train), directory=run, resume=True, progress="none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.h5"]
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(InvalidArgumentError, match="no checkpoint to resume from"):
        fit(step, start(), load(train), directory=kept, resume=True, progress="none")
    assert list(kept.iterdir()) == []


def test_t10_a_killed_command_takes_its_training_along_and_keeps_the_state(tmp_path):
    generate(tmp_path)
    write(tmp_path, training={"epochs": 100_000, "log_every": 1})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    # The training writes to the same pipe, which ends because it has ended, too.
    options = {"env": environment(TMPDIR=str(scratch))}
    _, code = until(tmp_path, "Epoch 1/", lambda running: running.kill(), **options)
    assert code == -signal.SIGKILL
    ended = events(tmp_path, "end")
    assert [event["stop_reason"] for event in ended] == ["signal"]
    assert (tmp_path / "run/checkpoints" / str(ended[0]["step"])).is_dir()
    # The folder of the request stays until a later command finds that nobody uses it.
    left = list(Path(scratch).iterdir())
    assert len(left) <= 1
