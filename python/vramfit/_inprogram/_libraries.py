"""Versions of the installed libraries that a program uses JAX through, or that use its GPU, too."""

from __future__ import annotations

import importlib.metadata
import sys

from vramfit._inprogram._frames import is_library

# What `import jax`, `import jax.numpy as jnp` and `from jax import lax` bind.
_BOUND = ("jax", "jnp", "lax")
# These are told as JAX and its compiler, not as libraries.
_TOOLCHAIN = ("jax", "jaxlib", "jax_plugins", "jax_cuda12_plugin", "jax_cuda13_plugin", "vramfit")
# Packages that allocate GPU memory of their own once they are used for that.
_GPU_LIBRARIES = ("torch", "tensorflow", "cupy", "warp", "rmm", "cudf", "pycuda", "paddle")


def library_versions() -> dict[str, str]:
    """Return the versions of imported packages that use JAX, by the names that import them.

    A package counts if one of its modules has imported JAX; one of the user's own, which is not
    installed, does not.
    """
    users: dict[str, list[str]] = {}
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        file = getattr(module, "__file__", None) or ""
        if package in _TOOLCHAIN or not is_library(file):
            continue
        bound = vars(module)
        if package in users or any(_is_jax(bound.get(one)) for one in _BOUND):
            users.setdefault(package, []).append(name)
    versions = {package: _version(package, names) for package, names in users.items()}
    return {package: version for package, version in versions.items() if version}


def gpu_library_versions() -> dict[str, str]:
    """Return the versions of imported packages that allocate GPU memory beside JAX, by their names.

    Builds that cannot use a GPU do not count, nor do modules of the user's own that are called so.
    """
    found = {}
    for name in _GPU_LIBRARIES:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None) or ""
        if is_library(file) and not _is_cpu_build(name, module):
            found[name] = _version(name, [name]) or "(unknown version)"
    return found


def _is_cpu_build(name: str, module: object) -> bool:
    if name == "torch":
        # ROCm builds have `hip` instead.
        version = getattr(module, "version", None)
        return not (getattr(version, "cuda", None) or getattr(version, "hip", None))
    if name == "tensorflow":
        try:
            return not module.sysconfig.get_build_info()["is_cuda_build"]  # type: ignore[attr-defined]
        except Exception:  # an older release, or one without this
            return False
    return False


def _is_jax(value: object) -> bool:
    return isinstance(value, type(sys)) and value.__name__.partition(".")[0] == "jax"


def _version(package: str, modules: list[str]) -> str:
    """Return the version of a package; empty if it does not tell."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pass  # The distribution has another name.
    # A namespace such as `orbax` has no version of its own.
    for name in sorted(modules, key=len):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            return version
    return ""
