"""Names of source lines: which file is the user's own, and what a person calls it."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

_HOME = os.path.dirname(os.path.dirname(__file__))
# IPython's names of the cells of a notebook: without a kernel, and in Colab.
_CELL = "<ipython-input-"
_foreign_cells: dict[str, int] = {}


def is_library(file: str) -> bool:
    """Return whether a file is of an installed package, of Python or of vramfit."""
    return (
        "/site-packages/" in file
        or "/dist-packages/" in file
        or "/lib/python3" in file
        or (file.startswith("<") and not file.startswith(_CELL))
        or is_ours(file)
    )


def is_ours(file: str) -> bool:
    """Return whether a file is one of vramfit's own that no user calls by its name."""
    return os.path.dirname(file) == _HOME or file.startswith(os.path.join(_HOME, "_"))


def file_name(file: str) -> str:
    """Return what a person calls a source file: a cell of a notebook by its number.

    Everything that names a line of the user's asks here, the virtual GPU's Rust code as well.
    """
    if file.startswith(_CELL):
        return f"cell [{file.removeprefix(_CELL).partition('-')[0]}]"
    number = cell_numbers().get(file)
    return file if number is None else f"cell [{number}]"


def cell_numbers() -> dict[str, int]:
    """Return the number of each cell of this notebook, by the file that it is compiled as."""
    shell = getattr(sys.modules.get("__main__"), "get_ipython", lambda: None)()
    # IPython knows which input it has compiled under which name; its own tracebacks use this.
    own: dict[str, int] = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return own or _foreign_cells


def set_cell_numbers(numbers: dict[str, int]) -> None:
    """Let this process name the cells of another one's notebook, whose functions it calls."""
    _foreign_cells.update(numbers)


def user_frame() -> FrameType | None:
    """Return the innermost frame on the stack that runs the user's own code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def site_of(code: CodeType, line: int) -> str:
    """Return a line as ``file:line (function)``."""
    return f"{file_name(code.co_filename)}:{line} ({code.co_name})"


def display_site(site: str) -> str:
    """Return ``file:line (function)`` with the file as a person calls it."""
    file, colon, rest = site.partition(":")
    return f"{file_name(file)}{colon}{rest}"
