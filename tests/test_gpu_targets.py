"""XLA accepts every GPU of the catalog and compiles for it, without a GPU.

Each GPU is compiled for in a child process of its own: a description that XLA does not like can
kill the process that compiles.
"""

import importlib.metadata
import json

import pytest
from commands import ROOT, run_command, run_python

COMPILE = """
import sys
import jax, jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

topology = topologies.get_topology_desc(
    platform="cuda", target_config=sys.stdin.read(), topology="1x1x1", topology_name="")
here = SingleDeviceSharding(topology.devices[0])

def program(a, b):
    product = a @ b
    return jnp.sort(product, axis=0).sum(axis=1), product.max()

argument = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=here)
lowered = jax.jit(program, out_shardings=here).lower(argument, argument)
# Releases before 0.9 refuse to compile without a device unless autotuning is off.
compiled = lowered.compile(compiler_options={"xla_gpu_autotune_level": "0"})
print(compiled.memory_analysis().argument_size_in_bytes)
"""


def catalog():
    command = ["cargo", "run", "--quiet", "-p", "vramfit-core", "--example", "target_config"]
    return json.loads(run_command(*command, code=0, cwd=ROOT).stdout)


def installed_cuda_major():
    for major in (13, 12):
        try:
            importlib.metadata.version(f"jax-cuda{major}-pjrt")
        except importlib.metadata.PackageNotFoundError:
            continue
        return major
    raise RuntimeError("no CUDA plugin of JAX is installed: `make setup`")


GPUS = catalog()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", GPUS)
def test_compiles_for_gpu(name):
    gpu = GPUS[name]
    environment = {
        "JAX_PLATFORMS": "cpu",
        # Releases before 0.9 do not offer the plugin where no CUDA driver is found.
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }
    target = gpu["target_config"]
    child = run_python("-c", COMPILE, env=environment, input=target, timeout=100)
    if gpu[f"supports_cuda_{installed_cuda_major()}"]:
        assert child.returncode == 0, child.stderr[-2000:]
        # Two matrices of 512 x 512 bfloat16.
        assert child.stdout.split() == ["1048576"]
    else:
        # The catalog says that this compiler has dropped the GPU; if it has not, say so here.
        assert child.returncode != 0
        assert "ptxas too old" in child.stderr, child.stderr[-2000:]
