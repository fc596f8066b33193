"""vramfit's own lines on standard error are never torn, and never end the program."""

import io
import sys

import pytest

from vramfit._stderr import write_line


class RecordedWrites(io.RawIOBase):
    def __init__(self):
        self.writes = []

    def writable(self):
        return True

    def write(self, data):
        self.writes.append(bytes(data))
        return len(data)


class FullDisk(RecordedWrites):
    def write(self, data):
        raise OSError(28, "No space left on device")


def standard_error(raw):
    # As Python opens it.
    return io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True)


def test_a_line_is_one_call_of_write(monkeypatch):
    raw = RecordedWrites()
    monkeypatch.setattr(sys, "stderr", standard_error(raw))
    write_line("parameters   10\nbaseline     loss 1.5")
    assert raw.writes == [b"parameters   10\nbaseline     loss 1.5\n"]


@pytest.mark.parametrize("state", ["none", "closed", "full"])
def test_a_stream_that_takes_nothing_ends_no_program(monkeypatch, capsys, state):
    stream = None if state == "none" else standard_error(FullDisk())
    if state == "closed":
        stream = standard_error(RecordedWrites())
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    write_line("parameters   10")
    assert capsys.readouterr().out == ""
    if state == "full":
        stream.buffer.raw.write = lambda data: len(data)  # else it fails again when it is closed
