"""Ragged samples, against their definition in NumPy: between offsets, packed, and wrong ones."""

import h5py
import numpy as np
import pytest
from data_files import collect, write_ragged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramfit.data import HDF5Source, KFold, Loader, Ragged, Windows
from vramfit.errors import InvalidArgumentError

# How a file says where its samples are; the name of the dataset, too.
BOUNDS = ["offsets", "ends", "lengths"]


@given(
    files=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=40), min_size=1, max_size=3),
    bounds=st.sampled_from(BOUNDS),
    chunked=st.booleans(),
    length=st.integers(30, 35),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_ragged_samples_lie_between_offsets(tmp_path_factory, files, bounds, chunked, length):
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
    loader = Loader(
        folder,
        ["tokens", "label"],
        samples=Ragged(**{bounds: bounds}, length=length, per_sample="label"),
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


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    bounds=st.sampled_from(BOUNDS),
    length=st.integers(1, 6),
    stride=st.integers(1, 4),
    pad=st.sampled_from(["none", "zeros", "repeat"]),
    chunked=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_windows_do_not_cross_the_samples_of_a_dataset(
    tmp_path_factory, lengths, bounds, length, stride, pad, chunked
):
    storage = {"chunks": (5,), "compression": "gzip"} if chunked and sum(lengths) else {}
    path = write_ragged(tmp_path_factory.mktemp("bounded") / "f.h5", lengths, storage, 100)
    samples = Windows(length, stride=stride, pad=pad, within=Ragged(**{bounds: bounds}))
    expected = []
    for end, size in zip(np.cumsum(lengths), lengths, strict=True):
        for start in range(0, size, stride):
            rows = start + np.arange(length)
            if pad == "none" and rows[-1] >= size:
                continue
            window = 100 + end - size + np.minimum(rows, size - 1)
            expected.append(np.where(rows < size, window, 0 if pad == "zeros" else window))
    options = {"samples": samples, "batch_size": 4}
    if not expected:
        with pytest.raises(InvalidArgumentError):
            Loader(path, "tokens", **options)
        return
    found = collect(Loader(path, "tokens", shuffle=False, **options))["tokens"]
    assert found.tolist() == np.array(expected).tolist()
    shuffled = collect(Loader(path, "tokens", **options))["tokens"]
    assert sorted(shuffled.tolist()) == sorted(found.tolist())
    source = HDF5Source(path, "tokens", samples=samples)
    assert [source[at]["tokens"].tolist() for at in range(len(source))] == found.tolist()


def test_a_split_has_whole_samples_of_a_dataset(tmp_path):
    path = write_ragged(tmp_path / "f.h5", [6] * 20)
    options = {"samples": Windows(2, within=Ragged(ends="ends")), "batch_size": 5}
    for split in ((0.7, 0.2, 0.1), (KFold(5, 1),)):
        sets = {}
        for name in ("train", "validation", "test")[: len(split) if len(split) > 1 else 2]:
            rows = collect(Loader(path, "tokens", split=(name, *split), **options))["tokens"]
            sets[name] = set((rows // 6).ravel().tolist())
            assert len(rows) == 5 * len(sets[name])
        assert sum(map(len, sets.values())) == 20
        assert set().union(*sets.values()) == set(range(20))


def test_bounds_of_windows_that_are_none(tmp_path):
    path = write_ragged(tmp_path / "f.h5", [3, 4])
    with h5py.File(path, "a") as f:
        f["short"], f["down"], f["real"] = [3, 6], [4, 3, 7], [3.0, 7.0]
        f["other"] = np.arange(9)
    wrong = [
        (
            "tokens",
            Ragged(ends="short"),
            "1 of the 7 rows of `tokens` are in no sample: the last end",
        ),
        ("tokens", Ragged(ends="down"), "has the end 3 in row 1, which is less than 4"),
        ("tokens", Ragged(ends="real"), "is float64, and ends are integers"),
        ("tokens", Ragged(ends="nowhere"), "no `nowhere`"),
        (["tokens", "other"], Ragged(ends="ends"), "must have the same number of rows"),
        ("tokens", Ragged(lengths="other"), "has 7 rows, but its samples have 36"),
    ]
    for datasets, within, message in wrong:
        with pytest.raises(InvalidArgumentError, match=message):
            Loader(path, datasets, samples=Windows(2, within=within), batch_size=2)
    with pytest.raises(InvalidArgumentError, match="needs 9, and the longest series has 4"):
        Loader(path, "tokens", samples=Windows(9, within=Ragged("offsets")), batch_size=2)
    for make, message in (
        (lambda: Ragged(), "needs one of"),
        (lambda: Ragged("offsets", ends="ends"), "needs one of"),
        (lambda: Windows(2, within=Ragged("offsets", length=3)), "only its bounds"),
        (lambda: Windows(2, within=Ragged("offsets"), trim=True), "`trim` of `Windows`"),
        (lambda: Windows(2, within=Ragged("offsets"), axis=1), "`within` of `Windows`"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            make()


@given(
    lengths=st.lists(st.sampled_from([0, 1, 3, 999, 100_000]), min_size=1, max_size=6),
    bounds=st.sampled_from(BOUNDS),
    seed=st.integers(0, 100),
)
@settings(max_examples=15, deadline=None)
def test_samples_may_be_empty_and_long(tmp_path_factory, lengths, bounds, seed):
    storage = {"chunks": (4096,), "compression": "gzip"} if sum(lengths) else {}
    path = write_ragged(tmp_path_factory.mktemp("long") / "f.h5", lengths, storage)
    if not sum(lengths):
        return
    within = Ragged(**{bounds: bounds})
    loader = Loader(path, "tokens", samples=within, batch_size=2, seed=seed)
    rows = np.arange(sum(lengths))
    documents = {tuple(part[[0, -1]]) for part in np.split(rows, np.cumsum(lengths)) if len(part)}
    found = set()
    for batch in loader:
        for tokens, mask in zip(batch["tokens"], batch["mask"], strict=True):
            if mask.any():
                assert np.array_equal(tokens[mask], tokens[0] + np.arange(mask.sum()))
                found.add((tokens[0], tokens[mask][-1]))
    assert found == documents
    windows = Windows(500, stride=250, within=within)
    expected = [
        end - size + start
        for end, size in zip(np.cumsum(lengths), lengths, strict=True)
        for start in range(0, size - 499, 250)
    ]
    if expected:
        tokens = collect(Loader(path, "tokens", samples=windows, batch_size=64))["tokens"]
        assert sorted(tokens[:, 0]) == expected
        assert np.array_equal(tokens, tokens[:, :1] + np.arange(500))
