"""A checksum of each array of a state, computed on the device where the array is.

Orbax notices a truncated checkpoint, but not one in which a bit has flipped: its data has no
checksums. So each array has one in the checkpoint, which is computed again when it is restored.
Sums of integers do not depend on their order, nor on how an array is sharded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any


def checksums(leaves: Sequence[Any]) -> Any:
    """Return an array with 32 bits for each of the arrays; does not wait for the device."""
    return _program()(list(leaves))


@cache
def _program() -> Any:
    import jax
    import jax.numpy as jnp

    # One more, because a state may have no arrays, and orbax stores no empty ones.
    return jax.jit(lambda leaves: jnp.stack([jnp.uint32(0), *map(_checksum, leaves)]))


def _checksum(leaf: Any) -> Any:
    import jax
    import jax.numpy as jnp

    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.iscomplexobj(leaf):
        return _checksum(leaf.real) + jnp.uint32(31) * _checksum(leaf.imag)
    bits = _as_uint32(leaf)
    # Each element has a weight of its own, so that swapped elements are noticed, too.
    index = jnp.zeros(bits.shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(bits.ndim)):
        along = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        index = index + along * jnp.uint32(stride % (1 << 32))
        stride *= bits.shape[axis]
    return jnp.sum(bits * (index * jnp.uint32(0x9E3779B2) + jnp.uint32(1)), dtype=jnp.uint32)


def _as_uint32(leaf: Any) -> Any:
    """Return the bits of each element as an integer of 32 bits."""
    import jax
    import jax.numpy as jnp

    if leaf.dtype == jnp.bool_:
        return leaf.astype(jnp.uint32)
    if jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.dtype.itemsize < 4:
        return leaf.astype(jnp.int32).astype(jnp.uint32)
    width = jnp.finfo(leaf.dtype).bits if jnp.issubdtype(leaf.dtype, jnp.floating) else None
    width = width or leaf.dtype.itemsize * 8
    if width < 8:  # numbers of 4 bits: float32 represents all of them exactly
        return jax.lax.bitcast_convert_type(leaf.astype(jnp.float32), jnp.uint32)
    bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{width}"))
    if width == 64:
        bits = bits ^ (bits >> 32) * jnp.uint64(0x9E3779B1)
    return bits.astype(jnp.uint32)
