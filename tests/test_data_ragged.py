"""Ragged samples, against their definition in NumPy: between offsets, packed, and wrong ones."""

import h5py
import numpy as np
import pytest
from data_files import collect, write_ragged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramfit.data import Loader, Ragged
from vramfit.errors import InvalidArgumentError


@given(
    files=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=40), min_size=1, max_size=3),
    by_lengths=st.booleans(),
    chunked=st.booleans(),
    length=st.integers(30, 35),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_ragged_samples_lie_between_offsets(tmp_path_factory, files, by_lengths, chunked, length):
    folder = tmp_path_factory.mktemp("ragged")
    expected, labels, start = [], [], 0
    for number, lengths in enumerate(files):
        storage = {"chunks": (9,), "compression": "gzip"} if chunked and sum(lengths) else {}
        write_ragged(folder / f"{number}.h5", lengths, storage, start)
        for document in range(len(lengths)):
            row = np.zeros(length, int)
            row[: lengths[document]] = (
                start + sum(lengths[:document]) + np.arange(lengths[document])
            )
            expected.append(row)
            labels.append(start + document)
        start += 10_000
    if all(sum(lengths) == 0 for lengths in files):
        return
    bounds = {"lengths": "lengths"} if by_lengths else {"offsets": "offsets"}
    loader = Loader(
        folder,
        ["tokens", "label"],
        samples=Ragged(**bounds, length=length, per_sample="label"),
        shuffle=False,
        batch_size=7,
    )
    found = collect(loader)
    assert np.array_equal(found["tokens"], np.array(expected))
    assert found["label"].tolist() == labels
    sizes = [size for lengths in files for size in lengths]
    assert found["mask"].sum(axis=1).tolist() == sizes


@pytest.mark.parametrize("storage", [{}, {"chunks": (9,), "compression": "gzip"}])
def test_packed_documents_fill_sequences(tmp_path, storage):
    lengths = [5, 0, 13, 1, 1, 30, 4]
    path = write_ragged(tmp_path / "f.h5", lengths, storage)
    samples = Ragged("offsets", length=8, pack=True)
    found = collect(Loader(path, "tokens", samples=samples, shuffle=False, batch_size=3))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    place = np.concatenate([np.arange(length) for length in lengths])
    for number in range(len(found["tokens"])):
        rows = np.arange(number * 8, min(number * 8 + 8, sum(lengths)))
        assert found["tokens"][number, : len(rows)].tolist() == rows.tolist()
        _, ids = np.unique(owner[rows], return_inverse=True)
        assert found["segment_ids"][number].tolist() == [*(ids + 1), *[0] * (8 - len(rows))]
        starts = np.maximum(rows - place[rows], number * 8)
        assert found["positions"][number, : len(rows)].tolist() == (rows - starts).tolist()
        assert found["mask"][number].tolist() == [True] * len(rows) + [False] * (8 - len(rows))


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 5, 4, 10], "has the offset 4 in row 2, which is less than 5"),
        ([0, 5, 99], "has 10 rows, but its samples have 99"),
        ([0, 3, 6], "4 of the 10 rows of `tokens` are in no sample: the last offset is 6"),
        ([2, 5, 10], "first 2 of the 10 rows of `tokens` are in no sample: the first offset is 2"),
        ([0], "10 of the 10 rows of `tokens` are in no sample"),
        ([-1, 5, 10], "has the offset -1 in row 0"),
        ([0.0, 5.0, 10.0], "offsets are integers"),
        ([], "has no rows"),
    ],
)
def test_wrong_offsets_are_errors(tmp_path, offsets, message):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["tokens"] = np.arange(10)
        f["offsets"] = np.array(offsets or np.zeros(0, int))
    with pytest.raises(InvalidArgumentError, match=message):
        Loader(tmp_path / "f.h5", "tokens", samples=Ragged("offsets"), batch_size=2)


def test_rows_in_no_sample_are_errors_that_say_what_to_add(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["tokens"] = np.arange(100)
        f["doc_start"] = [0, 30, 60]
        f["lengths"] = [30, 30]
        f["label"] = [0, 1]
    with pytest.raises(InvalidArgumentError, match="40 of the 100 rows") as caught:
        Loader(tmp_path / "f.h5", "tokens", samples=Ragged("doc_start"), batch_size=2)
    assert "append the number of rows, 100, to the offsets" in caught.value.hint
    with pytest.raises(InvalidArgumentError, match="the lengths add up to 60") as caught:
        Loader(tmp_path / "f.h5", "tokens", samples=Ragged(lengths="lengths"), batch_size=2)
    assert "add up to the number of rows" in caught.value.hint
    samples = Ragged("doc_start", per_sample=["label"])
    with h5py.File(tmp_path / "f.h5", "a") as f:
        del f["doc_start"]
        f["doc_start"] = [0, 30, 60, 100]
    with pytest.raises(InvalidArgumentError, match="`label` has 2 rows, and there are 3 samples"):
        Loader(tmp_path / "f.h5", ["tokens", "label"], samples=samples, batch_size=2)


@given(
    rows=st.integers(1, 12),
    numbers=st.lists(st.integers(-2, 14), min_size=1, max_size=6),
    repair=st.sampled_from(["none", "sort", "begin", "end", "both"]),
    by_lengths=st.booleans(),
    pack=st.booleans(),
)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_offsets_are_right_or_an_error(tmp_path_factory, rows, numbers, repair, by_lengths, pack):
    """Whatever the offsets are: each row is in one sample, or there is an error."""
    if repair != "none" and not by_lengths:
        numbers = sorted(min(max(number, 0), rows) for number in numbers)
        numbers = [0] * (repair in ("begin", "both")) + numbers
        numbers += [rows] * (repair in ("end", "both"))
    path = tmp_path_factory.mktemp("offsets") / "f.h5"
    with h5py.File(path, "w") as f:
        f["tokens"] = np.arange(rows)
        f["bounds"] = numbers
    if by_lengths:
        lengths = numbers
        is_right = min(lengths) >= 0 and sum(lengths) == rows
    else:
        lengths = np.diff(numbers).tolist()
        is_right = min(lengths, default=-1) >= 0 and (numbers[0], numbers[-1]) == (0, rows)
    bounds = {"lengths": "bounds"} if by_lengths else {"offsets": "bounds"}
    samples = Ragged(**bounds, length=rows, pack=pack)
    try:
        loader = Loader(path, "tokens", samples=samples, batch_size=2, shuffle=False)
    except InvalidArgumentError:
        assert not is_right
        return
    assert is_right
    found = collect(loader)
    assert found["tokens"][found["mask"]].tolist() == list(range(rows))
    if not pack:
        assert found["mask"].sum(axis=1).tolist() == lengths
