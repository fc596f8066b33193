"""A function that captures an array of so many MiB, reads it when traced, or takes it."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

data = jnp.asarray(np.random.default_rng(0).random(int(sys.argv[1]) << 18, np.float32))
if sys.argv[2] == "captured":
    print(jax.jit(lambda x: (data * x).sum())(2.0).shape)
elif sys.argv[2] == "read":
    print(jax.jit(lambda x: (np.asarray(data) * x).sum())(2.0).shape)
else:
    print(jax.jit(lambda data, x: (data * x).sum())(data, 2.0).shape)
