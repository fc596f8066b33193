"""Runs the command line of this installation in another process, for functions of the API."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence

from vramfit.errors import BY_ID, VramfitError

# Settings of the caller's process that say which platform it uses; the other one uses a GPU.
PLATFORM_VARIABLES = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "CUDA_VISIBLE_DEVICES")


def run_vramfit(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run ``vramfit`` with arguments and return what it answered; its exit code is 0 or 1.

    Raises:
        VramfitError: If it ended with an error.
    """
    variables = {name: text for name, text in os.environ.items() if name not in PLATFORM_VARIABLES}
    command = [*python_command("vramfit"), *arguments]
    # A session that ends without a word must not leave dry runs behind; see `__main__.py`.
    variables["VRAMFIT_SESSION"] = str(os.getpid())
    # The zeros that stand for large arguments are no values to keep.
    variables["VRAMFIT_UPLOAD_CAP"] = "0"
    done = _run(command, variables)
    if done.returncode not in (0, 1):
        raise _parse_error(done.stderr)
    return done


def _run(command: Sequence[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            out, err = child.communicate()
        except BaseException:
            # Ctrl-C: killed, it could not end what it has started.
            child.terminate()
            child.communicate()
            raise
        return subprocess.CompletedProcess(command, child.returncode, out, err)


def python_command(module: str) -> list[str]:
    """Return the start of a command that runs a module of vramfit with this Python."""
    # With -P Python does not import from the current directory.
    return [sys.executable, "-P", "-m", module]


def _parse_error(text: str) -> VramfitError:
    """Return the last error that the command line has printed."""
    heads = list(re.finditer(r"^error\[([a-z-]+)\]: ", text, re.MULTILINE))
    if not heads:
        return VramfitError("vramfit ended without a result", cause=text.strip() or None)
    message, _, rest = text[heads[-1].end() :].partition("\n")
    cause, _, hint = rest.partition("hint: ")
    kind = BY_ID.get(heads[-1][1], VramfitError)
    return kind(message, cause=cause.strip() or None, hint=hint.strip() or None)
