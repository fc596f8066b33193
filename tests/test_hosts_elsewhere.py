"""Programs whose devices are all those of another host, and hosts that JAX mocks."""

import json
import sys

import pytest
from commands import run_vramfit
from hosts import run_hosts

# Each host makes the calls; only host 1 has the device. The output of one host is shown only.
ON_ANOTHER_HOST = """
import json, pathlib, sys
import jax, numpy as np
jax.distributed.initialize()
own = jax.device_put(np.ones(256, np.float32), jax.local_devices()[0])
device = jax.local_devices(process_index=1)[0]
x = jax.device_put(np.ones((256, 1024), np.float32), device)
y = jax.jit(lambda x: x + 1)(x)
y.block_until_ready()
stats = jax.local_devices()[0].memory_stats()
found = [jax.process_index(), len(y.addressable_shards), stats["bytes_in_use"]]
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
"""


def test_a_program_on_the_devices_of_another_host_takes_no_memory_of_this_one(tmp_path):
    found = tmp_path / "{host}.json"
    run = run_hosts(tmp_path, ON_ANOTHER_HOST, "--host", "all", arguments=[found])
    assert run.code == 0, run.err
    # `own` has 1 KiB, `x` and `y` have 1 MiB each.
    for host, expected in enumerate([[0, 0, 1024], [1, 1, (2 << 20) + 1024]]):
        assert json.loads((tmp_path / f"{host}.json").read_text()) == expected


# Both hosts call back for the devices that they have.
WITH_CALLBACKS = """
import json, pathlib, sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback
from jax.sharding import Mesh, PartitionSpec as P
jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()), ("x",))
calls = []

@jax.jit
@jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
def step(x):
    io_callback(lambda x: calls.append(x.shape), None, x)
    return x * 2

sharding = jax.NamedSharding(mesh, P("x"))
x = jax.make_array_from_process_local_data(sharding, np.ones((6, 4), np.float32))
step(x).block_until_ready()
jax.effects_barrier()
pathlib.Path(sys.argv[1]).write_text(json.dumps(calls))
"""


def test_each_host_calls_back_for_its_devices(tmp_path):
    found = tmp_path / "{host}.json"
    run = run_hosts(tmp_path, WITH_CALLBACKS, "--host", "all", arguments=[found])
    assert run.code == 0, run.err
    for host in range(2):
        # Two GPUs in each, with three of the twelve rows.
        assert json.loads((tmp_path / f"{host}.json").read_text()) == [[3, 4], [3, 4]]


# JAX reads the topology from no environment variable.
ON_MOCKED_HOSTS = """
import json, sys, jax
jax.config.update("jax_mock_gpu_topology", sys.argv[1])
devices = [device.process_index for device in jax.devices()]
jax.numpy.ones(3).block_until_ready()
print(json.dumps([devices, jax.process_index(), len(jax.local_devices())]))
"""


@pytest.mark.parametrize(
    ("topology", "gpus", "devices"),
    [("1x8x1", 1, [0, 1, 2, 3, 4, 5, 6, 7]), ("1x2x2", 2, [0, 0, 1, 1])],
)
def test_hosts_that_jax_mocks_have_devices(topology, gpus, devices):
    command = ["-q", "dryrun", "--gpu", f"h100-80gx{gpus}", "--"]
    done = run_vramfit(*command, sys.executable, "-c", ON_MOCKED_HOSTS, topology, code=0)
    assert json.loads(done.stdout) == [devices, 0, gpus]
