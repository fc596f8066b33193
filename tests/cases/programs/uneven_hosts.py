"""Hosts with data of different sizes agree on how many steps to train, in the way that is named.

``python uneven_hosts.py WAY FOLDER``: each host writes how many steps it has trained into a file
of the folder. With ``PORT`` it is one of the processes of a real cluster of CPUs.
"""

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

if "PORT" in os.environ:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address = f"127.0.0.1:{os.environ['PORT']}"
    jax.distributed.initialize(address, int(os.environ["COUNT"]), int(os.environ["INDEX"]))
else:
    jax.distributed.initialize()
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

me, count = jax.process_index(), jax.process_count()
batches = 9 - 3 * me
mesh = Mesh(np.array(jax.devices()), ("data",))
sharded, replicated = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


def gather(number):
    return multihost_utils.process_allgather(np.array([number])).ravel()


def least():
    return int(gather(batches).min())


def most():
    return int(gather(batches).max())


def mean():
    return int(gather(batches).sum()) // count


def of_the_last_host():
    is_last = me == count - 1
    return int(multihost_utils.broadcast_one_to_all(np.array(batches), is_source=is_last))


def set_by_the_last_host():
    from jax._src.distributed import global_state

    if me == count - 1:
        global_state.client.key_value_set("steps", str(batches))
    return int(global_state.client.blocking_key_value_get("steps", 60_000))


def in_two_rounds():
    fewest = int(gather(batches).min())
    return int(gather(fewest + me).max())


def in_three_rounds():
    fewest = int(gather(batches).min())
    most = int(gather(fewest + me).max())
    return int(gather(most + 1 - me).max())


def make_global_array(number):
    """Return an array with the number of each host on each of its devices."""
    numbers = np.full(len(jax.local_devices()), number, np.int32)
    return jax.make_array_from_process_local_data(sharded, numbers)


def in_a_compiled_reduction():
    return int(jax.jit(jnp.min)(make_global_array(batches)))


def in_eager_reductions():
    numbers = make_global_array(batches)
    return int((numbers.sum() / numbers.size).astype(int))


def in_two_compiled_rounds():
    fewest = jax.jit(jnp.min)(make_global_array(batches))
    most = jax.jit(lambda numbers, least: jnp.max(numbers - least))
    return int(fewest + most(make_global_array(batches), fewest))


def in_a_gathered_array():
    return int(multihost_utils.process_allgather(make_global_array(batches), tiled=True).min())


def in_a_loop_until_all_are_done():
    steps, any_is_left = 0, jax.jit(lambda left: (left > 0).any())
    while any_is_left(make_global_array(batches - steps)):
        steps += 1
    return steps


steps = globals()[sys.argv[1]]()


def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)


train_step = jax.jit(step, out_shardings=replicated)
w = jax.jit(lambda: jnp.ones((16, 16)), out_shardings=replicated)()
for _ in range(steps):
    rows = np.ones((len(jax.local_devices()), 16), np.float32)
    w = train_step(w, jax.make_array_from_process_local_data(sharded, rows))
jax.block_until_ready(w)
Path(sys.argv[2], str(me)).write_text(str(steps))
