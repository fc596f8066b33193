"""The devices of a run: selected, checked and described."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

from vramfit._functions import _devices
from vramfit._inprogram import _cpu_programs, _plugin_errors
from vramfit.errors import (
    CompilerMissingError,
    InvalidArgumentError,
    VerificationFailedError,
    VramfitWarning,
    first_line,
)
from vramfit.train.messages import rephrase

AXIS = "data"
"""The mesh axis along which batches are sharded."""

_CHOICES = ("cpu", "gpu", "cuda", "cuda?", "metal")


@dataclass(frozen=True)
class Placement:
    """The devices of a run.

    Attributes:
        devices: All of them, those of other processes included.
        mesh: The mesh that batches are sharded over; None with a single device.
        name: Description of the devices.
        is_virtual: Whether this is a virtual GPU, on which values are unknown.
        notes: Sentences for the user about the selection.
        axis: The mesh axis along which batches are sharded.
    """

    devices: tuple[Any, ...]
    mesh: Any
    name: str
    is_virtual: bool
    notes: tuple[str, ...] = ()
    axis: str = AXIS

    def batch_target(self, *, stacked: bool = False) -> Any:
        """Return the device or sharding for batches; of stacks the second axis is sharded."""
        if self.mesh is None:
            return self.devices[0]
        from jax.sharding import NamedSharding, PartitionSpec

        spec = PartitionSpec(None, self.axis) if stacked else PartitionSpec(self.axis)
        return NamedSharding(self.mesh, spec)

    def replicated_target(self) -> Any:
        """Return the device or sharding for what all devices need."""
        if self.mesh is None:
            return self.devices[0]
        from jax.sharding import NamedSharding, PartitionSpec

        return NamedSharding(self.mesh, PartitionSpec())


def select_devices(device: str | None) -> Placement:
    """Return the devices for the option `device`.

    Raises:
        InvalidArgumentError: The option has no such value.
        VerificationFailedError: The devices are not available; the message says which are.
    """
    try:
        import jax
    except ImportError as error:
        raise CompilerMissingError(
            "JAX cannot be imported", cause=str(error), hint="install it: `pip install jax`"
        ) from error
    if device is not None and device not in _CHOICES:
        choices = ", ".join(f"`{choice}`" for choice in _CHOICES)
        raise InvalidArgumentError(
            f"unknown value `device={device!r}`", hint=f"use one of {choices}, or None"
        )
    notes: list[str] = []
    default = jax.config.jax_default_device
    if device is None and default is not None and not isinstance(default, str):
        return _describe((default,), notes)
    with _plugin_errors.captured():
        if device is None:
            devices = _all_devices(default)
        elif device == "cuda?":
            devices = _gpus_or_cpu(notes)
        else:
            devices = _required_devices(device)
    if device is None and devices[0].platform == "cpu" and _plugin_errors.is_surprising():
        notes.append(f"JAX's CUDA plugin could not be used: {_plugin_errors.cause()}")
    if device == "metal":
        notes.append("Metal is experimental in JAX: results may be silently wrong")
        warnings.warn(notes[-1], VramfitWarning, stacklevel=4)
    if devices[0].platform == "cpu" and device is not None:
        _cpu_programs.selected_by = f'device = "{device}"'
    return _describe(tuple(devices), notes)


def _all_devices(platform: str | None) -> list[Any]:
    import jax

    try:
        return list(jax.devices(platform))
    except RuntimeError as error:
        raise VerificationFailedError(
            "JAX has no devices",
            cause=first_line(error),
            hint="run `vramfit doctor`; `JAX_PLATFORMS` may name a platform that is not available",
        ) from error


def _gpus_or_cpu(notes: list[str]) -> list[Any]:
    import jax

    try:
        return list(jax.devices("gpu"))
    except RuntimeError as error:
        cause = _plugin_errors.cause() or first_line(error)
        notes.append(f"no GPU is available, using the CPU instead: {cause}")
        return list(jax.devices("cpu"))


def _required_devices(device: str) -> list[Any]:
    import jax

    try:
        return list(jax.devices({"cuda": "gpu", "metal": "METAL"}.get(device, device)))
    except RuntimeError as error:
        found = ", ".join(sorted({other.platform for other in _all_devices(None)}))
        raise VerificationFailedError(
            rephrase(program=f"`device={device!r}`", command=f'`training.device = "{device}"`')
            + f" is required, but JAX has only: {found}",
            cause=(device != "metal" and _plugin_errors.cause()) or first_line(error),
            hint="Metal needs the package `jax-metal` on a Mac with Apple silicon"
            if device == "metal"
            else "run `vramfit doctor` to find out why",
        ) from error


def _describe(devices: tuple[Any, ...], notes: list[str]) -> Placement:
    import numpy as np
    from jax.sharding import Mesh

    first = devices[0]
    mesh = Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None
    is_virtual = first.platform == "gpu" and _devices.is_virtual()
    kind = first.device_kind if first.device_kind != first.platform else first.platform.upper()
    name = f"{len(devices)} × {kind}" if len(devices) > 1 else f"{kind} ({first})"
    if is_virtual:
        name += ", virtual: values are unknown"
    return Placement(devices, mesh, name, is_virtual, tuple(notes))


def batch_sharding(device: str | None = None, *, stacked: bool = False) -> Any:
    """Return the sharding of batches over the devices, for ``Loader(sharding=...)``.

    Runs of several processes need it, so that each process reads its own rows. None with a single
    device.

    Args:
        device: As the option of :func:`vramfit.train.fit`.
        stacked: Whether the loader has a `stacked_batches`.
    """
    placement = select_devices(device)
    return None if placement.mesh is None else placement.batch_target(stacked=stacked)


def adopt_sharding(placement: Placement, state: Any, data: Any) -> Placement:
    """Return the placement that matches what the user has sharded: the loader, or the state."""
    import jax
    from jax.sharding import NamedSharding

    from vramfit.data import Loader, Mixture
    from vramfit.data.device import DeviceBatches

    loader = data.loader if isinstance(data, DeviceBatches) else data
    sharding = loader.sharding if isinstance(loader, Loader | Mixture) else None
    if isinstance(sharding, NamedSharding):
        return replace(placement, mesh=sharding.mesh, devices=tuple(sharding.mesh.devices.flat))
    for leaf in jax.tree.leaves(state):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and len(sharding.device_set) > 1:
            mesh = sharding.mesh
            axis = next((name for name in (AXIS, "batch") if name in mesh.axis_names), None)
            return replace(
                placement,
                mesh=mesh,
                devices=tuple(mesh.devices.flat),
                axis=axis or str(mesh.axis_names[0]),
            )
    return placement


def place_state(state: Any, placement: Placement) -> Any:
    """Return the state as arrays on the devices: replicated, unless the user has sharded it.

    Arrays that are there already are not copied, so they are donated with the state.
    """
    import jax
    import jax.numpy as jnp

    target = placement.replicated_target()

    def put(path: Any, leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            is_sharded = len(leaf.sharding.device_set) > 1
            return leaf if is_sharded else _put_array(leaf, target)
        try:
            # Copied: the memory of a numpy array must not be donated.
            return jax.device_put(jnp.array(leaf), target)
        except TypeError as error:
            raise InvalidArgumentError(
                f"`state{jax.tree_util.keystr(path)}` is a {type(leaf).__name__}, not an array",
                hint="keep other objects out of the state: `eqx.partition(model, eqx.is_array)`"
                " with equinox, `nnx.split(model)` with flax",
            ) from error

    return jax.tree_util.tree_map_with_path(put, state)


def _put_array(leaf: Any, target: Any) -> Any:
    import jax

    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    if not is_key or getattr(target, "is_fully_addressable", True):
        return jax.device_put(leaf, target)
    # JAX puts keys of random numbers on the devices of other processes as numbers only.
    data = jax.device_put(jax.random.key_data(leaf), target)
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))


def result_shardings(state: Any, placement: Placement) -> Any:
    """Return the shardings of the results of a step: those of the state, and replicated metrics.

    None with a single device, where none are needed.
    """
    if placement.mesh is None:
        return None
    import jax

    return jax.tree.map(lambda leaf: leaf.sharding, state), placement.replicated_target()
