"""The report of a dry run, as Python values.

It is read from the trace of ``vramfit dryrun --trace``; that needs neither JAX nor a GPU.

Example:
    >>> import vramfit
    >>> report = vramfit.dryrun_report("run.trace")  # doctest: +SKIP
    >>> report.fits, report.peak_bytes  # doctest: +SKIP
    (False, 4352704768)
    >>> report.attribution[0].owner, report.attribution[0].site  # doctest: +SKIP
    ('activations', 'train.py:68 (GPT.__call__)')
"""

from __future__ import annotations

import html
import json
import os
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vramfit._native import NativeReport, read_report

if TYPE_CHECKING:
    import pandas

__all__ = ["AttributionEntry", "DryrunReport", "StepTime", "dryrun_report"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long a step takes on one device by XLA's cost model; nothing was measured."""

    low_us: float
    """Microseconds that no execution stays below."""
    model_us: float
    """Microseconds by the model, unknown operations included."""
    unknown_share: float
    """Share of `model_us` that the model says nothing about, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class AttributionEntry:
    """Memory with one owner, one path and one line."""

    owner: str
    """Kind of owner, such as ``parameters``, ``activations`` or ``rounding``."""
    path: str
    """Pytree path of an argument or output; empty if there is none."""
    site: str
    """Line of the program that it comes from, as ``file:line (function)``; empty if unknown."""
    shape: str
    """Shape, such as ``f32[256,1024]``; empty for several shapes."""
    producer: str
    """Operation or program that produces it; may be empty."""
    count: int
    """Number of buffers or arrays."""
    bytes: int
    """Size of all of them."""


class DryrunReport:
    """The report of a dry run. A notebook displays it as the HTML page."""

    def __init__(self, native: NativeReport) -> None:
        self._native = native

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        return self._native.headline

    @cached_property
    def _dict(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads(self._native.to_json())
        return summary

    def to_dict(self) -> dict[str, Any]:
        """Return what ``vramfit dryrun --json`` prints; see `docs/reference/dryrun-output.md`."""
        return self._dict

    @property
    def fits(self) -> bool | None:
        """Whether the run fits; None if that is unknown, as after an error of the program."""
        fits: bool | None = self._dict["fits"]
        return fits

    @property
    def peak_bytes(self) -> int:
        """Peak memory in use on the critical device, rounding included."""
        return int(self._dict["peak_bytes"])

    @property
    def limit_bytes(self) -> int:
        """Bytes that the pool of the critical device may hold."""
        return int(self._dict["capacity_bytes"])

    @property
    def spare_bytes(self) -> int:
        """Bytes of the limit that the peak leaves; negative where the peak is above it."""
        return self.limit_bytes - self.peak_bytes

    @property
    def step_time(self) -> StepTime | None:
        """How long a step takes; None where no training step was detected or no time is known."""
        time = self._dict["step_time"]
        if time is None:
            return None
        return StepTime(time["low_us"], time["model_us"], time["unknown_share"])

    @cached_property
    def attribution(self) -> list[AttributionEntry]:
        """Memory by owner at the peak, or at the first request that failed, largest first.

        The entries add up to the memory in use then; a failed request counts as if it had
        succeeded.
        """
        return [AttributionEntry(*row) for row in self._native.attribution()]

    def to_pandas(self) -> pandas.DataFrame:
        """Return `attribution` as a data frame.

        Raises:
            ModuleNotFoundError: If pandas is not installed.
        """
        import pandas

        return pandas.DataFrame([asdict(entry) for entry in self.attribution])

    def to_html(self) -> str:
        """Return the page that ``vramfit report --html`` writes."""
        return self._native.to_html()

    def __str__(self) -> str:
        return self._native.to_text()

    def __repr__(self) -> str:
        return f"<DryrunReport: {self.headline}>"

    def _repr_html_(self) -> str:
        # In a frame, so that its style and the notebook's do not affect each other.
        page = html.escape(self.to_html(), quote=True)
        style = "width: 100%; height: 720px; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def dryrun_report(trace: str | os.PathLike[str]) -> DryrunReport:
    """Read the trace of a dry run.

    Args:
        trace: File that ``vramfit dryrun --trace`` wrote. Of several processes, the report covers
            the critical one.

    Raises:
        IoError: If the file cannot be read.
        InvalidFileError: If it is not a trace, or a damaged one.
    """
    return DryrunReport(read_report(trace))
