"""Every output of a program stays in memory, however the compiler packs the program's kernels."""

import jax
import jax.numpy as jnp

MIB = 1 << 20
device = jax.devices()[0]
in_use = lambda: device.memory_stats()["bytes_in_use"]  # noqa: E731


def program(weights, x):
    def loss(weights):
        hidden = jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1])
        return jnp.mean(hidden**2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return gradients, value, jnp.argsort(x, axis=0), x


weights = [jnp.zeros((1024, 1024)), jnp.ones((1024, 1024))]
x = jnp.ones((256, 1024))
compiled = jax.jit(program).lower(weights, x).compile()
before = in_use()
outputs = compiled(weights, x)
# Two gradients, the order, a copy of the batch, and a scalar in a block of its own.
assert in_use() - before == 2 * 4 * MIB + MIB + MIB + 256, in_use() - before
del outputs
assert in_use() == before, (in_use(), before)


def loop(x):
    def body(carry, _):
        carry = jnp.sin(carry @ x)
        return carry, carry

    return jax.lax.scan(body, x, None, length=7)


x = jnp.zeros((512, 512))
before = in_use()
outputs = jax.jit(loop)(x)
assert in_use() - before == (1 + 7) * MIB, in_use() - before
