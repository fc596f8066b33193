"""The list of expected failures, and what a run says against it.

A line of the list names a test, or several with `*`, the reason, and an explanation:

    array_test::JaxArrayTest::test_on_the_moon  arithmetic  compares the results of a large product

An explanation that begins with `sometimes:` is for a test that may pass as well.
"""

import collections
import dataclasses
import fnmatch

REASONS = {
    "arithmetic": "compares numbers that a dry run does not compute",
    "version": "wants another release of something than the one installed",
    "environment": "wants a driver, a GPU or a library that is not there",
    "hosts": "needs several hosts at the same time",
    "gpu": "fails on a real GPU in the same way",
    "not-yet": "could pass and does not",
}

# Ends that take the user's program with them; no reason excuses them.
DEATHS = ("crashed", "hung")


class BadList(Exception):
    """The list cannot be read; the text says where and why."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one test."""

    outcome: str  # passed, failed, skipped, crashed, hung
    message: str = ""
    made_up: int = 0  # how many values it read that a dry run does not know


def worse_of(one, other):
    """Return the worse outcome of a test that ran on two hosts: it passes if it passes on both."""
    ranks = ("skipped", "passed", "failed", *DEATHS)
    if one.outcome == other.outcome == "passed":
        return one if one.made_up else other
    return max(one, other, key=lambda outcome: ranks.index(outcome.outcome))


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the list."""

    pattern: str
    reason: str
    explanation: str

    @property
    def may_pass(self):
        return self.explanation.startswith("sometimes:")

    def covers(self, test):
        return test == self.pattern or fnmatch.fnmatchcase(test, self.pattern)


@dataclasses.dataclass
class Verdict:
    """The outcomes of some tests, against the list.

    Every test is counted once: as `passed`, as `made-up` where it passed on values that were made
    up, which proves little, as `skipped`, under the reason it was expected to fail for, or as
    `unexpected`.
    """

    counts: collections.Counter
    unexpected: dict  # test: (why it was not expected, outcome)
    to_take_off: list  # patterns of lines that excuse nothing any more

    @property
    def agrees(self):
        return not self.unexpected and not self.to_take_off


def parse(text):
    """Return the release of JAX that a list is for, and its lines.

    Raises:
        BadList: If a line is not of the form that is described above.
    """
    release, lines = None, []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        first, _, rest = line.partition(" ")
        if release is None:
            if first != "release" or not rest.strip():
                raise BadList(f"line {number}: the first line must be `release` and its number")
            release = rest.strip()
            continue
        reason, _, explanation = rest.strip().partition(" ")
        if reason not in REASONS:
            raise BadList(f"line {number}: `{reason}` is none of {', '.join(REASONS)}")
        if not explanation.strip():
            raise BadList(f"line {number}: why does {first} fail?")
        lines.append(Line(first, reason, explanation.strip()))
    if release is None:
        raise BadList("it names no release of JAX")
    return release, lines


def compare(outcomes, lines, *, whole):
    """Compare the outcomes of tests with the list.

    Args:
        outcomes: What became of each test, by `file::Class::method`.
        lines: The list.
        whole: All tests of the files were run, so that a line that covers no test is too much.
    """
    counts, unexpected, needed, passed = collections.Counter(), {}, set(), set()
    for test, outcome in outcomes.items():
        line = next((line for line in lines if line.covers(test)), None)
        if outcome.outcome in ("passed", "skipped"):
            has_passed = outcome.outcome == "passed"
            counts["made-up" if has_passed and outcome.made_up else outcome.outcome] += 1
            if has_passed and line is not None:
                passed.add(line)
            continue
        why = _objection(outcome, line)
        if why is not None:
            counts["unexpected"] += 1
            unexpected[test] = (why, outcome)
        else:
            counts[line.reason] += 1
        if line is not None:
            needed.add(line)
    files = {test.partition("::")[0] for test in outcomes}
    to_take_off = [
        line.pattern
        for line in lines
        if line not in needed
        and not line.may_pass
        and (line in passed or (whole and line.pattern.partition("::")[0] in files))
    ]
    return Verdict(counts, unexpected, to_take_off)


def _objection(outcome, line):
    """Return why a failure is not an expected one, or None."""
    if outcome.outcome in DEATHS:
        return outcome.outcome
    if line is None:
        return "not on the list"
    if line.reason == "arithmetic" and not outcome.made_up:
        # Without a made-up value the test failed for something else.
        return "listed for arithmetic, but it read no made-up value"
    return None


def share(counts):
    """Return how many tests needed no arithmetic, and how many of those passed.

    Skipped tests say nothing, and those that pass on made-up values little. All others count, also
    those that fail for a release or for want of a driver.
    """
    apart = ("skipped", "arithmetic", "made-up")
    asked = sum(count for word, count in counts.items() if word not in apart)
    return asked, counts["passed"]
