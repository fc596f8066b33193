"""Arrays that move between the GPU and pinned host memory, and back."""

import jax
import jax.numpy as jnp
from allocator_stats import print_stats

MIB = 1 << 20
device = jax.local_devices()[0]
on_gpu = jax.sharding.SingleDeviceSharding(device, memory_kind="device")
on_host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
print_stats("before")
x = jnp.ones((64, MIB), jnp.float32)
x.block_until_ready()
print_stats("made")
away = jax.device_put(x, on_host)
away.block_until_ready()
print_stats("copied to the host")
del x
print_stats("only on the host")
back = jax.device_put(away, on_gpu)
back.block_until_ready()
print_stats("back")
twice = jax.jit(lambda a: jax.device_put(a, on_gpu) * 2, out_shardings=on_gpu)(away)
twice.block_until_ready()
print_stats("computed from the host")
