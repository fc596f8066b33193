"""Records what the CUDA plugin of the installed JAX serializes, for the tests of `core/program`.

    JAX_PLATFORMS=cpu JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 \\
        python scripts/record/programs.py fixtures/programs

The plugin itself is asked, without vramfit and without a GPU. Each program gives two files: the
serialized executable with its options, and XLA's own figures (`memory_analysis`). Run it once for
each release of JAX; before 0.9 with XLA_FLAGS=--xla_gpu_autotune_level=0.
"""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding


def varint(message, at):
    """Read a varint; return it and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def executable_of(serialized):
    """Return the plugin's own message inside what JAX serializes.

    From 0.9 on IFRT puts a header before it: its length, then itself. What follows is a message,
    which begins with the tag of its first field, or since 0.12 a Riegeli file, with its signature.
    """
    size, at = varint(serialized, 0)
    beginnings = b"\x0a", b"\x83\xaf\x70\xd1"
    has_header = serialized[at + size :].startswith(beginnings)
    return serialized[at + size :] if has_header else serialized


def programs(devices):
    """Yield name and lowered program of each case."""
    one = SingleDeviceSharding(devices[0])

    def array(*shape, sharding=one):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    def step(weights, x):
        def loss(weights):
            return jnp.mean(jnp.tanh(x @ weights["a"] + weights["b"]) ** 2)

        value, gradient = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient), value

    x = array(256, 128)
    weights = {"a": array(128, 128), "b": array(128)}
    donated = jax.jit(step, donate_argnums=0, out_shardings=one)
    yield "donated_step", donated.lower(weights, x)
    yield "single_output", jax.jit(lambda x: x * 2 + 1, out_shardings=one).lower(x)
    scan = jax.jit(lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), x[0], x), out_shardings=one)
    yield "scan", scan.lower(x)
    try:
        host = SingleDeviceSharding(devices[0], memory_kind="pinned_host")
    except ValueError:
        pass  # before 0.9, devices without hardware have no memories
    else:
        yield "host_output", jax.jit(lambda x: (x + 1, x * 2), out_shardings=(one, host)).lower(x)
    rows = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec("d"))
    yield "sharded", jax.jit(lambda x: (x * 2, x.sum())).lower(array(256, 128, sharding=rows))


def two_gpus():
    """Return two GPUs for which programs can be compiled here."""
    target = subprocess.run(
        ["cargo", "run", "-q", "-p", "vramfit-analysis", "--example", "target_config", "h100-80g"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    topology = topologies.get_topology_desc(platform="cuda", target_config=target, topology="1x1x2")
    return topology.devices


def memory_sizes(compiled):
    """Return XLA's own figures of a compiled program, by name."""
    stats = compiled.memory_analysis()
    return {
        key: getattr(stats, key)
        for key in dir(stats)
        if key.endswith("_in_bytes") and "peak" not in key and "code" not in key
    }


def main():
    """Write the files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, lowered in programs(two_gpus()):
        compiled = lowered.compile()
        stem = f"jax{jax.__version__}-{name}"
        message = executable_of(compiled.runtime_executable().serialize())
        (folder / f"{stem}.pb").write_bytes(message)
        expected = memory_sizes(compiled)
        (folder / f"{stem}.json").write_text(json.dumps(expected, indent=1) + "\n")
        print(stem, len(message), expected["temp_size_in_bytes"])


if __name__ == "__main__":
    main()
