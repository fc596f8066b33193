"""The end of a child process that talks to the command line which started it.

The command line sends requests, and reads one JSON object per line of standard output; see
``crates/vramfit-runner/src/python_child.rs``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from vramfit.errors import VramfitError


def claim_stdout() -> TextIO:
    """Return standard output for messages; whatever else prints goes to standard error."""
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return messages


def send(messages: TextIO, **message: Any) -> None:
    """Send one message."""
    messages.write(f"{json.dumps(message)}\n")
    messages.flush()


def failure(error: VramfitError) -> dict[str, str | None]:
    """Return an error as the command line decodes it."""
    return {
        "id": error.id,
        "message": error.message,
        "cause": error.cause,
        "hint": error.hint,
    }
