"""Running out of memory can be caught, and the program goes on with what it had."""

import jax
import jax.numpy as jnp

GIB = 1 << 30
device = jax.devices()[0]
kept = jnp.zeros((1 << 28,))  # 1 GiB
limit = device.memory_stats()["bytes_limit"]
fill = jax.jit(lambda: jnp.zeros((limit // 4,)))
message = ""
try:
    # A GPU executes later than it is asked to.
    jax.block_until_ready(fill())
except RuntimeError as error:
    message = str(error)
assert message.startswith("RESOURCE_EXHAUSTED: Out of memory"), message or "it was given out"
assert device.memory_stats()["bytes_in_use"] == GIB
half = jax.jit(lambda x: x[: 1 << 27] + 1)(kept)
assert device.memory_stats()["bytes_in_use"] == GIB + GIB // 2
