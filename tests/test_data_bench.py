"""`vramfit data bench` measures what it says it measures, and says what it cannot."""

import json
import sys

import grain
import h5py
import numpy as np
import pytest
from commands import run_vramfit

from vramfit._data_bench import backends, grain_backends, machine, runs
from vramfit._data_bench.options import BenchOptions

ROWS = 5000


def bench(*words, python=sys.executable, **options):
    return run_vramfit("--python", python, "data", "bench", *words, **options)


@pytest.fixture(name="file")
def numbered_rows(tmp_path):
    path = tmp_path / "train.h5"
    with h5py.File(path, "w") as f:
        x = np.arange(ROWS * 8, dtype="f4").reshape(ROWS, 8)
        f.create_dataset("train/x", data=x, chunks=(300, 8), compression="gzip")
        f["train/y"] = np.arange(ROWS, dtype="f8")
        f["other"] = np.arange(7)
    return path


def request(file, **changes):
    usual = {
        "file": str(file),
        "datasets": ["/train/x", "/train/y"],
        "rows": ROWS,
        "row_bytes": 40,
        "band_rows": 300,
        "batch_size": 64,
        "memory": 1 << 20,
        "seconds": 0.05,
        "runs": 2,
        "threads": None,
    }
    return BenchOptions(**usual | changes)


INSTALLED = {"vramfit", "h5py", "grain", "array_record"}
MEASURED = [backend for backend in backends.BACKENDS if INSTALLED.issuperset(backend.packages)]


@pytest.mark.parametrize("backend", MEASURED, ids=lambda backend: backend.id)
def test_every_way_hands_out_full_batches_without_an_end(backend, file, tmp_path):
    asked = request(file, scratch=str(tmp_path))
    assert backend.prepare is None or backend.prepare(asked) is None
    steps = backend.read(asked)
    assert [next(steps) for _ in range(3 * ROWS // 64)] == [64] * (3 * ROWS // 64)
    steps.close()


def test_a_run_counts_rows_from_opening_on(file):
    steps = []

    def read(_):
        for _ in range(1000):
            steps.append(1)
            yield 10

    plain = runs.run(backends.Backend("a", "a", ("a",), read), request(file, seconds=1e-9))
    assert (plain.rows, len(steps)) == (10, 1)
    assert plain.seconds >= plain.first_batch_seconds > 0
    # Who mixes goes on until what is mixed at once was handed out.
    mixing = backends.Backend("a", "a", ("a",), read, mixes=True)
    assert runs.run(mixing, request(file, seconds=10, memory=40 * 95)).rows == 10_000
    assert request(file, memory=40 * 95).buffer_rows == 95


def test_blocks_are_whole_chunks(file):
    assert request(file).block_rows == ROWS
    assert request(file, rows=10**6).block_rows == 13_200
    assert request(file, rows=10**6, band_rows=None).block_rows == 13_107


def test_the_copy_for_array_record_has_the_same_rows(file, tmp_path):
    asked = request(file, scratch=str(tmp_path))
    assert grain_backends.copy_to_array_record(asked) is None
    records = grain.sources.ArrayRecordDataSource(asked.copy)
    assert len(records) == ROWS
    for row in 0, 301, ROWS - 1:
        x, y = grain_backends._make_parser(asked)(records[row])
        np.testing.assert_array_equal(x, np.arange(8, dtype="f4") + row * 8)
        assert y == row
    large = request(file, rows=1 << 25)
    assert "is not copied" in grain_backends.copy_to_array_record(large)


def test_what_was_just_read_is_in_the_page_cache(file):
    assert machine.warm(str(file))
    assert machine.cached_fraction(str(file)) == 1.0


def test_the_answer_has_ratios_of_medians(file):
    done = bench(file, "--seconds", "0.05", "--json", "--batch-size", "64", code=0)
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1
    assert answer["datasets"] == ["/train/x", "/train/y"]
    assert (answer["rows"], answer["row_bytes"], answer["band_rows"]) == (ROWS, 40, 300)
    found = {backend["id"]: backend for backend in answer["backends"]}
    for name in (backend.id for backend in MEASURED):
        backend = found[name]
        assert backend["skipped"] is None
        assert len(backend["runs"]) == answer["runs"] == 5
        speeds = [run["rows"] * 40 / run["seconds"] / 1e6 for run in backend["runs"]]
        assert backend["megabytes_per_second"] == pytest.approx(sorted(speeds)[2])
        assert (backend["slowest"], backend["fastest"]) == pytest.approx((min(speeds), max(speeds)))
        ours = found["vramfit"]["megabytes_per_second"]
        assert backend["speedup"] == pytest.approx(ours / backend["megabytes_per_second"])
        assert all(run["seconds"] >= 0.05 for run in backend["runs"])
        first = sorted(run["first_batch_seconds"] for run in backend["runs"])
        assert backend["first_batch_seconds"] == first[2] > 0
    assert found["vramfit"]["speedup"] == 1
    assert answer["was_warmed"]
    assert answer["python"] == sys.executable
    for backend in found.values():
        assert (backend["skipped"] is None) == bool(backend["runs"])
        assert (backend["skipped"] == "not installed") == bool(backend["not_installed"])


def test_the_table_names_what_it_depends_on(file):
    done = bench(file, "--seconds", "0.05", "--datasets", "/train/y", code=0)
    assert "/train/y; 5 000 rows of 8 B, batch size 256" in done.stdout
    for words in [
        "core",
        "load ",
        "first batch",
        "read once beforehand; 100 % of it",
        "speedup",
        "x",
    ]:
        assert words in done.stdout
    assert "Not installed: PyTorch DataLoader over h5py. To include it: " in done.stdout
    assert done.stdout.count("PyTorch") == 1


def test_without_h5py_it_says_what_it_cannot_compare(file, tmp_path):
    # A Python in which importing h5py finds nothing.
    python = tmp_path / "python"
    hide = (
        "import sys, runpy, importlib.util as u; f = u.find_spec; m = sys.argv.pop(1); "
        "u.find_spec = lambda name, *a: None if name in ('h5py', 'torch') else f(name, *a); "
        "runpy.run_module(m, run_name='__main__')"
    )
    start = f'exec {sys.executable} -c "{hide}" "$m" "$@"'
    python.write_text(f"#!/bin/sh\nshift; m=$1; shift; {start}\n")
    python.chmod(0o755)
    done = bench(file, "--seconds", "0.05", python=python, code=0)
    backends = "h5py, blocks shuffled in memory; h5py, lists of random rows; Grain over h5py"
    assert f"Not installed: {backends}. To include it: " in done.stdout
    assert "-m pip install h5py\n" in done.stdout
    assert "-m pip install torch h5py\n" in done.stdout
    assert done.stdout.count("Grain over h5py") == 1


def test_what_cannot_be_measured_is_refused(file, tmp_path):
    with h5py.File(tmp_path / "words.h5", "w") as f:
        f["words"] = ["a", "b"]
    for words, said in [
        ([tmp_path / "words.h5"], "contains no dataset with rows of numbers"),
        ([file, "--datasets", "train/x,other"], "cannot be read together"),
        ([file, "--datasets", "train/z"], "contains no `/train/z`"),
    ]:
        done = bench(*words, code=2)
        assert said in done.stderr
    done = bench(file, python="/bin/true", code=2)
    assert "exited unexpectedly" in done.stderr
    done = bench(file, "--memory", "1KiB", code=2)
    assert done.stderr.startswith("error[invalid-argument]")
