"""Logs of public threads and messages of libraries beside XLA: the cause, and what is not said."""

import json
import os
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import run_vramfit

FOLDER = Path(__file__).parent
LOGS = sorted(FOLDER.joinpath("oom_logs").iterdir())
MESSAGES = tomllib.loads(FOLDER.joinpath("oom_messages.toml").read_text())

# The causes that an expert accepts of logs whose file does not name them, and words that the
# output must have.
EXPECTED = {
    "l01": ("pool-too-small request-larger-than-gpu", ["49.6 GiB", "17.7 GiB", "outputs"]),
    "l02": ("request-larger-than-gpu pool-too-small", ["TF_FORCE_UNIFIED_MEMORY=true"]),
    "l03": (
        "request-larger-than-gpu pool-too-small wrong-setting",
        ["XLA_CLIENT_MEM_FRACTION=3.2"],
    ),
    "l04": ("not-memory", ["runs that succeed"]),
    "l06": ("pool-too-small", ["utils.py:42", "shaq.py:68", "outputs 12.9 GiB"]),
    "l08": ("outside-pool", ["Warp", "--fraction"]),
    "l10": ("host-memory", ["pinned", "Orbax"]),
    "l11": ("outside-pool pool-not-obtained", ["cuSOLVER"]),
    "l12": ("pool-not-obtained memory-taken-later", ["empty pool", "1.4 GiB"]),
    "l14": ("not-memory", ["shared memory"]),
}

# What ended the threads whose end is known, by the ids of remedies.
CURES = {
    "01": "blockwise chunk",
    "03": "smaller-blocks",
    "05": "smaller-blocks",
    "07": "lower-fraction",
    "09": "unified-memory chunk",
    "11": "other-release",
    "13": "chunk",
    "15": "chunk",
    "17": "chunk",
    "19": "chunk",
    "21": "donate chunk",
    "23": "lower-fraction free-gpu",
    "27": "matching-libraries",
    "31": "check-installation",
    "33": "lower-fraction",
    "41": "single-operation",
    "43": "larger-gpu",
    "45": "reserve-less",
    "47": "lower-fraction",
    "49": "clear-caches",
    "53": "larger-gpu",
    "55": "narrow-types",
    "57": "larger-gpu",
    "63": "enlarge-shared-memory",
    "67": "check-installation",
    "73": "enlarge-shared-memory",
    "81": "check-installation",
    "83": "lower-fraction",
    "89": "lower-fraction free-gpu",
    "l01": "smaller-outputs",
    "l02": "unified-memory",
    "l03": "unified-memory",
    "l08": "lower-fraction",
    "l10": "unpinned-checkpoints",
}
MAX_FIRST = 4


def explain(text, *arguments):
    done = run_vramfit("explain", *arguments, input=text)
    assert done.stdout, done.stderr
    return done.stdout


def causes_of(text):
    """Return the causes by their confidence, in order."""
    explanation = json.loads(explain(text, "--json", "-"))
    return {cause["id"]: cause["confidence"] for cause in explanation["causes"]}


def split(file):
    """Return the accepted causes of a log, the words that its output must have, and its text."""
    text = file.read_text()
    if (key := file.name[:3]) in EXPECTED:
        accepted, words = EXPECTED[key]
        return accepted.split(), words, text
    accepted = re.search(r"^# expected: (.*)$", text, re.MULTILINE).group(1).split(" | ")
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("# ")]
    return accepted, [], "".join(lines)


def problems(accepted, causes):
    """Return what is wrong with the causes of a log."""
    first = next(iter(causes), "nothing")
    if first not in accepted:
        yield f"{first} is none of {accepted}"
    for cause, word in causes.items():
        if word == "sure" and cause not in accepted:
            yield f"{cause} is not sure"
    if "sure" in causes.values() and set(causes.values()) != {"sure"}:
        yield f"{causes} has alternatives to what is sure"


def in_parallel(function, items):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


@pytest.mark.fast
def test_logs_of_public_threads_are_explained():
    logs = [split(file) for file in LOGS]
    assert len(logs) == 57
    all_causes = in_parallel(causes_of, [text for _, _, text in logs])
    found = [
        f"{file.name}: {problem}"
        for file, (accepted, _, _), causes in zip(LOGS, logs, all_causes, strict=True)
        for problem in problems(accepted, causes)
    ]
    assert not found, "\n".join(found)


def test_answers_name_the_lines_and_figures_that_matter():
    asked = [file for file in LOGS if file.name[:3] in EXPECTED]
    assert len(asked) == len(EXPECTED)
    outputs = in_parallel(lambda file: explain(split(file)[2], "--full"), asked)
    for file, output in zip(asked, outputs, strict=True):
        # Sentences are wrapped.
        sentences = " ".join(output.split())
        assert [word for word in split(file)[1] if word not in sentences] == [], file.name


def test_the_cure_of_the_thread_is_among_the_first_remedies():
    key = {file: file.name.split("-")[0] for file in LOGS}
    asked = [file for file in LOGS if key[file] in CURES]
    assert len(asked) == len(CURES)
    answers = in_parallel(lambda file: explain(split(file)[2], "--json", "-"), asked)
    for file, answer in zip(asked, answers, strict=True):
        first = [remedy["id"] for remedy in json.loads(answer)["remedies"][:MAX_FIRST]]
        assert set(first) & set(CURES[key[file]].split()), (file.name, first)


@pytest.mark.fast
def test_messages_of_libraries_are_explained():
    assert len(MESSAGES) >= 40
    all_causes = in_parallel(causes_of, [message["text"] for message in MESSAGES.values()])
    found = []
    for (name, message), causes in zip(MESSAGES.items(), all_causes, strict=True):
        accepted = message["causes"].split()
        found.extend(f"{name}: {problem}" for problem in problems(accepted, causes))
    assert not found, "\n".join(found)


def test_words_about_memory_that_are_not_known_are_quoted():
    text = "RuntimeError: frobnicate: page allocation failed (errno 3)\n"
    output = explain(text)
    assert output.startswith("not explained: the log speaks of memory in words that vramfit does")
    assert "line 1 speaks of memory: RuntimeError: frobnicate" in " ".join(output.split())


# Rows of the map of a pool, for a request of 2.2 GiB: the cause that must be there, or must not be.
MAPS = [
    ("_" * 88, "pool-not-obtained", True),
    ("_" * 100, "pool-not-obtained", True),
    ("*" + "_" * 95, "pool-not-obtained", False),
    ("*____*____*" * 8, "fragmentation", True),
    ("x____x____x" * 8, "fragmentation", True),
    ("*" * 60 + "_" * 30, "fragmentation", False),
    ("*" * 96, "fragmentation", False),
]


REFUSED = (
    "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.21GiB (rounded to 2368997376)"
    "requested by op"
)


@pytest.mark.parametrize(("row", "cause", "is_there"), MAPS)
def test_maps_of_any_length_are_read(row, cause, is_there):
    prefix = "W0623 18:20:12.602631 2860192 bfc_allocator.cc:"
    text = f"{prefix}497] {REFUSED} \n{prefix}508] {row}\n"
    assert (cause in causes_of(text)) == is_there


def test_a_ruler_in_a_log_is_no_map():
    steps = "step 1\nstep 2\nstep 3\nstep 4\n"
    causes = causes_of(f"{REFUSED}\n{steps}{'_' * 79}\nsummary\n")
    assert "pool-not-obtained" not in causes


def remat(target, reached, before, request):
    """Return the log of a program that XLA could not bring below a target."""
    return (
        "W0219 15:14:56.882326 1234 hlo_rematerialization.cc:3005] Can't reduce memory use below "
        f"1.00GiB ({target} bytes) by rematerialization; only reduced to 1.00GiB ({reached} "
        f"bytes), down from 1.00GiB ({before} bytes) originally\n"
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        f"allocate {request} bytes.\n"
    )


GIB = 1 << 30


def test_a_negative_target_is_certain_in_bytes():
    # 0.95 × 4 GiB beyond the limit, and 1 GiB of outputs on top.
    target = -(4 * GIB) * 95 // 100 + GIB
    text = remat(target, 3 * GIB, 5 * GIB, 2 * GIB)
    assert causes_of(text) == {"pool-too-small": "sure"}
    assert f"by {-target * 100 / 95 / GIB:.1f} GiB or more" in " ".join(explain(text).split())


def test_the_limit_follows_where_there_is_nothing_but_outputs():
    limit, outputs = 12 * GIB, 40 * GIB
    target = (limit - outputs) * 95 // 100
    text = remat(target, outputs + 64, outputs + 64, outputs)
    explanation = json.loads(explain(text, "--json", "-"))
    assert abs(explanation["figures"]["limit_bytes"] - limit) < 256
    assert not {"plan", "raise-fraction"} & {remedy["id"] for remedy in explanation["remedies"]}
