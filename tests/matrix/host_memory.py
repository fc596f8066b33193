"""Arrays in pinned host memory take nothing of the GPU's, come from programs and go to them."""

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

MIB = 1 << 20
device = jax.devices()[0]
here = SingleDeviceSharding(device)
host = SingleDeviceSharding(device, memory_kind="pinned_host")
in_use = lambda: device.memory_stats()["bytes_in_use"]  # noqa: E731

x = jnp.ones((1024, 1024))
before = in_use()
moved = jax.device_put(x, host)
assert moved.sharding.memory_kind == "pinned_host"
made = jax.jit(lambda x: x + 1, out_shardings=host)(x)
assert made.sharding.memory_kind == "pinned_host"
assert in_use() == before, (in_use(), before)
back = jax.device_put(made, here)
assert back.sharding.memory_kind == "device"
assert in_use() == before + 4 * MIB

compiled = jax.jit(lambda x: x + 1, out_shardings=host).lower(x).compile()
planned = compiled.memory_analysis()
sizes = (planned.output_size_in_bytes, planned.host_output_size_in_bytes)
assert sizes == (0, 4 * MIB), sizes

small = jax.device_put(jnp.arange(4), host)
taken = jax.jit(lambda x: jax.device_put(x, here) * 2)(small)
assert taken.sharding.memory_kind == "device"
assert taken.tolist() == [0, 2, 4, 6], taken
