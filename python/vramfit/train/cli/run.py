"""Running a request of ``vramfit train``: from a configuration to the outcome of `fit`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vramfit._inprogram._jax_shim.quiet_import import QuietCudaExtensionFinder, hide_driver_messages
from vramfit.errors import PackageMissingError
from vramfit.train.options import Checkpoints, FitOptions, Resume
from vramfit.train.output import tensorboard
from vramfit.train.result import Result

_RESUME: dict[str, Resume] = {"auto": "auto", "require": True, "never": False}
_MODULES = {"jax": "jax", "flax": "flax", "optax": "optax", "orbax-checkpoint": "orbax"}
"""The packages that training needs, and the module of each."""


def run_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train, and return the outcome."""
    config, data = request["config"], request["data"]
    device = config["training"]["device"]
    if device == "cpu":
        # JAX would look for a GPU first, and report at length that there is none.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    _check_packages()
    if config["training"]["tensorboard"]:
        tensorboard.ensure_installed()
    if request["processes"] is not None:
        # With all messages: an error between processes may end this one at once.
        _initialize_distributed(request["processes"])
    elif device == "cpu":
        _start_jax_quietly()
    import jax

    from vramfit.train.cli.loaders import open_loaders
    from vramfit.train.cli.synthetic import synthetic_batches
    from vramfit.train.cli.task import build
    from vramfit.train.fit import fit

    task = build(config, data)
    dry_run = request["dry_run"]
    if request["progress"] != "none" and jax.process_index() == 0:
        count = f"{task.parameter_count:,}".replace(",", " ")
        with contextlib.suppress(OSError):  # the terminal may have been closed
            print(f"parameters   {count}", file=sys.stderr, flush=True)
    train, validation = (synthetic_batches if dry_run else open_loaders)(config, data)
    result = fit(
        task.step,
        task.init(),
        train,
        _fit_options(request),
        eval_step=None if validation is None else task.evaluate,
        eval_data=validation,
    )
    return {
        "outcome": result.stop_reason,
        "signal": result.signal,
        "step": result.steps,
        "save_error": result.save_error,
        "nan": None if result.nan is None else asdict(result.nan),
        "result": _result_json(result),
    }


def _fit_options(request: Mapping[str, Any]) -> FitOptions:
    training, dry_run = request["config"]["training"], request["dry_run"]
    return FitOptions(
        epochs=1 if dry_run else training["epochs"],
        directory=None if dry_run else training["directory"],
        checkpoints=None if dry_run else Checkpoints(**request["config"]["checkpoint"]),
        resume=_RESUME[request["resume"]],
        config=request["checkpoint_config"],
        force_resume=request["force_resume"],
        steps_per_dispatch=training["steps_per_dispatch"],
        log_every=training["log_every"],
        stop_after=training["stop_after"],
        stop_on_nan=training["stop_on_nan"],
        device=training["device"],
        tensorboard=training["tensorboard"] and not dry_run,
        progress=request["progress"],
    )


def _start_jax_quietly() -> None:
    """Start JAX on the CPU, without messages of CUDA's libraries, where these are installed."""
    sys.meta_path.insert(0, QuietCudaExtensionFinder())
    import jax

    with hide_driver_messages():
        jax.devices()


def _initialize_distributed(processes: Mapping[str, Any]) -> None:
    import jax

    coordinator = processes["coordinator"]
    if coordinator is None:
        jax.distributed.initialize()  # the launcher has told JAX, too
    else:
        jax.distributed.initialize(coordinator, processes["count"], processes["index"])


def _check_packages() -> None:
    missing = [
        package for package, module in _MODULES.items() if importlib.util.find_spec(module) is None
    ]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise PackageMissingError(
            f"`{sys.executable}` has no {names}, needed for training",
            hint=f"install what training needs: `{sys.executable} -m pip install 'vramfit[train]'`",
        )


def _result_json(result: Result) -> dict[str, Any]:
    """Return a result as JSON has it, without the state."""
    names = (
        "stop_reason",
        "steps",
        "device",
        "peak_host_bytes",
        "peak_device_bytes",
        "peak_device_unknown",
        "resumed_at",
        "save_error",
    )
    return {
        **{name: getattr(result, name) for name in names},
        "elapsed_s": result.elapsed,
        "timing_s": asdict(result.timing),
        "best": None if result.best is None else asdict(result.best),
        "epochs": [asdict(epoch) for epoch in result.epochs],
        "notes": list(result.notes),
        "nan": None if result.nan is None else asdict(result.nan),
    }
