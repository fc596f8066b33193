"""Reads what the dry run is to do that this process is part of.

The command line writes it to a file that a variable names; `RunConfig` in Rust has its fields.
Whoever has that variable uses virtual GPUs.
"""

from __future__ import annotations

import functools
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "VRAMFIT_RUN_CONFIG"


def is_dryrun() -> bool:
    """Return whether this process is part of a dry run."""
    return bool(os.environ.get(VARIABLE))


@functools.cache
def run_config() -> dict[str, Any]:
    """Return the configuration of the dry run; empty in a process that is part of none.

    Empty, too, where the dry run has ended and removed it: the plugin then refuses to start.
    """
    try:
        with open(os.environ.get(VARIABLE) or os.devnull, encoding="utf-8") as file:
            return dict(json.loads(file.read() or "{}"))
    except FileNotFoundError:
        return {}
