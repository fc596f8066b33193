"""The loader in programs of several processes: real `jax.distributed`, two of them on the CPU."""

import json
import sys

import h5py
import numpy as np
import pytest
from commands import hold_port, start_command

from vramfit.data import Loader

ROWS = 203
BATCH = 16
PROCESSES = 2

PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

path, port, rank, world, stop, stack, state = json.loads(sys.argv[1])
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=world, process_id=rank)
from vramfit.data import Loader

mesh = Mesh(np.array(jax.devices()), ("data",))
spec = PartitionSpec("data") if stack is None else PartitionSpec(None, "data")
options = {"batch_size": 16, "memory": "1MiB", "stacked_batches": stack}
loader = Loader(path, ["x", "y"], sharding=NamedSharding(mesh, spec), **options)
batches = loader.to_device()
if state is not None:
    batches.restore(state)
totals = jax.jit(lambda batch: batch["x"].sum((-2, -1)))
seen, sums = [], []
for batch in batches:
    assert batch["y"].shape == ((16,) if stack is None else (stack, 16))
    assert len(batch["y"].sharding.device_set) == len(jax.devices()) == 4
    # The sum needs the rows of both processes; every process has it.
    sums.append(np.asarray(totals(batch)).tolist())
    shards = sorted(batch["y"].addressable_shards, key=lambda shard: shard.index[-1].start)
    seen.append(np.concatenate([np.asarray(shard.data) for shard in shards], -1).tolist())
    if len(seen) == stop:
        break
print(json.dumps([seen, sums, batches.state()]))
"""


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.h5"
    with h5py.File(path, "w") as f:
        number = np.arange(ROWS, dtype="i4")
        x = (number[:, None] * 8 + np.arange(8)).astype("f4")
        f.create_dataset("x", data=x, chunks=(10, 8), compression="gzip")
        f["y"] = number
    return path


def run(path, stop=None, stack=None, state=None):
    """Run all processes at the same time; return rows, sums and state of each."""
    port = hold_port()
    flags = "--xla_force_host_platform_device_count=2"
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    children = []
    for rank in range(PROCESSES):
        arguments = [str(path), port, rank, PROCESSES, stop, stack, state]
        words = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
        children.append(start_command(*words, env=environment))
    ends = [child.communicate(timeout=100) for child in children]
    for child, (_, errors) in zip(children, ends, strict=True):
        assert child.returncode == 0, errors
    # What connects the processes says so first.
    return [json.loads(out.splitlines()[-1]) for out, _ in ends]


def alone(path, **options):
    """Return the batches of one process that reads all."""
    options = {"batch_size": BATCH, "memory": "1MiB", "last_batch": "pad", **options}
    with Loader(path, ["x", "y"], **options) as loader:
        return [{name: part.copy() for name, part in batch.items()} for batch in loader]


def test_t4_two_processes_have_the_batches_of_one_and_resume_from_them(train):
    expected = alone(train)
    first = run(train, stop=5)
    states = [state for _, _, state in first]
    assert states[0] == states[1], "a checkpoint may be written by either"
    second = run(train, state=states[0])
    for number, batch in enumerate(expected):
        part, at = (first, number) if number < 5 else (second, number - 5)
        together = [row for rows, _, _ in part for row in rows[at]]
        assert together == batch["y"].tolist()
        for _, sums, _ in part:
            # Whole numbers, exact in any order.
            assert sums[at] == batch["x"].sum()
    assert len(second[0][0]) == len(expected) - 5


def test_t4_stacks_are_divided_along_their_second_axis(train):
    expected = alone(train, stacked_batches=3)
    for_each = run(train, stack=3)
    for number, stack in enumerate(expected):
        parts = [np.array(rows[number]) for rows, _, _ in for_each]
        assert np.array_equal(np.concatenate(parts, 1), stack["y"])
        assert for_each[0][1][number] == stack["x"].sum((1, 2)).tolist()
