"""The list of expected failures of JAX's own tests, and what `make conformance` makes of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.expected import BadList, Outcome, compare, parse, share, worse_of

FOLDER = Path(__file__).resolve().parent / "conformance"

PASSED = Outcome("passed")
SKIPPED = Outcome("skipped")
FAILED = Outcome("failed", "E   AssertionError")
FAILED_ON_NUMBERS = Outcome("failed", "E   AssertionError", made_up=1)


def against(text, outcomes, *, whole=True):
    _, lines = parse("release 1.2.3\n" + text)
    return compare(
        {f"a_test::T::{test}": one for test, one in outcomes.items()}, lines, whole=whole
    )


def unexpected(verdict):
    return {test: why for test, (why, _) in verdict.unexpected.items()}


def test_a_failure_that_is_not_listed_is_a_regression():
    verdict = against("", {"test_x": FAILED, "test_y": PASSED, "test_z": SKIPPED})
    assert unexpected(verdict) == {"a_test::T::test_x": "not on the list"}
    assert verdict.counts == {"unexpected": 1, "passed": 1, "skipped": 1}
    assert not verdict.agrees


def test_a_listed_failure_counts_under_its_reason():
    verdict = against("a_test::T::test_x  version  wants 2.0", {"test_x": FAILED})
    assert verdict.counts == {"version": 1}
    assert verdict.agrees


def test_a_test_of_several_hosts_passes_if_it_passes_on_each():
    made_up, crashed = Outcome("passed", made_up=2), Outcome("crashed")
    for one, other, worse in [
        (PASSED, FAILED, FAILED),
        (PASSED, SKIPPED, PASSED),
        (PASSED, made_up, made_up),
        (FAILED, crashed, crashed),
        (PASSED, PASSED, PASSED),
    ]:
        assert worse_of(one, other) == worse_of(other, one) == worse


@pytest.mark.parametrize("end", ["crashed", "hung"])
def test_the_end_of_a_process_is_never_expected(end):
    verdict = against("a_test::T::test_x  not-yet  ends the process", {"test_x": Outcome(end)})
    assert unexpected(verdict) == {"a_test::T::test_x": end}


def test_arithmetic_excuses_only_tests_that_read_made_up_values():
    verdict = against(
        "a_test::T::*  arithmetic  compares results",
        {"test_x": FAILED_ON_NUMBERS, "test_y": FAILED},
    )
    assert verdict.counts == {"arithmetic": 1, "unexpected": 1}
    assert list(verdict.unexpected) == ["a_test::T::test_y"]


def test_a_line_whose_test_passes_is_to_be_taken_off():
    verdict = against("a_test::T::test_x  version  wants 2.0", {"test_x": PASSED})
    assert verdict.to_take_off == ["a_test::T::test_x"]
    assert not verdict.agrees


def test_a_line_may_say_that_its_test_passes_at_times():
    verdict = against("a_test::T::test_x  not-yet  sometimes: slow", {"test_x": PASSED})
    assert verdict.agrees


def test_a_pattern_stays_as_long_as_it_excuses_one_test():
    line = "a_test::T::test_*  version  wants 2.0"
    assert against(line, {"test_x": PASSED, "test_y": FAILED}).agrees
    assert against(line, {"test_x": PASSED, "test_y": PASSED}).to_take_off == ["a_test::T::test_*"]


def test_a_line_for_a_test_that_is_gone_is_to_be_taken_off_only_when_all_were_run():
    line = "a_test::T::test_x  version  wants 2.0"
    assert against(line, {"test_y": PASSED}).to_take_off == ["a_test::T::test_x"]
    assert against(line, {"test_y": PASSED}, whole=False).agrees
    # Another file was run, not this one.
    assert against(line.replace("a_test", "b_test"), {"test_y": PASSED}).agrees


def test_a_test_that_passes_on_made_up_values_counts_apart():
    verdict = against("", {"test_x": Outcome("passed", made_up=2), "test_y": PASSED})
    assert verdict.counts == {"made-up": 1, "passed": 1}


def test_the_share_leaves_out_what_needs_arithmetic_and_what_was_skipped():
    counts = {"passed": 6, "version": 1, "not-yet": 1, "arithmetic": 9, "skipped": 9, "made-up": 9}
    assert share(counts) == (8, 6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no release"),
        ("a_test::T::test_x  version  wants 2.0", "the first line"),
        ("release 1.2.3\na_test::T::test_x  bad-luck  it happens", "line 2: `bad-luck`"),
        ("release 1.2.3\na_test::T::test_x  version", "line 2: why does a_test::T::test_x fail"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(text, complaint):
    with pytest.raises(BadList, match=complaint):
        parse(text)


def test_the_list_can_be_read_and_names_files_that_are_run():
    release, lines = parse((FOLDER / "expected.txt").read_text())
    assert release == "0.10.2"
    files = (FOLDER / "files.txt").read_text().splitlines()
    assert {line.pattern.partition("::")[0] for line in lines} <= set(files)


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        (None, "is no source tree of JAX"),
        ('_version = "0.0.1"', "is another release of JAX than"),
    ],
)
def test_a_folder_that_does_not_hold_the_tests_is_refused_with_the_way_to_get_them(
    tmp_path, version, complaint
):
    if version is not None:
        (tmp_path / "tests").mkdir()
        (tmp_path / "jax").mkdir()
        (tmp_path / "jax" / "version.py").write_text(version)
    code, error = ask("--jax-source", tmp_path)
    assert code == 2
    assert complaint in error
    assert "git clone" in error


def test_without_a_folder_it_says_what_it_needs():
    code, error = ask()
    assert code == 2
    assert "which source tree of JAX" in error
    assert "make conformance JAX_SOURCE=" in error


def ask(*arguments):
    environment = {key: value for key, value in os.environ.items() if key != "JAX_SOURCE"}
    done = subprocess.run(
        [sys.executable, FOLDER, *arguments], env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stderr
