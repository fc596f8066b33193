"""Small training runs of many kinds: a plan must not change what they compute.

Each function trains for some steps and returns everything that must stay: parameters, losses,
random keys, what was drawn while tracing, how often the host was called. Names say what is special.
"""

import dataclasses
import functools
import random
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

KEY = jax.random.key(0)
WIDTH = 8


def normal(seed, *shape):
    return jax.random.normal(jax.random.fold_in(KEY, seed), shape) * 0.3


def weights(count=4, width=WIDTH):
    return [normal(seed, width, width) for seed in range(count)]


def data(rows=6, width=WIDTH):
    return normal(99, rows, width)


# Outside of `jit` a plan groups operations in another way, and XLA multiplies by the inverse of a
# count that is a part of the program: which is exact for a mean of 64 values.
exact_data = functools.partial(data, 8)


def layer(x, w):
    return x + jnp.tanh(jnp.tanh(x @ w) @ w.T)


def network(ws, x):
    for w in ws:
        x = layer(x, w)
    return x


def descend(tree, gradients):
    return jax.tree.map(lambda p, g: p - 0.1 * g, tree, gradients)


def train(loss, state, *batch, steps=3, compiled=True):
    """Train, and return the state and the losses."""

    def step(state, *batch):
        value, gradients = jax.value_and_grad(loss)(state, *batch)
        return descend(state, gradients), value

    step = jax.jit(step) if compiled else step
    losses = []
    for _ in range(steps):
        state, value = step(state, *batch)
        losses.append(value)
    return state, losses


def plain():
    return train(lambda ws, x: jnp.mean(network(ws, x) ** 2), weights(), data())


def eager():
    return train(
        lambda ws, x: jnp.mean(network(ws, x) ** 2), weights(), exact_data(), compiled=False
    )


# Python that is called while tracing.


def numpy_draws_in_an_eager_loss():
    rng = np.random.default_rng(0)

    def loss(ws, x):
        return jnp.mean((network(ws, x) + rng.standard_normal()) ** 2)

    return train(loss, weights(), exact_data(), compiled=False), rng.standard_normal()


def numpy_draws_in_a_compiled_loss():
    rng = np.random.default_rng(0)

    def loss(ws, x):
        return jnp.mean((network(ws, x) * rng.standard_normal(WIDTH)) ** 2)

    return train(loss, weights(), data()), rng.standard_normal()


def an_eager_loss_that_reads_a_value():
    rng = np.random.default_rng(0)
    calls = []

    def probe(v, x):
        calls.append(1)
        y = jnp.mean((x[:, :1] * v + rng.standard_normal()) ** 2)
        return y if y < 1e9 else y * 0

    def loss(ws, x):
        return jnp.mean(network(ws, x) ** 2)

    trained = train(loss, weights(), data())
    probed = train(probe, jnp.float32(1), exact_data(), compiled=False)
    return trained, probed, len(calls)


def an_eager_loss_that_looks_at_constants():
    """JAX computes at once what depends on no parameter."""
    looked, keys = [], [jax.random.key(5)]

    def loss(ws, x, count):
        ones = jax.jit(jax.nn.relu)(jnp.ones(3)).block_until_ready()
        looked.extend((len(ones.devices()), isinstance(ones, jax.core.Tracer)))
        try:
            looked.append(int(jax.nn.silu(ones).sum()))
        except jax.errors.ConcretizationTypeError:
            looked.append(-1)
        jax.debug.callback(lambda: looked.append(100))
        keys[0], key = jax.random.split(keys[0])
        x = x * jax.random.bernoulli(key, 0.9, x.shape)
        # A loop without a known number of iterations has no gradient.
        x = jax.lax.fori_loop(0, count, lambda i, x: layer(x, ws[0]), network(ws, x))
        inner = jax.grad(lambda w: jnp.mean(layer(x, w)) * int(jnp.asarray(2)))(ws[1])
        return jnp.mean(x**2) + jnp.mean(inner**2)

    trained = train(loss, weights(), exact_data(), jnp.int32(2), compiled=False)
    per_example = jax.vmap(jax.grad(lambda w, x: jnp.mean(x @ w) * float(jnp.ones(()))), (None, 0))
    jax.effects_barrier()
    return trained, per_example(weights(1)[0], data()), sorted(looked), jax.random.key_data(keys[0])


def a_permutation_drawn_while_tracing():
    order = random.Random(3)

    def loss(ws, x):
        for w in ws:
            columns = list(range(WIDTH))
            order.shuffle(columns)
            x = layer(x, w)[:, np.array(columns)]
        return jnp.mean(x**2)

    return train(loss, weights(), data()), order.random()


def a_permutation_in_the_body_of_a_scan():
    """JAX traces a body once for several loops over it, and keeps the permutation."""
    order = random.Random(3)

    def body(x, w):
        columns = list(range(WIDTH))
        order.shuffle(columns)
        return layer(x, w)[:, np.array(columns)], None

    def loss(ws, x):
        x, _ = jax.lax.scan(body, x, ws)
        x, _ = jax.lax.scan(body, x, ws)
        return jnp.mean(x**2)

    return train(loss, jnp.stack(weights()), data()), order.random()


def a_draw_in_a_function_that_the_program_rematerializes():
    """JAX traces the function once for all of its calls."""
    rng = np.random.default_rng(1)

    @jax.checkpoint
    def block(x, w):
        return layer(x, w) * rng.standard_normal(WIDTH)

    def loss(ws, x):
        for w in ws:
            x = block(x, w)
        return jnp.mean(x**2)

    return train(loss, weights(), data()), rng.standard_normal()


def a_counter_of_calls():
    calls = {"loss": 0, "layer": 0}

    def loss(ws, x):
        calls["loss"] += 1
        for w in ws:
            calls["layer"] += 1
            x = layer(x, w)
        return jnp.mean(x**2)

    trained = train(loss, weights(), data())
    eagerly = train(loss, weights(), exact_data(), compiled=False)
    return trained, eagerly, calls


def a_cache_of_constants():
    cache = {}

    def mask():
        if "mask" not in cache:
            cache["mask"] = np.tri(WIDTH, dtype=np.float32)
        return cache["mask"]

    def loss(ws, x):
        for w in ws:
            x = layer(x, w * mask())
        return jnp.mean(x**2)

    return train(loss, weights(), data()), len(cache)


# Values that outlive the function that computes them.


def a_mask_kept_on_an_object():
    class Model:
        mask = None

        def __call__(self, ws, x):
            if self.mask is None:
                self.mask = jnp.tril(jnp.ones((WIDTH, WIDTH)))
            for w in ws:
                x = layer(x, w * self.mask)
            return jnp.mean(x**2)

    model = Model()

    @jax.jit
    def step(ws, x):
        value, gradients = jax.value_and_grad(model)(ws, x)
        # The mask depends on no parameter, so it can be used here.
        return descend(ws, gradients), value + model.mask.sum()

    return step(weights(), data())


def a_sequence_of_random_keys():
    class Keys:
        def __init__(self, key):
            self.key = key

        def __next__(self):
            self.key, key = jax.random.split(self.key)
            return key

    keys = Keys(jax.random.key(5))

    def loss(ws, x):
        for w in ws:
            x = layer(x, w) * jax.random.bernoulli(next(keys), 0.9, x.shape)
        return jnp.mean(x**2)

    trained = train(loss, weights(), exact_data(), compiled=False)
    return trained, jax.random.key_data(next(keys))


def losses_kept_in_a_list():
    kept = []

    def loss(ws, x):
        value = jnp.mean(network(ws, x) ** 2)
        kept.append(jnp.ones(3) * 2)
        return value

    trained = train(loss, weights(), exact_data(), compiled=False)
    return trained, jnp.stack(kept).sum()


# Effects.


def prints_and_callbacks():
    calls = []

    def loss(ws, x):
        for i, w in enumerate(ws):
            x = layer(x, w)
            jax.debug.callback(lambda i=i: calls.append(i))
        return jnp.mean(x**2)

    trained = train(loss, weights(), data())
    jax.block_until_ready(trained)
    jax.effects_barrier()
    return trained, sorted(calls)


def a_callback_in_a_scan():
    calls = []

    def body(x, w):
        jax.debug.callback(lambda: calls.append(1))
        return layer(x, w), None

    def loss(ws, x):
        return jnp.mean(jax.lax.scan(body, x, ws)[0] ** 2)

    trained = train(loss, jnp.stack(weights()), data())
    jax.block_until_ready(trained)
    jax.effects_barrier()
    return trained, len(calls)


def a_mutable_array():
    if not hasattr(jax, "new_ref"):
        return plain()
    count = jax.new_ref(jnp.zeros(()))

    def loss(ws, x):
        count[...] = count[...] + 1
        return jnp.mean(network(ws, x) ** 2)

    return train(loss, weights(), exact_data(), compiled=False), count[...]


# Loops and branches.


def scan_of_lambdas():
    def loss(p, x):
        s, _ = jax.lax.scan(lambda c, t: (jnp.tanh(c @ p["r"]) + t, None), x, jnp.arange(4.0))
        x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, p["ws"])
        return jnp.mean(x**2) + jnp.mean(s)

    return train(loss, {"r": normal(7, WIDTH, WIDTH), "ws": jnp.stack(weights())}, data())


def scan_of_scans():
    def loss(ws, x):
        def outer(x, pair):
            return jax.lax.scan(lambda x, w: (layer(x, w), None), x, pair)[0], x.sum()

        x, sums = jax.lax.scan(outer, x, ws.reshape(2, 2, WIDTH, WIDTH))
        return jnp.mean(x**2) + sums.mean()

    return train(loss, jnp.stack(weights()), data())


def scan_with_closed_over_weights():
    def loss(ws, x):
        shared = ws[0]
        x, _ = jax.lax.scan(lambda x, w: (layer(x, w @ shared), None), x, jnp.stack(ws[1:]))
        return jnp.mean(x**2)

    return train(loss, weights(), data())


MASK = np.linspace(0.5, 1.5, WIDTH, dtype=np.float32)


def scan_with_arrays_of_numpy():
    key = jax.random.key(5)
    compiled_layer = jax.jit(lambda x, w: layer(x, w) + MASK)

    def loss(ws, x):
        def body(x, pair):
            w, number = pair
            noise = jax.random.normal(jax.random.fold_in(key, number), x.shape)
            return compiled_layer(x, w) * MASK + noise * np.float32(0.01), (x * MASK).sum()

        x, sums = jax.lax.scan(body, x, (ws, np.arange(len(ws))))
        return jnp.mean(x**2) + sums.mean()

    return train(loss, jnp.stack(weights()), data())


def loop_and_branch_with_arrays_of_numpy():
    def loss(ws, x):
        scaled = lambda x: layer(x, ws[0]) * MASK  # noqa: E731
        x = jax.lax.fori_loop(0, 3, lambda number, x: scaled(x) + MASK[None] * number, x)
        x = jax.lax.cond(x.sum() > 0, scaled, lambda x: x - MASK, x)
        return jnp.mean(jax.checkpoint(lambda x, w: layer(x * MASK, w))(x, ws[1]) ** 2)

    return train(loss, jnp.stack(weights()), data())


def scan_reversed_and_unrolled():
    def loss(ws, x):
        x, y = jax.lax.scan(lambda x, w: (layer(x, w), x.mean()), x, ws, reverse=True, unroll=2)
        return jnp.mean(x**2) + y.sum()

    return train(loss, jnp.stack(weights()), data())


def map_with_a_scan_inside():
    def loss(ws, x):
        def row(one):
            return jax.lax.scan(lambda x, w: (layer(x, w), None), one[None], ws)[0][0]

        return jnp.mean(jax.lax.map(row, x) ** 2)

    return train(loss, jnp.stack(weights()), data())


def map_in_batches():
    def loss(ws, x):
        return jnp.mean(jax.lax.map(lambda one: network(ws, one[None])[0], x, batch_size=2) ** 2)

    return train(loss, weights(), data())


def fori_loop():
    def loss(ws, x):
        return jnp.mean(jax.lax.fori_loop(0, 4, lambda i, x: layer(x, ws[i]), x) ** 2)

    return train(loss, jnp.stack(weights()), data())


def associative_scan():
    def loss(ws, x):
        decay = jax.nn.sigmoid(x @ ws[0])

        def combine(a, b):
            return a[0] * b[0], b[0] * a[1] + b[1]

        return jnp.mean(jax.lax.associative_scan(combine, (decay, network(ws, x)))[1] ** 2)

    return train(loss, weights(), data())


def cond_per_layer():
    def loss(ws, x, key):
        for i, w in enumerate(ws):
            keep = jax.random.bernoulli(jax.random.fold_in(key, i), 0.8)
            x = jax.lax.cond(keep, lambda x, w=w: layer(x, w), lambda x: x, x)
        return jnp.mean(x**2)

    return train(loss, weights(), data(), KEY)


def scan_in_a_branch():
    def loss(ws, x):
        deep = lambda x: jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0]  # noqa: E731
        x = jax.lax.switch(jnp.int32(x.sum() > -1e9), [lambda x: x, deep], x)
        return jnp.mean(x**2)

    return train(loss, jnp.stack(weights()), data())


def while_loop_beside_the_layers():
    def loss(ws, x):
        x = network(ws, x)
        scale = jax.lax.while_loop(lambda n: n < 5, lambda n: n * 2, 1.0)
        return jnp.mean(x**2) * scale

    return train(loss, weights(), data())


# What the program rematerializes itself.


def checkpoint_with_policies():
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable

    def loss(ws, x):
        x = jax.checkpoint(layer, policy=policy)(x, ws[0])
        x = jax.checkpoint(network, prevent_cse=False)(ws[1:], x)
        return jnp.mean(x**2)

    return train(loss, weights(), data())


def checkpoint_with_static_arguments():
    @functools.partial(jax.checkpoint, static_argnums=(2, 3))
    def block(x, w, activation, scale):
        return x + scale * activation(x @ w)

    def loss(ws, x):
        for i, w in enumerate(ws):
            x = block(x, w, (jnp.tanh, jax.nn.gelu)[i % 2], 2)
        return jnp.mean(x**2)

    return train(loss, weights(), data())


def checkpoint_in_a_scan():
    def loss(ws, x):
        body = jax.checkpoint(lambda x, w: (layer(x, w), None))
        return jnp.mean(jax.lax.scan(body, x, ws)[0] ** 2)

    return train(loss, jnp.stack(weights()), data())


def checkpoint_with_names():
    from jax.ad_checkpoint import checkpoint_name

    def loss(ws, x):
        for w in ws:
            x = checkpoint_name(layer(x, w), "layer")
        return jnp.mean(x**2)

    policy = jax.checkpoint_policies.save_only_these_names("layer")
    return train(jax.checkpoint(loss, policy=policy), weights(), data())


# Several derivatives.


def adversarial():
    def generate(g, z):
        return network(g, z)

    def judge(d, x):
        return network(d, x).mean(-1)

    def d_loss(d, g, z, x):
        return jnp.mean(jax.nn.softplus(judge(d, generate(g, z))) + jax.nn.softplus(-judge(d, x)))

    def g_loss(g, d, z):
        return jnp.mean(jax.nn.softplus(-judge(d, generate(g, z))))

    @jax.jit
    def step(d, g, key, x):
        z = jax.random.normal(key, x.shape)
        d_value, d_gradients = jax.value_and_grad(d_loss)(d, g, z, x)
        d = descend(d, d_gradients)
        g_value, g_gradients = jax.value_and_grad(g_loss)(g, d, z)
        return d, descend(g, g_gradients), d_value, g_value

    d, g, values = weights(), [w + 0.1 for w in weights()], []
    for i in range(3):
        d, g, *both = step(d, g, jax.random.fold_in(KEY, i), data())
        values.append(both)
    return d, g, values


def meta_learning():
    def task(ws, x):
        return jnp.mean(network(ws, x) ** 2)

    def meta(ws, x):
        return task(descend(ws, jax.grad(task)(ws, x)), x + 1)

    return train(meta, weights(2), data())


def physics_informed():
    def u(ws, t):
        return jnp.sum(network(ws, jnp.full((1, WIDTH), t)))

    def residual(ws, t):
        first = jax.grad(u, argnums=1)
        return jax.grad(first, argnums=1)(ws, t) + u(ws, t)

    def loss(ws, ts):
        # A larger step would amplify rounding.
        return 1e-3 * jnp.mean(jax.vmap(residual, (None, 0))(ws, ts) ** 2)

    return train(loss, weights(2), jnp.linspace(0.0, 1, 5))


def hessian_vector_products():
    def loss(ws, x):
        return jnp.mean(network(ws, x) ** 2)

    def product(ws, vs, x):
        return jax.jvp(lambda ws: jax.grad(loss)(ws, x), (ws,), (vs,))[1]

    return jax.jit(product)(weights(2), weights(2), data())


def linear_maps():
    def loss(ws, x):
        return jnp.mean(network(ws, x) ** 2)

    def both(ws, x):
        value, pullback = jax.vjp(loss, ws, x)
        again, pushforward = jax.linearize(lambda ws: loss(ws, x), ws)
        return value, pullback(jnp.ones(())), again, pushforward(ws)

    return jax.jit(both)(weights(), data()), both(weights(), data())


def policy_gradient():
    """The gradient is inside of the scan over steps."""

    def loss(ws, observation, action):
        logits = network(ws, observation)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1))

    def update(carry, _):
        ws, observation, key = carry
        key, own = jax.random.split(key)
        action = jax.random.categorical(own, network(ws, observation))
        value, gradients = jax.value_and_grad(loss)(ws, observation, action)
        observation = jnp.sin(observation + action[:, None])
        return (descend(ws, gradients), observation, key), value

    run = jax.jit(lambda *carry: jax.lax.scan(update, carry, length=3))
    (ws, observation, key), values = run(weights(2), data(), KEY)
    return ws, observation, jax.random.key_data(key), values


def gradients_per_example():
    def loss(ws, x):
        return jnp.mean(network(ws, x[None]) ** 2)

    def clipped(ws, x):
        each = jax.vmap(jax.grad(loss), (None, 0))(ws, x)
        norm = jnp.sqrt(sum(jnp.sum(g**2, (1, 2)) for g in each))
        return [jnp.mean(g / jnp.maximum(1, norm)[:, None, None], 0) for g in each]

    return jax.jit(clipped)(weights(), data())


def accumulated_gradients():
    def loss(ws, x):
        return jnp.mean(network(ws, x) ** 2)

    @jax.jit
    def step(ws, batches):
        def add(total, x):
            value, gradients = jax.value_and_grad(loss)(ws, x)
            return jax.tree.map(jnp.add, total, gradients), value

        total, values = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, ws), batches)
        return descend(ws, total), values

    return step(weights(), data(12).reshape(3, 4, WIDTH))


def curriculum():
    def loss(ws, x, depth):
        return jnp.mean(network(ws[:depth], x) ** 2)

    @functools.partial(jax.jit, static_argnums=2, donate_argnums=0)
    def step(ws, x, depth):
        value, gradients = jax.value_and_grad(loss)(ws, x, depth)
        return descend(ws, gradients), value

    ws, values = weights(), []
    for depth in (1, 1, 2, 4, 4):
        ws, value = step(ws, data(), depth)
        values.append(value)
    return ws, values


# What functions take and return.


def auxiliary_results():
    class Stats(NamedTuple):
        mean: jax.Array
        name: str

    def loss(ws, x):
        y = network(ws, x)
        return jnp.mean(y**2), (Stats(y.mean(0), "last"), {"count": 3})

    (value, (stats, more)), gradients = jax.value_and_grad(loss, has_aux=True)(weights(), data())
    return value, stats.mean, stats.name, more, gradients


def python_values_among_the_results():
    constant = jnp.ones(3)

    def loss(ws, x):
        more = {"n": 3, "f": 2.5, "on": True, "np": np.arange(3), "array": constant, "none": None}
        return jnp.mean(network(ws, x) ** 2), more | {"last": x, "shape": x.shape}

    (value, more), gradients = jax.value_and_grad(loss, has_aux=True)(weights(), data())
    types = [f"{name}: {type(each).__name__}" for name, each in sorted(more.items())]
    return value, gradients, more, types, str(more["array"] is constant)


def a_loss_that_is_no_array():
    return jax.value_and_grad(lambda ws: 2.0)(weights())


def arguments_by_name_and_number():
    def loss(x, ws, *, scale=2.0, other):
        return jnp.mean(network(ws, x) ** 2) * scale + jnp.sum(other["bias"] ** 2)

    gradient = jax.grad(loss, argnums=(1, 0))
    return jax.jit(gradient)(data(), weights(), other={"bias": normal(3, 4)}, scale=3.0)


def integers_and_keys_among_the_arguments():
    def loss(state, x):
        key = jax.random.wrap_key_data(jnp.asarray(state["key"]))
        noise = jax.random.normal(jax.random.fold_in(key, state["step"]), x.shape)
        return jnp.mean(network(state["ws"], x + noise) ** 2)

    state = {"ws": weights(), "key": np.array([0, 7], "uint32"), "step": jnp.int32(4)}
    return jax.jit(jax.grad(loss, allow_int=True))(state, data())["ws"]


def complex_parameters():
    def loss(w, x):
        return jnp.sum(jnp.abs(jnp.tanh(x @ w)) ** 2)

    return jax.grad(loss)(normal(1, 4, 4) + 1j * normal(2, 4, 4), data(5, 4).astype(complex))


def half_precision():
    def loss(ws, x):
        y = network([w.astype(jnp.bfloat16) for w in ws], x.astype(jnp.bfloat16))
        return jnp.mean(y.astype(jnp.float32) ** 2)

    return train(loss, weights(), data())


def weakly_typed_scalars():
    def loss(p, x):
        scale = p["scale"] * 2
        return jnp.mean((network(p["ws"], x) * scale) ** 2) + 0.5 * scale

    return train(loss, {"ws": weights(), "scale": 1.5}, data())


def a_dataclass_of_parameters():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Model:
        ws: list
        depth: int = dataclasses.field(metadata={"static": True})

        def loss(self, x):
            return jnp.mean(network(self.ws[: self.depth], x) ** 2)

    return train(Model.loss, Model(weights(), 3), data())


def methods_partials_and_wrappers():
    class Trainer:
        def loss(self, ws, x):
            return jnp.mean(network(ws, x) ** 2)

    def scaled(function):
        @functools.wraps(function)
        def inner(*args):
            return 2 * function(*args)

        return inner

    trainer = Trainer()
    first = train(trainer.loss, weights(), data())
    second = train(functools.partial(trainer.loss), weights(), data())
    return first, second, train(scaled(trainer.loss), weights(), data())


def two_lambdas_of_a_line():
    first, second = (lambda w, x: jnp.mean(layer(x, w) ** 2)), (lambda w, x: jnp.mean(layer(x, w)))
    return train(first, normal(1, 8, 8), data()), train(second, normal(1, 8, 8), data())


def layers_that_are_compiled():
    block = jax.jit(layer)

    def loss(ws, x):
        for w in ws:
            x = block(x, w)
        return jnp.mean(jax.jit(jnp.square)(x))

    return train(loss, weights(), data())


def derivatives_of_the_users():
    @jax.custom_vjp
    def clip(x):
        return jnp.sin(x)

    clip.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g, -0.1, 0.1) * jnp.cos(x),))

    @jax.custom_jvp
    def soft(x):
        return jnp.log1p(jnp.exp(x))

    soft.defjvps(lambda t, y, x: t * jax.nn.sigmoid(x))

    def loss(ws, x):
        for w in ws:
            x = soft(clip(layer(x, w)))
        return jnp.mean(x**2)

    return train(loss, weights(), data())


def gradients_that_the_user_defines_with_draws():
    """JAX's own `jax.custom_gradient` calls the program's function."""
    rng = np.random.default_rng(5)

    @jax.custom_gradient
    def quantize(x):
        return jnp.round(x * 16 + rng.random(x.shape[-1])) / 16, lambda g: g

    def loss(ws, x):
        for w in ws:
            x = jax.vmap(quantize)(quantize(layer(x, w)))
        return jnp.mean(x**2)

    return train(loss, weights(), data()), rng.random()


def a_reverse_jacobian():
    @jax.jit
    def step(ws, x):
        return descend(ws, jax.jacrev(lambda ws, x: jnp.mean(network(ws, x) ** 2))(ws, x))

    rows = jax.jacrev(lambda w: layer(data(), w).sum(0))(weights()[0])
    return step(step(weights(), data()), data()), rows


def rules_that_know_zero_tangents():
    rng = np.random.default_rng(6)

    @jax.custom_jvp
    def scaled(x, scale):
        return x * scale * rng.random()

    def rule(primals, tangents):
        x, scale = primals
        zero = jax.custom_derivatives.SymbolicZero
        given = [tangent for tangent in tangents if not isinstance(tangent, zero)]
        return x * scale * rng.random(), sum(given, jnp.zeros_like(x)) * len(given)

    scaled.defjvp(rule, symbolic_zeros=True)

    def loss(ws, x):
        for w in ws:
            x = scaled(layer(x, w), 0.5) + scaled(x, jnp.tanh(jnp.sum(w)))
        return jnp.mean(x**2)

    return train(loss, weights(), data()), rng.random()


def _log_of_rules(transform):
    """Draw in functions, in their rules and between them: the order decides what is drawn."""
    rng, calls = np.random.default_rng(7), []

    @jax.custom_vjp
    def drop(x):
        calls.append("function")
        return x * rng.random(x.shape[-1])

    def forward(x):
        calls.append("rule")
        mask = rng.random(x.shape[-1])
        return x * mask, mask

    drop.defvjp(forward, lambda mask, g: (g * mask,))

    @jax.custom_jvp
    def soft(x):
        calls.append("function of jvp")
        return jnp.log1p(jnp.exp(x)) * rng.random()

    @soft.defjvp
    def _(primals, tangents):
        calls.append("rule of jvp")
        return soft(primals[0]), tangents[0] * rng.random()

    def block(x, w):
        return soft(drop(layer(x, w)))

    def loss(ws, x):
        for w in ws:
            x = transform(block)(x, w) * rng.random()
        return jnp.mean(x**2)

    return train(loss, weights(2), data(8), compiled=True), rng.random(), calls


def rules_in_functions_that_are_traced_for_themselves():
    def in_a_branch(block):
        return lambda x, w: jax.lax.cond(jnp.sum(w) > 0, block, lambda x, w: 2 * block(x, w), x, w)

    def in_a_scan(block):
        return lambda x, w: jax.lax.scan(lambda x, _: (block(x, w), None), x, None, length=2)[0]

    def in_a_map(block):
        return lambda x, w: jax.lax.map(lambda row: block(row, w), x)

    transforms = (jax.checkpoint, jax.jit, in_a_branch, in_a_scan, in_a_map)
    return [_log_of_rules(transform) for transform in transforms]


def frozen_weights_and_target_network():
    def loss(p, x):
        target = jax.lax.stop_gradient(network(p["target"], x))
        adapted = [w + a @ a.T for w, a in zip(p["ws"], p["lora"], strict=True)]
        return jnp.mean((network(adapted, x) - target) ** 2)

    p = {"ws": weights(), "target": weights(), "lora": [normal(i + 50, WIDTH, 2) for i in range(4)]}
    return train(loss, p, data())


# Several devices.


def _mesh(*names):
    count = 8 if len(names) == 1 else 2
    shape = (8,) if len(names) == 1 else (4, count)
    return Mesh(np.array(jax.devices()).reshape(shape), names)


def data_parallel_by_sharding():
    mesh = _mesh("data", "model")
    put = lambda value, *spec: jax.device_put(value, NamedSharding(mesh, P(*spec)))  # noqa: E731
    ws = [put(w, None, "model") for w in weights()]
    return train(lambda ws, x: jnp.mean(network(ws, x) ** 2), ws, put(data(8), "data"))


def tensor_parallel_in_shard_map():
    """The derivative is taken inside of the mapped function."""
    mesh = _mesh("t")

    def loss(ws, x):
        for up, down in ws:
            x = x + jax.lax.psum(jax.nn.gelu(x @ up) @ down, "t")
        return jnp.mean(x**2)

    def local(ws, x):
        value, gradients = jax.value_and_grad(loss)(ws, x)
        return descend(ws, gradients), value

    spec = [(P(None, "t"), P("t", None))] * 3
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(spec, P()), out_specs=(spec, P()))
    step, values = jax.jit(mapped), []
    ws = [(normal(i, WIDTH, 16), normal(i + 9, 16, WIDTH)) for i in range(3)]
    for _ in range(3):
        ws, value = step(ws, data())
        values.append(value)
    return ws, values


def model_in_shard_map():
    """The mapped function is inside of the one that is differentiated."""
    mesh = _mesh("t")

    def model(ws, x):
        for up, down in ws:
            x = x + jax.lax.psum(jax.nn.gelu(x @ up) @ down, "t")
        return x

    spec = [(P(None, "t"), P("t", None))] * 3
    mapped = jax.shard_map(model, mesh=mesh, in_specs=(spec, P()), out_specs=P())
    ws = [(normal(i, WIDTH, 16), normal(i + 9, 16, WIDTH)) for i in range(3)]
    return train(lambda ws, x: jnp.mean(mapped(ws, x) ** 2), ws, data())


def expert_parallel():
    mesh = _mesh("e")

    def model(experts, x):
        y = jax.lax.all_to_all(x.reshape(8, -1, WIDTH), "e", 0, 0)
        y = jnp.tanh(y @ experts[0]) @ experts[0].T
        return jax.lax.all_to_all(y, "e", 0, 0).reshape(x.shape)

    mapped = jax.shard_map(model, mesh=mesh, in_specs=(P("e"), P("e")), out_specs=P("e"))
    experts = jnp.stack(weights(8))
    return train(lambda experts, x: jnp.mean(mapped(experts, x) ** 2), experts, data(64))


def pipeline():
    mesh = _mesh("s")
    ring = [(i, (i + 1) % 8) for i in range(8)]

    def model(w, x):
        for _ in range(8):
            x = jax.lax.ppermute(layer(x, w[0]), "s", ring)
        return x

    mapped = jax.shard_map(model, mesh=mesh, in_specs=(P("s"), P("s")), out_specs=P("s"))
    stages = jnp.stack(weights(8))
    return train(lambda w, x: jnp.mean(mapped(w, x) ** 2), stages, data(16))


def gathered_weights():
    mesh = _mesh("d")

    def local(ws, x):
        def loss(ws, x):
            for w in ws:
                x = layer(x, jax.lax.all_gather(w, "d", tiled=True))
            return jax.lax.pmean(jnp.mean(x**2), "d")

        value, gradients = jax.value_and_grad(loss)(ws, x)
        return descend(ws, gradients), value

    spec = [P("d")] * 4
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(spec, P("d")), out_specs=(spec, P()))
    return jax.jit(mapped)(weights(), data(16))


def pmap_with_synchronized_statistics():
    @functools.partial(jax.pmap, axis_name="d")
    def step(ws, x):
        def loss(ws, x):
            for w in ws:
                y = x @ w
                mean = jax.lax.pmean(y.mean(0), "d")
                x = x + jnp.tanh((y - mean) / jnp.sqrt(jax.lax.pmean(y.var(0), "d") + 1e-3))
            return jnp.mean(x**2)

        value, gradients = jax.value_and_grad(loss)(ws, x)
        return descend(ws, jax.lax.pmean(gradients, "d")), value

    ws = [jnp.stack([w] * 8) for w in weights()]
    return step(ws, data(32).reshape(8, 4, WIDTH))


def values_in_host_memory():
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["x"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    from jax.ad_checkpoint import checkpoint_name

    def loss(ws, x):
        block = jax.checkpoint(lambda x, w: layer(checkpoint_name(x, "x"), w), policy=policy)
        for w in ws:
            x = block(x, w)
        return jnp.mean(x**2)

    return train(loss, weights(), data())


# Libraries.


def optax_with_a_schedule():
    import optax

    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 10))
    )
    ws = weights()
    state = optimizer.init(ws)

    @jax.jit
    def step(ws, state, x):
        value, gradients = jax.value_and_grad(lambda ws: jnp.mean(network(ws, x) ** 2))(ws)
        updates, state = optimizer.update(gradients, state, ws)
        return optax.apply_updates(ws, updates), state, value

    for _ in range(3):
        ws, state, value = step(ws, state, data())
    return ws, state, value


def optax_line_search():
    import optax

    def loss(ws):
        return jnp.mean(network(ws, data()) ** 2)

    solver = optax.lbfgs()
    ws = weights(2)
    state = solver.init(ws)
    value_and_grad = optax.value_and_grad_from_state(loss)

    @jax.jit
    def step(ws, state):
        value, gradient = value_and_grad(ws, state=state)
        updates, state = solver.update(
            gradient, state, ws, value=value, grad=gradient, value_fn=loss
        )
        return optax.apply_updates(ws, updates), state, value

    for _ in range(2):
        ws, state, value = step(ws, state)
    return ws, value


def linen_scan():
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x)))), None

    class Net(nn.Module):
        rematerialized: bool = False

        @nn.compact
        def __call__(self, x):
            block = nn.remat(Block) if self.rematerialized else Block
            stacked = nn.scan(
                block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3
            )
            return nn.Dense(4)(stacked()(x, None)[0])

    def run(net):
        p = net.init(KEY, jnp.ones((1, WIDTH)))
        return train(lambda p, x: jnp.mean(net.apply(p, x) ** 2), p, data())

    return run(Net()), run(Net(rematerialized=True))


def linen_remat_with_static_arguments():
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            y = nn.Dropout(0.5, deterministic=not train)(nn.Dense(WIDTH)(x))
            return x + nn.BatchNorm(use_running_average=not train)(y)

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            for _ in range(3):
                x = nn.remat(Block, static_argnums=(2,))()(x, train)
            return x

    net = Net()
    variables = net.init(KEY, data(), False)

    def loss(p, stats, x, key):
        y, new = net.apply(
            {"params": p, "batch_stats": stats},
            x,
            True,
            rngs={"dropout": key},
            mutable=["batch_stats"],
        )
        return jnp.mean(y**2), new["batch_stats"]

    p, stats, values = variables["params"], variables["batch_stats"], []
    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    for i in range(3):
        (value, stats), gradients = step(p, stats, data(), jax.random.fold_in(KEY, i))
        p = descend(p, gradients)
        values.append(value)
    return p, stats, values


def nnx_modules():
    import optax
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List(nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(3))
            self.norm = nnx.BatchNorm(WIDTH, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            for each in self.layers:
                x = x + nnx.gelu(each(x))
            return self.drop(self.norm(x))

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x):
        value, gradients = nnx.value_and_grad(lambda model: jnp.mean(model(x) ** 2))(model)
        optimizer.update(model, gradients)
        return value

    values = [step(model, optimizer, data()) for _ in range(3)]
    leaves = jax.tree.leaves(nnx.state(model))
    keyed = jax.dtypes.prng_key
    return values, [
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, keyed) else x for x in leaves
    ]


def equinox_modules():
    import equinox as eqx

    model = eqx.nn.MLP(WIDTH, "scalar", 16, depth=3, activation=jax.nn.gelu, key=KEY)

    @eqx.filter_value_and_grad
    def first(model, x):
        return jnp.mean(jax.vmap(model)(x) ** 2)

    def second(model, x):
        return jnp.mean(jnp.abs(jax.vmap(model)(x)))

    @eqx.filter_jit
    def step(model, x):
        one, gradients = first(model, x)
        model = eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradients))
        two, gradients = eqx.filter_value_and_grad(second)(model, x)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradients)), one, two

    for _ in range(3):
        model, *values = step(model, data())
    return eqx.filter(model, eqx.is_array), values


def haiku_keys_outside_of_transform():
    import haiku as hk

    keys = hk.PRNGSequence(3)
    network = hk.transform(lambda x: hk.Linear(WIDTH)(hk.dropout(hk.next_rng_key(), 0.5, x)))
    p = network.init(next(keys), data())

    def loss(p, x):
        return jnp.mean(network.apply(p, next(keys), x) ** 2)

    return train(loss, p, exact_data(), compiled=False), next(keys)


def keras_trainer():
    import os

    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((WIDTH,)), keras.layers.Dense(16, activation="gelu")]
    model = keras.Sequential([*layers, keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse", jit_compile=True)
    x = np.asarray(data(16))
    history = model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0)
    return history.history["loss"], [np.asarray(v) for v in model.variables]


def numpyro_inference():
    import numpyro
    from numpyro import distributions
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    def model(x):
        w = numpyro.sample("w", distributions.Normal(jnp.zeros(WIDTH), 1).to_event(1))
        numpyro.sample("y", distributions.Normal(x @ w, 1), obs=x.sum(-1))

    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO())
    done = svi.run(jax.random.PRNGKey(0), 3, data(), progress_bar=False)
    return done.params, done.losses


# Functions without arguments.
RUNS = {
    name: value
    for name, value in list(globals().items())
    if getattr(value, "__module__", "") == __name__
    and hasattr(value, "__code__")
    and value.__code__.co_argcount == 0
    and not name.startswith("_")
}
