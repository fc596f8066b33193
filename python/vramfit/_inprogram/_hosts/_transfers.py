"""`jax.device_put` from the devices of some hosts to those of others, which a dry run refuses."""

from __future__ import annotations

from types import ModuleType
from typing import Any

_REASON = (
    "vramfit: a dry run cannot transfer arrays between hosts with `jax.device_put` (from hosts"
    " {source} to hosts {target}); move them inside of `jax.jit` or `jax.shard_map`, on a mesh with"
    " the devices of both"
)


def install(dispatch: ModuleType) -> None:
    """Refuse transfers between hosts with a reason, before JAX asks for sockets.

    Args:
        dispatch: The module `jax._src.dispatch`, which refuses by itself in older releases.
    """
    is_transfer = getattr(dispatch, "_is_supported_cross_host_transfer", None)
    if is_transfer is None:
        return

    def refuse_transfer(ndim: int, source: Any, target: Any) -> bool:
        try:
            if not is_transfer(ndim, source, target):
                return False
        except ValueError:  # without sockets
            pass
        source, target = (
            sorted({device.process_index for device in sharding.device_set})
            for sharding in (source, target)
        )
        raise ValueError(_REASON.format(source=source, target=target))

    dispatch._is_supported_cross_host_transfer = refuse_transfer  # type: ignore[attr-defined]
