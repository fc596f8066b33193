"""Generated files hold what is promised (T11), as h5py reads them; writing survives kills."""

import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shlex
import signal
import sys

import h5py
import hdf5plugin  # noqa: F401  registers zstd with h5py
import numpy as np
import pytest
from commands import run_command, run_python, run_vramfit

KINDS = {
    "sequences": ["--length", "20", "--features", "5", "--targets", "3"],
    "tabular": [],
    "images": ["--image-size", "12"],
    "tokens": ["--length", "40", "--vocabulary", "300"],
}

# The first 16 digits of the SHA-256 of each dataset's bytes, for seed 3 and 500 samples. They never
# change: people compare results that they got with the same seed years apart.
VALUES = {
    "sequences": ["8a6416b951e3e88e", "7f922c697c1e7158"],
    "tabular": ["645872398ebbbd64", "24f62c1827812773"],
    "images": ["5e3805a6cbd10b18", "08d467d0ac239de7"],
    "tokens": ["3ef8a3ba7a8cbfc5"],
}


def command(path, kind, *options):
    words = [sys.executable, "-m", "vramfit", "data", "generate", path, "--kind", kind]
    return [str(word) for word in [*words, *options]]


def generate(path, kind, *options):
    """Generate a file and return its datasets as arrays."""
    done = run_command(*command(path, kind, *options), "--json", code=0)
    report = json.loads(done.stdout)
    assert report["file_bytes"] == path.stat().st_size
    with h5py.File(path) as file:
        arrays = {name: file[name][:] for name in file}
        assert {
            entry["name"]: (entry["dtype"], tuple(entry["shape"])) for entry in report["datasets"]
        } == {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
        assert file.attrs["kind"] == kind
        assert file.attrs["best_loss"] == report["best_loss"]
    return arrays


@pytest.mark.fast
@pytest.mark.parametrize("kind", KINDS)
def test_every_storage_holds_the_same_numbers(kind, tmp_path):
    options = [*KINDS[kind], "--samples", "500", "--seed", "3"]
    ways = [
        [],
        ["--chunk-rows", "7"],
        ["--compression", "gzip", "--threads", "1"],
        ["--compression", "gzip", "--level", "12", "--chunk-rows", "64", "--threads", "5"],
        ["--compression", "zstd", "--chunk-rows", "500"],
    ]
    first, *others = (
        generate(tmp_path / f"{at}.h5", kind, *options, *way) for at, way in enumerate(ways)
    )
    for other in others:
        assert first.keys() == other.keys()
        for name, array in first.items():
            np.testing.assert_array_equal(array, other[name])
    sums = [hashlib.sha256(array.tobytes()).hexdigest()[:16] for array in first.values()]
    assert sums == VALUES[kind]


def test_h5py_sees_chunks_filters_and_attributes(tmp_path):
    path = tmp_path / "train.h5"
    options = ["--samples", "1000", "--seed", "9", "--compression", "gzip", "--chunk-rows", "30"]
    generate(path, "sequences", *options)
    with h5py.File(path) as file:
        inputs = file["input_sequences"]
        assert inputs.chunks == (30, 64, 8)
        assert (inputs.compression, inputs.compression_opts, inputs.shuffle) == ("gzip", 2, True)
        assert inputs.id.get_num_chunks() == 34
        assert dict(file.attrs) == {
            "generator": "vramfit data generate",
            "rules": 1,
            "kind": "sequences",
            "seed": 9,
            "loss": "mean squared error",
            "best_loss": 0.0156,
        }
        # Any rows, through the index, and not only all of them.
        rows = np.sort(np.random.default_rng(0).choice(1000, 100, replace=False))
        np.testing.assert_array_equal(inputs[rows], inputs[:][rows])


def test_an_index_of_several_levels_is_read(tmp_path):
    # 64 chunks fit in a node: 10 000 need three levels.
    options = ["--samples", "10000", "--features", "2"]
    plain = generate(tmp_path / "plain.h5", "tabular", *options)
    chunked = generate(tmp_path / "chunked.h5", "tabular", *options, "--chunk-rows", "1")
    for name, array in plain.items():
        np.testing.assert_array_equal(array, chunked[name])


def test_a_file_of_ours_can_be_changed_and_extended_by_h5py(tmp_path):
    path = tmp_path / "train.h5"
    generate(path, "tabular", "--samples", "300", "--compression", "gzip", "--chunk-rows", "50")
    with h5py.File(path, "r+") as file:
        file["labels"][7] = 99
        file["more/rows"] = np.arange(5)
        file["features"].attrs["unit"] = "m"
    with h5py.File(path) as file:
        assert file["labels"][7] == 99
        assert file["more/rows"][:].tolist() == [0, 1, 2, 3, 4]
        assert file["features"].shape == (300, 16)


def test_the_page_shows_what_is_said(tmp_path):
    page = (pathlib.Path(__file__).parent.parent / "docs/commands/data.md").read_text()
    [block] = re.findall(r"^```console\n\$ vramfit (.*?)\n(.*?)\n```", page, re.M | re.S)
    arguments, shown = block
    done = run_vramfit(*shlex.split(arguments), code=0, cwd=tmp_path)
    assert done.stderr.strip() == shown.strip()
    assert done.stdout == ""


def walsh(number, at):
    return 1 - 2 * (np.bitwise_count(np.bitwise_and(number, at)).astype(int) % 2)


def test_targets_follow_from_the_inputs_but_for_the_noise(tmp_path):
    options = ["--samples", "20000", "--length", "10", "--features", "6", "--targets", "8"]
    data = generate(tmp_path / "train.h5", "sequences", *options, "--dtype", "float64")
    inputs, targets = data["input_sequences"], data["targets"]
    assert abs(inputs.std() - 1) < 0.01
    for target in range(8):
        signs = walsh(np.uint64(target + 1), np.arange(6, dtype=np.uint64))
        linear = (inputs[:, -1] * signs).sum(axis=1) / np.sqrt(6)
        expected = linear + abs(inputs[:, :, target % 6].mean(axis=1))
        noise = targets[:, target] - expected
        # 20 000 rows: the variance of the noise is known to 1 %.
        assert abs((noise**2).mean() - 1 / 64) < 0.0006
        assert abs(np.corrcoef(noise, expected)[0, 1]) < 0.03


@pytest.mark.parametrize("kind", ["tabular", "images"])
def test_numbers_show_the_label_as_often_as_promised(kind, tmp_path):
    data = generate(tmp_path / "train.h5", kind, "--samples", "4000", "--sort-by-label")
    labels = data["labels"]
    np.testing.assert_array_equal(labels, np.arange(4000) * 10 // 4000)
    if kind == "tabular":
        numbers = data["features"]
    else:
        pictures = data["images"].astype(float).reshape(4000, 4, 8, 4, 8, 3)
        numbers = pictures.mean(axis=(2, 4, 5)).reshape(4000, 16) - 128
    patterns = walsh(np.arange(10, dtype=np.uint64)[:, None], np.arange(16, dtype=np.uint64))
    shown = (numbers @ patterns.T).argmax(axis=1)
    # 91 in a hundred, known to 0.5.
    assert abs((shown == labels).mean() - 0.91) < 0.015


def test_labels_come_equally_often_in_no_order(tmp_path):
    labels = generate(tmp_path / "train.h5", "tabular", "--samples", "20000")["labels"]
    assert abs(np.bincount(labels, minlength=10) - 2000).max() < 200
    assert abs(np.corrcoef(labels[1:], labels[:-1])[0, 1]) < 0.03


def test_words_follow_each_other_as_often_as_promised(tmp_path):
    options = ["--samples", "2000", "--length", "50", "--vocabulary", "100"]
    tokens = generate(tmp_path / "words.h5", "tokens", *options)["tokens"]
    followed = (tokens[:, :-1] * 5 + 17) % 100 == tokens[:, 1:]
    # 0.9 + 0.1 / 100, over 98 000 pairs.
    assert abs(followed.mean() - 0.901) < 0.004
    assert tokens.min() == 0
    assert tokens.max() == 99


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_file_whose_writing_was_killed_again_and_again_is_the_same(
    compression, tmp_path, stop_before
):
    options = ["--samples", "60k", "--compression", compression, "--sync-every", "1MiB"]
    whole, killed = tmp_path / "whole.h5", tmp_path / "killed.h5"
    run_command(*command(whole, "sequences", *options), code=0)

    def resume(**ending):
        return run_command(*command(killed, "sequences", *options, "--resume"), **ending)

    # A whole run makes more than 100 calls of the one function and 200 of the other. While a thread
    # makes one, others generate, compress and write.
    moments = random.Random(4)
    points = [("fdatasync", moments.randint(1, 8)) for _ in range(6)]
    points += [("pwrite64", moments.randint(1, 16)) for _ in range(6)]
    moments.shuffle(points)
    # The last one: all is written, and the file has yet to get its name.
    for function, number in [*points, ("fsync", 1)]:
        env = stop_before(function, number, signal.SIGKILL)
        resume(env=env, code=-signal.SIGKILL)
        assert not killed.exists()
    assert "rows were already written" in resume(code=0).stderr
    assert killed.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed.h5", "whole.h5"]


def test_a_full_disk_leaves_nothing_under_the_name_and_can_be_resumed(tmp_path):
    options = ["--samples", "20k", "--compression", "gzip", "--sync-every", "1MiB"]
    path = tmp_path / "train.h5"

    # The console script takes the signal of a file's limit, for the sake of the programs it starts;
    # Python by itself ignores it, and writing fails as on a full disk.
    run = "import sys; from vramfit import _native as n; "
    program = run + "sys.exit(n.run_cli(sys.argv, package='.', python=None))"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))

    words = command(path, "sequences", *options)[3:]
    done = run_python("-c", program, *words, code=2, preexec_fn=limit)
    assert done.stderr.startswith(f"error[io]: cannot write `{path}`\n")
    assert not path.exists()

    done = run_command(*command(path, "sequences", *options, "--resume"), code=0)
    assert "rows were already written" in done.stderr
    other = tmp_path / "other.h5"
    generate(other, "sequences", *options)
    assert path.read_bytes() == other.read_bytes()


def test_memory_does_not_grow_with_the_file(tmp_path):
    def peak(samples):
        options = ["--samples", samples, "--compression", "zstd", "--level", "1", "--threads", "2"]
        words = command(tmp_path / f"{samples}.h5", "sequences", *options)
        pid = os.posix_spawn(words[0], words, os.environ)
        _, status, usage = os.wait4(pid, 0)
        assert status == 0
        return usage.ru_maxrss

    small, large = peak("2k"), peak("100k")
    # 196 MiB of numbers more; what is in flight at once is below 8 MiB.
    assert large - small < 8 * 1024
