"""Measures the rates of the GPUs: matrix products, functions, memory, the host link, collectives.

Prints one line for each, `RATE key value`, in operations or bytes per second.
"""

import functools
import time

import jax
import jax.numpy as jnp

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map

REPEATS = 5
EXECUTIONS = 4
MIB = 1 << 20
# Functions in one kernel: as many as take longer than reading and writing their operand.
CHAIN = 32


def seconds(function, *arguments):
    """Return how long one call takes: the best of several times, after a warm-up."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(EXECUTIONS):
            result = function(*arguments)
        jax.block_until_ready(result)
        times.append((time.perf_counter() - start) / EXECUTIONS)
    return min(times)


def print_rate(key, amount, elapsed):
    print(f"RATE {key} {amount / elapsed:.4g}", flush=True)


def measure_matmul():
    names = {"bf16": jnp.bfloat16, "f16": jnp.float16, "f32": jnp.float32}
    product = jax.jit(lambda a, b: a @ b)
    size = 8192
    for name, dtype in names.items():
        a = jnp.ones((size, size), dtype)
        print_rate(f"matmul_flops_per_s.{name}", 2 * size**3, seconds(product, a, a))


def measure_memory(count):
    x = jnp.ones(count, jnp.float32)
    add = jax.jit(lambda x: x + 1)
    copy = jax.jit(jnp.copy)
    print_rate("elementwise_bytes_per_s", 2 * x.nbytes, seconds(add, x))
    print_rate("copy_bytes_per_s", 2 * x.nbytes, seconds(copy, x))


def measure_elementwise(count):
    """Measure functions of 32-bit floats, many of a kind in one kernel."""
    lax = jax.lax
    # By the opcode in HLO; each keeps its operand where it is no special case.
    functions = {
        "exponential": lambda x: lax.exp(-x),
        "exponential-minus-one": lambda x: lax.expm1(-x) + 1.5,
        "log": lambda x: lax.log(x) + 1.5,
        "log-plus-one": lambda x: lax.log1p(x) + 0.5,
        "logistic": lax.logistic,
        "tanh": lambda x: lax.tanh(x) + 0.5,
        "erf": lambda x: lax.erf(x) + 0.5,
        "sine": lambda x: lax.sin(x) + 0.5,
        "cosine": lambda x: lax.cos(x) + 0.5,
        "tan": lambda x: lax.tan(x * 0.5) + 0.5,
        "atan2": lambda x: lax.atan2(x, 1.5 - x) + 0.5,
        "sqrt": lambda x: lax.sqrt(x) + 0.1,
        "rsqrt": lambda x: lax.rsqrt(x + 0.5),
        "cbrt": lambda x: lax.cbrt(x) + 0.1,
        "power": lambda x: lax.pow(x, x) + 0.1,
    }
    x = jnp.linspace(0.6, 1.4, count, dtype=jnp.float32)
    for name, function in functions.items():

        @jax.jit
        def chain(x, function=function):
            for _ in range(CHAIN):
                x = function(x)
            return x

        print_rate(f"elementwise_ops_per_s.{name}", CHAIN * count, seconds(chain, x))


def measure_host_link(count):
    device = jax.local_devices()[0]
    on_gpu = jax.sharding.SingleDeviceSharding(device, memory_kind="device")
    on_host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    x = jax.device_put(jnp.ones(count, jnp.float32), on_gpu)
    elapsed = seconds(functools.partial(jax.device_put, device=on_host), x)
    print_rate("to_host_bytes_per_s", x.nbytes, elapsed)
    away = jax.device_put(x, on_host)
    elapsed = seconds(functools.partial(jax.device_put, device=on_gpu), away)
    print_rate("from_host_bytes_per_s", x.nbytes, elapsed)


def measure_collectives(count):
    """Measure collectives among all GPUs; the bytes are those of the larger side on one GPU."""
    devices = jax.local_devices()
    mesh = jax.sharding.Mesh(devices, ("x",))
    spec = jax.sharding.PartitionSpec("x")
    count -= count % len(devices) ** 2
    ring = [(at, (at + 1) % len(devices)) for at in range(len(devices))]
    scatter = functools.partial(jax.lax.psum_scatter, axis_name="x", tiled=True)
    # Name of the collective, the function, and elements that a GPU gives to it.
    collectives = {
        "all-reduce": (lambda x: jax.lax.psum(x, "x"), count),
        "all-gather": (
            lambda x: jax.lax.all_gather(x, "x", tiled=True),
            count // len(devices),
        ),
        "reduce-scatter": (scatter, count),
        "all-to-all": (lambda x: jax.lax.all_to_all(x, "x", 0, 0, tiled=True), count),
        "collective-permute": (lambda x: jax.lax.ppermute(x, "x", ring), count),
    }
    for name, (function, elements) in collectives.items():
        x = jax.device_put(
            jnp.ones(elements * len(devices), jnp.float32),
            jax.sharding.NamedSharding(mesh, spec),
        )
        run = jax.jit(shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec))
        print_rate(f"collective_bytes_per_s.{name}", 4 * count, seconds(run, x))


def main():
    """Measure everything, with arrays far larger than any cache, where they fit."""
    devices = jax.local_devices()
    print("RATE jax", jax.__version__)
    free = (devices[0].memory_stats() or {}).get("bytes_limit", 8 << 30)
    count = min(1024 * MIB, free // 8) // 4
    measure_memory(count)
    measure_matmul()
    measure_elementwise(count // 4)
    measure_host_link(count)
    if len(devices) > 1:
        measure_collectives(count // 4)


if __name__ == "__main__":
    main()
