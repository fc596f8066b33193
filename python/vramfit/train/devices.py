"""Where a run computes: chosen, verified and named."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

from vramfit import _devices, _plugin_errors
from vramfit._errors import (
    CompilerMissingError,
    InvalidArgumentError,
    VerificationFailedError,
    VramfitWarning,
    first_line,
)
from vramfit.train.wording import worded

AXIS = "data"
"""The axis of the mesh along which batches are divided."""

_CHOICES = ("cpu", "gpu", "cuda", "cuda?", "metal")


@dataclass(frozen=True)
class Place:
    """The devices of a run.

    Attributes:
        devices: All of them, those of other processes included.
        mesh: The mesh that batches are divided over; None with a single device.
        axis: The axis of it along which they are.
        name: The devices in words.
        virtual: Whether the values that are computed are not known.
        notes: What has to be told about the choice.
    """

    devices: tuple[Any, ...]
    mesh: Any
    name: str
    virtual: bool
    notes: tuple[str, ...] = ()
    axis: str = AXIS

    def batches(self, *, stacked: bool = False) -> Any:
        """Return where a batch goes; the second axis of a stack is the one that is divided."""
        return self.devices[0] if self.mesh is None else _over(self.mesh, self.axis, stacked)

    def replicated(self) -> Any:
        """Return where what all devices need goes."""
        if self.mesh is None:
            return self.devices[0]
        from jax.sharding import NamedSharding, PartitionSpec

        return NamedSharding(self.mesh, PartitionSpec())


def choose(wish: str | None) -> Place:
    """Return the devices that a wish means.

    Raises:
        InvalidArgumentError: There is no such wish.
        VerificationFailedError: The devices are not there; the message says which are.
    """
    try:
        import jax
    except ImportError as error:
        raise CompilerMissingError(
            "JAX cannot be imported", cause=str(error), hint="install it: `pip install jax`"
        ) from error
    if wish is not None and wish not in _CHOICES:
        words = ", ".join(f"`{word}`" for word in _CHOICES)
        raise InvalidArgumentError(
            f"`device={wish!r}` is not known", hint=f"say one of {words}, or nothing"
        )
    notes: list[str] = []
    default = jax.config.jax_default_device
    if wish is None and default is not None and not isinstance(default, str):
        return _place((default,), notes)
    with _plugin_errors.captured():
        if wish is None:
            devices = _all(default)
        elif wish == "cuda?":
            devices = _preferred_gpus(notes)
        else:
            devices = _required(wish)
    if wish is None and devices[0].platform == "cpu" and _plugin_errors.is_surprising():
        notes.append(f"JAX's CUDA plugin could not be used: {_plugin_errors.cause()}")
    if wish == "metal":
        notes.append("Metal is experimental in JAX: results may be wrong without a message")
        warnings.warn(notes[-1], VramfitWarning, stacklevel=4)
    return _place(tuple(devices), notes)


def _all(platform: str | None) -> list[Any]:
    import jax

    try:
        return list(jax.devices(platform))
    except RuntimeError as error:
        raise VerificationFailedError(
            "JAX has no device to compute on",
            cause=first_line(error),
            hint="`vramfit doctor` finds out why; `JAX_PLATFORMS` may ask for what is not there",
        ) from error


def _preferred_gpus(notes: list[str]) -> list[Any]:
    import jax

    try:
        return list(jax.devices("gpu"))
    except RuntimeError as error:
        cause = _plugin_errors.cause() or first_line(error)
        notes.append(f"no GPU is available, so it runs on the CPU: {cause}")
        return list(jax.devices("cpu"))


def _required(wish: str) -> list[Any]:
    import jax

    try:
        return list(jax.devices({"cuda": "gpu", "metal": "METAL"}.get(wish, wish)))
    except RuntimeError as error:
        found = ", ".join(sorted({device.platform for device in _all(None)}))
        raise VerificationFailedError(
            worded(program=f"`device={wish!r}`", command=f'`training.device = "{wish}"`')
            + f" was asked for, and JAX has only: {found}",
            cause=(wish != "metal" and _plugin_errors.cause()) or first_line(error),
            hint="Metal needs the package `jax-metal` on a Mac with Apple silicon"
            if wish == "metal"
            else "`vramfit doctor` finds out why",
        ) from error


def _place(devices: tuple[Any, ...], notes: list[str]) -> Place:
    import numpy as np
    from jax.sharding import Mesh

    first = devices[0]
    mesh = Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None
    virtual = first.platform == "gpu" and _devices.is_virtual()
    kind = first.device_kind if first.device_kind != first.platform else first.platform.upper()
    name = f"{len(devices)} × {kind}" if len(devices) > 1 else f"{kind} ({first})"
    if virtual:
        name += ", virtual: values are not known"
    return Place(devices, mesh, name, virtual, tuple(notes))


def batch_sharding(device: str | None = None, *, stacked: bool = False) -> Any:
    """Return how batches are divided over the devices, for ``Loader(sharding=...)``.

    Programs of several processes need it, so that each reads its share. None with one device.

    Args:
        device: As the argument of :func:`vramfit.train.fit`.
        stacked: Whether the loader has a `super_batch`.
    """
    place = choose(device)
    return None if place.mesh is None else place.batches(stacked=stacked)


def _over(mesh: Any, axis: str, stacked: bool) -> Any:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(mesh, PartitionSpec(None, axis) if stacked else PartitionSpec(axis))


def agree(place: Place, state: Any, data: Any) -> Place:
    """Return the place that fits what the program has divided by itself: its loader, its state."""
    import jax
    from jax.sharding import NamedSharding

    from vramfit.data.device import DeviceBatches
    from vramfit.data.loader import Loader

    loader = data.loader if isinstance(data, DeviceBatches) else data
    sharding = loader.sharding if isinstance(loader, Loader) else None
    if isinstance(sharding, NamedSharding):
        return replace(place, mesh=sharding.mesh, devices=tuple(sharding.mesh.devices.flat))
    for leaf in jax.tree.leaves(state):
        where = getattr(leaf, "sharding", None)
        if isinstance(where, NamedSharding) and len(where.device_set) > 1:
            mesh = where.mesh
            axis = next((name for name in (AXIS, "batch") if name in mesh.axis_names), None)
            return replace(
                place,
                mesh=mesh,
                devices=tuple(mesh.devices.flat),
                axis=axis or str(mesh.axis_names[0]),
            )
    return place


def place_state(state: Any, place: Place) -> Any:
    """Return the state as arrays on the devices: replicated, unless the user has divided it.

    Arrays that are there already are not copied, and what fit does with them happens to them.
    """
    import jax
    import jax.numpy as jnp

    target = place.replicated()

    def put(path: Any, leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            divided = len(leaf.sharding.device_set) > 1
            return leaf if divided else jax.device_put(leaf, target)
        try:
            # Copied: memory of numpy must not be donated.
            return jax.device_put(jnp.array(leaf), target)
        except TypeError as error:
            raise InvalidArgumentError(
                f"`state{jax.tree_util.keystr(path)}` is a {type(leaf).__name__}, and no array",
                hint="keep what is no array out of the state: `eqx.partition(model, eqx.is_array)`"
                " with equinox, `nnx.split(model)` with flax",
            ) from error

    return jax.tree_util.tree_map_with_path(put, state)


def results(state: Any, place: Place) -> Any:
    """Return where the results of a step go: the state stays, metrics are on all devices.

    None with one device, where nothing needs to be said.
    """
    if place.mesh is None:
        return None
    import jax

    return jax.tree.map(lambda leaf: leaf.sharding, state), place.replicated()
