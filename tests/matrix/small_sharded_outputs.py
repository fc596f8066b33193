"""Small outputs that eight GPUs compute together beside large state, on every release."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map

DEVICES = 8
SIZE = 8192  # 256 MiB: not computed
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))


def put(array, *axes):
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))


# A counter and a sum over all devices beside large shards, for each device of its own.
@functools.partial(jax.pmap, axis_name="device")
def mapped(state):
    total = lax.psum(state["number"], "device")
    return {
        "weights": state["weights"] * 2,
        "number": state["number"] + lax.axis_index("device") + total,
        "key": jax.vmap(jax.random.split)(state["key"][None])[0, 0],
    }


state = {
    "weights": jnp.ones((DEVICES, SIZE // DEVICES, SIZE)),
    "number": jnp.zeros(DEVICES, jnp.int32),
    "key": jax.random.split(jax.random.PRNGKey(0), DEVICES),
}
keys, numbers = state["key"], np.zeros(DEVICES, np.int64)
for _ in range(3):
    state = mapped(state)
    numbers = numbers + np.arange(DEVICES) + numbers.sum()
    keys = jnp.stack([jax.random.split(key)[0] for key in keys])
assert np.asarray(state["number"]).tolist() == numbers.tolist()
assert int(state["number"][2]) == numbers[2]
np.testing.assert_array_equal(state["key"], keys)


# Collectives of small shards beside a large one.
def each(weights, tokens, number):
    step = lax.axis_index("data") * 2 + lax.axis_index("model")
    ring = [(source, (source + 1) % 4) for source in range(4)]

    def body(carry, _):
        carry = carry + lax.psum(carry, "model")
        return carry, carry.sum()

    last, seen = lax.scan(body, tokens, None, length=3)
    return (
        weights * lax.psum(weights.sum(), "data"),
        lax.psum((tokens > 2).sum(), "data"),
        lax.ppermute(tokens, "data", ring),
        lax.all_gather(step[None], ("data", "model"), tiled=True),
        last,
        lax.psum(seen, "data"),
        lax.psum(number, ("data", "model")),
        number + 1,
    )


rows = PartitionSpec("data")
check = {"check_vma": False} if hasattr(jax, "shard_map") else {"check_rep": False}
function = shard_map(
    each,
    mesh=mesh,
    in_specs=(rows, rows, PartitionSpec()),
    out_specs=(rows, PartitionSpec(), rows, PartitionSpec(), rows, *[PartitionSpec()] * 3),
    **check,
)
tokens = np.arange(16, dtype=np.int32)
weights = put(jnp.ones((SIZE, SIZE)), "data")
found = jax.jit(function)(weights, put(tokens, "data"), put(jnp.int32(5)))
assert int(found[1]) == 13
assert found[2].tolist() == np.roll(tokens, 4).tolist()
assert found[3].tolist() == list(range(DEVICES))
assert found[4].tolist() == (tokens * 27).tolist()
assert found[5].tolist() == [tokens.sum() * 3**power for power in (1, 2, 3)]
assert [int(found[6]), int(found[7])] == [5 * DEVICES, 6]


# The compiler divides the work: sharded labels, a constraint, an argument without a sharding.
@functools.partial(jax.jit, donate_argnums=0)
def step(state, labels, free):
    ordered = lax.with_sharding_constraint(labels[::-1], NamedSharding(mesh, rows))
    return {
        "weights": state["weights"] @ state["weights"],
        "seen": state["seen"] + (labels % 3 == 0).sum(),
        "last": ordered,
        "free": free * labels,
    }


state = {
    "weights": put(jnp.ones((SIZE, SIZE)), "data", "model"),
    "seen": put(jnp.int32(0)),
    "last": put(tokens, "data"),
    "free": put(tokens, "data"),
}
for number in range(4):
    state = step(state, put(tokens + number, "data"), jnp.arange(16, dtype=jnp.int32))
assert int(state["seen"]) == sum(((tokens + number) % 3 == 0).sum() for number in range(4))
assert state["last"].tolist() == (tokens + 3)[::-1].tolist()
# The partitioner of 0.6 divides an argument without a sharding as all of its uses want.
if jax.__version_info__ >= (0, 7):
    assert state["free"].tolist() == (np.arange(16) * (tokens + 3)).tolist()
