"""Loops, rematerialization and linear algebra compile, and need what XLA plans."""

import functools

import jax
import jax.numpy as jnp

MIB = 1 << 20
device = jax.devices()[0]
in_use = lambda: device.memory_stats()["bytes_in_use"]  # noqa: E731


def network(weights, x, remat):
    def layer(x, weight):
        return jnp.tanh(x @ weight), None

    layer = jax.checkpoint(layer) if remat else layer
    x, _ = jax.lax.scan(layer, x, weights)
    return jnp.mean(x**2)


weights = jnp.zeros((12, 512, 512))
x = jnp.zeros((2048, 512))
before = in_use()
assert before == 12 * MIB + 4 * MIB
planned = {}
for remat in (False, True):
    step = jax.jit(jax.grad(functools.partial(network, remat=remat)))
    compiled = step.lower(weights, x).compile()
    planned[remat] = compiled.memory_analysis().temp_size_in_bytes
    gradients = compiled(weights, x)
    assert in_use() == before + 12 * MIB, in_use()
    peak = device.memory_stats()["peak_bytes_in_use"]
    assert peak >= before + 12 * MIB + planned[remat] // 256 * 256, (peak, planned)
    del gradients
# Without it each layer keeps its activations: 4 MiB, twelve times.
assert planned[False] >= 12 * 4 * MIB > 0, planned
assert planned[True] <= planned[False], planned

for function in (jnp.linalg.inv, jnp.linalg.qr, jnp.linalg.svd, jnp.linalg.eigh):
    jax.block_until_ready(jax.jit(function)(jnp.eye(16)))
