"""Arrays in host memory, an eighth of them beside each of eight GPUs."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROWS, COLUMNS = 1024, 512
devices = jax.devices()
assert len(devices) == 8
mesh = Mesh(np.array(devices), ("x",))
on_device = NamedSharding(mesh, PartitionSpec("x"))
on_host = on_device.with_memory_kind("pinned_host")

for dtype in ("float32", "bfloat16", "bool", "uint8", "complex64"):
    x = jnp.ones((ROWS, COLUMNS), dtype)
    y = jax.device_put(x, on_device)
    x = jax.device_put(x, on_host)
    # One argument and one result on each side.
    function = jax.jit(
        lambda x, y: (jax.device_put(x, on_device) + y, jax.device_put(y, on_host)),
        out_shardings=(on_device, on_host),
    )
    compiled = function.lower(x, y).compile()
    planned = compiled.memory_analysis()
    shard = x.nbytes // 8
    assert planned.argument_size_in_bytes == shard, planned
    assert planned.host_argument_size_in_bytes == shard, planned
    # The table of pointers to two results is on the device.
    assert planned.output_size_in_bytes == shard + 2 * 8, planned
    assert planned.host_output_size_in_bytes == shard, planned
    before = [device.memory_stats()["bytes_in_use"] for device in devices]
    there, here = compiled(x, y)
    assert there.sharding.memory_kind == "device"
    assert here.sharding.memory_kind == "pinned_host"
    for device, held in zip(devices, before, strict=True):
        assert device.memory_stats()["bytes_in_use"] == held + shard
    del x, y, there, here
