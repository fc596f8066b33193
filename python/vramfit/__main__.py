"""The console script ``vramfit`` and ``python -m vramfit``: hands the command line to Rust."""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    """Run the command line and return its exit code."""
    # Python's own handler only takes note of Ctrl-C until the interpreter runs again, and it does
    # not run while Rust waits. Where SIGINT was ignored from the start (nohup), it stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Python ignores it for itself, and what is ignored stays so in the programs that we start.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    in_session = _end_with_session()
    from vramfit import _native

    return _native.run_cli(
        ["vramfit", *sys.argv[1:]],
        package=os.path.dirname(os.path.abspath(__file__)),
        python=sys.executable,
        in_session=in_session,
    )


def _end_with_session() -> bool:
    """Say whether a Python session waits for the result, and end with it."""
    # Not for the programs that are started from here.
    session = os.environ.pop("VRAMFIT_SESSION", "")
    if not session:
        return False
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux
        prctl(1, int(signal.SIGTERM), 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != int(session):  # it has gone already
            sys.exit(128 + signal.SIGTERM)
    return True


if __name__ == "__main__":
    sys.exit(main())
