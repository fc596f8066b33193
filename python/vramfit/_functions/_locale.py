"""Texts for terminals that show ASCII only.

The rule is that of the command line (`crates/vramfit/src/ascii.rs`): a locale of `C` or `POSIX`,
or of another character set than UTF-8, gets ASCII; where no variable is set, terminals are taken
to show UTF-8, as Python takes them.
"""

from __future__ import annotations

import os

_SIGNS = str.maketrans(
    {"…": "...", "–": "-", "−": "-", "→": "->", "×": "x", "·": ".", "█": "#", "░": "."}
)


def is_ascii_wanted() -> bool:
    """Say whether the locale of this process shows ASCII only."""
    every, of_type, common = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    # Under `LANG=C` Python has set LC_CTYPE itself, for its own files (PEP 538).
    if common and of_type in ("C.UTF-8", "C.utf8", "UTF-8"):
        of_type = None
    locale = (every or of_type or common or "utf-8").lower()
    return "utf-8" not in locale and "utf8" not in locale


def for_terminal(text: str) -> str:
    """Return a text of ours as the terminal can show it; what is the user's own stays as it is."""
    return text.translate(_SIGNS) if is_ascii_wanted() else text
