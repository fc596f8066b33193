"""Edits that are measured change what a program allocates, and not what it computes."""

import functools
import os
import pathlib
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from vramfit._plan import _edits
from vramfit._plan._edits import Edit

if jax.default_backend() != "cpu":
    # The devices of this program are those of the host.
    print("ok")
    raise SystemExit

ORIGINAL = jax.jit
MESH = Mesh(np.array(jax.devices("cpu")), ("all",))
DIVIDED = NamedSharding(MESH, PartitionSpec("all"))
COLUMNS = NamedSharding(MESH, PartitionSpec(None, "all"))
WEIGHTS = jax.device_put(jnp.arange(256.0).reshape(16, 16) / 256, COLUMNS)
ROWS = jax.device_put(jnp.arange(128.0).reshape(8, 16) / 128, DIVIDED)


def with_edits(make, *edits):
    """Return what a program computes with edits of its functions."""
    _edits.install(jax, edits)
    try:
        return make()
    finally:
        jax.jit = ORIGINAL


def check(make, *edits):
    """Compare a program with itself, edited; return the results of the edited one."""
    expected, found = make(), with_edits(make, *edits)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        # Differences of numbers of about 1.
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
    return found


def layers(weights, rows, scale):
    def layer(x, w):
        return jnp.tanh(x @ w) * scale["by"], (x**2).sum()

    first = jnp.sin(rows @ weights)
    last, norms = jax.lax.scan(layer, first, jnp.stack([weights] * 3))
    return jnp.mean(last**2) + norms.sum()


def training():
    @jax.jit
    def step(weights, rows, scale):
        value, slope = jax.value_and_grad(layers)(weights, rows, scale)
        return {"value": value, "weights": weights - slope, "unchanged": 3}

    results = [step(WEIGHTS, ROWS, {"by": 2.0}), step(WEIGHTS, ROWS[::-1], scale={"by": 1.0})]
    assert step.lower(WEIGHTS, ROWS, {"by": 2.0}).as_text()
    return results


def static_arguments():
    @functools.partial(jax.jit, static_argnames=("kind", "count"))
    def step(weights, rows, kind, count=2):
        return (rows @ weights * count, None) if kind == "a" else (rows.sum(), kind)

    return step(WEIGHTS, ROWS, "a")[0], step(WEIGHTS, ROWS, kind="a", count=3)[0]


def inside_of_another():
    @jax.jit
    def step(weights, rows):
        return rows @ weights

    return jax.jit(lambda rows: step(WEIGHTS, rows) * 2)(ROWS)


def no_batch():
    @jax.jit
    def step(weights):
        return weights * 2

    return step(WEIGHTS), step(jnp.ones(8))


CONSTRAINT = Edit("constrain_batch", "step", rows=8)
for make in (training, static_arguments, inside_of_another, no_batch):
    check(make, CONSTRAINT)


def constrained():
    @jax.jit
    def step(weights, rows):
        return layers(weights, rows, {"by": 2.0})

    step(WEIGHTS, ROWS)
    return step.lower(WEIGHTS, ROWS).as_text().count("sharding_constraint") + step.lower(
        WEIGHTS, ROWS
    ).as_text().count("@Sharding")


# The first value and what the scan hands on.
assert constrained() == 0
assert with_edits(constrained, CONSTRAINT) >= 2


def initial_state():
    @jax.jit
    def init(weights):
        return {"mean": jnp.zeros_like(weights), "count": jnp.zeros((), jnp.int32)}

    return init(WEIGHTS), init(weights=WEIGHTS)


for state in check(initial_state, Edit("shard_outputs", "init")):
    assert state["mean"].sharding.is_equivalent_to(COLUMNS, 2)
    assert state["count"].sharding.is_fully_replicated


def own_shardings():
    @functools.partial(jax.jit, out_shardings=DIVIDED)
    def init(weights):
        return jnp.zeros_like(weights)

    return init(WEIGHTS)


assert check(own_shardings, Edit("shard_outputs", "init")).sharding.is_equivalent_to(DIVIDED, 2)


def one_device():
    @jax.jit
    def init(weights):
        return jnp.zeros_like(weights)

    return init(jnp.ones(4))


check(one_device, Edit("shard_outputs", "init"))
print("ok")
