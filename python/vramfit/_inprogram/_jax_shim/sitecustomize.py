"""Python imports this when it starts.

It quiets CUDA where it is pretended, watches for settings that come too late, notes which error
ends the program, explains a shortage of memory, applies a plan where there is one, lets this
process stand for one of many hosts, keeps the checkpoints of a dry run apart, and loads the user's
own module of this name.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _is_here(directory: str) -> bool:
    return os.path.abspath(directory or os.curdir) == _HERE


def _load_user_sitecustomize() -> None:
    """Import the module that this one stands before on the path, if there is one."""
    import importlib.machinery
    import importlib.util

    behind = [directory for directory in sys.path if not _is_here(directory)]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _hide_driver_messages() -> None:
    import runpy

    finder = runpy.run_path(os.path.join(_HERE, "quiet_import.py"))
    sys.meta_path.insert(0, finder["QuietCudaExtensionFinder"]())


def _install(module_name: str) -> None:
    import importlib.util

    # The name under which it is found again, whatever else is installed (`NAME` in it).
    name = f"_vramfit_{module_name}"
    file = os.path.join(_HERE, f"{module_name}.py")
    spec = importlib.util.spec_from_file_location(name, file)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module.install()


def _explain_failure() -> None:
    import runpy

    runpy.run_path(os.path.join(_HERE, "explain_failure.py"))["install"]()


def _run_config() -> dict[str, Any]:
    import runpy

    config: dict[str, Any] = runpy.run_path(os.path.join(_HERE, "run_config.py"))["run_config"]()
    return config


def _call_on_import(functions: dict[str, list[str]]) -> None:
    """Call functions with the modules that they are listed under, when these are imported."""
    import runpy

    finder = runpy.run_path(os.path.join(_HERE, "module_finder.py"))["ModuleFinder"]
    sys.meta_path.insert(0, finder(functions))


_IS_DRYRUN = bool(os.environ.get("VRAMFIT_RUN_CONFIG"))
_CONFIG = _run_config() if _IS_DRYRUN else {}
_ON_IMPORT: dict[str, list[str]] = {}
if os.environ.get("VRAMFIT_PLAN") or _CONFIG.get("plan") or _CONFIG.get("plan_sites"):
    _ON_IMPORT["jax"] = ["vramfit._plan._apply.install"]
if os.environ.get("VRAMFIT_EXPLAIN"):
    _ON_IMPORT.setdefault("jax", []).append("vramfit._inprogram._array_holders.find_at_exit")
if _CONFIG.get("host"):
    _HOSTS = "vramfit._inprogram._hosts"
    _ON_IMPORT.setdefault("jax", []).append(f"{_HOSTS}.install_in_distributed")
    _ON_IMPORT["jax.experimental.multihost_utils"] = [f"{_HOSTS}.install_in_multihost_utils"]
    _ORBAX = "orbax.checkpoint._src"
    for _module, _function in {
        f"{_ORBAX}.futures.signaling_client": "install_in_signaling_client",
        f"{_ORBAX}.metadata.array_metadata_store": "install_in_array_metadata_store",
        f"{_ORBAX}.multihost.multihost": "install_in_multihost",
        f"{_ORBAX}.serialization.ocdbt_utils": "install_in_ocdbt_utils",
        f"{_ORBAX}.serialization.serialization": "install_in_serialization",
        f"{_ORBAX}.serialization.type_handlers": "install_in_type_handlers",
        f"{_ORBAX}.serialization.types": "install_in_types",
        "orbax.checkpoint.experimental.v1._src.synchronization.multihost": "install_in_multihost",
    }.items():
        _ON_IMPORT[_module] = [f"{_HOSTS}._orbax.{_function}"]
if _CONFIG.get("checkpoints"):
    for _module, _function in {
        "orbax.checkpoint": "install_in_orbax",
        "orbax.checkpoint.experimental.v1": "install_in_orbax_v1",
        "flax.training.checkpoints": "install_in_flax",
    }.items():
        _ON_IMPORT[_module] = [f"vramfit._inprogram._dryrun_checkpoints.{_function}"]
if _ON_IMPORT:
    _call_on_import(_ON_IMPORT)
if os.environ.get("VRAMFIT_EXPLAIN"):
    _explain_failure()
if _IS_DRYRUN or os.environ.get("VRAMFIT_PUBLISH"):
    _install("late_settings")
if _IS_DRYRUN:
    _install("program_end")
    _hide_driver_messages()  # on a machine with a GPU they mean something
_load_user_sitecustomize()
