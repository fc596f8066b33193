"""Training runs in styles that people write: state outside of functions, Python while tracing.

Like those of `runs`, whose parts they use.
"""

import functools
import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from runs import (
    KEY,
    WIDTH,
    _mesh,
    data,
    descend,
    exact_data,
    layer,
    network,
    normal,
    train,
    weights,
)

# Arguments that a loss writes to: JAX gives it those that are not differentiated as they are.


def _a_batch_that_the_loss_changes():
    def loss(ws, batch, log):
        batch["x"] = batch["x"] * 0.5
        log.append(len(log))
        return jnp.mean(network(ws, batch["x"]) ** 2)

    log = []

    @jax.jit
    def step(ws, x):
        batch = {"x": x}
        value, gradients = jax.value_and_grad(loss)(ws, batch, log)
        return descend(ws, gradients), value + batch["x"].sum()

    compiled = step(weights(), data())
    batch = {"x": exact_data()}
    eagerly = [jax.value_and_grad(loss)(weights(), batch, log=log) for _ in range(3)]
    return compiled, eagerly, batch, log


def _a_state_that_the_loss_updates():
    class Running:
        def __init__(self):
            self.mean, self.calls = jnp.zeros(WIDTH), 0

    def loss(ws, running, x):
        running.mean = 0.9 * running.mean + 0.1 * x.mean(0)
        running.calls += 1
        return jnp.mean(network(ws, x - running.mean) ** 2)

    running = Running()
    trained = train(loss, weights(), running, exact_data(), compiled=False)

    @jax.jit
    def step(ws, x):
        running = Running()
        gradients = jax.grad(loss)(ws, running, x)
        return gradients, running.mean

    return trained, running.mean, running.calls, step(weights(), data())


def arguments_that_the_loss_writes_to():
    return _a_batch_that_the_loss_changes(), _a_state_that_the_loss_updates()


# Derivatives of the program's own.


def derivatives_that_draw():
    """JAX calls the rule of a derivative where it is taken, and not the function."""
    rng = np.random.default_rng(3)
    calls = []

    @jax.custom_vjp
    def noisy(x):
        calls.append("noisy")
        return x + rng.standard_normal()

    def forward(x):
        calls.append("forward")
        return x + rng.standard_normal(), None

    def backward(_, g):
        calls.append("backward")
        return (g * rng.standard_normal(),)

    noisy.defvjp(forward, backward)

    @jax.custom_jvp
    def soft(x):
        calls.append("soft")
        return jnp.log1p(jnp.exp(x)) * rng.standard_normal()

    @soft.defjvp
    def soft_jvp(primals, tangents):
        calls.append("soft_jvp")
        return soft(*primals), tangents[0] * jax.nn.sigmoid(primals[0])

    def loss(ws, x):
        for w in ws:
            x = soft(noisy(layer(x, w)))
        return jnp.mean(x**2) + jnp.mean(noisy(jnp.ones(3))) + soft(1.0)

    trained = train(loss, weights(), data())
    eagerly = train(loss, weights(), exact_data(), compiled=False)
    return trained, eagerly, rng.standard_normal(), " ".join(calls)


def _derivatives_that_close_over_the_batch():
    def loss(ws, x):
        scale = jnp.tanh(x.mean(0)) + 1

        @jax.custom_vjp
        def scaled(y):
            return y * scale

        scaled.defvjp(lambda y: (y * scale, None), lambda _, g: (jnp.clip(g * scale, -1, 1),))
        y = x
        for w in ws:
            y = scaled(layer(y, w))
        return jnp.mean(y**2)

    return train(loss, weights(), data()), train(loss, weights(), exact_data(), compiled=False)


def _derivatives_with_callbacks():
    calls = []

    @jax.custom_vjp
    def watched(x):
        return jnp.sin(x)

    def forward(x):
        jax.debug.callback(lambda: calls.append("forward"))
        return jnp.sin(x), x

    def backward(x, g):
        jax.debug.callback(lambda: calls.append("backward"))
        return (g * jnp.cos(x),)

    watched.defvjp(forward, backward)

    def loss(ws, x):
        for w in ws:
            x = watched(layer(x, w))
        return jnp.mean(x**2)

    trained = jax.block_until_ready(train(loss, weights(), data()))
    jax.effects_barrier()
    return trained, " ".join(sorted(calls))


def _derivatives_with_static_arguments():
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0, 2))
    def apply(function, x, scale):
        return function(x) * scale

    def forward(function, x, scale):
        y, pullback = jax.vjp(function, x)
        return y * scale, pullback

    apply.defvjp(forward, lambda function, scale, pullback, g: pullback(g * scale))

    @jax.custom_gradient
    def reversed_gradient(x):
        return x, lambda g: -0.5 * g

    def loss(ws, x):
        for i, w in enumerate(ws):
            x = (
                reversed_gradient(apply(lambda x, w=w: layer(x, w), x, 0.5 + i))
                if i
                else layer(x, w)
            )
        return jnp.mean(x**2)

    return train(loss, [normal(1, WIDTH, WIDTH)], data())


def derivatives_in_closures():
    return (
        _derivatives_that_close_over_the_batch(),
        _derivatives_with_callbacks(),
        _derivatives_with_static_arguments(),
    )


# Calls of the host.


def _callbacks_that_are_not_pure():
    calls = []
    rng = np.random.default_rng(1)

    def draw(x):
        calls.append(1)
        return np.asarray(rng.standard_normal(x.shape), "float32")

    def loss(ws, x):
        for w in ws:
            noise = jax.pure_callback(draw, x.aval, jax.lax.stop_gradient(x))
            x = jnp.tanh(layer(x, w) * noise)
        return jnp.mean(x**2)

    trained = jax.block_until_ready(train(loss, weights(), data()))
    return trained, len(calls)


def _callbacks_in_order():
    from jax.experimental import io_callback

    seen = []

    def note(i, value):
        seen.append(int(i))
        return np.float32(len(seen))

    def loss(ws, x):
        for i, w in enumerate(ws):
            x = layer(x, w)
            count = io_callback(note, jax.ShapeDtypeStruct((), "float32"), i, 0.0, ordered=True)
            x = x + 0.01 * count

        def body(x, w):
            more = io_callback(note, jax.ShapeDtypeStruct((), "float32"), 9, 0.0)
            return layer(x, w) + more, None

        x, _ = jax.lax.scan(body, x, jnp.stack(ws[:2]))
        return jnp.mean(x**2)

    trained = jax.block_until_ready(train(loss, weights(), data()))
    jax.effects_barrier()
    return trained, seen


def _eager_callbacks_and_prints():
    from jax.experimental import io_callback

    seen = []

    def loss(ws, x):
        for i, w in enumerate(ws):
            x = layer(x, w)
            io_callback(lambda v: seen.append("callback"), None, jax.lax.stop_gradient(x.sum()))
            seen.append(f"python {i}")
        return jnp.mean(x**2)

    trained = train(loss, weights(2), exact_data(), compiled=False, steps=2)
    jax.effects_barrier()
    return trained, " ".join(seen)


def _prints_while_tracing():
    def loss(ws, x):
        for i, w in enumerate(ws):
            x = layer(x, w)
            print("layer", i, x.shape, x.dtype, isinstance(x, jax.core.Tracer))
            jax.debug.print("mean {m:.3f}", m=x.mean())
        return jnp.mean(x**2)

    trained = jax.block_until_ready(train(loss, weights(), data(), steps=2))
    jax.effects_barrier()
    return trained


def callbacks_of_several_kinds():
    return _callbacks_that_are_not_pure(), _callbacks_in_order(), _prints_while_tracing()


def _prints_of_values_in_an_eager_loss():
    def loss(ws, x):
        y = jnp.mean(network(ws, x) ** 2)
        print("loss", y)
        return y

    return train(loss, weights(), exact_data(), compiled=False)


# Errors that are caught.


def _values_read_if_there_are_any():
    log = []

    def loss(ws, x):
        y = jnp.mean(network(ws, x) ** 2)
        try:
            log.append(float(y))
        except jax.errors.ConcretizationTypeError:
            log.append(-1.0)
        return y

    compiled = train(loss, weights(), data())
    return compiled, train(loss, weights(), exact_data(), compiled=False), log


def _shapes_from_values_in_an_eager_loss():
    def loss(ws, x):
        y = network(ws, x)
        count = jnp.argmax(y.sum(0)) + 1
        return jnp.mean(y[:, :count] ** 2) + jnp.zeros(count).sum()

    return train(loss, weights(), exact_data(), compiled=False)


def eager_losses_that_look_at_values():
    return (
        _eager_callbacks_and_prints(),
        _prints_of_values_in_an_eager_loss(),
        _values_read_if_there_are_any(),
        _shapes_from_values_in_an_eager_loss(),
    )


def _errors_raised_by_layers():
    class Skip(Exception):
        pass

    rng = random.Random(2)

    def drop(x, w):
        if rng.random() < 0.5:
            raise Skip
        return layer(x, w)

    def loss(ws, x):
        for w in ws:
            try:
                x = drop(x, w)
            except Skip:
                x = x * 2
        if rng.random() < 0.3:
            raise Skip
        return jnp.mean(x**2)

    values = []
    for _ in range(6):
        try:
            values.append(train(loss, weights(), data(), steps=1))
        except Skip:
            values.append(jnp.zeros(()))
    return values, rng.random()


# Settings of JAX that a function enters.


def _settings_inside_of_a_loss():
    def loss(ws, x):
        with jax.default_matmul_precision("highest"), jax.named_scope("first"):
            x = layer(x, ws[0])
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
            x = layer(x.astype("float64"), ws[1].astype("float64")).astype("float32")
        with jax.numpy_rank_promotion("allow"), jax.default_device(jax.devices()[0]):
            x = layer(x, ws[2]) + ws[3][0]
        with jax.threefry_partitionable(False):
            x = x * jax.random.bernoulli(jax.random.key(3), 0.8, x.shape)
        return jnp.mean(x**2)

    return train(loss, weights(), data()), train(loss, weights(), exact_data(), compiled=False)


def without_compilation():
    calls = []

    def loss(ws, x):
        x = network(ws, x)
        x = jax.lax.cond(
            x.sum() > 1e9,
            lambda x: calls.append("large") or x * 2,
            lambda x: calls.append("small") or x,
            x,
        )
        x = jax.lax.while_loop(lambda x: jnp.abs(x).max() > 0.5, lambda x: x * 0.5, x)
        return jnp.mean(x**2)

    with jax.disable_jit():
        return train(loss, weights(2), exact_data(), steps=2), " ".join(calls)


def _checks_for_leaks_and_nans():
    with jax.checking_leaks(), jax.debug_nans(True):
        return train(lambda ws, x: jnp.mean(network(ws, x) ** 2), weights(), data())


def settings_of_jax():
    return _settings_inside_of_a_loss(), _checks_for_leaks_and_nans()


# Caches and closures.


def _a_mask_that_two_losses_share():
    def new():
        @functools.cache
        def mask(size):
            return jnp.tril(jnp.ones((size, size)))

        def masked(ws, x):
            for w in ws:
                x = layer(x, w * mask(WIDTH))
            return x

        return mask, masked

    mask, masked = new()

    @jax.jit
    def step(g, d, x):
        one, g_gradients = jax.value_and_grad(lambda g: jnp.mean(masked(d, masked(g, x)) ** 2))(g)
        two, d_gradients = jax.value_and_grad(lambda d: jnp.mean(masked(d, x)))(d)
        return descend(g, g_gradients), descend(d, d_gradients), one, two + mask(WIDTH).sum()

    return step(weights(2), weights(2), data())


def _keys_split_while_tracing():
    class Keys:
        def __init__(self, key):
            self.key = key

        def __call__(self):
            self.key, key = jax.random.split(self.key)
            return key

    def loss(ws, x, keys):
        for w in ws:
            x = layer(x, w) * jax.random.bernoulli(keys(), 0.8, x.shape)
        return jnp.mean(x**2)

    @jax.jit
    def step(ws, x, key):
        keys = Keys(key)
        x = x + 0.1 * jax.random.normal(keys(), x.shape)
        value, gradients = jax.value_and_grad(loss)(ws, x, keys)
        noise = jax.random.normal(keys(), x.shape)
        return descend(ws, gradients), value + noise.sum(), jax.random.key_data(keys.key)

    return step(weights(), data(), jax.random.key(1))


def constants_that_outlive_the_loss():
    return _a_mask_that_two_losses_share(), _keys_split_while_tracing()


def _generators_and_counters():
    numbers = itertools.count()
    batches = (normal(seed, 8, WIDTH) for seed in range(100))

    def loss(ws, scale=1.0, *, shift):
        x = next(batches)
        for w in ws:
            x = layer(x, w) + next(numbers) * 0.01
        return jnp.mean(x**2) * scale + shift

    functions = [
        functools.partial(loss, scale=1.0 + i, shift=shift) for i in range(2) for shift in (0, 1)
    ]
    return [train(each, weights(), compiled=i % 2 == 0) for i, each in enumerate(functions)], next(
        numbers
    )


def _functions_made_in_a_loop():
    losses = [lambda ws, x, i=i: jnp.mean(network(ws[: i + 1], x) ** 2) for i in range(4)]
    plain = lambda f: lambda *a, **k: f(*a, **k)  # noqa: E731
    return [train(plain(loss), weights(), data(), steps=1) for loss in losses]


def python_that_draws_and_raises():
    return _errors_raised_by_layers(), _generators_and_counters(), _functions_made_in_a_loop()


# Pytrees, objects, methods.


@jax.tree_util.register_pytree_node_class
class Dense:
    made = 0

    def __init__(self, w, name):
        self.w, self.name = w, name
        Dense.made += 1

    def __call__(self, x):
        return layer(x, self.w)

    def tree_flatten(self):
        return (self.w,), self.name

    @classmethod
    def tree_unflatten(cls, name, children):
        (w,) = children
        new = object.__new__(cls)
        new.w, new.name = w, name
        return new


def pytrees_of_the_program():
    class Trainer:
        def __init__(self):
            self.layers = [Dense(w, f"layer{i}") for i, w in enumerate(weights())]
            self.losses = []
            self.step = jax.jit(self._step, static_argnames=("depth",), donate_argnums=(0,))

        def _step(self, layers, x, *, depth):
            (value, names), gradients = jax.value_and_grad(self.loss, has_aux=True)(
                layers, x=x, depth=depth
            )
            assert names == [f"layer{i}" for i in range(depth)], names
            return descend(layers, gradients), value

        @staticmethod
        def loss(layers, x, depth):
            for each in layers[:depth]:
                x = each(x)
            return jnp.mean(x**2), [each.name for each in layers[:depth]]

        def __call__(self, x, depth):
            self.layers, value = self.step(self.layers, x, depth=depth)
            self.losses.append(value)

    trainer = Trainer()
    for depth in (1, 3, 4):
        trainer(data(), depth)
    return [each.w for each in trainer.layers], trainer.losses, Dense.made


# Several derivatives, loops, and precisions.


def a_loss_scale_that_adapts():
    def loss(ws, x, scale):
        half = [w.astype(jnp.float16) for w in ws]
        return jnp.mean(network(half, x.astype(jnp.float16)).astype("float32") ** 2) * scale

    @jax.jit
    def step(ws, scale, x):
        value, gradients = jax.value_and_grad(loss)(ws, x, scale)
        gradients = [g / scale for g in gradients]
        finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in gradients]))
        ws = jax.tree.map(lambda w, g: jnp.where(finite, w - 0.1 * g, w), ws, gradients)
        return ws, jnp.where(finite, scale * 2, scale / 2), value / scale

    ws, scale, values = weights(), jnp.float32(1024), []
    for _ in range(4):
        ws, scale, value = step(ws, scale, data())
        values.append(value)
    return ws, values, scale


def _carries_of_mixed_types():
    def body(carry, w):
        x, count, key, flags, more = carry
        key, own = jax.random.split(key)
        x = layer(x, w) * jax.random.bernoulli(own, 0.9, x.shape)
        more = {"sum": more["sum"] + x.sum(), "none": None}
        return (x, count + 1, key, flags ^ (x > 0), more), (x.mean(), count, flags.sum())

    def loss(ws, x, key):
        carry = (x, jnp.int32(0), key, jnp.zeros(x.shape, bool), {"sum": 0.0, "none": None})
        (x, count, key, flags, more), (means, counts, sums) = jax.lax.scan(body, carry, ws)
        return jnp.mean(x**2) + more["sum"] * 1e-3, (key, count, flags, means, counts, sums)

    @jax.jit
    def step(ws, x, key):
        (value, aux), gradients = jax.value_and_grad(loss, has_aux=True)(ws, x, key)
        return descend(ws, gradients), value, jax.random.key_data(aux[0]), aux[1:]

    return step(jnp.stack(weights()), data(), KEY)


def _implicit_layers():
    def fixed_point(w, x):
        solve = lambda f, z: jax.lax.fori_loop(0, 20, lambda i, z: z - f(z), z)  # noqa: E731
        linear = lambda g, y: jnp.linalg.solve(jax.jacobian(g)(y), y)  # noqa: E731
        row = lambda x: jax.lax.custom_root(  # noqa: E731
            lambda z: z - jnp.tanh(0.2 * z @ w + x), jnp.zeros(WIDTH), solve, linear
        )
        return jnp.stack([row(each) for each in x])

    def loss(ws, x):
        x = fixed_point(ws[1], layer(x, ws[0]))
        steps = jax.lax.while_loop(
            lambda s: (s[1] < 5) & (s[0].max() < 1e3),
            lambda s: (s[0] * 1.5, s[1] + 1),
            (jax.lax.stop_gradient(x), 0),
        )
        return (
            jnp.mean(x**2)
            + jnp.mean(jnp.linalg.solve(jnp.eye(WIDTH) * 3 + ws[2], x.T))
            + 0 * steps[1]
        )

    return train(loss, weights(3), data())


def carries_and_solvers():
    return _carries_of_mixed_types(), _implicit_layers()


def several_derivatives_at_once():
    def loss(ws, x):
        return jnp.mean(network(ws, x) ** 2)

    def product(ws, vs, x):
        return jax.grad(
            lambda ws: sum(jnp.vdot(g, v) for g, v in zip(jax.grad(loss)(ws, x), vs, strict=True))
        )(ws)

    def both(ws, x):
        other = lambda ws, x: jnp.mean(jnp.sin(network(ws, x)) ** 2)  # noqa: E731
        ensemble = jax.vmap(jax.value_and_grad(other), in_axes=(0, None))(
            [jnp.stack([w, w + 0.1]) for w in ws], x
        )
        hessian = jax.hessian(lambda b: other(ws, x * 2 + b))(jnp.zeros(WIDTH))
        directional = jax.jvp(lambda x: jax.grad(lambda ws: other(ws, x).sum() * 3)(ws), (x,), (x,))
        implicit = jax.vjp(lambda x: network(ws, x), x)[1]
        return (
            product(ws, ws, x),
            ensemble,
            hessian,
            directional,
            jax.vmap(implicit)(jnp.stack([x, x])),
        )

    return jax.jit(both)(weights(2), data())


# Several devices.


def constants_through_mapped_functions():
    """JAX computes them at once, outside of `jit`."""
    mesh = _mesh("d")
    looked = []

    def loss(ws, x):
        double = jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
        scale = double(jnp.ones(8))
        looked.append(isinstance(scale, jax.core.Tracer))
        return jnp.mean(network(ws, x) ** 2) * scale[0]

    return train(loss, weights(2), exact_data(), compiled=False, steps=1), looked


# Libraries.


def equinox_state_and_checks():
    import equinox as eqx

    class Block(eqx.Module):
        linear: eqx.nn.Linear
        norm: eqx.nn.BatchNorm
        drop: eqx.nn.Dropout

        def __init__(self, key):
            self.linear = eqx.nn.Linear(WIDTH, WIDTH, key=key)
            self.norm = eqx.nn.BatchNorm(WIDTH, "batch", mode="batch")
            self.drop = eqx.nn.Dropout(0.3)

        def __call__(self, x, state, key):
            y, state = self.norm(self.linear(x), state)
            return x + self.drop(jnp.tanh(y), key=key), state

    block, state = eqx.nn.make_with_state(Block)(KEY)

    @eqx.filter_jit
    @functools.partial(eqx.filter_value_and_grad, has_aux=True)
    def step(block, state, x, keys):
        apply = jax.vmap(block, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
        y, state = apply(x, state, keys)
        y = eqx.error_if(y, jnp.any(jnp.isnan(y)), "not a number")
        return jnp.mean(y**2), state

    values = []
    for i in range(2):
        (value, state), gradients = step(
            block, state, data(), jax.random.split(jax.random.key(i), 6)
        )
        block = eqx.apply_updates(block, jax.tree.map(lambda g: -0.1 * g, gradients))
        values.append(value)
    return values, jax.tree.leaves(eqx.filter(block, eqx.is_array)), jax.tree.leaves(state)


# Functions without arguments.
RUNS = {
    name: value
    for name, value in list(globals().items())
    if getattr(value, "__module__", "") == __name__
    and hasattr(value, "__code__")
    and value.__code__.co_argcount == 0
    and not name.startswith("_")
}
