"""What is mapped is the same in chunks: numbers, gradients, keys, types, effects, Jacobians."""

import pathlib
import sys

import jax
import jax.extend
import jax.interpreters.batching
import jax.numpy as jnp
import numpy as np
from jax._src import api

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from vramfit._plan import _chunk

ORIGINAL = jax.vmap, api.vmap
ROWS = jnp.arange(40.0).reshape(10, 4) / 10
KEYS = jax.random.split(jax.random.key(0), 7)


class InChunksOf:
    """Divides everything that is mapped, and counts it."""

    def __init__(self, size):
        self.size, self.mapped, self.indivisible = size, 0, 0
        self.transforms = set()

    def batch_size(self, transform, definition, elements):
        self.mapped += 1
        self.transforms.add((transform, definition.partition(" ")[2]))
        return min(self.size, elements)

    def on_indivisible(self, definition):
        self.indivisible += 1


def check(function, *arguments, sizes=(1, 3, 5), is_divisible=True, transforms=None):
    """Compare a function that calls `jax.vmap` with itself in chunks.

    Args:
        function: The function.
        arguments: Of it.
        sizes: Of the chunks.
        is_divisible: Whether all that is mapped may be divided.
        transforms: What maps which function, where that is not only `jax.vmap`.
    """
    expected = jax.jit(lambda *args: function(*args))(*arguments)
    for size in sizes:
        planner = InChunksOf(size)
        _chunk.install(jax, planner)
        results = jax.jit(lambda *args: function(*args))(*arguments)
        jax.vmap, api.vmap = ORIGINAL
        assert planner.mapped > 0
        assert (planner.indivisible == 0) == is_divisible
        assert transforms is None or planner.transforms == transforms, planner.transforms
        assert jax.tree.structure(results) == jax.tree.structure(expected)
        for one, other in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
            assert one.aval == other.aval, (one.aval, other.aval)
            if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
                one, other = jax.random.key_data(one), jax.random.key_data(other)
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def loss(weight, rows):
    return jax.vmap(lambda row: jnp.tanh(jnp.outer(row, row) * weight).sum())(rows).sum()


def sum_of_powers(row):
    start = (0, jnp.float32(1))
    step = lambda state: (state[0] + 1, state[1] * 1.1)  # noqa: E731
    return jax.lax.while_loop(lambda state: state[0] < row[0].astype(int), step, start)


check(lambda x: jax.vmap(lambda row: jnp.outer(row, row).sum(0))(x), ROWS)
# Axes of arguments and results; results that are numbers, and whose type yields to others.
check(
    lambda x: jax.vmap(
        lambda row, shift: (jnp.sin(row) + shift, 1.0, row.sum()),
        in_axes=(1, None),
        out_axes=(1, 0, 0),
    )(x, 2.0),
    ROWS,
)
check(
    lambda tree: jax.vmap(lambda tree, *, s: {"o": tree["a"] * s}, in_axes=({"a": 0, "b": None},))(
        tree, s=jnp.arange(10.0)
    ),
    {"a": ROWS, "b": 1.0},
)
check(lambda: jax.vmap(lambda i: i * 2)(jnp.arange(11)) * jnp.bfloat16(1.5))
# Nested, loops, branches, decompositions.
check(lambda x: jax.vmap(lambda row: jax.vmap(lambda e: e * row)(row))(x), ROWS)
check(lambda x: jax.vmap(sum_of_powers)(x), ROWS)
check(
    lambda x: jax.vmap(lambda row: jax.lax.cond(row[0] > 1, lambda: row.sum(), lambda: row.prod()))(
        x
    ),
    ROWS,
)
check(lambda x: jax.vmap(lambda row: jnp.linalg.qr(jnp.outer(row, row) + jnp.eye(4))[1])(x), ROWS)
# Derivatives by what is mapped and by what is not.
check(lambda x: jax.grad(loss)(1.5, x), ROWS)
check(lambda x: jax.grad(loss, argnums=1)(1.5, x), ROWS)
check(lambda x: jax.hessian(loss)(1.5, x), ROWS)
check(lambda x: jax.jacfwd(lambda w: jax.vmap(lambda row: jnp.tanh(row * w).sum())(x))(1.5), ROWS)
# A result that all elements share.
check(
    lambda x: jax.vmap(lambda row, s: (row * s, s + 1), in_axes=(0, None), out_axes=(0, None))(
        x, 2.0
    ),
    ROWS,
)


# Jacobians: by some inputs, or of some outputs, at a time.
def field(row, weight=1.5):
    return {"a": jnp.tanh(jnp.outer(row, row[:2]) * weight), "b": jnp.sin(row).sum()}


def energy(tree):
    return jnp.sin(tree["x"]).sum() * jnp.exp(tree["s"]) + (tree["x"] ** 3).prod()


ROW = ROWS[1]
TREE = {"x": ROW, "s": jnp.float32(0.3)}
FORWARD, REVERSE = {("jacfwd", "(field)")}, {("jacrev", "(field)")}
check(lambda x: jax.jacfwd(field)(x), ROW, transforms=FORWARD)
check(lambda x: jax.jacrev(field)(x), ROW, transforms=REVERSE)
check(lambda x: jax.jacobian(field)(x), ROW, transforms=REVERSE)
check(lambda x, w: jax.jacfwd(field, argnums=(0, 1))(x, w), ROW, 0.5, transforms=FORWARD)
check(lambda x, w: jax.jacrev(field, argnums=(1, 0))(x, w), ROW, 0.5, transforms=REVERSE)
HESSIAN = {("jacfwd", "(energy)"), ("jacrev", "(energy)")}
check(lambda tree: jax.hessian(energy)(tree), TREE, transforms=HESSIAN)
for jacobian in (jax.jacfwd, jax.jacrev):
    check(
        lambda x, jacobian=jacobian: jacobian(lambda y: (y**2, (y + 1, y.sum())), has_aux=True)(x),
        ROW,
    )
    check(
        lambda x, jacobian=jacobian: jacobian(lambda z: jnp.exp(z) * z[::-1], holomorphic=True)(x),
        ROW * (1 + 0.5j),
    )
    # In a `vmap`, in a gradient, in a loop, and of types that differ.
    check(lambda x, jacobian=jacobian: jax.vmap(jacobian(field))(x), ROWS)
    check(
        lambda x, jacobian=jacobian: jax.grad(lambda y: (jacobian(field)(y)["a"] ** 2).sum())(x),
        ROW,
    )
    check(lambda x, jacobian=jacobian: jax.lax.map(jacobian(field), x), ROWS)
    check(
        lambda x, jacobian=jacobian: jacobian(lambda y: (y.astype(jnp.bfloat16) * 2).sum())(x),
        ROW,
    )
    check(lambda x, jacobian=jacobian: jacobian(jax.nn.softmax)(x), ROW)
# Random keys, new and old.
check(lambda keys: jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys), KEYS)
check(lambda keys: jax.vmap(jax.random.split)(keys), KEYS)
check(
    lambda keys: jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys), jax.random.key_data(KEYS)
)
# What depends on how many elements are computed together stays as it is.
hardware = jax.random.split(jax.random.key(0, impl="rbg"), 7)
check(
    lambda keys: jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys),
    hardware,
    is_divisible=False,
)
check(
    lambda x: jax.vmap(lambda row: jnp.linalg.eigh(jnp.outer(row, row))[0])(x),
    ROWS,
    is_divisible=False,
)
called = []


def noted(row):
    jax.debug.callback(lambda value: called.append(float(value)), row[0])
    return row


check(lambda x: jax.vmap(noted)(x), ROWS, is_divisible=False)
jax.effects_barrier()
assert sorted(called) == sorted(4 * [float(row[0]) for row in np.asarray(ROWS)]), called


@jax.custom_jvp
def own_rule(row):
    return row * 2


@own_rule.defjvp
def own_rule_jvp(primals, tangents):
    jax.debug.callback(lambda: None)
    return own_rule(*primals), tangents[0] * 2


largest = jax.extend.core.Primitive("largest_of_all")
largest.def_abstract_eval(lambda x: x)
largest.def_impl(lambda x: x)
jax.interpreters.batching.primitive_batchers[largest] = lambda args, dims: (
    jnp.broadcast_to(args[0].max(), args[0].shape),
    dims[0],
)
check(lambda x: jax.vmap(own_rule)(x), ROWS, is_divisible=False)
check(lambda x: jax.vmap(lambda row: largest.bind(row * 2))(x), ROWS, is_divisible=False)
# Functions of JAX with rules of their own are no obstacle.
check(lambda x: jax.vmap(lambda row: jax.nn.relu(row) + jax.nn.softmax(row))(x), ROWS)
check(lambda x: jax.grad(lambda x: jax.vmap(jax.nn.logsumexp)(x).sum())(x), ROWS)

# Its Python is called once, and outside of `jit` nothing is done.
evaluations = []


def counted(row):
    evaluations.append(1)
    return row * 2


_chunk.install(jax, InChunksOf(3))
jax.jit(lambda x: jax.vmap(counted)(x))(ROWS)
jax.vmap(counted)(ROWS)
assert len(evaluations) == 2, evaluations
# What JAX refuses is refused as before.
for wrong in (
    lambda: jax.vmap(counted, in_axes=3)(ROWS),
    lambda: jax.vmap(lambda a, b: a)(ROWS, ROWS[:3]),
    lambda: jax.vmap(lambda row: "text")(ROWS),
    lambda: jax.vmap(counted, axis_size=7)(ROWS),
):
    try:
        jax.jit(wrong)()
    except (ValueError, TypeError):
        continue
    raise AssertionError("it was accepted")
