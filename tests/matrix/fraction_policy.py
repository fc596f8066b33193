"""The fraction as a text, `memory_fraction_policy`: what each release makes of one that grows.

Releases before 0.12 do not know the option. 0.12.0 and 0.12.0.1 take its first fraction, and their
pool stays there. A later release has to be compared with `docs/concepts/allocators.md` first, so
this program fails on it.
"""

import importlib.metadata
import mmap
import subprocess
import sys

import jax
import jax.numpy as jnp

PAGE = 2 << 20
PLAIN = "import jax; print(jax.devices()[0].memory_stats()['bytes_limit'])"
VERSION = tuple(int(part) for part in jax.__version__.split(".")[:3])


def message_of(kind, call):
    """Return the message of the exception of this kind that a call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")


def map_plugin():
    """Return the contents of the real plugin, in which the names of its options are."""
    names = {one.name: one for one in importlib.metadata.distributions()}
    [cuda] = [cuda for cuda in (12, 13) if f"jax-cuda{cuda}-pjrt" in names]
    path = names[f"jax-cuda{cuda}-pjrt"].locate_file(
        f"jax_plugins/xla_cuda{cuda}/xla_cuda_plugin.so"
    )
    with open(path, "rb") as library:
        return mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ)


# XLA's main branch, whose pools grow, has the policy as a flag, too.
plugin = map_plugin()
assert plugin.find(b"xla_gpu_enable_allocator_spatial_partitioning") >= 0 or VERSION < (0, 11)
assert plugin.find(b"xla_gpu_memory_fraction_policy") < 0, "this release grows: record its pools"
assert (plugin.find(b"memory_fraction_policy") >= 0) == (VERSION >= (0, 12))

jax.config.update("jax_pjrt_client_create_options", {"memory_fraction_policy": "0.25-0.5"})

if VERSION < (0, 12):
    refused = message_of(RuntimeError, jax.devices)
    assert "Unexpected option name" in refused, refused
else:
    assert VERSION == (0, 12, 0), VERSION
    # A client of its own, because a process has one set of options.
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, check=True)
    # 75 % of the GPU, rounded up to whole pages.
    total = int(done.stdout.split()[-1]) * 4 // 3
    device = jax.devices()[0]
    jnp.ones(4, jnp.float32).block_until_ready()
    stats = device.memory_stats()
    assert abs(stats["bytes_limit"] - total // 4) <= 2 * PAGE, (stats, total)
    assert stats["pool_bytes"] == stats["bytes_limit"], stats
    third = message_of(
        jax.errors.JaxRuntimeError,
        lambda: jnp.zeros(total // 3, jnp.uint8).block_until_ready(),
    )
    assert "RESOURCE_EXHAUSTED" in third, third
    assert device.memory_stats()["pool_bytes"] == stats["pool_bytes"]
