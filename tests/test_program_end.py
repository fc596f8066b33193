"""The headline names the error that ended a program, however the program ends."""

import json

import pytest
from commands import run_vramfit

# `REAL` is what must be named; it is raised in a function of the program's own.
PRELUDE = """
import logging, os, sys, threading, traceback
import jax.numpy as jnp

def work():
    jnp.tanh(jnp.ones((256, 256)))
    raise ValueError("the real reason\\nand a second line")
"""
REAL = "ValueError at program.py:7 (work): the real reason"

# How the program ends, and its exit code.
FAILURES = {
    "uncaught": ("work()", 1),
    "IPython imported": ("import IPython\nwork()", 1),
    "rich": ("import rich.traceback; rich.traceback.install()\nwork()", 1),
    "own excepthook": ("sys.excepthook = lambda *_: print('failed')\nwork()", 1),
    "excepthook exits": ("sys.excepthook = lambda *_: os._exit(3)\nwork()", 3),
    "faulthandler": ("import faulthandler; faulthandler.enable()\nwork()", 1),
    "absl": ("from absl import app\napp.run(lambda _: work())", 1),
    "caught, printed, exit": (
        """
try:
    work()
except Exception as error:
    print(error, file=sys.stderr)
    sys.exit(1)
""",
        1,
    ),
    "exit with a message of the handler": (
        "try: work()\nexcept ValueError as error: sys.exit(f'cannot go on: {error}')",
        1,
    ),
    "exit code of a function": (
        """
def main():
    try:
        work()
    except Exception:
        traceback.print_exc()
        return 4
sys.exit(main())
""",
        4,
    ),
    "logged": (
        """
try:
    work()
except Exception:
    logging.exception("training failed")
sys.exit(1)
""",
        1,
    ),
    "exit inside with": (
        """
import contextlib
with contextlib.ExitStack() as stack:
    stack.callback(print, "left")
    try:
        work()
    except ValueError:
        sys.exit(1)
""",
        1,
    ),
    "os._exit in a handler": ("try: work()\nexcept ValueError: os._exit(5)", 5),
    "printed, then os._exit": (
        "try: work()\nexcept ValueError: traceback.print_exc()\nos._exit(5)",
        5,
    ),
    "thread": ("one = threading.Thread(target=work); one.start(); one.join()", 0),
    "thread of a program that exits": (
        "one = threading.Thread(target=work); one.start(); one.join(); sys.exit(2)",
        2,
    ),
    "thread with an own hook": (
        """
one = threading.Thread(target=work)
threading.excepthook = lambda _: None
one.start(); one.join()
""",
        0,
    ),
    "thread that ends the process": (
        "threading.excepthook = lambda _: os._exit(6)\n"
        "one = threading.Thread(target=work); one.start(); one.join()",
        6,
    ),
    "thread that interrupts": (
        """
import _thread
def hook(_):
    _thread.interrupt_main()
threading.excepthook = hook
one = threading.Thread(target=work); one.start()
while True: one.join(0.1)
""",
        None,
    ),
}

# How the program ends, its exit code, and what the headline says.
OTHERS = {
    "message with a traceback": (
        """
lines = ["INTERNAL: partitioner: Traceback (most recent call last):"]
lines += ["  File 'a.py', line 1", "OSError: no rule"]
jnp.tanh(x)
raise RuntimeError("\\n".join(lines))
""",
        1,
        "INTERNAL: partitioner: OSError: no rule",
    ),
    "message": ("sys.exit('no data')", 1, "(SystemExit at program.py:10 (<module>): no data)"),
    "raised message": (
        "raise SystemExit('no data\\nat all')",
        1,
        "after call 1 of `jit_multiply` (SystemExit: no data)",
    ),
    "raised message in a function": (
        """
def main():
    raise SystemExit(f"no data in {len('abc')} files")
main()
""",
        1,
        "(SystemExit: no data in 3 files)",
    ),
    "raised message after a message that was caught": (
        """
try:
    sys.exit("not this")
except SystemExit:
    print("nor this", file=sys.stderr)
jnp.tanh(x)
raise SystemExit("but this")
""",
        1,
        "(SystemExit: but this)",
    ),
    "raised code": ("raise SystemExit(3)", 3, "the program ended with exit code 3 after"),
    "raised nothing": ("raise SystemExit", 0, ""),
    "code": ("sys.exit(3)", 3, "the program ended with exit code 3 after"),
    "printed long before": (
        """
try:
    work()
except ValueError:
    traceback.print_exc()
jnp.tanh(x)
sys.exit(3)
""",
        3,
        "the program ended with exit code 3 after",
    ),
    "exit that is caught": (
        """
try:
    try:
        work()
    except ValueError:
        sys.exit(1)
except SystemExit:
    print("goes on")
""",
        0,
        "",
    ),
    "exit that is caught in a function": (
        """
def main():
    try:
        sys.exit("no data")
    except SystemExit:
        pass
main()
""",
        0,
        "",
    ),
    "printed and gone on": (
        "try: work()\nexcept ValueError: traceback.print_exc()",
        0,
        "",
    ),
    "exit without error": ("try: work()\nexcept ValueError: sys.exit(0)", 0, ""),
    "thread beside the work": (
        "one = threading.Thread(target=work); one.start(); one.join(); jnp.tanh(x)",
        0,
        "",
    ),
}


@pytest.fixture
def headline(tmp_path):
    """Return a function that gives the headline and the summary, by how a program ends."""

    def run(ending, *, before=PRELUDE):
        path = tmp_path / "program.py"
        path.write_text(f"{before}\nx = jnp.ones(1024) * 2\n{ending}\n")
        # A release of IPython is not needed to see what an import of it does.
        shell = tmp_path / "IPython.py"
        shell.write_text("def get_ipython(): return None\n")
        summary_file = tmp_path / "summary.json"
        options = ["--full", "--gpu", "t4", "--json", summary_file, "--force"]
        run_vramfit("dryrun", *options, path, cwd=tmp_path)
        summary = json.loads(summary_file.read_text())
        conditions = summary["verdict"]["conditions"]
        return conditions[0]["text"] if conditions else "", summary

    return run


@pytest.mark.parametrize("name", FAILURES)
def test_the_error_that_ended_the_program_is_named(headline, name):
    ending, code = FAILURES[name]
    said, summary = headline(ending)
    assert said.startswith("the program failed with an error of its own after"), said
    assert REAL in said
    assert summary["fits"] is None
    if code is not None:
        assert summary["process_exit"] == {"code": code, "signal": None}


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_error_is_named(headline, name):
    ending, code, expected = OTHERS[name]
    said, summary = headline(ending)
    assert expected in said
    assert "ValueError" not in said
    assert summary["fits"] is (None if code else True)
    assert summary["process_exit"] == {"code": code, "signal": None}


def test_the_error_of_a_worker_is_named(headline):
    worker = """
import multiprocessing
if __name__ == "__main__":
    one = multiprocessing.get_context("spawn").Process(target=work)
    one.start(); one.join()
    sys.exit(one.exitcode)
"""
    lazy = PRELUDE.replace("import jax.numpy as jnp", "").replace(
        "def work():", "def work():\n    import jax.numpy as jnp"
    )
    said, _ = headline(worker, before=lazy + "\nclass jnp: ones = lambda _: 1\n")
    assert "ValueError at program.py:8 (work): the real reason" in said
