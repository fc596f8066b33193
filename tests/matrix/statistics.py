"""`memory_stats` has the keys and the units of the GPU's allocator."""

import jax
import jax.numpy as jnp
import numpy as np

KEYS = """
num_allocs bytes_in_use peak_bytes_in_use largest_alloc_size bytes_limit bytes_reserved
peak_bytes_reserved largest_free_block_bytes pool_bytes peak_pool_bytes
"""

device = jax.devices()[0]
assert list(device.memory_stats()) == KEYS.split(), device.memory_stats()
x = jax.device_put(jnp.zeros(1000, jnp.uint8), device)
del x
before = device.memory_stats()
kept = jax.device_put(np.zeros(1000, np.uint8), device)
after = device.memory_stats()
# Blocks are multiples of 256 bytes.
assert after["bytes_in_use"] - before["bytes_in_use"] == 1024, (before, after)
assert after["pool_bytes"] == after["bytes_limit"], after
assert after["num_allocs"] == before["num_allocs"] + 1, (before, after)
