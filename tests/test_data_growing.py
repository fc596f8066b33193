"""Files to which a program appends while they are read (SWMR)."""

import h5py
import numpy as np
import pytest

from vramfit.data import Loader
from vramfit.errors import FileChangedError, VramfitError

ROWS = 8000


class Writer:
    """A program that appends to a file while others read it."""

    def __init__(self, path):
        self.file = h5py.File(path, "w", libver="latest")
        options = {"maxshape": (None, 16), "chunks": (64, 16), "compression": "gzip"}
        self.x = self.file.create_dataset("x", (0, 16), "f4", **options)
        self.y = self.file.create_dataset("y", (0,), "i4", maxshape=(None,), chunks=(64,))
        self.file.swmr_mode = True

    def append(self, rows):
        """Append rows of which all numbers are the number of the row, and flush them."""
        first = len(self.y)
        numbers = np.arange(first, first + rows)
        self.x.resize(first + rows, axis=0)
        self.x[first:] = numbers[:, None]
        self.y.resize(first + rows, axis=0)
        self.y[first:] = numbers
        self.x.flush()
        self.y.flush()


@pytest.fixture
def writer(tmp_path):
    writer = Writer(tmp_path / "f.h5")
    # The last chunks are not full: they are written again later.
    writer.append(ROWS - 7)
    writer.append(7)
    yield writer
    writer.file.close()


def make(tmp_path, **options):
    """Return a loader that does not read the whole file at once."""
    options = {"batch_size": 50, "memory": "256KiB", "last_batch": "partial", **options}
    return Loader(tmp_path / "f.h5", ["x", "y"], **options)


@pytest.mark.parametrize("shuffle", [True, False])
def test_rows_are_those_of_the_time_of_opening(tmp_path, writer, shuffle):
    loader = make(tmp_path, shuffle=shuffle)
    assert loader.rows == ROWS
    for epoch in range(2):
        seen = []
        for number, batch in enumerate(loader.epoch(epoch)):
            assert np.array_equal(batch["x"], np.repeat(batch["y"][:, None], 16, 1))
            seen += batch["y"].tolist()
            if epoch == 1 and number == 41:
                writer.file.close()
            if number % 10 == 0 and writer.file:
                writer.append(31)
        assert sorted(seen) == list(range(ROWS))
        assert (seen == sorted(seen)) is not shuffle
    # Nothing may happen to it once it was closed.
    with h5py.File(tmp_path / "f.h5", "a") as f:
        f["y"][0] = 5
    with pytest.raises(FileChangedError, match="changed while it was being read"):
        list(loader.epoch(2))


def test_a_state_is_resumed_until_the_file_has_grown(tmp_path, writer):
    whole = [batch["y"].tolist() for batch in make(tmp_path)]
    loader = make(tmp_path)
    batches = iter(loader)
    seen = [next(batches)["y"].tolist() for _ in range(20)]
    state = loader.state()
    resumed = make(tmp_path)
    resumed.restore(state)
    assert seen + [batch["y"].tolist() for batch in resumed] == whole
    writer.append(100)
    # The loader that is open goes on.
    assert seen + [batch["y"].tolist() for batch in batches] == whole
    later = make(tmp_path)
    assert later.rows == ROWS + 100
    with pytest.raises(FileChangedError, match="there were 8000 samples") as caught:
        later.restore(state)
    assert "there are 8100 now" in caught.value.message
    assert "start over" in caught.value.hint
    # A state that was saved after the file had grown is one of the rows before.
    with pytest.raises(FileChangedError, match="there were 8000 samples"):
        later.restore(loader.state())


def test_another_writer_is_noticed(tmp_path, writer):
    loader = make(tmp_path)
    batches = iter(loader)
    next(batches)
    writer.file.close()
    with h5py.File(tmp_path / "f.h5", "a", libver="latest") as f:
        f["y"][:] = 0
        f.flush()
        with pytest.raises(VramfitError, match="changed while it was being read"):
            list(batches)
