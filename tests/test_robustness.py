"""Disks that are full, lines that are left open, terminals that show ASCII only."""

import json
import os
import re
import subprocess
import sys

import pytest
from commands import run_python
from on_gpu import environment

SMALL = "import jax.numpy as jnp\nprint(jnp.ones((64, 64)).sum().shape)\n"
# Each array has a size of its own, so that no two events of the trace are the same.
MANY_SIZES = """
import jax
import numpy as np
for size in range(1, 6000):
    jax.device_put(np.zeros(size, np.int8)).block_until_ready()
print("went on")
"""
# Writing beyond that is refused, as on a full disk; Python ignores the signal that comes with it.
LIMIT_OF_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, resource.RLIM_INFINITY))
"""


def vramfit(*words, **keywords):
    return subprocess.run(["vramfit", *words], capture_output=True, text=True, **keywords)


def dryrun(folder, program, *words, **keywords):
    script = folder / "train.py"
    script.write_text(program)
    return vramfit(
        "dryrun", "--full", "--gpu", "t4", *words, "--", sys.executable, script, **keywords
    )


@pytest.mark.parametrize("end", ["", "\n"], ids=["open", "closed"])
def test_the_answer_is_the_last_line_whatever_the_program_left(tmp_path, end):
    program = SMALL + f"import sys; sys.stdout.write('loss 0.1' + {end!r})\n"
    through_pipe = dryrun(tmp_path, program, "--json", "-").stdout
    summary = json.loads(through_pipe.splitlines()[-1])
    assert summary["fits"] is True
    assert "loss 0.1\n" in through_pipe
    with open(tmp_path / "out", "w") as out:
        script = tmp_path / "train.py"
        line = ["vramfit", "dryrun", "--full", "--gpu", "t4", "--json", "-", sys.executable, script]
        subprocess.run(line, stdout=out, stderr=subprocess.DEVNULL)
    *program_lines, last = (tmp_path / "out").read_text().splitlines()
    assert json.loads(last)["fits"] is True
    # In a file it is known whether the line was left open, so there is none too many.
    assert program_lines[-1] == "loss 0.1"


def test_a_trace_that_cannot_be_made_never_ends_the_program(tmp_path):
    settings = environment(run={"trace": str(tmp_path / "none" / "run.trace")})
    done = run_python("-c", SMALL, env=settings, code=0)
    assert "the trace is incomplete: " in done.stderr


def test_a_disk_that_fills_up_is_reported_and_nothing_is_made_up(tmp_path):
    program = LIMIT_OF_FILES.format(bytes=32 << 10) + MANY_SIZES
    done = dryrun(tmp_path, program, "--trace", tmp_path / "run.trace")
    assert "went on" in done.stdout
    assert "vramfit: the trace is incomplete" in done.stderr
    assert "error[io]: the trace could not be written completely" in done.stderr
    assert done.returncode == 2


def test_a_place_without_room_is_refused_before_the_program_starts(tmp_path, write_script):
    # `vramfit` itself lets the signal through, which a full disk does not send.
    command = LIMIT_OF_FILES.format(bytes=32 << 10) + "\n".join(
        [
            "import signal",
            "import vramfit.__main__ as command",
            "command.signal.signal = lambda number, handler: None",
            "assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN",
            "raise SystemExit(command.main())",
        ]
    )
    script = write_script("print('started')")
    trace = tmp_path / "run.trace"
    words = ["dryrun", "--full", "--gpu", "t4", "--trace", trace, "--", sys.executable, script]
    done = run_python("-c", command, *words, code=2)
    assert f"error[io]: cannot write `{trace}`" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("variables", [{"LANG": "C"}, {"LC_ALL": "POSIX"}], ids=str)
def test_a_locale_without_utf_8_gets_ascii(tmp_path, variables):
    bare = {
        name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))
    }
    wrong = {"JAX_PLATFORMS": "cpu"}
    outputs = [
        dryrun(tmp_path, SMALL, env={**bare, **locale, **wrong}).stderr
        for locale in ({"LANG": "C.UTF-8"}, variables)
    ]
    assert "vramfit dryrun …" in outputs[0]
    assert "vramfit dryrun ..." in outputs[1]
    assert outputs[1].isascii()
    ask = "import vramfit._functions._locale as l; print(l.for_terminal('1 → 2'))"
    said = subprocess.run(
        [sys.executable, "-c", ask], env={**bare, **variables}, capture_output=True, text=True
    )
    assert said.stdout == "1 -> 2\n"


def test_colors_that_are_asked_for_come_everywhere():
    escape = re.compile("\x1b\\[[0-9;]+m")
    for words in (["--help"], ["gpus", "--help"], ["gpus", "--wrong"], ["gpus", "show", "nothing"]):
        plain = vramfit(*words)
        assert not escape.search(plain.stdout + plain.stderr), words
        for line in (["--color", "always", *words], [*words, "--color=always"]):
            colored = vramfit(*line)
            assert escape.search(colored.stdout + colored.stderr), line
            assert escape.sub("", colored.stdout + colored.stderr) == plain.stdout + plain.stderr
