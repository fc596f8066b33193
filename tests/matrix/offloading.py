"""Weights, activations and Adam's moments in host memory, as in JAX's tutorial on host offloading.

What lies where is counted by hand. The shapes are the tutorial's: ten layers of 256 x 1024 and
1024 x 256 in f32 over a batch of 256 x 256. So the weights are 20 MiB, the input is 0.25 MiB, and
one activation per layer 2.5 MiB. The tutorial's own figures (of a TPU, whose temporaries differ)
agree in arguments, 0.25 MB on the device, and results, 20 MB.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

MIB = 1 << 20
LAYERS, WIDTH, HIDDEN = 10, 256, 1024
# The table of pointers to several results.
POINTER = 8
INPUT = WIDTH * WIDTH * 4
WEIGHTS = 2 * LAYERS * WIDTH * HIDDEN * 4
ACTIVATIONS = LAYERS * INPUT
assert (INPUT, WEIGHTS, ACTIVATIONS) == (MIB // 4, 20 * MIB, 5 * MIB // 2)

# In 0.8.1 gradients of weights in host memory lie on the device, in 0.9.2 beside the weights.
GRADIENTS_FOLLOW = tuple(int(part) for part in jax.__version__.split(".")[:2]) >= (0, 9)

device = jax.devices()[0]
in_use = lambda: device.memory_stats()["bytes_in_use"]  # noqa: E731
mesh = Mesh(np.array([device]).reshape(1, 1), ("x", "y"))
on_device = NamedSharding(mesh, PartitionSpec("x", "y"), memory_kind="device")
on_host = on_device.with_memory_kind("pinned_host")

policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["x"],
    offload_src="device",
    offload_dst="pinned_host",
)


def layer(move, x, weights):
    w1, w2 = jax.tree.map(move, weights)
    x = checkpoint_name(x, "x")
    return (x @ w1) @ w2, None


def loss(move, weights, x):
    body = jax.remat(functools.partial(layer, move), policy=policy, prevent_cse=False)
    return jnp.sum(jax.lax.scan(body, x, weights)[0])


def stay(weight):
    return weight


def to_device(weight):
    return jax.device_put(weight, on_device)


def sizes(compiled):
    """Return the bytes of arguments, results, shared ones and temporaries: device, then host."""
    found = compiled.memory_analysis()
    names = ("argument", "output", "alias", "temp")
    return (
        tuple(getattr(found, f"{name}_size_in_bytes") for name in names),
        tuple(getattr(found, f"host_{name}_size_in_bytes") for name in names),
    )


x = jnp.ones((WIDTH, WIDTH)) * 0.001
w1 = jnp.ones((LAYERS, WIDTH, HIDDEN)) * 0.001
w2 = jnp.ones((LAYERS, HIDDEN, WIDTH)) * 0.001

# Activations alone.
step = jax.jit(jax.grad(functools.partial(loss, stay))).lower((w1, w2), x).compile()
there, here = sizes(step)
assert there[:3] == (WEIGHTS + INPUT, WEIGHTS + 2 * POINTER, 0), there
assert here == (0, 0, 0, ACTIVATIONS), here

# Weights as well: of the arguments, only the input is on the device.
before = in_use()
weights = jax.block_until_ready(jax.device_put((w1, w2), on_host))
assert in_use() == before, (in_use(), before)
step = jax.jit(jax.grad(functools.partial(loss, to_device))).lower(weights, x).compile()
there, here = sizes(step)
expected = (0, WEIGHTS) if GRADIENTS_FOLLOW else (WEIGHTS, 0)
assert there[:3] == (INPUT, expected[0] + 2 * POINTER, 0), there
assert here == (WEIGHTS, expected[1], 0, ACTIVATIONS), here
gradients = jax.block_until_ready(step(weights, x))
kind = "pinned_host" if GRADIENTS_FOLLOW else "device"
assert [one.sharding.memory_kind for one in gradients] == [kind] * 2, gradients
assert in_use() == before + expected[0], (in_use(), before)
del gradients, weights


def adam(weights, moments, x):
    gradients = jax.grad(functools.partial(loss, stay))(weights, x)
    first, second = jax.tree.map(to_device, moments)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda m, g: 0.999 * m + 0.001 * g**2, second, gradients)
    move = lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8)  # noqa: E731
    return jax.tree.map(move, weights, first, second), (first, second)


# Adam's two moments: as large as the weights, each.
weights = jax.device_put((w1, w2), on_device)
zeros = jax.tree.map(jnp.zeros_like, weights)
moments = jax.block_until_ready(jax.device_put((zeros, zeros), on_host))
del zeros
before = in_use()
step = jax.jit(adam, donate_argnums=(0, 1), out_shardings=(on_device, on_host))
step = step.lower(weights, moments, x).compile()
there, here = sizes(step)
assert there[:3] == (WEIGHTS + INPUT, WEIGHTS + 6 * POINTER, WEIGHTS), there
# The compiler of 0.12.0 keeps the activations of this program on the device.
assert here[:3] == (2 * WEIGHTS, 2 * WEIGHTS, 2 * WEIGHTS), here
for _ in range(3):
    weights, moments = jax.block_until_ready(step(weights, moments, x))
    assert in_use() == before, (in_use(), before)
kinds = {one.sharding.memory_kind for one in jax.tree.leaves(moments)}
assert kinds == {"pinned_host"}, kinds
assert {one.sharding.memory_kind for one in weights} == {"device"}
