"""What `vramfit data inspect` says of a file is what h5py says of it (T12, T13)."""

import json
import re
import shutil

import h5py
import hdf5plugin
import numpy as np
import pytest
from commands import run_command, run_python, run_vramfit
from data_files import write_series

import vramfit.data
from vramfit import errors


def data(*words, **options):
    return run_vramfit("data", *words, **options)


def inspect(path, *options):
    done = data("inspect", path, "--json", *options, code=0)
    report = json.loads(done.stdout)
    assert report["schema"] == 2
    assert report["file_bytes"] == path.stat().st_size
    return report


def by_path(report):
    return {entry["path"]: entry for entry in report["entries"]}


def findings(report):
    return {(finding["dataset"], finding["id"]) for finding in report["findings"]}


@pytest.fixture(name="file")
def mixed_file(tmp_path):
    path = tmp_path / "mixed.h5"
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "mixed"
        train = file.create_group("train")
        rows = random.normal(size=(20_000, 16)).astype("f4")
        rows[3] = np.nan
        rows[5, 0] = np.inf
        packed = {"compression": "gzip", "shuffle": True}
        train.create_dataset("x", data=rows, chunks=(100, 16), maxshape=(None, 16), **packed)
        train.create_dataset("y", data=np.arange(20_000) * 10 // 20_000)
        sparse = train.create_dataset("sparse", (20_000, 2), "i2", chunks=(1000, 2), fillvalue=4)
        sparse[:2500] = 1
        file["names"] = ["a", "b"]
        file["scale"] = 0.5
        file.create_dataset("zfp", data=rows[:10], **hdf5plugin.Zfp(reversible=True))
        file["soft"] = h5py.SoftLink("/train/x")
    return path


def test_a_chunk_that_is_not_understood_is_a_problem_of_its_dataset(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(300.0)
        for name in ("unknown_codec", "bad"):
            options = {"chunks": (300,), **hdf5plugin.Blosc()}
            labels = file.create_dataset(name, (300,), "i4", **options)
            labels[...] = np.arange(300) % 7
            chunk = bytearray(labels.id.read_direct_chunk((0,))[1])
            # The codec is in the third byte; the length of the result begins with the fifth.
            chunk[2 if name == "unknown_codec" else 4] ^= 0xE0
            if name == "unknown_codec":
                chunk[2] = 0xA1
            labels.id.write_direct_chunk((0,), bytes(chunk))
    for options in ([], ["--sample", "10"], ["--measure"]):
        entries = by_path(inspect(path, *options))
        assert entries["/x"]["problem"] is None
        problem = entries["/unknown_codec"]["problem"]
        assert "blosc codec 5 is not supported" in problem["message"]
        assert "h5repack" in problem["hint"]
        assert "is damaged at byte" in entries["/bad"]["problem"]["message"]
    for name, error in (
        ("unknown_codec", errors.UnsupportedFeatureError),
        ("bad", errors.InvalidFileError),
    ):
        with pytest.raises(error), vramfit.data.Loader(path, name, batch_size=300) as loader:
            next(iter(loader))


def test_inspect_says_what_h5py_says_T12(file):
    entries = by_path(inspect(file))
    with h5py.File(file) as opened:
        paths = []
        opened.visit(lambda name: paths.append(f"/{name}"))
        assert sorted(entries) == sorted(["/", "/soft", *paths])
        for path, entry in entries.items():
            found = opened[path]
            if not isinstance(found, h5py.Dataset) or entry["kind"] == "link":
                continue
            facts = entry["dataset"]
            assert facts["shape"] == list(found.shape), path
            assert facts["max_shape"] == list(found.maxshape), path
            assert facts["chunk"] == (list(found.chunks) if found.chunks else None), path
            if found.dtype.kind != "O":
                assert facts["dtype"] == str(found.dtype), path
                assert facts["memory_bytes"] == found.nbytes, path
            if path == "/zfp":
                assert facts["stored_bytes"] is None
            else:
                assert facts["stored_bytes"] == found.id.get_storage_size(), path
            if found.chunks and path != "/zfp":
                assert facts["chunks"] - facts["chunks_unwritten"] == found.id.get_num_chunks()
        assert entries["/train/x"]["dataset"]["filters"] == ["shuffle", "deflate"]
        assert entries["/"]["attributes"] == ["title"]


def test_what_cannot_be_read_is_shown_and_keeps_nothing_from_the_rest(file):
    entries = by_path(inspect(file))
    assert "zfp" in entries["/zfp"]["problem"]["message"]
    assert entries["/zfp"]["problem"]["hint"]
    assert "variable-length strings" in entries["/names"]["problem"]["message"]
    assert entries["/scale"]["problem"] is None
    assert entries["/soft"]["target"] == "/train/x"


def test_a_sample_of_all_rows_has_the_numbers_of_numpy_T12(file):
    entries = by_path(inspect(file, "--sample", "1M"))
    with h5py.File(file) as opened:
        x, y = opened["train/x"][:], opened["train/y"][:]
    sample = entries["/train/x"]["dataset"]["sample"]
    finite = x[np.isfinite(x)].astype(float)
    assert (sample["rows"], sample["values"]) == (20_000, x.size)
    assert (sample["nan"], sample["infinite"]) == (16, 1)
    assert (sample["min"], sample["max"]) == (finite.min(), finite.max())
    assert sample["mean"] == pytest.approx(finite.mean(), rel=1e-9)
    labels = entries["/train/y"]["dataset"]["sample"]["labels"]
    labels = {count["value"]: count["rows"] for count in labels}
    assert labels == dict(zip(*np.unique(y, return_counts=True), strict=True))


def test_the_first_rows_are_those_of_the_file(file):
    entries = by_path(inspect(file, "--rows", "3"))
    with h5py.File(file) as opened:
        x, y = opened["train/x"][:3], opened["train/y"][:3]
    shown = entries["/train/x"]["dataset"]["rows"]
    assert shown["row_values"] == x[0].size
    rows = np.array([[float(number) for number in row] for row in shown["rows"]])
    np.testing.assert_array_equal(rows, x.reshape(3, -1)[:, :64].astype(float))
    assert entries["/train/y"]["dataset"]["rows"]["rows"] == [[int(label)] for label in y]
    assert entries["/names"]["dataset"]["rows"] is None
    text = data("inspect", file, "--rows", "3").stdout
    assert f"First rows of /train/y, 1 number each:\n  [0] {y[0]}\n" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("  [")) <= 80


def test_of_a_large_row_only_the_first_numbers_are_read(tmp_path):
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as file:
        # 4 GiB a row; the file has a hole in place of what is not written.
        file.create_dataset("x", (2, 1 << 30), "f4")[:, :80] = [range(80), range(100, 180)]
    found = by_path(inspect(path, "--rows", "2"))["/x"]["dataset"]["rows"]
    assert found["row_values"] == 1 << 30
    assert found["rows"] == [[*range(64)], [*range(100, 164)]]


def test_a_sample_is_as_large_as_asked_spread_evenly_and_the_same_again(tmp_path):
    path = tmp_path / "index.h5"
    with h5py.File(path, "w") as file:
        file["row"] = np.arange(1_000_000)
    first = by_path(inspect(path, "--sample", "1000"))["/row"]["dataset"]["sample"]
    again = by_path(inspect(path, "--sample", "1000"))["/row"]["dataset"]["sample"]
    other = by_path(inspect(path, "--sample", "1000", "--seed", "1"))["/row"]["dataset"]["sample"]
    assert first == again != other
    # One row of each thousand: the mean cannot be off by more than half a stretch.
    for sample in first, other:
        assert sample["rows"] == 1000
        assert sample["min"] < 1000
        assert sample["max"] >= 999_000
        assert abs(sample["mean"] - 499_999.5) < 500


def test_what_loading_costs_and_what_streaming_costs_T13(file):
    report = inspect(file, "--memory", "1MiB")
    with h5py.File(file) as opened:
        readable = ["train/x", "train/y", "train/sparse"]
        assert report["memory_bytes"] == sum(opened[name].nbytes for name in readable)
    plan = report["streaming"]
    assert plan["datasets"] == ["/train/sparse", "/train/x", "/train/y"]
    assert plan["rows"] == 20_000
    assert plan["budget_bytes"] == 1 << 20
    assert plan["engine"] == "chunk_windows"
    assert "blocks" in plan["warning"]
    small = inspect(file, "--memory", "1KiB")["streaming"]
    assert small["engine"] is None
    assert "at least" in small["warning"]


def test_a_measurement_reads_in_three_ways(file):
    assert inspect(file)["measured"] == []
    report = inspect(file, "--measure")
    assert [speed["pattern"] for speed in report["measured"]] == ["blocks", "rows", "sequential"]
    row_bytes = 16 * 4 + 8 + 2 * 2
    for speed in report["measured"]:
        assert speed["bytes"] > 0
        assert speed["bytes"] % row_bytes == 0
        assert speed["seconds"] >= 0.06
    assert report["measured"][0]["rows_per_read"] == report["streaming"]["block_rows"]
    done = data("inspect", file, "--measure")
    assert done.stdout.count(" MB/s (") == 3


def test_what_will_be_slow_is_found_and_nothing_else(tmp_path):
    path = tmp_path / "slow.h5"
    random = np.random.default_rng(0)
    noise = random.normal(size=(8192, 256)).astype("f4")
    # Every bit is random, so nothing can be saved.
    dense = random.integers(0, 1 << 32, (8192, 256), "u4")
    with h5py.File(path, "w") as file:
        file.create_dataset("divided", data=noise, chunks=(512, 16))
        file.create_dataset("giant", data=np.tile(noise, (2, 1)), chunks=(16384, 256))
        file.create_dataset("tiny", data=noise[:600], chunks=(1, 256))
        file.create_dataset("idle", data=dense, chunks=(512, 256), compression="gzip")
        file.create_dataset("wide", data=noise.astype("f8"))
        file["sorted"] = np.arange(8192) // 800
        file["index"] = np.arange(8192)
        file["runs"] = (np.arange(8192) // 100) * 7 % 10
        file["shuffled"] = random.integers(0, 10, 8192)
        file["fine"] = noise
    found = findings(inspect(path))
    assert found == {
        ("/divided", "split-rows"),
        ("/giant", "large-chunks"),
        ("/tiny", "tiny-chunks"),
        ("/idle", "ineffective-compression"),
        ("/wide", "wide-numbers"),
        ("/sorted", "sorted-labels"),
        ("/index", "ordered-rows"),
        ("/runs", "labels-in-runs"),
    }
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=noise, chunks=(100, 256))
        file.create_dataset("b", data=noise, chunks=(128, 256))
    assert findings(inspect(path)) == {("/a,/b", "mismatched-chunks")}


def test_names_from_a_file_do_nothing_to_the_terminal(tmp_path):
    path = tmp_path / "hostile.h5"
    with h5py.File(path, "w") as file:
        file["\x1b[31mred\n"] = np.arange(3)
        file["\x1b[31mred\n"].attrs["\x1b]0;title\x07"] = 1
        file["away"] = h5py.ExternalLink("\x1b[2J.h5", "/x")
    done = data("inspect", path, "--sample", "3", code=0)
    assert all(letter.isprintable() or letter == "\n" for letter in done.stdout)
    assert "red" in done.stdout


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_other_kinds_of_files_are_named_with_what_makes_hdf5_of_them(kind, tmp_path):
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, np.arange(3))
    else:
        np.savez(path, x=np.arange(3), y=np.ones(2))
    done = data("inspect", path, code=2)
    assert done.stderr.startswith("error[unsupported-feature]: ")
    with pytest.raises(errors.UnsupportedFeatureError) as caught:
        vramfit.data.Loader(path, "x", batch_size=1)
    # The hint is a command that works.
    assert caught.value.hint in done.stderr
    command = done.stderr.split("convert it: ")[1].split("`")[1]
    command = command.removeprefix("python -c ").strip('"')
    run_python("-c", command, code=0)
    assert by_path(inspect(tmp_path / "x.h5"))["/x"]["dataset"]["shape"] == [3]


def test_a_zarr_store_is_named(tmp_path):
    store = tmp_path / "x.zarr"
    store.mkdir()
    (store / "zarr.json").write_text("{}")
    done = data("inspect", store, code=2)
    assert "is a Zarr store, not an HDF5 file\nhint: " in done.stderr
    with pytest.raises(errors.UnsupportedFeatureError, match="Zarr"):
        vramfit.data.Loader(store, "x", batch_size=1)


@pytest.mark.skipif(
    shutil.which("h5repack") is None, reason="there is no h5repack; `make h5repack` brings it"
)
def test_the_h5repack_command_works_when_it_is_pasted(tmp_path):
    path = tmp_path / "it's slow.h5"
    random = np.random.default_rng(0)
    numbers = random.integers(0, 1 << 32, (4000, 128), "u4")
    with h5py.File(path, "w") as file:
        file.create_dataset("tiny", data=random.random((3000, 90), "f4"), chunks=(1, 90))
        file.create_dataset("idle", data=numbers, chunks=(512, 128), compression="gzip")
        columns = {"chunks": (5000, 8), "compression": "gzip", "shuffle": True}
        file.create_dataset("a group/split", data=random.random((5000, 90), "f4"), **columns)
        file.create_dataset("a group/label", data=np.arange(5000, dtype="i4"), chunks=(7,))
    found = inspect(path)
    assert findings(found) == {
        ("/tiny", "tiny-chunks"),
        ("/idle", "ineffective-compression"),
        ("/a group/split", "split-rows"),
        ("/a group/label", "tiny-chunks"),
        ("/a group/label", "ordered-rows"),
    }
    command = found["h5repack_command"]
    assert command in data("inspect", path).stdout
    run_command("sh", "-c", command, code=0)
    repacked = tmp_path / "it's slow.repacked.h5"
    found = inspect(repacked)
    assert findings(found) == {("/a group/label", "ordered-rows")}
    assert found["h5repack_command"] is None
    entries = by_path(found)
    assert entries["/a group/split"]["dataset"]["chunk"] == [1024, 90]
    assert entries["/a group/split"]["dataset"]["filters"] == ["shuffle", "deflate"]
    assert entries["/a group/label"]["dataset"]["layout"] == "contiguous"
    with h5py.File(path) as old, h5py.File(repacked) as new:
        for name in ("tiny", "idle", "a group/split", "a group/label"):
            assert (old[name][...] == new[name][...]).all()


def test_no_h5repack_command_that_loses_something(tmp_path):
    numbers = np.random.default_rng(0).random((3000, 90), "f4")

    def command(name, *options, **other):
        path = tmp_path / f"{name}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=numbers, chunks=(1, 90))
            if other:
                file.create_dataset("y", data=np.arange(3000), chunks=(10,), **other)
        return inspect(path, *options)["h5repack_command"]

    assert " -l /x:CHUNK=1024x90 " in command("alone")
    # `h5repack` leaves out what it cannot read.
    assert command("lzf", compression="lzf") is None
    # What it would rewrite beside `/x` is not known.
    assert command("part", "--dataset", "/x") is None
    # Where a dataset becomes contiguous, `h5repack` makes no dataset that can grow.
    growing = command("growing", maxshape=(None,))
    assert "/y:CHUNK=1024 " in growing
    assert "CONTI" not in growing


def test_members_that_are_alike_are_shown_once(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as f:
        for outer in (10, 11, 12, 2):
            for inner in (10, 11, 12, 2):
                f[f"e{outer}/c{inner}/x"] = np.zeros((inner, 2), "f4")
        for number in range(6):
            f[f"links/l{number}"] = h5py.SoftLink("/e2" if number < 4 else "/e10")
    shown = data("inspect", path).stdout
    tree = shown.split("\n\nLoaded")[0]
    for name in ("c", "e"):
        assert re.search(rf"\.\.\. {name}12 .*3 more groups like `{name}2` \(2 to 12 rows\)", tree)
    assert (tree.count("-> /e2"), tree.count("-> /e10")) == (4, 2), "links are not alike"
    assert data("inspect", path, "--full").stdout.count("float32") == 16
    found = json.loads(data("inspect", path, "--json").stdout)
    assert sum(entry["dataset"] is not None for entry in found["entries"]) == 16
    assert [(one["pattern"], one["count"]) for one in found["alike"]] == [("/e*", 4), ("/e2/c*", 4)]
    stats = json.loads(data("stats", path, "--json").stdout)
    assert {name: one["rows"] for name, one in stats["datasets"].items()} == {"/e*/c*/x": 140}


@pytest.mark.parametrize("exponent", [-1060, -600, -200, 0, 200, 511, 600, 1022])
def test_statistics_are_those_of_numpy_whatever_the_size_of_the_numbers(tmp_path, exponent):
    from vramfit.data import compute_statistics

    random = np.random.default_rng(0)
    x = np.ldexp(random.uniform(-1, 1, (3000, 3)), exponent)
    x[:, 1] = abs(x[:, 1])
    x[1500:, 2] = np.ldexp(x[1500:, 2], -300)
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = x
    found = compute_statistics(tmp_path / "f.h5", "x")["x"]
    wide = x.astype(np.longdouble)
    scale = np.abs(wide).max(0)
    assert np.abs(found.mean - wide.mean(0)).max() <= 1e-14 * scale.max() + 5e-324
    assert np.allclose(
        found.std / scale, wide.std(0) / scale, rtol=1e-12, atol=0 if exponent > -1060 else 1e-3
    )
    assert np.array_equal(found.max, x.max(0))


def test_the_mean_of_a_sample_of_large_numbers_is_finite(tmp_path):
    x = np.array([1.5e308, 1.6e308, -1e308, 1.7e308])
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = x
    sample = by_path(inspect(tmp_path / "f.h5", "--sample", "9"))["/x"]["dataset"]["sample"]
    assert np.isclose(sample["mean"], float(x.astype(np.longdouble).mean()), rtol=1e-15)


def test_statistics_are_those_of_chosen_rows(tmp_path):
    from vramfit.data import compute_statistics

    path = write_series(tmp_path / "f.h5", [4, 5, 6, 7, 8])
    with h5py.File(path, "a") as f:
        f["x"] = np.random.default_rng(0).standard_normal((200, 3))
    chosen = [
        (
            "data/*/obs",
            ["--group", "demo_1", "--group", "demo_4"],
            {"groups": ["demo_1", "demo_4"]},
        ),
        ("x", ["--rows", "100:110", "--rows", "3:5"], {"rows": [3, 4, *range(100, 110)]}),
        ("x", ["--split", "train:0.1"], {"split": ("train", 0.1)}),
        ("x", ["--split", "validation:0.25:tail"], {"split": ("validation", 0.25, "tail")}),
        ("x", ["--split", "test:0.6:0.2:0.2"], {"split": ("test", 0.6, 0.2, 0.2)}),
        ("x", ["--split", "train:0.5", "--split-seed", "7"], {"split": ("train", 0.5)}),
        ("data/*/obs", ["--split", "train:0.4", "--split-by", "group"], {"split": ("train", 0.4)}),
    ]
    for dataset, words, options in chosen:
        options |= {"split_seed": 7} if "--split-seed" in words else {}
        options |= {"split_by": "group"} if "--split-by" in words else {}
        done = run_vramfit("data", "stats", path, "--dataset", dataset, "--json", "-", *words)
        (one,) = json.loads(done.stdout)["datasets"].values()
        expected = compute_statistics(path, dataset, **options)[dataset]
        assert (one["rows"], one["mean"]) == (expected.rows, expected.mean.tolist())
    splits = ["train", "train:0.5:0.1", "train:tail:0.1", "tail:train:0.1", "train:0.1:tail:tail"]
    for words in (["--rows", "5:3"], *(["--split", split] for split in splits)):
        done = run_vramfit("data", "stats", path, *words, code=2)
        assert "invalid value" in done.stderr
