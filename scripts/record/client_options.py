"""Record how an installed CUDA plugin of JAX answers to client options.

The plugin checks the options before it looks for a GPU, so no GPU is needed. Every option is
tried with a value of every type, then the allocators and platforms by name, and fractions. One line
an answer, with tabs: option, type of the value, the value, the answer. The first line names the
release and the minor version of the PJRT C API.

Usage: python scripts/record/client_options.py > fixtures/client-options/jax0.10.2.tsv
"""

import ctypes
import os
import pathlib
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from jax._src.lib import xla_client

VALUES = {"string": "x", "int64": 1, "list": [0], "float": 0.5, "bool": True}
OPTIONS = [
    "abort_collectives_on_failure",
    "allocator",
    "collective_memory_size",
    "enable_mock_nccl",
    "gpu_system_memory_size",
    "memory_fraction",
    "memory_fraction_policy",
    "mock_gpu_topology",
    "no_such_option",
    "node_id",
    "num_nodes",
    "partition_index",
    "platform_name",
    "preallocate",
    "should_stage_host_to_device_transfers",
    "slice_index",
    "use_tfrt_gpu_client",
    "visible_devices",
]
ALLOCATORS = ["default", "bfc", "platform", "cuda_async", "vmm", "address", "BFC", ""]
PLATFORMS = ["cuda", "CUDA", "gpu", "GPU", "cpu", "Host", "rocm", ""]
POLICIES = [
    "0.75", "0.75+", "0.75-0.85", "0.75-0.75", "0.85-0.75", " 0.75 ", "0.75 - 0.85", "1", "1+",
    "1.5", "1.5+", "0.5-1.5", "1.5-1.5", "1e-1", "1e-1-0.5", "-0.5", "0", "0+", "0-0.5",
    "0.75-", "+", "0.75++", "0.75-0.85+", "75%", "nan", "inf", "",
]  # fmt: skip
FRACTIONS = [-1.0, 0.0, 2.0, 100.0, float("inf"), float("nan")]


def find_plugin():
    found = sorted(
        pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/jax_plugins/xla_cuda1*/*.so")
    )
    return next(path for path in found if path.name == "xla_cuda_plugin.so")


def api_minor(path):
    library = ctypes.CDLL(str(path))
    library.GetPjrtApi.restype = ctypes.c_void_p
    # Behind struct_size, extension_start and the version's own two words; see PJRT_Api.
    return ctypes.c_int.from_address(library.GetPjrtApi() + 36).value


def ask(option, value):
    try:
        xla_client.make_c_api_client("cuda", {option: value}, None)
    except Exception as error:
        return str(error).splitlines()[0]
    raise SystemExit("a client was made: there is a GPU here, and the recording would differ")


def main():
    path = find_plugin()
    xla_client.load_pjrt_plugin_dynamically("cuda", str(path))
    xla_client.initialize_pjrt_plugin("cuda")
    print("jax", jax.__version__, "api_minor", api_minor(path), sep="\t")
    for option in OPTIONS:
        for kind, value in VALUES.items():
            print(option, kind, value, ask(option, value), sep="\t")
    for option, kind, values in [
        ("allocator", "string", ALLOCATORS),
        ("platform_name", "string", PLATFORMS),
        ("memory_fraction", "float", FRACTIONS),
        ("memory_fraction_policy", "string", POLICIES),
    ]:
        for value in values:
            print(option, kind, value, ask(option, value), sep="\t")


if __name__ == "__main__":
    main()
