"""Samples that are not rows: windows, groups, ragged values, many files, against h5py and NumPy."""

import json
import os
import pickle
import random
import textwrap
import threading

import h5py
import numpy as np
import pytest
from commands import run_python, run_vramfit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramfit.data import (
    Groups,
    HDF5Source,
    Loader,
    Mixture,
    Ragged,
    Rows,
    Windows,
    compute_statistics,
)
from vramfit.errors import FileChangedError, InvalidArgumentError, VramfitError

STORAGES = {
    "contiguous": {},
    "gzip": {"chunks": True, "compression": "gzip"},
    "small chunks": {"chunks": (7, 3), "compression": "lzf"},
}


def write_series(path, lengths, storage=None, extra=0):
    """Write groups `data/demo_<n>` whose values say which group and row they are.

    `obs` has `extra` rows more than `action`.
    """
    with h5py.File(path, "w") as f:
        for number, length in enumerate(lengths):
            group = f.create_group(f"data/demo_{number}")
            for name, rows, width in (("obs", length + extra, 3), ("action", length, 2)):
                values = number * 1000 + np.arange(rows)[:, None] + np.arange(width) / 10
                options = dict(storage or {}) if rows else {}
                if isinstance(options.get("chunks"), tuple):
                    options["chunks"] = (options["chunks"][0], min(options["chunks"][1], width))
                options |= {"maxshape": (None, width)} if options.get("chunks") else {}
                group.create_dataset(name, data=values.astype("f4"), **options)
    return path


def read_series(path, name):
    """Return the rows of each group, by h5py, in the order of their numbers."""
    with h5py.File(path) as f:
        groups = sorted(f["data"], key=lambda group: int(group.split("_")[1]))
        return [f["data"][group][name][()] for group in groups]


def define_windows(series, length, stride, pad, shift=0, lengths=None):
    """Return the windows of each group by their definition, and which rows are real."""
    windows, masks = [], []
    for number, rows in enumerate(series):
        count = lengths[number] if lengths else len(rows)
        for start in range(0, count, stride):
            numbers = start + shift + np.arange(length)
            real = (numbers >= 0) & (numbers < len(rows))
            if pad == "none" and not real.all():
                continue
            window = rows[np.clip(numbers, 0, len(rows) - 1)]
            windows.append(np.where(real[:, None], window, 0) if pad == "zeros" else window)
            masks.append(real)
    return np.array(windows), np.array(masks)


def collect(loader, epoch=0):
    """Return all samples of an epoch, in the order in which they came."""
    batches = [{name: part.copy() for name, part in batch.items()} for batch in loader.epoch(epoch)]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def as_set(array):
    """Return the samples of an array in an order of their own."""
    rows = array.reshape(len(array), -1)
    return array[np.lexsort(rows.T[::-1])]


COLUMNS = {"obs": "data/*/obs", "action": "data/*/action"}


@pytest.mark.parametrize("pad", ["none", "zeros", "repeat"])
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("length", "stride"), [(4, 1), (5, 3), (3, 8), (1, 1)])
def test_t1_windows_are_those_of_each_group(tmp_path, storage, pad, length, stride):
    lengths = [17, 3, 0, 40, 12, 5, 1, 8, 30, 9, 11]
    path = write_series(tmp_path / "f.h5", lengths, STORAGES[storage])
    samples = Windows(length=length, stride=stride, pad=pad)
    options = {"samples": samples, "batch_size": 8, "memory": "256KiB"}
    obs, mask = define_windows(read_series(path, "obs"), length, stride, pad)
    action, _ = define_windows(read_series(path, "action"), length, stride, pad)
    in_order = collect(Loader(path, COLUMNS, shuffle=False, **options))
    assert np.array_equal(in_order["obs"], obs)
    assert np.array_equal(in_order["action"], action)
    assert ("mask" in in_order) is (pad != "none")
    if pad != "none":
        assert np.array_equal(in_order["mask"], mask)
    shuffled = Loader(path, COLUMNS, **options)
    epochs = [collect(shuffled, epoch) for epoch in range(2)]
    for epoch in epochs:
        assert np.array_equal(as_set(epoch["obs"]), as_set(obs))
        # Both columns are of the same rows.
        assert np.array_equal(epoch["action"], epoch["obs"][..., :2])
    assert len(obs) < 10 or not np.array_equal(epochs[0]["obs"], epochs[1]["obs"])


def test_groups_are_in_the_order_of_their_numbers(tmp_path):
    path = write_series(tmp_path / "f.h5", [1] * 12)
    rows = collect(Loader(path, "data/*/action", shuffle=False, batch_size=5))
    assert rows["data/*/action"][:, 0].tolist() == [1000 * number for number in range(12)]


def test_several_frames_of_one_column_and_several_steps_of_another(tmp_path):
    path = write_series(tmp_path / "f.h5", [9, 4, 20])
    loader = Loader(
        path,
        COLUMNS,
        samples=Windows(length={"obs": 3, "action": 5}, pad="repeat"),
        shift={"obs": -2},
        shuffle=False,
        batch_size=6,
        mask=True,
    )
    found = collect(loader)
    obs, obs_mask = define_windows(read_series(path, "obs"), 3, 1, "repeat", shift=-2)
    action, action_mask = define_windows(read_series(path, "action"), 5, 1, "repeat")
    real = slice(len(obs))
    assert np.array_equal(found["obs"][real], obs)
    assert np.array_equal(found["obs_mask"][real], obs_mask)
    assert np.array_equal(found["action"][real], action)
    assert np.array_equal(found["action_mask"][real], action_mask)
    assert not found["action_mask"][len(obs) :].any(), "padding of the batch is no real row"


def test_transitions_do_not_cross_groups(tmp_path):
    lengths = [9, 1, 20]
    path = write_series(tmp_path / "f.h5", lengths)
    loader = Loader(path, COLUMNS, shift={"next_obs": ("obs", 1)}, shuffle=False, batch_size=6)
    found = collect(loader)
    obs = read_series(path, "obs")
    assert np.array_equal(found["obs"], np.concatenate([rows[:-1] for rows in obs]))
    assert np.array_equal(found["next_obs"], np.concatenate([rows[1:] for rows in obs]))


def test_one_observation_more_than_actions(tmp_path):
    path = write_series(tmp_path / "f.h5", [9, 1, 20], extra=1)
    with pytest.raises(InvalidArgumentError, match="same number of rows") as error:
        Loader(path, COLUMNS, batch_size=6)
    assert "trim=True" in error.value.hint
    loader = Loader(
        path,
        COLUMNS,
        samples=Rows(trim=True),
        shift={"next_obs": ("obs", 1)},
        shuffle=False,
        batch_size=6,
    )
    found = collect(loader)
    obs = read_series(path, "obs")
    # No transition is lost: the last observation is the next one of the last action.
    assert np.array_equal(found["action"], np.concatenate(read_series(path, "action")))
    assert np.array_equal(found["next_obs"], np.concatenate([rows[1:] for rows in obs]))


@pytest.mark.parametrize("pad", ["zeros", "repeat"])
@pytest.mark.parametrize("storage", STORAGES)
def test_a_group_is_a_sample(tmp_path, storage, pad):
    lengths = [17, 3, 40, 12, 5]
    path = write_series(tmp_path / "f.h5", lengths, STORAGES[storage], extra=1)
    loader = Loader(path, COLUMNS, samples=Groups(pad=pad), shuffle=False, batch_size=2)
    found = collect(loader)
    for name, longest in (("obs", 41), ("action", 40)):
        series = read_series(path, name)
        expected, mask = zip(
            *(
                (window[0], real[0])
                for window, real in (define_windows([rows], longest, 99, pad) for rows in series)
            ),
            strict=True,
        )
        assert np.array_equal(found[name], np.array(expected))
        assert np.array_equal(found[f"{name}_mask"], np.array(mask))
    with pytest.raises(InvalidArgumentError, match=r"longest sample of `data/.*` has 41 rows"):
        Loader(path, COLUMNS, samples=Groups(length=10), batch_size=2)
    cut = collect(
        Loader(path, COLUMNS, samples=Groups(length=10, truncate=True), shuffle=False, batch_size=2)
    )
    assert np.array_equal(cut["action"][0], read_series(path, "action")[0][:10])


def write_ragged(path, lengths, storage=None, start=0):
    """Write documents one after the other, their offsets, and a label of each."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    with h5py.File(path, "w") as f:
        tokens = start + np.arange(offsets[-1])
        maxshape = {"maxshape": (None,)} if storage else {}
        f.create_dataset("tokens", data=tokens, **(storage or {}), **maxshape)
        f["offsets"] = offsets
        f["lengths"] = np.array(lengths)
        f["label"] = start + np.arange(len(lengths))
    return path


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


def write_shards(folder, sizes, **options):
    """Write files whose rows are numbered through all of them."""
    folder.mkdir(exist_ok=True)
    start = 0
    for number, size in enumerate(sizes):
        with h5py.File(folder / f"shard_{number}.h5", "w") as f:
            rows = start + np.arange(size)
            maxshape = {"maxshape": (None, 5)} if options else {}
            f.create_dataset("x", data=rows[:, None] + np.arange(5) / 10, **options, **maxshape)
            f["y"] = rows
        start += size
    return start


@pytest.mark.parametrize("options", [{}, {"chunks": (6, 5), "compression": "gzip"}])
def test_t1_many_files_are_one_order(tmp_path, options):
    folder = tmp_path / "shards"
    total = write_shards(folder, [40, 1, 77, 13, 8, 20, 33, 60, 5, 9, 100, 2], **options)
    for path in (folder, str(folder / "*.h5"), [*map(str, sorted(folder.iterdir()))]):
        loader = Loader(path, ["x", "y"], batch_size=16, memory="512KiB")
        epochs = [collect(loader, epoch) for epoch in range(2)]
        for epoch in epochs:
            assert sorted(epoch["y"].tolist()) == list(range(total))
            assert np.allclose(epoch["x"], epoch["y"][:, None] + np.arange(5) / 10)
        assert epochs[0]["y"].tolist() != epochs[1]["y"].tolist()
    in_order = collect(Loader(folder, "y", shuffle=False, batch_size=16))
    assert in_order["y"].tolist() == list(range(total)), "shard_2 comes before shard_10"


def test_more_files_than_may_be_open(tmp_path):
    folder = tmp_path / "shards"
    total = write_shards(folder, [3] * 150)
    code = f"""
        import resource
        import numpy as np
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        from vramfit.data import Loader
        loader = Loader({str(folder)!r}, "y", batch_size=9, memory="1MiB")
        print(sorted(np.concatenate([b["y"] for b in loader]).tolist()) == list(range({total})))
    """
    import subprocess
    import sys
    import textwrap

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


def test_a_file_that_is_unlike_the_others_is_named(tmp_path):
    folder = tmp_path / "shards"
    write_shards(folder, [5, 5])
    with h5py.File(folder / "shard_7.h5", "w") as f:
        f["x"], f["y"] = np.zeros((5, 4)), np.arange(5)
    with pytest.raises(InvalidArgumentError, match=r"shard_7.h5.*shape \[4\].*shape \[5\]"):
        Loader(folder, ["x", "y"], batch_size=2)
    with h5py.File(folder / "shard_7.h5", "w") as f:
        f["x"], f["y"] = np.zeros((5, 5), "f4"), np.arange(5)
    with pytest.raises(InvalidArgumentError, match=r"shard_7.h5. is float32.*float64"):
        Loader(folder, ["x", "y"], batch_size=2)
    assert Loader(folder, ["x", "y"], batch_size=2, dtype="float32").rows == 15
    with h5py.File(folder / "shard_7.h5", "w") as f:
        f["y"] = np.arange(5)
    with pytest.raises(InvalidArgumentError, match=r"shard_7.h5` contains no `x`"):
        Loader(folder, ["x", "y"], batch_size=2)
    (folder / "shard_7.h5").unlink()
    loader = Loader(folder, ["x", "y"], batch_size=2)
    with h5py.File(folder / "shard_1.h5", "a") as f:
        f["x"][0] = 7
    with pytest.raises(FileChangedError, match=r"shard_1\.h5"):
        collect(loader)
    with pytest.raises(VramfitError, match=r"missing\.h5"):
        Loader([folder / "shard_0.h5", folder / "missing.h5"], "y", batch_size=2)
    with pytest.raises(InvalidArgumentError, match="no file matches"):
        Loader(str(folder / "none_*.h5"), "y", batch_size=2)


@pytest.mark.parametrize("seed", range(6))
def test_t7_samples_resume_at_random_places(tmp_path, seed):
    rng = random.Random(seed)
    lengths = [rng.randrange(60) for _ in range(30)]
    path = write_series(tmp_path / "f.h5", lengths, STORAGES[rng.choice(list(STORAGES))])
    arguments = {
        "samples": Windows(length=rng.choice([1, 4, 9]), stride=rng.choice([1, 3]), pad="repeat"),
        "seed": seed,
        "split": rng.choice([None, ("train", 0.2), ("train", 0.6, 0.2, 0.2)]),
        "memory": "512KiB",
    }

    def load(batch_size, **options):
        return Loader(path, COLUMNS, batch_size=batch_size, **{**arguments, **options})

    whole = collect(load(8), epoch=1)["obs"]
    loader = load(8)
    batches = loader.epoch(1)
    stop = rng.randrange(1, len(loader))
    before = [next(batches)["obs"].copy() for _ in range(stop)]
    state = json.dumps(loader.state())
    assert len(state) <= 1024
    world = rng.choice([1, 2])
    others = [
        load(6 * world, rank=rank, world=world, memory="1MiB").restore(state)
        for rank in range(world)
    ]
    after = []
    for parts in zip(*others, strict=True):
        for part in parts:
            after.append(part["obs"][part["mask"].any(axis=1)].copy())
    assert np.array_equal(np.concatenate([*before, *after]), whole)
    with pytest.raises(InvalidArgumentError, match="different `samples`"):
        load(8, samples=Windows(length=2)).restore(state)


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


def test_t6_the_last_batch(tmp_path):
    folder = tmp_path / "shards"
    total = write_shards(folder, [50])

    def sizes(**options):
        return [
            (len(batch["y"]), int(batch["mask"].sum()) if "mask" in batch else None)
            for batch in Loader(folder, "y", batch_size=20, shuffle=False, **options)
        ]

    assert sizes() == [(20, None), (20, None), (10, None)]
    assert sizes(last_batch="pad") == [(20, 20), (20, 20), (20, 10)]
    assert sizes(mask=True) == [(20, 20), (20, 20), (20, 10)]
    assert sizes(last_batch="partial", mask=True) == [(20, 20), (20, 20), (10, 10)]
    assert sizes(last_batch="drop") == sizes(drop_last=True) == [(20, None)] * 2
    assert sizes(world=2, rank=1) == [(10, 10), (10, 10), (10, 0)]
    with pytest.raises(InvalidArgumentError, match="cannot be partial"):
        Loader(folder, "y", batch_size=20, last_batch="partial", stacked_batches=2)
    assert total == 50


def test_random_transforms_are_resumed(tmp_path):
    folder = tmp_path / "shards"
    write_shards(folder, [50])

    def augment(batch, rng):
        return {"y": batch["y"] + rng.random(len(batch["y"]))}

    def load(seed=0):
        return Loader(folder, "y", batch_size=8, seed=seed, transform=augment)

    whole = [batch["y"] for batch in load().epoch(1)]
    loader = load()
    batches = loader.epoch(1)
    for _ in range(3):
        next(batches)
    rest = [batch["y"] for batch in load().restore(loader.state())]
    assert all(map(np.array_equal, rest, whole[3:]))
    noise = [batch["y"] % 1 for batch in load().epoch(0)]
    assert not np.array_equal(noise[0], noise[1])
    assert not np.array_equal(noise[0], whole[0] % 1)


def test_a_loader_is_pickled_with_its_position(tmp_path):
    folder = tmp_path / "shards"
    write_shards(folder, [50])
    loader = Loader(folder, "y", batch_size=8)
    whole = [batch["y"].tolist() for batch in loader.epoch(0)]
    batches = loader.epoch(0)
    next(batches)
    other = pickle.loads(pickle.dumps(loader))
    assert [batch["y"].tolist() for batch in other] == whole[1:]


def test_t12_a_source_has_the_same_samples(tmp_path):
    path = write_series(tmp_path / "f.h5", [9, 4, 20], STORAGES["gzip"])
    source = HDF5Source(path, COLUMNS, samples=Windows(length=3))
    expected, _ = define_windows(read_series(path, "obs"), 3, 1, "none")
    assert len(source) == len(expected)
    assert np.array_equal(source.read_rows(range(len(source)))["obs"], expected)
    assert np.array_equal(pickle.loads(pickle.dumps(source))[5]["obs"], expected[5])


def test_two_threads_on_one_iterator_are_an_error(tmp_path):
    folder = tmp_path / "shards"
    write_shards(folder, [50])
    started, may_end = threading.Event(), threading.Event()

    class SlowLock:
        """Holds the loader while another thread asks for a batch."""

        def __init__(self, native):
            self.native = native
            self.position = native.position

        def next(self):
            started.set()
            may_end.wait(20)
            return self.native.next()

    loader = Loader(folder, "y", batch_size=8)
    batches = iter(loader)
    loader._native = SlowLock(loader._native)
    thread = threading.Thread(target=lambda: next(batches))
    thread.start()
    assert started.wait(20)
    with pytest.raises(InvalidArgumentError, match="another thread"):
        next(batches)
    may_end.set()
    thread.join()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": "windows"}, "does not describe a sample"),
        ({"samples": Windows(length=50)}, "longest series has 20"),
        ({"samples": Windows(length={"obs": 2})}, "no length for `action`"),
        ({"samples": Windows(length={"obs": 2, "act": 3})}, "names 'act'"),
        ({"shift": {"next": ("obss", 1)}}, "refers to 'obss'"),
        ({"shift": {"next": ("obs", 1.5)}}, "must be an integer"),
        ({"samples": Groups(), "shift": {"next": ("obs", 1)}}, "neither rows nor windows"),
        ({"samples": Ragged("data/*/nothing")}, "contains no"),
        ({"rows": [1], "groups": ["demo_0"]}, "`rows` and `groups`"),
        ({"rows": [[1]]}, "selects no samples"),
        ({"rows": [-1]}, "not the number of a sample"),
        ({"rows": np.zeros(5, bool) | True}, "mask of 5 values, and there are"),
        ({"rows": [[1, 2], [3]]}, "selects no samples"),
        ({"rows": slice(0.5, 3)}, "must be an integer"),
        ({"groups": 5}, "names of groups"),
        ({"rank": "0", "world": 2}, "must be an integer"),
        ({"shift": {"action": ("obs", 1)}}, "is a column already"),
        ({"split": "train"}, "not a split"),
        ({"split": ("train", 0.5, 0.1, 0.1)}, "do not sum to 1"),
        ({"split": ("train", 0.01)}, "groups are split"),
        ({"last_batch": "padd"}, "must be one of"),
        ({"memory": None}, "`memory` is None"),
        ({"threads": "two"}, "must be an integer"),
        ({"transform": 3}, "must be a function"),
        ({"batch_size": None}, "must be an integer"),
    ],
)
def test_what_cannot_be_is_said_in_words(tmp_path, options, message):
    path = write_series(tmp_path / "f.h5", [9, 4, 20])
    options = {"batch_size": 2, "samples": Windows(length=2), **options}
    if options["samples"].__class__ is Windows and "shift" in options:
        options["samples"] = Rows()
    with pytest.raises(InvalidArgumentError, match=message):
        Loader(path, COLUMNS, **options)
    for path in (None, 3, [None]):
        with pytest.raises(InvalidArgumentError, match="`path` is"):
            Loader(path, COLUMNS, batch_size=2)
    with pytest.raises(InvalidArgumentError, match="matches `demos/\\*/obs`"):
        Loader(tmp_path / "f.h5", "demos/*/obs", batch_size=2)
    with pytest.raises(InvalidArgumentError, match="paths of datasets"):
        Loader(tmp_path / "f.h5", [3], batch_size=2)


@pytest.mark.parametrize("storage", STORAGES)
def test_t12_statistics_are_those_of_numpy(tmp_path, storage):
    path = write_series(tmp_path / "f.h5", [17, 3, 0, 40, 9, 21], STORAGES[storage])
    found = compute_statistics(path, COLUMNS)
    for name in COLUMNS:
        rows = np.concatenate(read_series(path, name)).astype(float)
        assert found[name].rows == len(rows)
        assert np.allclose(found[name].mean, rows.mean(axis=0), rtol=1e-12)
        assert np.allclose(found[name].std, rows.std(axis=0), rtol=1e-12)
        assert np.array_equal(found[name].min, rows.min(axis=0))
        assert np.array_equal(found[name].max, rows.max(axis=0))
    done = run_vramfit("data", "stats", path, "--output", tmp_path / "stats.json")
    assert "/data/demo_*/obs: 90 rows of float32, 3 features" in done.stdout
    loaders = [
        Loader(path, COLUMNS, normalize=normalize, samples=samples, batch_size=8, seed=3)
        for normalize in (tmp_path / "stats.json", found)
        for samples in (Rows(), Windows(length=4, pad="zeros"))
    ]
    rows, windows, *others = map(collect, loaders)
    assert np.allclose(rows["obs"].mean(axis=0), 0, atol=1e-5)
    assert np.allclose(rows["obs"].std(axis=0), 1, atol=1e-5)
    assert not windows["obs"][~windows["mask"]].any(), "padding stays zero"
    for one, other in zip((rows, windows), others, strict=True):
        assert np.array_equal(one["obs"], other["obs"])
    plain = collect(Loader(path, COLUMNS, batch_size=8, seed=3))
    assert np.allclose(
        rows["obs"], (plain["obs"] - found["obs"].mean) / found["obs"].std, atol=1e-5
    )
    with pytest.raises(InvalidArgumentError, match=r"different .*`normalize`"):
        Loader(path, COLUMNS, batch_size=8, seed=3).restore(loaders[0].state())


def test_t12_statistics_of_labels_nan_and_constant_features(tmp_path):
    labels = np.array([3, 3, -1, 7])
    values = np.array([[1, np.nan, 5], [2, 4, 5], [3, np.inf, 5], [4, 6, 5]], "f4")
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["y"], f["x"] = labels, values
    found = compute_statistics(tmp_path / "f.h5", ["x", "y"])
    assert found["y"].labels == {-1: 1, 3: 2, 7: 1}
    assert found["x"].nan.tolist() == [0, 1, 0]
    assert found["x"].infinite.tolist() == [0, 1, 0]
    assert found["x"].mean.tolist() == [2.5, 5, 5]
    options = {"batch_size": 4, "shuffle": False}
    batch = collect(Loader(tmp_path / "f.h5", "x", normalize={"x": found["x"]}, **options))
    assert batch["x"][:, 2].tolist() == [0] * 4
    for normalize, message in (
        ({"y": (0, 1)}, "`y` is int32, and normalized numbers are floats"),
        ({"x": ([0, 0], [1, 1])}, "has 3 features, and its normalization has 2"),
        ({"x": (0, -1)}, "is not zero or more"),
        ({"x": 3}, "not a mean and a deviation"),
        ({"z": (0, 1)}, "names 'z'"),
        (str(tmp_path / "f.h5"), "not a file of statistics"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            Loader(tmp_path / "f.h5", ["x", "y"], normalize=normalize, **options)


@pytest.mark.parametrize("choice", ["split", "rows"])
@pytest.mark.parametrize("kind", ["windows", "ragged"])
def test_some_samples_in_file_order(tmp_path, kind, choice):
    """Samples that do not follow each other share fewer rows than those that do."""
    lengths = [1, 100] * 300
    path = write_ragged(tmp_path / "f.h5", lengths, {"chunks": (100,), "compression": "lzf"})
    samples = Windows(16) if kind == "windows" else Ragged("offsets")
    options = {"samples": samples, "batch_size": 8, "shuffle": False}
    whole = collect(Loader(path, "tokens", **options))["tokens"]
    if choice == "split":
        options |= {"split_by": "sample"}
        sets = [
            collect(Loader(path, "tokens", split=(name, 0.5), **options))["tokens"]
            for name in ("train", "validation")
        ]
        assert np.array_equal(as_set(np.concatenate(sets)), as_set(whole))
    else:
        rows = np.arange(0, len(whole), 7)
        found = collect(Loader(path, "tokens", rows=rows, **options))["tokens"]
        assert np.array_equal(found, whole[rows])


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


def test_groups_that_cannot_be_read_are_errors(tmp_path):
    for name in ("e1", "e2"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as f:
            f["g/x"] = np.arange(5)
            f["off"] = np.array([0, 3, 5])
    with h5py.File(tmp_path / "w.h5", "w") as f:
        f["d/a"] = h5py.ExternalLink("e1.h5", "/g")
        f["d/b"] = h5py.ExternalLink("e2.h5", "/g")
        f["d/c"] = h5py.SoftLink("/nowhere")
        f["off"] = h5py.ExternalLink("e1.h5", "/off")
        f["x"] = np.arange(5)
    assert Loader(tmp_path / "w.h5", "d/*/x", batch_size=1).rows == 10
    ragged = {"samples": Ragged("off"), "batch_size": 1}
    loader = Loader(tmp_path / "w.h5", "x", **ragged)
    next(iter(loader))
    with h5py.File(tmp_path / "e1.h5", "a") as f:
        f["off"][:] = [0, 1, 5]
    with pytest.raises(FileChangedError):
        Loader(tmp_path / "w.h5", "x", **ragged).restore(loader.state())
    (tmp_path / "e2.h5").rename(tmp_path / "gone.h5")
    with pytest.raises(VramfitError, match=r"e2\.h5"):
        Loader(tmp_path / "w.h5", "d/*/x", batch_size=1)


def test_a_state_is_of_these_files_in_this_order(tmp_path):
    names = ("a.h5", "b.h5")
    for number, name in enumerate(names):
        with h5py.File(tmp_path / name, "w", track_times=False) as f:
            f["x"] = np.arange(20) + 100 * number
            f["y"] = np.arange(20)
        os.utime(tmp_path / name, (10**9, 10**9))
    paths = [tmp_path / name for name in names]
    state = Loader(paths, "x", batch_size=3).state()
    Loader(paths, "x", batch_size=3).restore(state)
    one = Loader(paths[0], "x", batch_size=3).state()
    for other in (paths[::-1], paths[0]):
        with pytest.raises((FileChangedError, InvalidArgumentError)):
            Loader(other, "x", batch_size=3).restore(state)
    for path, dataset in ((paths[1], "x"), (paths[0], "y")):
        with pytest.raises(FileChangedError):
            Loader(path, dataset, batch_size=3).restore(one)
    with pytest.raises(InvalidArgumentError, match="given twice"):
        Loader([paths[0], tmp_path / "." / "a.h5"], "x", batch_size=3)


def test_the_budget_that_an_error_names_is_enough(tmp_path):
    path = write_series(tmp_path / "f.h5", [20] * 200)
    with pytest.raises(InvalidArgumentError, match="memory budget") as error:
        Loader(path, COLUMNS, batch_size=8, memory="20KiB")
    enough = int(error.value.hint.split("(")[1].split()[0])
    assert Loader(path, COLUMNS, batch_size=8, memory=enough).rows == 4000


def test_more_external_files_than_may_be_open(tmp_path):
    with h5py.File(tmp_path / "all.h5", "w") as f:
        for number in range(200):
            f[f"d/{number}"] = h5py.ExternalLink(f"e{number}.h5", "/")
            with h5py.File(tmp_path / f"e{number}.h5", "w") as other:
                other["x"] = [number]
    code = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        from vramfit.data import Loader
        loader = Loader({str(tmp_path / "all.h5")!r}, "d/*/x", batch_size=9, memory="1MiB")
        print(sorted(int(x) for b in loader for x in b["d/*/x"]) == list(range(200)))
    """
    run_python("-c", textwrap.dedent(code), code=0)


def test_transforms_on_threads_come_in_order_and_are_resumed(tmp_path):
    folder = tmp_path / "shards"
    write_shards(folder, [200])
    rng = random.Random(0)

    def slow(batch, rng):
        # Some batches take longer than those behind them.
        sum(range(20_000 * int(batch["y"][0] % 5)))
        return {"y": batch["y"] + rng.random(len(batch["y"]))}

    def load(threads, **options):
        options = {"batch_size": 8, "transform": slow, "transform_threads": threads, **options}
        return Loader(folder, "y", **options)

    whole = [batch["y"] for batch in load(0).epoch(1)]
    loader = load(3)
    assert all(map(np.array_equal, [batch["y"] for batch in loader.epoch(1)], whole))
    assert loader.position == (2, 0)
    for _ in range(5):
        stop = rng.randrange(len(whole))
        batches = loader.epoch(1)
        for _ in range(stop):
            next(batches)
        assert loader.position == (1, stop * 8)
        rest = [batch["y"] for batch in load(2).restore(loader.state())]
        assert all(map(np.array_equal, rest, whole[stop:]))
        # The loop goes on after the last batch that the program has.
        assert np.array_equal(next(iter(loader))["y"], whole[stop])
    sent = [np.array(batch["y"]) for batch in load(2).to_device()]
    assert all(map(np.allclose, sent, [batch["y"] for batch in load(0)]))

    def fail(batch):
        raise ValueError(f"no {batch['y'][0]}")

    with pytest.raises(ValueError, match="no "):
        next(iter(load(2, transform=fail)))
    with pytest.raises(InvalidArgumentError, match="100000 transform threads need 100002 batches"):
        load(100_000, memory="200KiB")
    loader.close()


def test_a_mixture_keeps_its_weights_and_is_resumed(tmp_path):
    write_shards(tmp_path / "a", [100])
    write_shards(tmp_path / "b", [60])

    def mix(**options):
        loaders = {
            name: Loader(
                tmp_path / name, "y", batch_size=10, transform=lambda b, n=name: (n, b["y"])
            )
            for name in ("a", "b")
        }
        return Mixture(loaders, {"a": 3, "b": 1}, **options)

    mixture = mix(batches=400, seed=5)
    found = [(name, rows.tolist()) for name, rows in mixture]
    assert [name for name, _ in found] == mixture.choices(0, 400)
    # 300 are expected of 400, with a standard deviation below 9.
    assert 260 < sum(name == "a" for name, _ in found) < 340
    for name, rows in (("a", 100), ("b", 60)):
        own = [row for part, batch in found if part == name for row in batch]
        assert sorted(own[:rows]) == list(range(rows)), "each epoch has every row"
    other = mix(batches=400, seed=5)
    batches = iter(other)
    for _ in range(123):
        next(batches)
    state = json.dumps(other.state())
    rest = [(name, rows.tolist()) for name, rows in mix(batches=400, seed=5).restore(state)]
    assert rest == found[123:]
    with pytest.raises(InvalidArgumentError, match="another `seed`"):
        mix(seed=6).restore(state)
    with pytest.raises(InvalidArgumentError, match="a number for each loader"):
        Mixture({"a": mixture}, {"b": 1})
    assert len(mix()) == 16


def test_batches_are_cut_to_buckets(tmp_path):
    lengths = [3, 9, 2, 17, 1, 30, 4, 4]
    path = write_ragged(tmp_path / "f.h5", lengths)
    options = {"batch_size": 2, "shuffle": False}
    samples = Ragged("offsets", per_sample=["label"], buckets=[4, 20, 10])
    whole = list(
        Loader(path, ["tokens", "label"], samples=Ragged("offsets", per_sample="label"), **options)
    )
    cut = list(Loader(path, ["tokens", "label"], samples=samples, **options))
    assert [batch["tokens"].shape[1] for batch in cut] == [10, 20, 30, 4]
    for one, other in zip(cut, whole, strict=True):
        length = one["tokens"].shape[1]
        assert np.array_equal(one["tokens"], other["tokens"][:, :length])
        assert np.array_equal(one["mask"], other["mask"][:, :length])
        assert not other["mask"][:, length:].any()
        assert one["label"].tolist() == other["label"].tolist()
    for wrong, message in (
        ({"mask": False}, "needs the mask"),
        ({"stacked_batches": 2}, "cannot be cut"),
        ({"world": 2, "rank": 0}, "cannot be cut"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            Loader(path, "tokens", samples=Ragged("offsets", buckets=[4]), **options, **wrong)


def write_bytes(path, numbers, **options):
    """Write elements of every kind of text and bytes, each of which says its number."""
    with h5py.File(path, "w") as f:
        image = f.create_dataset("image", len(numbers), h5py.vlen_dtype("uint8"), **options)
        caption = f.create_dataset("caption", len(numbers), h5py.string_dtype(), **options)
        for place, number in enumerate(numbers):
            image[place] = np.frombuffer(encode(number), "uint8")
            caption[place] = f"bild {number} ä" * (number % 4)
        f["fixed"] = np.array([f"n{number}".encode() for number in numbers], "S9")
        f["opaque"] = np.array([number.to_bytes(4, "little") + b"\0" for number in numbers], "V5")
        f["number"] = np.array(numbers)
    return path


def encode(number):
    return bytes([number % 251]) * (number * 37 % 5000)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("options", [{}, {"chunks": (7,), "compression": "gzip"}])
def test_text_and_bytes_are_handed_out_as_they_are(tmp_path, options, shuffle):
    for number in range(3):
        write_bytes(
            tmp_path / f"{number}.h5", list(range(100 * number, 100 * number + 70)), **options
        )
    names = ["image", "caption", "fixed", "opaque"]
    arguments = {"batch_size": 16, "memory": "4MiB", "shuffle": shuffle}
    loader = Loader(tmp_path, [*names, "number"], decode=dict.fromkeys(names), **arguments)
    seen = []
    for batch in loader:
        for number, image, caption, fixed, opaque in zip(
            batch["number"].tolist(), *(batch[name] for name in names), strict=True
        ):
            seen.append(number)
            assert image == encode(number)
            assert caption.decode() == f"bild {number} ä" * (number % 4)
            assert fixed == f"n{number}".encode()
            assert opaque == number.to_bytes(4, "little") + b"\0"
    assert sorted(seen) == [100 * file + row for file in range(3) for row in range(70)]
    assert seen == sorted(seen) or shuffle
    with pytest.raises(InvalidArgumentError, match="not transferred to a device"):
        loader.to_device()
    decoded = Loader(
        tmp_path,
        [*names, "number"],
        decode={"image": len, "caption": bytes.decode, "fixed": None, "opaque": lambda b: b[0]},
        transform=lambda batch: {"length": batch["image"], "number": batch["number"]},
        transform_threads=2,
        **arguments,
    )
    for batch in decoded.to_device():
        assert np.array_equal(batch["length"], np.array(batch["number"]) * 37 % 5000)
    state = loader.state()
    assert len(json.dumps(state)) <= 1024


def test_what_is_no_text_is_not_decoded(tmp_path):
    write_bytes(tmp_path / "f.h5", list(range(9)))

    def load(**options):
        names = ["image", "caption", "number"]
        return Loader(tmp_path / "f.h5", names, **{"batch_size": 3, **options})

    texts = {"image": None, "caption": None}
    for options, message in (
        ({}, "variable-length sequences of bytes are not supported"),
        ({"decode": {**texts, "number": None}}, "only text and bytes are decoded"),
        ({"decode": {"picture": None}}, "names 'picture'"),
        ({"decode": len}, "must be a dictionary"),
        ({"decode": {**texts, "image": 3}}, "is not a function"),
        ({"decode": texts, "samples": Windows(2)}, "text or bytes, of which a sample has one"),
    ):
        with pytest.raises(VramfitError, match=message):
            load(**options)
    with pytest.raises(InvalidArgumentError, match="arrays of different shapes"):
        next(iter(load(decode={**texts, "image": lambda b: np.frombuffer(b, "u1")}, shuffle=False)))
