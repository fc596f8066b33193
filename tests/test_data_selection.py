"""Which samples are read: lists, groups, sets of a split."""

import pickle

import h5py
import numpy as np
import pytest
from data_files import COLUMNS, collect, write_ragged, write_series, write_shards
from hypothesis import given, settings
from hypothesis import strategies as st

from vramfit.data import (
    Loader,
    Ragged,
    Windows,
    compute_statistics,
)
from vramfit.errors import InvalidArgumentError


def test_no_window_crosses_a_split(tmp_path):
    path = write_series(tmp_path / "f.h5", [30] * 10)
    options = {"samples": Windows(length=4), "batch_size": 8, "shuffle": False}
    sets = [
        collect(Loader(path, COLUMNS, split=(name, 0.6, 0.2, 0.2), **options))["obs"]
        for name in ("train", "validation", "test")
    ]
    groups = [set((samples[..., 0] // 1000).astype(int).ravel().tolist()) for samples in sets]
    assert [len(group) for group in groups] == [6, 2, 2]
    assert set().union(*groups) == set(range(10))
    with h5py.File(tmp_path / "one.h5", "w") as f:
        f["x"] = np.arange(100)
    sets = [
        collect(Loader(tmp_path / "one.h5", "x", split=(name, 0.7, 0.2, 0.1), **options))["x"]
        for name in ("train", "validation", "test")
    ]
    spans = [(samples.min(), samples.max()) for samples in sets]
    assert spans == [(0, 69), (70, 89), (90, 99)]


def test_listed_rows_and_groups(tmp_path):
    folder = tmp_path / "shards"
    total = write_shards(folder, [40, 30, 50], chunks=(8, 5))
    chosen = np.random.default_rng(0).permutation(total)[:50]
    mask = np.zeros(total, bool)
    mask[chosen] = True
    for rows in (chosen, chosen.tolist(), mask):
        found = collect(Loader(folder, ["x", "y"], rows=rows, batch_size=8))
        assert sorted(found["y"].tolist()) == sorted(chosen.tolist())
    found = collect(Loader(folder, "y", rows=range(10, 60, 7), shuffle=False, batch_size=3))
    assert found["y"].tolist() == list(range(10, 60, 7))
    parts = [
        collect(Loader(folder, "y", rows=chosen, split=(name, 0.2), batch_size=8))["y"].tolist()
        for name in ("train", "validation")
    ]
    assert sorted(parts[0] + parts[1]) == sorted(chosen.tolist())
    assert len(parts[1]) == 10
    path = write_series(tmp_path / "f.h5", [5, 6, 7, 8])
    found = collect(Loader(path, COLUMNS, groups=["demo_3", "demo_1"], batch_size=4, shuffle=False))
    assert set((found["obs"][:, 0] // 1000).astype(int).tolist()) == {1, 3}
    assert len(found["obs"]) == 14
    with pytest.raises(InvalidArgumentError, match="no group `demo_9`"):
        Loader(path, COLUMNS, groups=["demo_9"], batch_size=4)
    with pytest.raises(InvalidArgumentError, match="row 120 is listed"):
        Loader(folder, "y", rows=[120], batch_size=1)
    with pytest.raises(InvalidArgumentError, match="3 more than once"):
        Loader(folder, "y", rows=[3, 3], batch_size=1)


def test_documents_of_a_group_stay_together_and_those_of_one_file_are_split(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        for number in range(10):
            f[f"g{number}/tokens"] = np.full(30, number)
            f[f"g{number}/offsets"] = np.arange(0, 31, 3)
    options = {"samples": Ragged("*/offsets"), "batch_size": 4}
    loaders = [
        Loader(tmp_path / "f.h5", {"tokens": "*/tokens"}, split=(name, 0.3), **options)
        for name in ("train", "validation")
    ]
    sets = [set(collect(loader)["tokens"].ravel()) for loader in loaders]
    assert [len(one) for one in sets] == [7, 3]
    assert not sets[0] & sets[1]
    one = write_ragged(tmp_path / "one.h5", [3] * 50)
    for name, count in (("train", 40), ("validation", 10)):
        loader = Loader(one, "tokens", samples=Ragged("offsets"), split=(name, 0.2), batch_size=4)
        assert loader.rows == count


@given(
    length=st.integers(5, 40),
    windows=st.integers(1, 4),
    shift=st.integers(-4, 6),
    pad=st.sampled_from(["none", "zeros", "repeat"]),
    fraction=st.floats(0.1, 0.5),
)
@settings(max_examples=60, deadline=None)
def test_no_row_is_in_two_sets_of_one_series(
    tmp_path_factory, length, windows, shift, pad, fraction
):
    path = tmp_path_factory.mktemp("series") / "f.h5"
    with h5py.File(path, "w") as f:
        f["x"] = 1 + np.arange(length)
    sets = []
    for name in ("train", "validation"):
        try:
            loader = Loader(
                path,
                "x",
                samples=Windows(windows, pad=pad),
                shift={"x": shift},
                split=(name, fraction),
                batch_size=4,
            )
        except InvalidArgumentError:
            return
        sets.append(set(collect(loader)["x"].ravel().tolist()) - {0})
    assert not sets[0] & sets[1]


@pytest.fixture
def listed(tmp_path):
    """Write groups, and datasets that name some of them, and some of 20 rows."""
    path = write_series(tmp_path / "f.h5", [3, 4, 5, 6])
    chosen = np.array([17, 3, 8])
    with h5py.File(path, "a") as f:
        f["y"] = np.arange(20)
        f["mask/fixed"] = np.array(["demo_3", "demo_1"], "S")
        f["mask/text"] = ["demo_3", "demo_1"]
        f["mask/numbers"] = [3, 1]
        f["mask/one"] = "demo_1"
        f["numbers"] = chosen
        f["column"] = chosen[:, None].astype("u1")
        f["matlab"] = chosen[None]
        f["flags"] = np.isin(np.arange(20), chosen)
        f["bits"] = np.isin(np.arange(20), chosen).astype("u1")[None]
    return path


@pytest.mark.parametrize("name", ["mask/fixed", "mask/text"])
def test_groups_are_named_by_a_dataset(listed, name):
    found = collect(Loader(listed, COLUMNS, groups=name, batch_size=4, shuffle=False))
    assert (found["obs"][:, 0] // 1000).astype(int).tolist() == [1] * 4 + [3] * 6
    one = compute_statistics(listed, {"obs": "data/*/obs"}, groups=name)["obs"]
    assert one.rows == 10
    with h5py.File(listed) as f:
        loader = Loader(listed, COLUMNS, groups=f[name], batch_size=4)
    assert pickle.loads(pickle.dumps(loader)).rows == 10


def test_one_group_may_be_a_single_value(listed):
    with h5py.File(listed) as f:
        for groups in ("demo_1", np.array("demo_1"), f["mask/one"]):
            assert Loader(listed, COLUMNS, groups=groups, batch_size=4).rows == 4


def test_row_numbers_are_not_unpacked(listed):
    with h5py.File(listed, "a") as f:
        f["numbers"].attrs["scale_factor"] = 0.5
    assert Loader(listed, "y", rows="numbers", batch_size=2, unpack=True).rows == 3


@pytest.mark.parametrize("name", ["numbers", "column", "matlab", "flags", "bits"])
def test_rows_are_named_by_a_dataset(listed, name):
    found = collect(Loader(listed, "y", rows=name, batch_size=2, shuffle=False))
    assert found["y"].tolist() == [3, 8, 17]
    assert compute_statistics(listed, "y", rows=name)["y"].mean == [28 / 3]


def test_rows_of_an_open_dataset_are_pickled(listed):
    with h5py.File(listed) as f:
        loader = Loader(listed, "y", rows=f["numbers"], batch_size=2)
    assert pickle.loads(pickle.dumps(loader)).rows == 3


def test_datasets_that_do_not_say_what_to_read(listed, tmp_path):
    both = [listed, write_series(tmp_path / "g.h5", [3])]
    with h5py.File(both[1], "a") as f:
        f["y"], f["numbers"], f["mask/fixed"] = np.arange(20), [1], np.array(["demo_0"], "S")
        f["flags"] = np.arange(20) == 2
    # A mask is as long as the rows of all files; numbers and names are those of one.
    found = collect(Loader(both, "y", rows="flags", batch_size=2, shuffle=False))
    assert found["y"].tolist() == [3, 8, 17, 2]
    wrong = [
        (both, "y", {"rows": "numbers"}, "of which there are 2 in the files"),
        (both, COLUMNS, {"groups": "mask/fixed"}, "of which there are 2 in the files"),
        (listed, "y", {"rows": "data/demo_0/obs"}, "with rows of shape"),
        (listed, "y", {"rows": "nowhere"}, "no `nowhere`"),
        (listed, "y", {"rows": "data/demo_0/action"}, "with rows of shape"),
        (listed, COLUMNS, {"groups": "mask/nowhere"}, "no `mask/nowhere`"),
        (listed, COLUMNS, {"groups": "data/demo_0/obs"}, "neither text nor bytes"),
        (listed, COLUMNS, {"groups": "mask/numbers"}, "`groups` needs a dataset of text"),
        (listed, "y", {"rows": "mask/text"}, "`rows` needs a dataset of numbers"),
        (listed, COLUMNS, {"groups": np.array("demo_9")}, "no group `demo_9`"),
        (listed, COLUMNS, {"groups": "mask/fixed", "rows": "flags"}, "were given"),
    ]
    for path, datasets, options, message in wrong:
        with pytest.raises(InvalidArgumentError, match=message):
            Loader(path, datasets, batch_size=2, **options)
