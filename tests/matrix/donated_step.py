"""A training step that donates its state holds the same bytes after each call."""

import jax
import jax.numpy as jnp

MIB = 1 << 20
WIDTH, BATCH, LAYERS = 1024, 256, 3

device = jax.devices()[0]
in_use = lambda: device.memory_stats()["bytes_in_use"]  # noqa: E731


def loss(parameters, x):
    for weight in parameters:
        x = jnp.tanh(x @ weight)
    return jnp.mean(x**2)


@jax.jit
def make():
    keys = jax.random.split(jax.random.key(0), LAYERS)
    return [jax.random.normal(key, (WIDTH, WIDTH)) for key in keys]


def step(parameters, momentum, x):
    gradients = jax.grad(loss)(parameters, x)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, parameters, momentum), momentum


parameters = make()
momentum = jax.tree.map(jnp.zeros_like, parameters)
x = jnp.ones((BATCH, WIDTH))
# f32: each weight and each momentum 4 MiB, the batch 1 MiB.
expected = 2 * LAYERS * 4 * MIB + 1 * MIB
assert in_use() == expected, (in_use(), expected)

step = jax.jit(step, donate_argnums=(0, 1)).lower(parameters, momentum, x).compile()
planned = step.memory_analysis()
assert planned.argument_size_in_bytes == expected
assert planned.alias_size_in_bytes == expected - MIB
cost = step.cost_analysis()
cost = cost[0] if isinstance(cost, list) else cost  # a list in old releases
# Forward, and backward by weights in each layer and by activations in all but the first.
products = 2 * BATCH * WIDTH * WIDTH * (3 * LAYERS - 1)
# Where the autotuner has chosen cuBLAS, XLA does not count its products.
if "__cublas$" not in step.as_text():
    assert products <= cost["flops"] < 1.1 * products, (cost["flops"], products)
for _ in range(5):
    old = parameters
    parameters, momentum = step(parameters, momentum, x)
    assert in_use() == expected, (in_use(), expected)
assert all(weight.is_deleted() for weight in old)
message = ""
try:
    print(old[0] + 1)
except RuntimeError as error:
    message = str(error)
assert "deleted" in message, message or "a donated array could be used"
peak = device.memory_stats()["peak_bytes_in_use"]
assert peak >= expected + planned.temp_size_in_bytes // 256 * 256, (peak, planned)
