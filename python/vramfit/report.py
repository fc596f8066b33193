"""What a dry run came to, as Python values.

The trace of ``vramfit dryrun --trace`` holds everything; reading it needs neither JAX nor a GPU.

Example:
    >>> import vramfit
    >>> report = vramfit.dryrun_report("run.trace")  # doctest: +SKIP
    >>> report.fits, report.peak_bytes  # doctest: +SKIP
    (False, 4352704768)
    >>> report.parts[0].owner, report.parts[0].line  # doctest: +SKIP
    ('activations', 'train.py:68 (GPT.__call__)')
"""

from __future__ import annotations

import html
import json
import os
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vramfit._native import RunReport, read_report

if TYPE_CHECKING:
    import pandas

__all__ = ["DryrunReport", "Part", "dryrun_report"]


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes that have one owner, one name and one line."""

    owner: str
    """Kind of owner, such as ``parameters``, ``activations`` or ``rounding``."""
    path: str
    """Pytree path of an argument or output; empty for what has none."""
    line: str
    """Line of the program it comes from, as ``file:line (function)``; empty if not known."""
    shape: str
    """Shape, such as ``f32[256,1024]``; empty where it is several things."""
    made_by: str
    """Operation that makes it, or program that made it; may be empty."""
    count: int
    """How many buffers or arrays."""
    bytes: int
    """How much."""


class DryrunReport:
    """The report of a dry run. In a notebook it shows itself."""

    def __init__(self, native: RunReport) -> None:
        self._native = native

    @property
    def answer(self) -> str:
        """The answer in one sentence."""
        return self._native.answer

    @cached_property
    def record(self) -> dict[str, Any]:
        """What ``vramfit dryrun --json`` prints; `docs/reference/dryrun-output.md` has the keys."""
        record: dict[str, Any] = json.loads(self._native.to_json())
        return record

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None if that cannot be told, as after an error of the program's own."""
        fits: bool | None = self.record["fits"]
        return fits

    @property
    def peak_bytes(self) -> int:
        """Most that was in use at once on the device that decides, rounding included."""
        return int(self.record["peak_bytes"])

    @cached_property
    def parts(self) -> list[Part]:
        """Whose the bytes are at the peak, or at the first request that was refused.

        The largest first. They add up to the bytes in use then; a refused request counts as if it
        had been met.
        """
        return [Part(*row) for row in self._native.parts()]

    def to_pandas(self) -> pandas.DataFrame:
        """Return `parts` as a table.

        Raises:
            ModuleNotFoundError: If pandas is not installed.
        """
        import pandas

        return pandas.DataFrame([asdict(part) for part in self.parts])

    def to_html(self) -> str:
        """Return the page that ``vramfit report --html`` writes."""
        return self._native.to_html()

    def __str__(self) -> str:
        return self._native.to_text()

    def __repr__(self) -> str:
        return f"<DryrunReport: {self.answer}>"

    def _repr_html_(self) -> str:
        # A page of its own, so that its style and the notebook's leave each other alone.
        page = html.escape(self.to_html(), quote=True)
        style = "width: 100%; height: 720px; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def dryrun_report(trace: str | os.PathLike[str]) -> DryrunReport:
    """Read the trace of a dry run.

    Args:
        trace: File that ``vramfit dryrun --trace`` wrote. Where the run had several processes, the
            report is about the one that decides.

    Raises:
        IoError: If the file cannot be read.
        InvalidFileError: If it is no trace, or a damaged one.
    """
    return DryrunReport(read_report(trace))
