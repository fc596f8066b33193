"""What becomes of batches: the last one, transforms, decoding, normalization, mixtures."""

import json
import pickle
import random
import threading

import h5py
import numpy as np
import pytest
from commands import run_vramfit
from data_files import (
    COLUMNS,
    STORAGES,
    collect,
    encode,
    read_series,
    write_bytes,
    write_series,
    write_shards,
)

from vramfit.data import (
    Loader,
    Mixture,
    Rows,
    Windows,
    compute_statistics,
)
from vramfit.errors import InvalidArgumentError, VramfitError


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


@pytest.mark.parametrize(
    "read",
    [
        iter,
        lambda loader: iter(loader.to_device()),
        lambda loader: loader.to_device().epoch(0),
        lambda loader: iter(Mixture({"one": loader})),
        lambda loader: iter(Mixture({"one": loader}).to_device()),
    ],
    ids=["loader", "to_device", "epoch", "mixture", "mixture.to_device"],
)
def test_two_threads_on_one_iterator_are_an_error(tmp_path, read):
    folder = tmp_path / "shards"
    write_shards(folder, [50])
    started, may_end = threading.Event(), threading.Event()

    class SlowLoader:
        """Holds the loader while another thread asks for a batch."""

        def __init__(self, native):
            self.native = native

        def __getattr__(self, name):
            return getattr(self.native, name)

        def next(self):
            started.set()
            may_end.wait(20)
            return self.native.next()

    loader = Loader(folder, "y", batch_size=8)
    loader._native = SlowLoader(loader._native)
    batches = read(loader)
    got = []
    thread = threading.Thread(target=lambda: got.append(next(batches)))
    thread.start()
    assert started.wait(20)
    with pytest.raises(InvalidArgumentError, match="another thread"):
        next(batches)
    may_end.set()
    thread.join()
    got.extend(batches)
    # The thread that failed took nothing from the one that reads.
    expected = [batch["y"] for batch in Loader(folder, "y", batch_size=8)]
    assert len(got) == len(expected)
    for batch, values in zip(got, expected, strict=True):
        assert np.array_equal(batch["y"], values)


def test_a_mixture_can_be_pickled(tmp_path):
    write_shards(tmp_path / "shards", [50])
    mixture = Mixture({"one": Loader(tmp_path / "shards", "y", batch_size=8)})
    batches = iter(mixture)
    next(batches)
    copy = pickle.loads(pickle.dumps(mixture))
    for one, other in zip(copy, batches, strict=True):
        assert np.array_equal(one["y"], other["y"])


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
    assert (
        "/data/demo_*/obs: 90 rows of float32, 3 features"
        in run_vramfit("data", "stats", path).stdout
    )
    datasets = [word for dataset in COLUMNS.values() for word in ("--dataset", dataset)]
    run_vramfit("data", "stats", path, *datasets, "--output", tmp_path / "stats.json")
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
        ({"decode": {**texts, "number": None}}, "which is neither text nor bytes"),
        ({"decode": {"picture": None}}, "names 'picture'"),
        ({"decode": len}, "must be a dictionary"),
        ({"decode": {**texts, "image": 3}}, "is not a function"),
        ({"decode": texts, "samples": Windows(2)}, "text or bytes, of which a sample has one"),
    ):
        with pytest.raises(VramfitError, match=message):
            load(**options)
    with pytest.raises(InvalidArgumentError, match="arrays of different shapes"):
        next(iter(load(decode={**texts, "image": lambda b: np.frombuffer(b, "u1")}, shuffle=False)))


@pytest.mark.parametrize("kind", ["u2", "i4", "f8"])
@pytest.mark.parametrize("options", [{}, {"decode": {"x": None}}])
def test_sequences_of_numbers_are_refused_with_the_way_to_store_them(tmp_path, kind, options):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        x = f.create_dataset("x", 3, h5py.vlen_dtype(kind))
        x[1] = np.arange(4, dtype=kind)
    with pytest.raises(VramfitError, match="variable-length sequences") as caught:
        Loader(tmp_path / "f.h5", "x", batch_size=1, **options)
    assert "where each sequence begins in another, which `Ragged` reads" in caught.value.hint


def test_normalization_is_exact_before_numbers_are_narrowed(tmp_path):
    rng = np.random.default_rng(0)
    times = 1.7e9 + rng.normal(0, 10, (500, 2))
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["time"], f["constant"] = times, np.full((500, 2), 0.1)
    names = ["time", "constant"]
    found = compute_statistics(tmp_path / "f.h5", names)
    assert found["constant"].std.tolist() == [0, 0]
    expected = (times - times.mean(axis=0)) / times.std(axis=0)
    for dtype, tolerance in (("float32", 1e-6), ("bfloat16", 2e-2), ("float16", 2e-3)):
        loader = Loader(
            tmp_path / "f.h5", names, normalize=found, dtype=dtype, batch_size=50, shuffle=False
        )
        batch = collect(loader)
        assert np.allclose(batch["time"].astype("f8"), expected, rtol=tolerance, atol=tolerance)
        assert np.abs(batch["constant"].astype("f8")).max() < 1e-15
    with pytest.raises(InvalidArgumentError, match="out of range for float16"):
        list(
            Loader(
                tmp_path / "f.h5", "time", normalize={"time": (0, 1)}, dtype="float16", batch_size=5
            )
        )
    loader = Loader(
        tmp_path / "f.h5",
        "time",
        shift={"later": ("time", 1)},
        normalize={"time": found["time"]},
        batch_size=50,
        shuffle=False,
    )
    assert np.allclose(collect(loader)["later"], expected[1:], atol=1e-6)


def test_statistics_are_of_the_datasets_that_they_say(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        for number in range(5):
            f[f"data/demo_{number}/obs"] = np.zeros((4, 1))
            f[f"data/ep_{number}/obs"] = np.full((4, 1), 9.0)
            for inner in range(5):
                f[f"e_{number:04}/c{inner}/x"] = np.full(3, 5.0 * number + inner)
        f["data/demo_x/obs"] = np.zeros((4, 2))
        f["empty"] = np.zeros((3, 0))
    path = tmp_path / "f.h5"
    found = json.loads(
        run_vramfit("data", "stats", path, "--json", "--output", tmp_path / "s").stdout
    )
    assert found["datasets"]["/e_*/c*/x"]["rows"] == 75
    assert found["datasets"]["/e_*/c*/x"]["mean"] == [12]
    assert found["datasets"]["/data/ep_*/obs"]["mean"] == [9]
    assert list(found["skipped"]) == ["/data/demo_*/obs"]
    options = {"normalize": tmp_path / "s", "batch_size": 2}
    assert not collect(Loader(path, "data/ep_*/obs", **options))["data/ep_*/obs"].any()
    with pytest.raises(InvalidArgumentError, match="no floats among"):
        Loader(path, "data/*/obs", **options)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_batch_whose_transform_fails_is_not_lost(tmp_path, threads):
    write_shards(tmp_path / "shards", [200])
    fails = {"is_on": True}

    def transform(batch):
        if fails["is_on"]:
            raise ValueError("not yet")
        return batch

    loader = Loader(
        tmp_path / "shards", "y", batch_size=8, transform=transform, transform_threads=threads
    )
    mixture = Mixture({"only": loader}, batches=25)
    for source in (loader, mixture):
        fails["is_on"] = True
        with pytest.raises(ValueError, match="not yet"):
            next(iter(source))
        fails["is_on"] = False
        rows = np.concatenate([batch["y"] for batch in source])
        assert sorted(rows.tolist()) == list(range(200))
    sorted_state = json.loads(json.dumps(mixture.state(), sort_keys=True))
    assert len(list(mixture.restore(sorted_state))) in (0, 25)
    with pytest.raises(InvalidArgumentError, match="not the state of a mixture"):
        mixture.restore({})
    with pytest.raises(InvalidArgumentError, match="given twice"):
        Mixture({"a": loader, "b": loader})


def test_batches_on_the_device_and_in_threads_have_memory(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.zeros((600, 4096), "f4")
    loader = Loader(
        tmp_path / "f.h5",
        "x",
        batch_size=128,
        memory="12MiB",
        transform=lambda batch: batch,
        transform_threads=1,
    )
    with pytest.raises(InvalidArgumentError, match="a depth of 2 needs 5 batches"):
        loader.to_device(2)


def test_statistics_overwrite_no_file_unless_asked_to(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((5, 3))
    before = path.read_bytes()
    for options in ([], ["--force"]):
        run_vramfit("data", "stats", path, "--output", path, *options, code=2)
        assert path.read_bytes() == before
    kept = tmp_path / "stats.json"
    kept.write_text("mine")
    run_vramfit("data", "stats", path, "--output", kept, code=2)
    assert kept.read_text() == "mine"
    run_vramfit("data", "stats", path, "--output", kept, "--force", code=0)
    assert json.loads(kept.read_text())["schema"] == 1
