"""Losses of many kinds of programs, small enough for the CPU.

Each function returns a loss, its parameters and its data.
"""

import functools

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0)


def normal(seed, *shape):
    return jax.random.normal(jax.random.fold_in(KEY, seed), shape) * 0.3


def dense(seed, inputs, outputs):
    return {"w": normal(seed, inputs, outputs), "b": normal(seed + 100, outputs)}


def apply_dense(p, x):
    return x @ p["w"] + p["b"]


def attention(p, x):
    q, k, v = (y.reshape(*x.shape[:2], 2, -1) for y in jnp.split(apply_dense(p["qkv"], x), 3, -1))
    return apply_dense(p["out"], jax.nn.dot_product_attention(q, k, v).reshape(x.shape))


def block(p, x):
    x = x + attention(p, jax.nn.standardize(x))
    return x + apply_dense(p["down"], jax.nn.gelu(apply_dense(p["up"], x)))


def block_parameters(seed):
    return {
        "qkv": dense(seed, 8, 24),
        "out": dense(seed + 1, 8, 8),
        "up": dense(seed + 2, 8, 16),
        "down": dense(seed + 3, 16, 8),
    }


def gpt_unrolled():
    def loss(p, x):
        for each in p:
            x = jax.jit(block)(each, x)
        return jnp.mean(jax.nn.logsumexp(x, -1))

    return loss, [block_parameters(10 * i) for i in range(4)], normal(1, 2, 6, 8)


def gpt_scanned():
    def loss(p, x):
        x, _ = jax.lax.scan(lambda x, each: (block(each, x), None), x, p)
        return jnp.mean(jax.nn.logsumexp(x, -1))

    layers = [block_parameters(10 * i) for i in range(4)]
    return loss, jax.tree.map(lambda *each: jnp.stack(each), *layers), normal(1, 2, 6, 8)


def gpt_with_checkpoint():
    def loss(p, x):
        for each in p:
            x = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)(each, x)
        return jnp.mean(x**2)

    return loss, [block_parameters(10 * i) for i in range(3)], normal(1, 2, 6, 8)


def resnet():
    """Batch normalization with statistics as auxiliary output, and a flag that is no array."""

    def loss(p, x):
        statistics = []
        for kernel in p:
            y = jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            mean = y.mean((0, 1, 2))
            statistics.append(mean)
            x = x + jax.nn.relu((y - mean) / jnp.sqrt(y.var((0, 1, 2)) + 1e-3))
        return jnp.mean(x**2), {"statistics": statistics, "mode": "train"}

    return loss, [normal(i, 3, 3, 4, 4) for i in range(3)], normal(9, 2, 6, 6, 4)


def rnn():
    def loss(p, x):
        def step(h, x):
            h = jnp.tanh(apply_dense(p["h"], h) + apply_dense(p["x"], x))
            return h, h.sum()

        h, sums = jax.lax.scan(step, jnp.zeros((2, 8)), x)
        return jnp.mean(h**2) + sums.mean()

    return loss, {"h": dense(1, 8, 8), "x": dense(2, 5, 8)}, normal(3, 7, 2, 5)


def mixture_of_experts():
    def loss(p, x):
        weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ p["router"]), 2)
        y = jnp.einsum("td,edf->tef", x, p["experts"])
        y = jnp.take_along_axis(y, chosen[..., None], 1)
        return jnp.mean(jnp.sum(jnp.tanh(y) * weights[..., None], 1) ** 2)

    return loss, {"router": normal(1, 8, 4), "experts": normal(2, 4, 8, 8)}, normal(3, 6, 8)


def u_net():
    def loss(p, x):
        skips = []
        for each in p["down"]:
            x = jax.nn.relu(apply_dense(each, x))
            skips.append(x)
            x = x.reshape(x.shape[0] // 2, 2, -1).mean(1)
        for each, skip in zip(p["up"], reversed(skips), strict=True):
            x = jnp.concatenate([jnp.repeat(x, 2, 0), skip], -1)
            x = jax.nn.relu(apply_dense(each, x))
        return jnp.mean(x**2)

    p = {"down": [dense(i, 8, 8) for i in range(3)], "up": [dense(10 + i, 16, 8) for i in range(3)]}
    return loss, p, normal(5, 16, 8)


def graph_network():
    senders, receivers = np.array([0, 1, 2, 3, 4, 0]), np.array([1, 2, 3, 4, 0, 2])

    def loss(p, x):
        for each in p:
            messages = jnp.tanh(apply_dense(each, x[senders]))
            x = x + jax.ops.segment_sum(messages, receivers, 5)
        return jnp.mean(x**2)

    return loss, [dense(i, 8, 8) for i in range(3)], normal(7, 5, 8)


def dropout():
    def loss(p, x):
        key = jax.random.key(7)
        for i, each in enumerate(p):
            x = jax.nn.relu(apply_dense(each, x))
            x = jnp.where(jax.random.bernoulli(jax.random.fold_in(key, i), 0.5, x.shape), 2 * x, 0)
        return jnp.mean(x**2)

    return loss, [dense(i, 8, 8) for i in range(4)], normal(8, 6, 8)


def custom_gradient():
    @jax.custom_vjp
    def clipped(x):
        return jnp.sin(x)

    clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g, -0.1, 0.1) * jnp.cos(x),))

    def loss(p, x):
        for each in p:
            x = clipped(apply_dense(each, x))
        return jnp.sum(x**2)

    return loss, [dense(i, 8, 8) for i in range(3)], normal(8, 6, 8)


def vit():
    """Patches by a convolution, a class token, attention."""

    def loss(p, images):
        x = jax.lax.conv_general_dilated(
            images, p["patch"], (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        token = jnp.broadcast_to(p["token"], (x.shape[0], 1, x.shape[-1]))
        x = jnp.concatenate([token, x], 1)
        for each in p["blocks"]:
            x = block(each, x)
        return jnp.mean(jax.nn.logsumexp(apply_dense(p["head"], x[:, 0]), -1))

    p = {
        "patch": normal(1, 4, 4, 3, 8),
        "token": normal(2, 1, 8),
        "blocks": [block_parameters(10 * i) for i in range(3)],
        "head": dense(3, 8, 5),
    }
    return loss, p, normal(4, 2, 16, 16, 3)


def equinox_network():
    import equinox as eqx

    model = eqx.nn.MLP(8, "scalar", 16, depth=3, activation=jax.nn.gelu, key=KEY)
    arrays, static = eqx.partition(model, eqx.is_array)

    def loss(arrays, x):
        return jnp.mean(jax.vmap(eqx.combine(arrays, static))(x) ** 2)

    return loss, arrays, normal(6, 6, 8)


def haiku_network():
    """State of batch normalization, and random numbers."""
    import haiku as hk

    def network(x):
        for width in (16, 8):
            x = jax.nn.relu(
                hk.BatchNorm(True, True, 0.9)(hk.Linear(width, with_bias=False)(x), True)
            )
            x = hk.dropout(hk.next_rng_key(), 0.2, x)
        return jnp.mean(hk.Linear(1)(x) ** 2)

    transformed = hk.transform_with_state(network)
    x = normal(6, 6, 8)
    parameters, state = transformed.init(KEY, x)

    def loss(parameters, x):
        value, _ = transformed.apply(parameters, state, KEY, x)
        return value

    return loss, parameters, x


CALLS = []


def effects():
    """Calls of the host, in order: a function that has them is left alone."""

    def loss(p, x):
        for i, each in enumerate(p):
            x = jax.nn.relu(apply_dense(each, x))
            jax.debug.callback(lambda mean, i=i: CALLS.append(("debug", i)), x.mean())
        scale = jax.experimental.io_callback(count_call, jax.ShapeDtypeStruct((), "float32"))
        return jnp.mean(x**2) * scale

    def count_call():
        CALLS.append(("io", 0))
        return np.float32(2)

    return loss, [dense(i, 8, 8) for i in range(3)], normal(8, 6, 8)


def loop_of_unknown_length():
    def loss(p, x):
        for each in p:
            x = jax.nn.relu(apply_dense(each, x))
        count = jax.lax.stop_gradient(
            jax.lax.while_loop(lambda n: n < x.sum(), lambda n: n * 2, 1.0)
        )
        return jnp.mean(x**2) * count

    return loss, [dense(i, 8, 8) for i in range(3)], normal(8, 6, 8)


def sharded():
    """Data and tensor parallel over 8 devices."""
    devices = np.array(jax.devices()).reshape(4, 2)
    mesh = jax.sharding.Mesh(devices, ("data", "model"))
    spec = functools.partial(jax.sharding.NamedSharding, mesh)
    P = jax.sharding.PartitionSpec

    def loss(p, x):
        for each in p:
            x = jax.nn.relu(x @ each["up"]) @ each["down"]
            x = jax.lax.with_sharding_constraint(x, spec(P("data")))
        return jnp.mean(x**2)

    p = [
        {
            "up": jax.device_put(normal(i, 8, 16), spec(P(None, "model"))),
            "down": jax.device_put(normal(i + 50, 16, 8), spec(P("model"))),
        }
        for i in range(3)
    ]
    return loss, p, jax.device_put(normal(9, 8, 8), spec(P("data")))


PROGRAMS = {
    function.__name__: function
    for function in (
        gpt_unrolled,
        gpt_scanned,
        gpt_with_checkpoint,
        resnet,
        rnn,
        mixture_of_experts,
        u_net,
        graph_network,
        dropout,
        custom_gradient,
        vit,
        equinox_network,
        haiku_network,
        effects,
        loop_of_unknown_length,
        sharded,
    )
}
