"""Sums over pairs of points for many sets: all at once, and `jax.lax.map` over some at a time."""

import functools

import jax
import jax.numpy as jnp
from allocator_stats import planned, print_stats

SETS, POINTS, AXES = 256, 2048, 3


def energy(points):
    distances = jnp.sqrt(jnp.sum((points[:, None] - points[None]) ** 2, -1) + 1e-3)
    # A matrix of pairs that is needed as a whole: its rows are sorted.
    return jnp.sum(jnp.sort(distances, axis=-1)[:, : POINTS // 2])


def all_at_once(sets):
    return jax.vmap(energy)(sets)


def some_at_a_time(sets, batch_size):
    return jax.lax.map(energy, sets, batch_size=batch_size)


print_stats("before")
sets = jax.random.normal(jax.random.key(0), (SETS, POINTS, AXES))
print_stats("made")
# The smallest first: a peak stays.
for name, function in [
    *((f"by {size}", functools.partial(some_at_a_time, batch_size=size)) for size in (4, 32, 48)),
    ("all", all_at_once),
]:
    compiled = jax.jit(function).lower(sets).compile()
    planned(name, compiled)
    jax.block_until_ready(compiled(sets))
    print_stats(name)
