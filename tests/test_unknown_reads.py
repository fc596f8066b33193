"""Reads of made-up values: each is counted, and those that become shapes are told."""

import pytest
from cli_dryrun import dryrun_of

SETUP = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import SingleDeviceSharding

x = jnp.tanh(jnp.ones((8192, 2048)))
k = (x * 3).astype(jnp.int32)
"""

# Each is a function, so that each has a line of its own.
SHAPES = """
def nonzero(): jnp.nonzero(x)
def where(): jnp.where(x > 0.5)
def argwhere(): jnp.argwhere(x)
def flatnonzero(): jnp.flatnonzero(x)
def mask(): x[x > 0.5]
def unique(): jnp.unique(x)
def bincount(): jnp.bincount(k.ravel())
def repeat(): jnp.repeat(x[0], k[0])
def setdiff1d(): jnp.setdiff1d(x.ravel(), x[1])
def extract(): jnp.extract(x > 0.5, x)
def zeros(): jnp.zeros((k.sum(),))
def arange(): jnp.arange(k.sum())
def linspace(): jnp.linspace(0, 1, k.sum())
def cut(): x[:k.sum()]
def tile(): jnp.tile(x[0], k.sum())
def normal(): jax.random.normal(jax.random.key(0), (k.sum(),))
"""

VALUES = """
def item(): x.sum().item()
def number(): float(x.sum())
def array(): np.asarray(x)
def branch(): bool((x > 1).any())
def one_of(): [1, 2, 3][k.sum()]
"""

NO_READS = """
def select(): jnp.where(x > 0.5, x, 0)
def row(): x[k.sum()]
def some(): jnp.nonzero(x, size=7)
"""

CALL = """
for name in {names}:
    globals()[name]()
"""


def names(functions):
    """Return the names of functions of one line each."""
    return [line.split("(")[0].removeprefix("def ") for line in functions.split("\n") if line]


def unknown_reads(tmp_path, script):
    """Return what was read, by function, and what the verdict depends on."""
    summary = dryrun_of(tmp_path, SETUP + script, code=0).summary
    reads = {row["site"].split("(")[1].rstrip(")"): row for row in summary["unknown_reads"]}
    return reads, summary["verdict"]["conditions"]


def test_a_shape_made_of_unknown_values_is_distinguished_from_other_reads(tmp_path):
    functions = SHAPES + VALUES + NO_READS
    reads, conditions = unknown_reads(tmp_path, functions + CALL.format(names=names(functions)))
    shaping = {name for name, row in reads.items() if row["shapes"] > 0}
    assert shaping == set(names(SHAPES))
    assert reads.keys() - shaping == set(names(VALUES))
    (condition,) = conditions
    assert (condition["kind"], condition["expression"]) == ("placeholder_decides", None)


def test_reads_without_a_shape_say_nothing_of_shapes(tmp_path):
    reads, conditions = unknown_reads(tmp_path, "float(x.sum())")
    assert [(row["reads"], row["shapes"]) for row in reads.values()] == [(1, 0)]
    assert conditions == []


def test_an_array_in_pinned_host_memory_is_counted_once(tmp_path):
    reads, _ = unknown_reads(
        tmp_path,
        """
host = SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
made_up, known = jax.device_put(x, host), jax.device_put(np.ones(3, np.float32), host)

def pointer(): made_up.unsafe_buffer_pointer()
def look(): return np.asarray(made_up), np.asarray(made_up), np.asarray(known)

assert [array.sum() for array in look()] == [0, 0, 3]
pointer()
""",
    )
    counted = {name: (row["reads"], row["bytes"]) for name, row in reads.items()}
    assert counted == {"look": (1, 8192 * 2048 * 4)}


ASSUMED = """
from jax.experimental import io_callback

is_finite = jnp.isfinite(x).all()
adjust = jax.jit(lambda is_finite, scale: jnp.where(is_finite, scale * 1.25, 0))
scale = jnp.float32(1)
for _ in range({steps}):
    scale = adjust(is_finite, scale)
calls = []
jax.jit(lambda is_finite: io_callback(calls.append, None, is_finite))(is_finite)
jax.effects_barrier()
print(float(scale), len(calls))
"""


@pytest.mark.parametrize("steps", [3, 200])
def test_a_small_program_goes_on_with_what_is_assumed(tmp_path, steps):
    """A number that follows from a placeholder is one; of no length of chain does it become 0."""
    run = dryrun_of(tmp_path, SETUP + ASSUMED.format(steps=steps), code=0)
    scale, calls = run.out.split()
    assert float(scale) == pytest.approx(1.25**steps)
    assert calls == "1"
    assert sum(row["reads"] for row in run.summary["unknown_reads"]) == 1


# The product of seven matrices of 2,048 rows takes too long, which is found out when something
# that follows from it is read: small enough by its bytes, it may be computed until then.
POWER = """
def power(w):
    product = w @ w @ w @ w @ w @ w @ w
    return product, product.max(), jnp.int32(3)

def step():
    # A program of its own: of the next call it would be known already.
    return jax.jit(lambda w: power(w))(jnp.ones((2048, 2048)))

both = jax.jit(lambda m, count: (m > 0.5, count + 1))
"""

FOUND_OUT_LATE = """
def number(): return float(step()[1])
def greater(): return bool(step()[1] > 0.5)
def negated(): return bool(~(step()[1] > 0.5))
def joined(): return bool((step()[1] > 0.5) & (step()[1] < 3.0))
def finite(): return bool(jnp.isfinite(step()[0]).all())
def doubled(): return float(step()[1] * 2)
def counted(): return int((step()[1] > 0.5).astype(jnp.int32) + 1)
def chosen(): return float(jnp.where(step()[1] > 0.5, 1.0, 2.0))
def branched(): return int(jax.lax.cond(step()[1] > 0.5, lambda: 1, lambda: 2))
def stacked(): return float(jnp.stack([step()[1], jnp.float32(1)]).sum())
def together(): return bool(both(step()[1], 0)[0])
def indexed(): return float(step()[0][5, 5])
def looped(): return int(jax.lax.while_loop(lambda v: v < step()[1], lambda v: v + 1, 0.0))
"""

KNOWN_BESIDE = """
def count(): return int(step()[2])
def next_count(): return int(step()[2] + 1)
def beside(): return int(both(step()[1], 0)[1])
"""


def test_what_is_found_out_late_not_to_be_known_is_a_placeholder(tmp_path):
    functions = FOUND_OUT_LATE + KNOWN_BESIDE
    reads, _ = unknown_reads(tmp_path, POWER + functions + CALL.format(names=names(functions)))
    assert sorted(reads) == sorted(names(FOUND_OUT_LATE))
