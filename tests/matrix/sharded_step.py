"""A step over eight GPUs: each holds its share, and small values are right on each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MIB = 1 << 20
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
place = lambda *spec: NamedSharding(mesh, P(*spec))  # noqa: E731
in_use = lambda: [device.memory_stats()["bytes_in_use"] for device in jax.devices()]  # noqa: E731

weight = jax.jit(lambda: jnp.zeros((4096, 4096)), out_shardings=place("data", "model"))()
batch = jax.device_put(np.ones((1024, 4096), np.float32), place("data", None))
# An eighth of 64 MiB, and a quarter of 16 MiB.
assert in_use() == [8 * MIB + 4 * MIB] * 8, in_use()


def step(weight, batch):
    gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(batch @ w) ** 2))(weight)
    return weight - 0.1 * gradient


step = jax.jit(step, donate_argnums=0, out_shardings=place("data", "model"))
for _ in range(3):
    weight = step(weight, batch)
    assert in_use() == [12 * MIB] * 8, in_use()

small = jax.device_put(np.arange(16.0, dtype=np.float32).reshape(8, 2), place("data", "model"))
np.testing.assert_array_equal(small * 2 + 1, 2 * np.arange(16).reshape(8, 2) + 1)
assert float(jax.jit(jnp.sum)(small)) == 120.0
last = small.addressable_shards[-1]
assert np.asarray(last.data).ravel().tolist() == [13.0, 15.0], last
