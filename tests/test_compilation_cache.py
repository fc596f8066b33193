"""With a compilation cache a dry run says what it says without one, and compiles nothing again."""

import json

import pytest
from commands import COMPILATION_CACHE, run_vramfit
from test_compiler_warnings import TRAIN

# What two runs of the same program need not have in common.
OF_ONE_RUN = ("pid", "wall", "seconds", "_us")


@pytest.fixture
def dryrun(tmp_path):
    """Return a function that runs `train.py`, and returns the summary and what XLA logged."""

    def run(text=TRAIN, *, gpu="t4", limit="96MiB", cache="", code=1, **env):
        program = tmp_path / "train.py"
        program.write_text(text)
        command = ["dryrun", "--full", "--gpu", gpu, "--limit", limit, "--json", "-"]
        env |= {COMPILATION_CACHE: str(cache)}
        done = run_vramfit(*command, "--", "python", program, 2, env=env, code=code)
        logged = [line.split("] ", 1)[1] for line in done.stderr.splitlines() if ".cc:" in line]
        return comparable(json.loads(done.stdout.splitlines()[-1])), logged

    return run


def comparable(summary):
    """Return a summary without what belongs to one run."""
    if isinstance(summary, list):
        return [comparable(each) for each in summary]
    if not isinstance(summary, dict):
        return summary
    kept = {name: each for name, each in summary.items() if not name.endswith(OF_ONE_RUN)}
    return {name: comparable(each) for name, each in kept.items()}


def entries(cache):
    """Return the files of a cache, and when each was written."""
    files = [file for file in cache.rglob("*") if file.is_file()]
    return {file.name: file.stat().st_mtime_ns for file in files}


def test_the_answer_and_the_warnings_are_those_of_the_compiler(dryrun, tmp_path):
    cache = tmp_path / "cache"
    plain = dryrun()
    assert plain[0]["compiler_warnings"][0]["count"] == 2
    assert [dryrun(cache=cache), dryrun(cache=cache)] == [plain, plain]


def test_what_decides_about_a_program_decides_about_its_entry(dryrun, tmp_path):
    cache = tmp_path / "cache"
    dryrun(cache=cache)
    first = entries(cache)
    dryrun(cache=cache)
    assert entries(cache) == first != {}
    # A line above moves all lines of the program, which the report names.
    moved, _ = dryrun("\n" + TRAIN, cache=cache)
    assert moved == dryrun("\n" + TRAIN)[0]
    second = entries(cache)
    assert second.keys() > first.keys()
    # The memory that the compiler may plan with, a flag of XLA, another GPU.
    for other in (
        {"limit": "112MiB"},
        {"XLA_FLAGS": "--xla_gpu_enable_triton_gemm=false"},
        {"gpu": "l4"},
    ):
        before = entries(cache)
        dryrun(cache=cache, code=None, **other)
        after = entries(cache)
        assert after.keys() > before.keys()
        assert {name: after[name] for name in before} == before


def test_a_compile_that_reads_or_writes_files_is_not_kept(dryrun, tmp_path):
    cache, dump = tmp_path / "cache", tmp_path / "dump"
    for _ in range(2):
        dryrun(cache=cache, XLA_FLAGS=f"--xla_dump_to={dump}")
        assert list(dump.glob("*jit_loss*"))
        for file in dump.iterdir():
            file.unlink()
    assert not cache.exists()


def test_a_damaged_entry_is_compiled_again(dryrun, tmp_path):
    cache = tmp_path / "cache"
    plain = dryrun(cache=cache)
    for file in cache.rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:100])
    assert dryrun(cache=cache) == plain
