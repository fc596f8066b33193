"""`vramfit.plan`: plans that make a function fit, searched from any Python session."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vramfit import _native
from vramfit._functions import _step_file
from vramfit._functions._command import python_command
from vramfit._functions._estimate import run_step
from vramfit._plan._remat import remat
from vramfit.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True, repr=False)
class PlanResult:
    """The plans that were found for a function. A notebook displays them as a table."""

    _result: dict[str, Any]
    _text: str
    _plan: str | None
    _page: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return what ``vramfit plan --json`` prints."""
        return self._result

    @property
    def meets_budget(self) -> bool | None:
        """Whether a plan meets the budget or the function fits as it is; None with a range."""
        return self._result.get("meets_budget")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What was measured, a row for each plan; empty with a range."""
        rows: list[dict[str, Any]] = self._result.get("rows", [])
        return rows

    @property
    def recommended(self) -> dict[str, Any] | None:
        """The row of the fastest plan that fits, else of the lowest peak; None with a range."""
        return self._result.get("recommended")

    @property
    def largest(self) -> int | None:
        """The largest number of the range that fits; None without a range or if none does."""
        return self._result.get("largest")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recommended plan to a file, for `remat` and ``vramfit run --plan``.

        Raises:
            InvalidArgumentError: If a range was searched, which has no plan.
        """
        if self._plan is None:
            raise InvalidArgumentError(
                "there is no plan to save",
                hint="call `vramfit.plan` without a range in `vary`",
            )
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._plan)

    def to_html(self) -> str:
        """Return the results as a page of its own, with a chart of peak and time.

        Raises:
            InvalidArgumentError: If a range was searched, which has no page.
        """
        if self._page is None:
            raise InvalidArgumentError(
                "there is no page for a range", hint="call `vramfit.plan` without a range in `vary`"
            )
        return self._page

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<PlanResult: {self._text.partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


class PlanFunction:
    """`vramfit.plan`: call it to search plans; `remat` applies one."""

    remat = staticmethod(remat)

    def __call__(
        self,
        step: Callable[..., Any],
        *args: Any,
        gpu: str,
        budget: str | None = None,
        vary: Mapping[str, Iterable[int]] | None = None,
        moves: Iterable[str] | None = None,
        host_budget: str | None = None,
        max_trials: int | None = None,
        limit: str | None = None,
        fraction: float | None = None,
        **kwargs: Any,
    ) -> PlanResult:
        """Search what to recompute in the backward pass so that a function fits on a GPU.

        Each plan is measured by a run of the function on a virtual GPU in another process; see
        ``vramfit plan``. The backends of this process are neither used nor initialized.

        Args:
            step: The function, such as a training step; see `vramfit.estimate`.
            *args: Its arguments: pytrees of arrays or of `jax.ShapeDtypeStruct`.
            gpu: GPU models separated by commas, such as ``"t4"`` or ``"h100-80gx8,a100-80gx8"``;
                the search is for the first. Without a number there are as many GPUs as the
                arguments are sharded over.
            budget: Bytes that the peak may have, such as ``"20GiB"``, instead of what the GPU can
                hold.
            vary: Values of symbolic dimensions in shapes of the arguments, which
                `jax.export.symbolic_shape` makes. Of a `range` the largest number that fits is
                searched; any other sequence is searched value by value.
            moves: What may be changed: ``"remat"``, ``"offload"``, ``"chunk"``, ``"unroll"``,
                ``"compiler"``, ``"pool"``. By default all, but values are offloaded and loops
                unrolled only if nothing fits otherwise.
            host_budget: Bytes of pinned host memory that offloaded values may take.
            max_trials: Runs at most; 32 by default.
            limit: Bytes that JAX's pool may use.
            fraction: Fraction of GPU memory that JAX's pool may use; 0.75 unless the environment
                says otherwise.
            **kwargs: Keyword arguments of the function.

        Returns:
            The plans worth choosing, the recommended one, or the largest number that fits.

        Raises:
            UnknownGpuError: If there is no such GPU model.
            InvalidArgumentError: If the function cannot be handed to another process.
            PackageMissingError: If cloudpickle is not installed.
            VramfitError: If JAX's CUDA compiler is not installed, or fails.
            Exception: What the function raises while it is traced.

        Example:
            >>> import jax, vramfit
            >>> from jax import export
            >>> batch, = export.symbolic_shape("batch")  # doctest: +SKIP
            >>> x = jax.ShapeDtypeStruct((batch, 1024), "float32")  # doctest: +SKIP
            >>> result = vramfit.plan(step, x, gpu="l4", vary={"batch": range(1, 513)})
            ... # doctest: +SKIP
            >>> result.largest  # doctest: +SKIP
            96
        """
        options = [
            *("--budget", budget, "--host-budget", host_budget, "--max-trials", max_trials),
            *("--try", ",".join(moves) if moves is not None else None),
            *("--limit", limit, "--fraction", fraction),
        ]
        pairs = zip(options[::2], options[1::2], strict=True)
        given = [str(each) for pair in pairs if pair[1] is not None for each in pair]
        devices = _step_file.device_count((args, kwargs))
        with tempfile.TemporaryDirectory(prefix="vramfit-") as folder:
            path, out, answer, page = (
                os.path.join(folder, name)
                for name in ("step.pickle", "plan.toml", "plan.json", "plan.html")
            )
            _step_file.write_step(path, step, args, kwargs)
            has_range = False
            placeholders = []
            for name, values in (vary or {}).items():
                has_range |= isinstance(values, range)
                given += ["--vary", f"{name}={_values(values)}"]
                placeholders.append(f"{name}={{{name}}}")
            if not has_range:
                given += ["--out", out, "--html", page]
            text = run_step(
                [
                    *("plan", "--gpu", ",".join(_gpus(gpu, devices)), "--steps", "1"),
                    *(*given, "--json", answer, "--"),
                    *(*python_command("vramfit._functions._run_step"), path, *placeholders),
                ],
                path,
            )
            result = json.loads(_read_if_written(answer) or "{}")
            plan = _read_if_written(out)
            return PlanResult(
                result,
                text.rstrip(),
                None if plan is None else _replace_command(plan, step),
                _read_if_written(page),
            )


def _read_if_written(path: str) -> str | None:
    """Return the text of a file; None if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _gpus(names: str, devices: int) -> list[str]:
    selected = (_native.parse_gpus(name.strip()) for name in names.split(","))
    return [f"{model}x{max(count, devices)}" for model, count in selected]


def _values(values: Iterable[int]) -> str:
    """Return values as ``--vary`` reads them."""
    if isinstance(values, range):
        if values.step != 1 or not values:
            raise InvalidArgumentError(
                f"`{values}` cannot be searched",
                hint="give a range of consecutive numbers, or a list",
            )
        return f"{values.start}..{values.stop - 1}"
    return ",".join(str(value) for value in values)


def _replace_command(plan: str, step: Callable[..., Any]) -> str:
    """Name the function in a plan, instead of the command that ran it from a temporary file."""
    name = json.dumps(f"vramfit.plan({getattr(step, '__qualname__', type(step).__qualname__)})")
    return re.sub(r"^command = .*$", lambda _: f"command = [{name}]", plan, flags=re.MULTILINE)


plan = PlanFunction()
