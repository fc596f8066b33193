"""Training programs as they are, and with the checkpoints that a person would write.

``python by_hand.py NAME [by-hand]`` trains for two steps. Without a name, the names are printed,
each with the number of GPUs that it needs. Activations are most of the memory of each.
"""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

WIDTH, ROWS, LAYERS = 1024, 8192, 10
KEY = jax.random.key(0)
# With the number of GPUs.
PROGRAMS = {}


def program(function=None, *, gpus=1):
    """Register a program: a function of how a block of it is rematerialized."""
    if function is None:
        return functools.partial(program, gpus=gpus)
    PROGRAMS[function.__name__] = (gpus, function)
    return function


def as_it_is(function, **_):
    return function


def normal(seed, *shape):
    return jax.random.normal(jax.random.fold_in(KEY, seed), shape) * 0.02


def weights(count=LAYERS, *shape):
    return [normal(seed, *(shape or (WIDTH, WIDTH))) for seed in range(count)]


def data(rows=ROWS, *shape):
    return normal(99, rows, *(shape or (WIDTH,)))


def layer(x, w):
    return x + jnp.tanh(jnp.tanh(x @ w) @ w.T)


def mean_square(x):
    return jnp.mean(x**2)


def network(block):
    """Return a function that applies a block for each weight in turn."""

    def apply(ws, x):
        for w in ws:
            x = block(x, w)
        return x

    return apply


def loss_of(block):
    """Return the loss of such a network."""
    return lambda ws, x: mean_square(network(block)(ws, x))


def descend(tree, gradients):
    return jax.tree.map(lambda p, g: p - 0.1 * g, tree, gradients)


def train(loss, state, *batch):
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, *batch):
        value, gradients = jax.value_and_grad(loss)(state, *batch)
        return descend(state, gradients), value

    for _ in range(2):
        state, value = step(state, *batch)
    jax.block_until_ready(value)


# Layers one after the other, and in loops.


@program
def unrolled(remat):
    train(loss_of(remat(layer)), weights(), data())


@program
def scanned(remat):
    def loss(ws, x):
        return mean_square(jax.lax.scan(remat(lambda x, w: (layer(x, w), None)), x, ws)[0])

    train(loss, jnp.stack(weights()), data())


@program
def two_loops_of_lambdas(remat):
    def loss(p, x):
        s, _ = jax.lax.scan(
            lambda c, t: (jnp.tanh(c @ p["r"]) + t, None), x[:, :8], jnp.arange(4.0)
        )
        x, _ = jax.lax.scan(remat(lambda x, w: (layer(x, w), None)), x, p["ws"])
        return mean_square(x) + jnp.mean(s)

    train(loss, {"r": normal(7, 8, 8), "ws": jnp.stack(weights())}, data())


@program
def fori_loop(remat):
    block = remat(layer)

    def loss(ws, x):
        return mean_square(jax.lax.fori_loop(0, LAYERS, lambda i, x: block(x, ws[i]), x))

    train(loss, jnp.stack(weights()), data())


@program
def branch_in_each_layer(remat):
    @remat
    def block(x, w):
        return jax.lax.cond(w[0, 0] > -1, layer, lambda x, w: x * w[0, 0], x, w)

    train(loss_of(block), weights(), data())


@program
def map_over_examples_with_a_loop(remat):
    body = remat(lambda x, w: (layer(x, w), None))

    def loss(ws, xs):
        return jnp.mean(jax.lax.map(lambda x: mean_square(jax.lax.scan(body, x, ws)[0]), xs))

    train(loss, jnp.stack(weights()), data(4, 2048, WIDTH))


@program
def recurrent_network(remat):
    @remat
    def cell(carry, x, ws):
        gates = jax.nn.sigmoid(x @ ws[0] + carry @ ws[1])
        return jnp.tanh(gates * carry + (1 - gates) * jnp.tanh(x @ ws[2])), None

    def loss(ws, xs):
        carry = jnp.zeros(xs.shape[1:])
        return mean_square(jax.lax.scan(lambda carry, x: cell(carry, x, ws), carry, xs)[0])

    train(loss, weights(3), data(32, 1024, WIDTH))


@program
def curriculum(remat):
    block = remat(layer)

    def loss(ws, x, depth):
        for w in ws[:depth]:
            x = block(x, w)
        return mean_square(x)

    @functools.partial(jax.jit, static_argnums=2, donate_argnums=0)
    def step(ws, x, depth):
        value, gradients = jax.value_and_grad(loss)(ws, x, depth)
        return descend(ws, gradients), value

    ws, x = weights(), data()
    for depth in (2, LAYERS):
        for _ in range(3):
            ws, value = step(ws, x, depth)
    jax.block_until_ready(value)


# Kinds of networks.


def attention(p, x):
    query, key, value = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in ("q", "k", "v"))
    shares = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", query, key) / 8)
    return jnp.einsum("bhts,bshk,hkd->btd", shares, value, p["o"])


def transformer_block(p, x):
    x = x + attention(p, jax.nn.standardize(x))
    return x + jax.nn.gelu(jax.nn.standardize(x) @ p["up"]) @ p["down"]


def transformer_parameters(seed, width=512):
    heads = {name: normal(seed, width, 8, 64) for name in ("q", "k", "v")}
    up, down = normal(seed, width, 4 * width), normal(seed, 4 * width, width)
    return {**heads, "o": normal(seed, 8, 64, width), "up": up, "down": down}


@program
def transformer(remat):
    block = remat(transformer_block)

    def loss(blocks, x):
        for p in blocks:
            x = block(p, x)
        return mean_square(x)

    train(loss, [transformer_parameters(seed) for seed in range(8)], data(16, 512, 512))


@program
def scanned_transformer(remat):
    def loss(blocks, x):
        body = remat(lambda x, p: (transformer_block(p, x), None))
        return mean_square(jax.lax.scan(body, x, blocks)[0])

    blocks = [transformer_parameters(seed) for seed in range(8)]
    train(loss, jax.tree.map(lambda *each: jnp.stack(each), *blocks), data(16, 512, 512))


@program
def residual_network(remat):
    def convolve(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    @remat
    def block(x, w):
        return x + convolve(jax.nn.relu(jax.nn.standardize(convolve(x, w), axis=(1, 2))), w)

    train(loss_of(block), weights(8, 3, 3, 64, 64), data(64, 56, 56, 64))


@program
def graph_network(remat):
    generator = np.random.default_rng(0)
    senders, receivers = jnp.array(generator.integers(0, 4096, (2, 65536)))

    @remat
    def block(nodes, w):
        messages = jnp.tanh(jnp.tanh(nodes[senders] - nodes[receivers]) @ w)
        return nodes + jax.ops.segment_sum(messages, receivers, 4096)

    train(loss_of(block), weights(8, 256, 256), data(4096, 256))


@program
def mixture_of_experts(remat):
    @remat
    def block(x, p):
        gates = jax.nn.softmax(x @ p["gate"])
        hidden = jax.nn.gelu(jnp.einsum("nd,edh->neh", x, p["up"]))
        return x + jnp.einsum("ne,neh,ehd->nd", gates, hidden, p["down"])

    blocks = [
        {"gate": normal(i, 512, 8), "up": normal(i, 8, 512, 512), "down": normal(i, 8, 512, 512)}
        for i in range(6)
    ]
    train(loss_of(block), blocks, data(4096, 512))


# Ways to train.


@program
def physics_informed(remat):
    """The loss contains second derivatives of the network."""

    def network(ws, x):
        h = jnp.tanh(x * ws["in"])
        for w in ws["hidden"]:
            h = jnp.tanh(h @ w)
        return (h @ ws["out"])[0]

    def residual(ws, x):
        u = functools.partial(network, ws)
        return jax.grad(jax.grad(u))(x) + u(x)

    @remat
    def of_batch(ws, xs):
        return jnp.sum(jax.vmap(residual, (None, 0))(ws, xs) ** 2)

    def loss(ws, xs):
        batches = xs.reshape(8, -1)
        return jax.lax.scan(lambda sum, xs: (sum + of_batch(ws, xs), None), 0.0, batches)[0]

    ws = {"in": normal(1, 256), "hidden": weights(4, 256, 256), "out": normal(2, 256, 1)}
    train(loss, ws, jnp.linspace(0, 1, 1 << 16))


@program
def adversarial(remat):
    apply = network(remat(layer))

    def loss_of_generator(generator, discriminator, z):
        return -jnp.mean(apply(discriminator, apply(generator, z)))

    def loss_of_discriminator(discriminator, generator, x, z):
        fake = jax.lax.stop_gradient(apply(generator, z))
        return jnp.mean(apply(discriminator, fake)) - jnp.mean(apply(discriminator, x))

    @jax.jit
    def step(generator, discriminator, x, z):
        g = jax.grad(loss_of_discriminator)(discriminator, generator, x, z)
        discriminator = descend(discriminator, g)
        g = jax.grad(loss_of_generator)(generator, discriminator, z)
        return descend(generator, g), discriminator

    generator, discriminator = weights(6), weights(6)
    for _ in range(2):
        generator, discriminator = step(generator, discriminator, data(), data())
    jax.block_until_ready(generator)


@program
def meta_learning(remat):
    """Through three steps of gradient descent inside of the loss."""

    inner_loss = loss_of(layer)

    @remat
    def inner_step(ws, x):
        return descend(ws, jax.grad(inner_loss)(ws, x))

    def loss(ws, x):
        for _ in range(3):
            ws = inner_step(ws, x)
        return inner_loss(ws, x)

    train(loss, weights(4), data())


@program
def actor_and_critic(remat):
    apply = network(remat(layer))

    def loss(p, states, actions, returns):
        values = apply(p["critic"], states).mean(-1)
        logits = jax.nn.log_softmax(apply(p["actor"], states))
        chosen = jnp.take_along_axis(logits, actions[:, None], 1)[:, 0]
        advantage = jax.lax.stop_gradient(returns - values)
        return jnp.mean((returns - values) ** 2) - jnp.mean(chosen * advantage)

    p = {"actor": weights(6), "critic": weights(6)}
    train(loss, p, data(), jnp.zeros(ROWS, int), jnp.ones(ROWS))


@program
def accumulated_gradients(remat):
    loss = loss_of(remat(layer))

    @jax.jit
    def step(ws, xs):
        def add(sums, x):
            return jax.tree.map(jnp.add, sums, jax.grad(loss)(ws, x)), None

        sums, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, ws), xs)
        return descend(ws, sums)

    ws = weights()
    for _ in range(2):
        ws = step(ws, data(2, ROWS, WIDTH))
    jax.block_until_ready(ws)


@program
def diffusion(remat):
    @remat
    def block(x, p, time):
        return x + jnp.tanh(jax.nn.silu(x @ p["up"] + time @ p["time"]) @ p["down"])

    def loss(blocks, x, key):
        noise_key, time_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, x.shape)
        t = jax.random.uniform(time_key, (x.shape[0], 1))
        time = jnp.concatenate([jnp.sin(t * 50), jnp.cos(t * 50)], -1)
        y = x * t + noise * (1 - t)
        for p in blocks:
            y = block(y, p, time)
        return mean_square(y - noise)

    blocks = [
        {"up": normal(i, 512, 1024), "time": normal(i, 2, 1024), "down": normal(i, 1024, 512)}
        for i in range(10)
    ]
    train(loss, blocks, data(ROWS, 512), jax.random.key(1))


# Several GPUs.


def _mesh(name):
    return Mesh(np.array(jax.devices()[:2]), (name,))


@program(gpus=2)
def tensor_parallel_in_shard_map(remat):
    @remat
    def block(x, pair):
        up, down = pair
        return x + jax.lax.psum(jax.nn.gelu(x @ up) @ down, "t")

    def local(ws, x):
        value, gradients = jax.value_and_grad(loss_of(block))(ws, x)
        return descend(ws, gradients), value

    spec = [(P(None, "t"), P("t", None))] * LAYERS
    mapped = jax.shard_map(
        local, mesh=_mesh("t"), in_specs=(spec, P()), out_specs=(spec, P()), check_vma=False
    )
    step = jax.jit(mapped, donate_argnums=0)
    ws = list(zip(weights(), weights(), strict=True))
    for _ in range(2):
        ws, value = step(ws, data())
    jax.block_until_ready(value)


@program(gpus=2)
def pmap_with_synchronized_statistics(remat):
    @remat
    def block(x, w):
        y = x @ w
        mean, variance = jax.lax.pmean((y.mean(0), y.var(0)), "d")
        return x + jnp.tanh((y - mean) / jnp.sqrt(variance + 1e-3))

    @functools.partial(jax.pmap, axis_name="d")
    def step(ws, x):
        value, gradients = jax.value_and_grad(loss_of(block))(ws, x)
        return descend(ws, jax.lax.pmean(gradients, "d")), value

    ws = [jnp.stack([w] * 2) for w in weights()]
    for _ in range(2):
        ws, value = step(ws, data(2, ROWS, WIDTH))
    jax.block_until_ready(value)


@program(gpus=2)
def data_parallel_by_sharding(remat):
    from jax.sharding import NamedSharding

    mesh = _mesh("data")
    loss = loss_of(remat(layer))

    ws = jax.device_put(weights(), NamedSharding(mesh, P()))
    train(loss, ws, jax.device_put(data(2 * ROWS), NamedSharding(mesh, P("data"))))


# Libraries.


@program
def linen_scan(remat):
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return x + nn.Dense(512)(nn.gelu(nn.Dense(2048)(nn.LayerNorm()(x)))), None

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            block = Block if remat is as_it_is else nn.remat(Block)
            stacked = nn.scan(
                block, variable_axes={"params": 0}, split_rngs={"params": True}, length=8
            )
            return nn.Dense(10)(stacked()(x, None)[0])

    net = Net()
    p = jax.jit(net.init)(KEY, jnp.ones((1, 512)))
    train(lambda p, x: mean_square(net.apply(p, x)), p, data(ROWS, 512))


@program
def linen_blocks(remat):
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x + nn.Dense(512)(nn.gelu(nn.Dense(2048)(nn.LayerNorm()(x))))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for i in range(8):
                x = (Block if remat is as_it_is else nn.remat(Block))(name=f"block_{i}")(x)
            return nn.Dense(10)(x)

    net = Net()
    p = jax.jit(net.init)(KEY, jnp.ones((1, 512)))
    train(lambda p, x: mean_square(net.apply(p, x)), p, data(ROWS, 512))


@program
def nnx_blocks(remat):
    import optax
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.up = nnx.Linear(512, 2048, rngs=rngs)
            self.down = nnx.Linear(2048, 512, rngs=rngs)

        def __call__(self, x):
            return x + self.down(nnx.gelu(self.up(x)))

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.blocks = nnx.List(Block(rngs) for _ in range(8))

        def __call__(self, x):
            for block in self.blocks:
                x = block(x) if remat is as_it_is else nnx.remat(Block.__call__)(block, x)
            return x

    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(net, optimizer, x):
        value, gradients = nnx.value_and_grad(lambda net: mean_square(net(x)))(net)
        optimizer.update(net, gradients)
        return value

    for _ in range(2):
        value = step(net, optimizer, data(ROWS, 512))
    jax.block_until_ready(value)


@program
def equinox_losses(remat):
    """Two losses of the same wrapper."""
    import equinox as eqx

    class Net(eqx.Module):
        layers: list

        def __call__(self, x):
            def apply(block, x):
                return x + jnp.tanh(jax.vmap(block)(x))

            apply = apply if remat is as_it_is else eqx.filter_checkpoint(apply)
            for block in self.layers:
                x = apply(block, x)
            return x

    def small(net, x):
        return mean_square(net(x[:64]))

    def large(net, x):
        return mean_square(net(x))

    @eqx.filter_jit
    def step(net, x):
        _, gradients = eqx.filter_value_and_grad(small)(net, x)
        value, more = eqx.filter_value_and_grad(large)(net, x)
        updates = jax.tree.map(lambda a, b: -0.1 * (a + b), gradients, more)
        return eqx.apply_updates(net, updates), value

    keys = jax.random.split(KEY, 8)
    net = Net([eqx.nn.MLP(512, 512, 2048, 1, jax.nn.gelu, key=key) for key in keys])
    for _ in range(2):
        net, value = step(net, data(ROWS, 512))
    jax.block_until_ready(value)


@program
def haiku_blocks(remat):
    import haiku as hk

    def block(x):
        h = jax.nn.gelu(hk.Linear(2048)(hk.LayerNorm(-1, True, True)(x)))
        return x + hk.Linear(512)(h)

    def forward(x):
        for _ in range(8):
            x = block(x) if remat is as_it_is else hk.remat(block)(x)
        return x

    net = hk.without_apply_rng(hk.transform(forward))
    p = jax.jit(net.init)(KEY, jnp.ones((1, 512)))
    train(lambda p, x: mean_square(net.apply(p, x)), p, data(ROWS, 512))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        for name, (gpus, _) in PROGRAMS.items():
            print(name, gpus)
    else:
        PROGRAMS[sys.argv[1]][1](jax.checkpoint if "by-hand" in sys.argv else as_it_is)
