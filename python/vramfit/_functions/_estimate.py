"""`vramfit.estimate`: the GPU memory and time of one call of a function, in any session."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

from vramfit import _native
from vramfit._functions import _step_file
from vramfit._functions._command import python_command, run_vramfit
from vramfit.errors import VramfitWarning
from vramfit.report import DryrunReport

# Reports of this session by everything that they depend on.
_reports: dict[tuple[Any, ...], DryrunReport] = {}


def estimate(
    step: Callable[..., Any],
    *args: Any,
    gpu: str,
    fraction: float | None = None,
    limit: str | None = None,
    **kwargs: Any,
) -> DryrunReport:
    """Estimate the GPU memory and time of one call of a function, on a machine without a GPU.

    The function is compiled by XLA's GPU compiler and run on a virtual GPU in another process, in
    which nothing is computed. The backends of this process are neither used nor initialized. The
    pool of the virtual GPU grants more than the GPU has, so that the peak is known also where it
    does not fit.

    Args:
        step: The function, such as a training step. A function of `jax.jit` is called as it is,
            with its donated arguments and shardings; any other one is compiled as a whole.
        *args: Its arguments: pytrees of arrays or of `jax.ShapeDtypeStruct`. Shardings may be over
            a `jax.sharding.AbstractMesh`. Of arrays above 64 KiB only shape and type count.
        gpu: GPU model, such as ``"h100-80g"`` or ``"h100-80gx8"``; see ``vramfit gpus``. Without a
            number there are as many GPUs as the arguments are sharded over.
        fraction: Fraction of GPU memory that JAX's pool may use; 0.75 unless the environment says
            otherwise.
        limit: Bytes that JAX's pool may use instead, such as ``"20GiB"``.
        **kwargs: Keyword arguments of the function.

    Returns:
        The report: ``fits``, ``peak_bytes``, ``limit_bytes``, ``spare_bytes``, ``attribution`` by
        owner, pytree path and line, and ``step_time``. A notebook displays it as a page. The same
        call in the same session returns the same report at once.

    Raises:
        UnknownGpuError: If there is no such GPU model.
        InvalidArgumentError: If the function cannot be handed to another process.
        PackageMissingError: If cloudpickle is not installed.
        VramfitError: If JAX's CUDA compiler is not installed, or fails.
        Exception: What the function raises while it is traced.

    Example:
        >>> import jax, vramfit
        >>> x = jax.ShapeDtypeStruct((8192, 8192), "float32")
        >>> report = vramfit.estimate(lambda x: x @ x, x, gpu="t4")  # doctest: +SKIP
        >>> report.fits, report.peak_bytes  # doctest: +SKIP
        (True, 541065216)
    """
    model, count = _native.parse_gpus(gpu)
    count = max(count, _step_file.device_count((args, kwargs)))
    with tempfile.TemporaryDirectory(prefix="vramfit-") as folder:
        path = os.path.join(folder, "step.pickle")
        content = _step_file.write_step(path, step, args, kwargs)
        key = (content, model, count, fraction, limit, source_times())
        if key not in _reports:
            trace = os.path.join(folder, "run.trace")
            options = ["--gpu", f"{model}x{count}", "--trace", trace, "--unlimited"]
            options += _pool(fraction, limit)
            command = [*python_command("vramfit._functions._run_step"), path]
            run_step(["dryrun", *options, "--", *command], path)
            _reports[key] = DryrunReport(_native.read_estimate(trace, model, limit))
        return _reports[key]


def run_step(arguments: list[str], path: str) -> str:
    """Run a command that calls the function of a file, and return its standard output.

    Raises:
        VramfitError: If vramfit ended with an error of its own.
        Exception: What the function raised.
    """
    error_path = f"{path}.error"
    try:
        done = run_vramfit(arguments)
    finally:
        if os.path.exists(error_path):
            with open(error_path, "rb") as file:
                error, text = pickle.load(file)
            error.add_note(f"The same in the process that ran the function:\n{text}")
            raise error from None
    for line in done.stderr.splitlines():
        if line.startswith("vramfit: "):
            warnings.warn(line.removeprefix("vramfit: "), VramfitWarning, stacklevel=3)
    return str(done.stdout)


def source_times() -> tuple[tuple[str, float], ...]:
    """Return when each imported file outside of installed packages was changed last."""
    from vramfit._inprogram._frames import is_library

    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    own = sorted(file for file in files if file and not is_library(file))
    return tuple((file, os.path.getmtime(file)) for file in own if os.path.exists(file))


def _pool(fraction: float | None, limit: str | None) -> list[str]:
    options = [("--fraction", fraction), ("--limit", limit)]
    return [text for name, value in options if value is not None for text in (name, str(value))]
