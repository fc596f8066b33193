"""Colors and width: those of the terminal, and neither where the output is a file or a pipe."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from commands import ROOT, VRAMFIT, clean_environment, run_vramfit

REPORT = ["report", str(ROOT / "fixtures/traces/train_gpt-t4.trace")]
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*words, columns, **changes):
    """Return what a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = clean_environment(TERM="xterm", **changes)
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in changes else None
    command = [*VRAMFIT, *words]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # nobody has it open any more
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    process.wait()
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [60, 80, 110])
def test_a_report_is_as_wide_as_the_terminal(columns):
    plain = COLOR.sub("", on_terminal(*REPORT, columns=columns))
    longest = max(len(line) for line in plain.splitlines())
    assert columns - 20 < longest <= columns, plain


def test_a_pipe_has_a_fixed_width_and_no_colors():
    done = run_vramfit(*REPORT, env={"COLUMNS": "40"}, code=1)
    assert not COLOR.search(done.stdout)
    assert 70 < max(len(line) for line in done.stdout.splitlines()) <= 80


def test_the_answer_has_a_color_on_a_terminal():
    text = on_terminal(*REPORT, columns=80)
    assert text.startswith("\x1b[1;31mdoes not fit\x1b[0m: ")
    hint = on_terminal("dryrun", "--gpu", "h100-81g", "--", "x.py", columns=80)
    assert "`\x1b[36mvramfit gpus\x1b[0m`" in hint


def test_colors_are_chosen_by_the_variable_and_the_option():
    assert not COLOR.search(on_terminal(*REPORT, columns=80, NO_COLOR="1"))
    assert not COLOR.search(on_terminal(*REPORT, "--color", "never", columns=80))
    assert COLOR.search(run_vramfit(*REPORT, "--color", "always", code=1).stdout)
    assert COLOR.search(on_terminal(*REPORT, "--color", "always", columns=80, NO_COLOR="1"))


def test_json_has_no_colors():
    for json in (["--json", "-"], ["--json", "-", "--color", "always"]):
        assert not COLOR.search(on_terminal(*REPORT, *json, columns=80))


def test_help_lists_the_commands_by_question():
    text = run_vramfit("--help", code=0).stdout
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles[:4] == [
        "Will it fit, and what makes it fit",
        "Why it needs so much",
        "This machine",
        "Training",
    ]
    assert run_vramfit("help", "run", code=0).stdout == run_vramfit("run", "--help", code=0).stdout
    assert run_vramfit("help", code=0).stdout == text
    assert "did you mean `plan`?" in run_vramfit("help", "pla", code=2).stderr
