"""XLA accepts every GPU of the catalog and compiles for it, without a GPU.

Each GPU is compiled for in a process of its own: a description that XLA does not like can kill the
process that compiles. They are copies of one that has imported JAX.
"""

import importlib.metadata
import json

from commands import run_example, run_python

COMPILE = """
import json, os, sys, traceback
import jax, jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

def program(a, b):
    product = a @ b
    return jnp.sort(product, axis=0).sum(axis=1), product.max()

def compile_for(target):
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=target, topology="1x1x1", topology_name="")
    here = SingleDeviceSharding(topology.devices[0])
    argument = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=here)
    lowered = jax.jit(program, out_shardings=here).lower(argument, argument)
    # Releases before 0.9 refuse to compile without a device unless autotuning is off.
    compiled = lowered.compile(compiler_options={"xla_gpu_autotune_level": "0"})
    return compiled.memory_analysis().argument_size_in_bytes

def in_a_copy(target, log):
    if (copy := os.fork()) == 0:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        try:
            print("argument bytes", compile_for(target), flush=True)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    log.seek(0)
    return code, log.read()

results = {}
for name, target in json.load(sys.stdin).items():
    with open("log", "w+") as log:
        results[name] = in_a_copy(target, log)
print(json.dumps(results))
"""


def installed_cuda_major():
    for major in (13, 12):
        try:
            importlib.metadata.version(f"jax-cuda{major}-pjrt")
        except importlib.metadata.PackageNotFoundError:
            continue
        return major
    raise RuntimeError("no CUDA plugin of JAX is installed: `make setup`")


def test_xla_compiles_for_every_gpu(tmp_path):
    gpus = json.loads(run_example("target_config"))
    environment = {
        "JAX_PLATFORMS": "cpu",
        # Releases before 0.9 do not offer the plugin where no CUDA driver is found.
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }
    targets = json.dumps({name: gpu["target_config"] for name, gpu in gpus.items()})
    done = run_python("-c", COMPILE, env=environment, input=targets, code=0, cwd=tmp_path)
    results = json.loads(done.stdout.splitlines()[-1])
    assert results.keys() == gpus.keys() != set()
    for name, (code, log) in results.items():
        if gpus[name][f"supports_cuda_{installed_cuda_major()}"]:
            # Two matrices of 512 x 512 bfloat16.
            assert (code, log.splitlines()[-1]) == (0, "argument bytes 1048576"), (
                name,
                log[-2000:],
            )
        else:
            # The catalog says that this compiler has dropped the GPU; if it has not, say so here.
            assert code != 0, name
            assert "ptxas too old" in log, (name, log[-2000:])
