"""A fingerprint of each array of a state, computed where the arrays are.

Orbax notices a checkpoint that is cut short, and not one in which a bit has changed: its data has
no checksums. So each array has a sum of its own in the checkpoint, and is summed again when it is
restored. Sums of whole numbers do not depend on their order, nor on how an array is divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any


def prints(leaves: Sequence[Any]) -> Any:
    """Return an array with 32 bits for each of some arrays; nothing is waited for."""
    return _program()(list(leaves))


@cache
def _program() -> Any:
    import jax
    import jax.numpy as jnp

    # One more, because a state may have no arrays, and orbax stores no empty ones.
    return jax.jit(lambda leaves: jnp.stack([jnp.uint32(0), *map(_print, leaves)]))


def _print(leaf: Any) -> Any:
    import jax
    import jax.numpy as jnp

    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.iscomplexobj(leaf):
        return _print(leaf.real) + jnp.uint32(31) * _print(leaf.imag)
    bits = _bits(leaf)
    # Each place counts by a number of its own, so that exchanged values are noticed, too.
    place = jnp.zeros(bits.shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(bits.ndim)):
        along = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        place = place + along * jnp.uint32(stride % (1 << 32))
        stride *= bits.shape[axis]
    return jnp.sum(bits * (place * jnp.uint32(0x9E3779B2) + jnp.uint32(1)), dtype=jnp.uint32)


def _bits(leaf: Any) -> Any:
    """Return an array's bits as whole numbers of 32."""
    import jax
    import jax.numpy as jnp

    if leaf.dtype == jnp.bool_:
        return leaf.astype(jnp.uint32)
    if jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.dtype.itemsize < 4:
        return leaf.astype(jnp.int32).astype(jnp.uint32)
    width = jnp.finfo(leaf.dtype).bits if jnp.issubdtype(leaf.dtype, jnp.floating) else None
    width = width or leaf.dtype.itemsize * 8
    if width < 8:  # numbers of 4 bits: all of them are whole numbers of float32
        return jax.lax.bitcast_convert_type(leaf.astype(jnp.float32), jnp.uint32)
    bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{width}"))
    if width == 64:
        bits = bits ^ (bits >> 32) * jnp.uint64(0x9E3779B1)
    return bits.astype(jnp.uint32)
