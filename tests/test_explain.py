"""`vramfit explain` names the cause of logs in every wording and layout, and of real ones."""

import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import oom_logs
import pytest
from commands import ROOT, clean_environment

# Logs are scenarios of a generator that knows nothing of the command.
SCENARIOS = oom_logs.scenarios()
ELSEWHERE = oom_logs.visible_error_elsewhere()
SEEDS = range(3)


def explain(text, *arguments):
    """Return exit code and explanation for a log."""
    done = subprocess.run(
        [sys.executable, "-m", "vramfit", "explain", "--json", "-", *arguments],
        input=text,
        env=clean_environment(),
        capture_output=True,
        check=False,
    )
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


def problems(log):
    """Return what is wrong with the explanation for a generated log."""
    code, explanation = explain(log.text)
    causes = {cause["id"]: cause["confidence"] for cause in explanation["causes"]}
    found = []
    first = next(iter(causes), None)
    if log.first and first not in log.first:
        found.append(f"{first} comes first, not {sorted(log.first)}")
    if not log.first and causes:
        found.append(f"{sorted(causes)} where nothing can be known")
    found.extend(f"{cause} is missing" for cause in log.present - causes.keys())
    wrong = [cause for cause, word in causes.items() if word == "sure" and cause in log.wrong]
    found.extend(f"{cause} is not sure" for cause in wrong)
    requested = explanation["figures"]["requested_bytes"]
    if log.requested_bytes is not None and requested != log.requested_bytes:
        found.append(f"{requested} bytes instead of {log.requested_bytes}")
    if code != log.exit_code:
        found.append(f"exit code {code} instead of {log.exit_code}")
    return [f"{log.name}: {problem}" for problem in found]


def assert_explained(logs):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [problem for each in pool.map(problems, logs) for problem in each]
    assert not found, "\n".join(found)


@pytest.mark.fast
def test_every_cause_is_named_in_every_wording():
    assert {cause for log in SCENARIOS for cause in log.first} == set(oom_logs.CAUSES)
    assert_explained(SCENARIOS)


def test_the_first_failure_is_the_cause_where_the_last_error_is_another_one():
    assert len(ELSEWHERE) >= 20
    assert_explained(ELSEWHERE)


@pytest.mark.parametrize("seed", SEEDS)
def test_layout_makes_no_difference(seed):
    assert_explained([oom_logs.disguise(log, seed) for log in [*SCENARIOS, *ELSEWHERE]])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_may_be_cut_at_both_ends(seed):
    assert_explained([oom_logs.cut(log, seed) for log in SCENARIOS])


# What an expert says of each of the public logs: the first cause may be one of the first set, those
# of the second must be there, and none of the third may be called sure. By the number that begins
# the file's name.
REAL_LOGS = {
    "02": ({"pool-too-small"}, set(), {"not-memory"}),
    "04": ({"request-larger-than-gpu"}, set(), {"fragmentation", "pool-not-obtained"}),
    "06": ({"not-memory"}, set(), set(oom_logs.CAUSES) - {"not-memory"}),
    "07": ({"pool-too-small"}, {"pool-not-obtained"}, {"pool-too-small", "fragmentation"}),
    "09": ({"autotuning"}, {"pool-too-small"}, {"pool-not-obtained"}),
    "11": ({"not-memory", "outside-pool"}, {"not-memory", "outside-pool"}, set(oom_logs.CAUSES)),
    "13": ({"not-memory"}, set(), {"outside-pool"}),
    "14": ({"outside-pool"}, {"not-memory"}, set(oom_logs.CAUSES)),
    "17": ({"autotuning"}, set(), set(oom_logs.CAUSES)),
    "19": ({"autotuning", "pool-too-small"}, {"autotuning", "pool-too-small"}, {"not-memory"}),
    "21": ({"pool-too-small"}, set(), {"fragmentation"}),
    "23": ({"pool-too-small"}, set(), {"fragmentation"}),
    "25": ({"outside-pool"}, set(), {"pool-too-small"}),
    "26": ({"outside-pool"}, set(), {"pool-too-small"}),
    "28": ({"pool-too-small"}, set(), {"request-larger-than-gpu", "fragmentation"}),
    "30": ({"pool-too-small"}, set(), {"fragmentation", "leak"}),
    "31": ({"pool-too-small"}, set(), {"fragmentation"}),
    "33": ({"request-larger-than-gpu"}, {"pool-too-small"}, {"fragmentation"}),
    "36": ({"tpu"}, set(), {"pool-too-small"}),
    "38": ({"not-memory"}, set(), set(oom_logs.CAUSES) - {"not-memory"}),
    "40": ({"request-larger-than-gpu", "pool-too-small"}, {"pool-too-small"}, {"not-memory"}),
}


def real_logs():
    folder = os.environ.get("VRAMFIT_OOM_LOGS") or ROOT.parent / "shared/golden/oom_logs"
    return sorted(pathlib.Path(folder).glob("[0-9]*.txt"))


@pytest.mark.fast
@pytest.mark.skipif(not real_logs(), reason="real logs are not here; see VRAMFIT_OOM_LOGS")
@pytest.mark.parametrize("file", real_logs(), ids=lambda file: file.stem)
def test_real_logs_are_explained(file):
    lines = file.read_bytes().splitlines(keepends=True)
    # Lines at the top say where the log is from; they are no part of it.
    while lines[0].startswith(b"# "):
        del lines[0]
    expected = REAL_LOGS.get(file.name[:2])
    code, explanation = explain(b"".join(lines))
    causes = {cause["id"]: cause["confidence"] for cause in explanation["causes"]}
    assert causes, "something is recognized in every real log"
    if expected is None:
        return
    first, present, not_sure = expected
    assert next(iter(causes)) in first
    assert present <= causes.keys()
    assert not [cause for cause, word in causes.items() if word == "sure" and cause in not_sure]
    assert code == (1 if next(iter(causes)) == "not-memory" else 0)


def test_evidence_is_in_the_line_that_it_names():
    for log in SCENARIOS:
        if log.name.startswith(("pool-too-small/", "fragmentation/")):
            lines = log.text.decode().split("\n")
            _, explanation = explain(log.text)
            for cause in explanation["causes"]:
                for evidence in cause["evidence"]:
                    assert evidence["text"] in lines[evidence["line"] - 1]


def test_advice_suits_an_error_that_is_not_about_memory():
    advised = {}
    for log in SCENARIOS:
        if log.name.startswith("not-memory/"):
            _, explanation = explain(log.text)
            ids = [remedy["id"] for remedy in explanation["remedies"]]
            advised[log.name.removeprefix("not-memory/")] = (
                ids,
                explanation["causes"][0]["next_command"],
            )
    doctor = (["check-installation"], "vramfit doctor")
    for name in ("cudnn-0.6", "toolchain-0.3", "other-gpu"):
        assert advised[name] == doctor, name
    matching = (["matching-libraries", "check-installation"], "vramfit doctor")
    assert advised["outdated-library-0.7"] == matching
    for name in ("division", "attribute", "missing-key", "shapes", "deleted-array"):
        assert advised[name] == ([], None), name


def test_evidence_is_quoted_from_the_beginning_of_its_line():
    for text, quoted in (
        (
            b"  rate = done / 0\nZeroDivisionError: division by zero\n",
            "ZeroDivisionError: division by zero",
        ),
        (
            b"RuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64.00GiB.\n",
            "RuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64.00GiB.",
        ),
        (
            b"E1125 08:01:02.500000 7007 pjrt_stream_executor_client.cc:3077] Execution of replica "
            b"0 failed: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1048576 bytes.",
            "Execution of replica 0 failed: RESOURCE_EXHAUSTED: Out of memory while trying to "
            "allocate 1048576 bytes.",
        ),
    ):
        _, explanation = explain(text)
        assert explanation["causes"][0]["evidence"][0]["text"] == quoted
