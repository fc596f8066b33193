"""What a request of the command line asks for, once JAX is ready."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any

from vramfit._inprogram._jax_shim.quiet_import import QuietCudaExtensionFinder, hide_driver_messages
from vramfit.errors import PackageMissingError

_MODULES = {"jax": "jax", "flax": "flax", "optax": "optax", "orbax-checkpoint": "orbax"}
"""The packages that training needs, and the module of each."""


def perform(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a request asks for, and return the outcome.

    Args:
        request: With its `action`; see the function of each for the rest.
    """
    is_training = request["action"] in ("train", "check")
    device = request["config"]["training"]["device"] if is_training else request["device"]
    if device == "cpu":
        # JAX would look for a GPU first, and report at length that there is none.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    _check_packages()
    if request["action"] == "train" and request["processes"] is not None:
        # With all messages: an error between processes may end this one at once.
        _initialize_distributed(request["processes"])
    elif device == "cpu":
        _start_jax_quietly()
    match request["action"]:
        case "train":
            from vramfit.train.cli.run import run_training

            return run_training(request)
        case "check":
            from vramfit.train.task.task import build_task

            task = build_task(request["config"], request["data"])
            parameters = {"parameters": task.parameter_count()}
            return {"outcome": "finished", "result": parameters}
        case "predict":
            from vramfit.train.cli.predict import run_prediction

            _select_device(device)
            return run_prediction(request)
        case "evaluate":
            from vramfit.train.cli.evaluate import run_evaluation

            _select_device(device)
            return run_evaluation(request)
        case _:
            from vramfit.train.cli.export import run_export

            _select_device(device)
            return run_export(request)


def _select_device(device: str | None) -> None:
    """Make the first device of a kind JAX's default."""
    import jax

    from vramfit.train.devices import select_devices

    if device is not None:
        jax.config.update("jax_default_device", select_devices(device).devices[0])


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
