"""Random numbers, counters and sizes that depend on values are those of the CPU."""

import jax
import jax.numpy as jnp
import numpy as np

cpu = jax.devices("cpu")[0]

drawn = jax.random.normal(jax.random.key(42), (5,))
with jax.default_device(cpu):
    expected = jax.random.normal(jax.random.key(42), (5,))
np.testing.assert_allclose(drawn, expected, rtol=1e-6)

flags = jnp.array([3, 0, 5, 0, 7])
assert jnp.nonzero(flags)[0].tolist() == [0, 2, 4]
assert jnp.unique(jnp.array([3, 1, 3, 2])).tolist() == [1, 2, 3]
assert flags[flags > 3].shape == (2,)

grid = jnp.arange(6).reshape(2, 3)
assert jnp.cumsum(grid, axis=1).tolist() == [[0, 1, 3], [3, 7, 12]]
assert jax.lax.cumsum(jnp.arange(4), reverse=True).tolist() == [6, 6, 5, 3]

step = jnp.zeros((), jnp.int32)
advance = jax.jit(lambda step: step + 1, donate_argnums=0)
for _ in range(200):
    step = advance(step)
assert int(step) == 200

total = jax.lax.fori_loop(0, 10, lambda i, total: total + i, 0)
assert int(total) == 45

doubled = jax.pure_callback(
    lambda x: np.asarray(x) * 2,
    jax.ShapeDtypeStruct((3,), np.float32),
    jnp.arange(3, dtype=jnp.float32),
)
assert doubled.tolist() == [0.0, 2.0, 4.0]
