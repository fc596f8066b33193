"""`PJRT_Device_ClearMemoryStats`, which JAX has no Python function for, called through the C API.

A second client in the same process has the same virtual GPUs, so JAX's own statistics show what it
did.
"""

import os

from on_gpu import PACKAGE, SHIM, on_gpu

CALL = """
import ctypes, vramfit._native

class Args(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p)]

class Create(Args):
    _fields_ = [(f"f{index}", ctypes.c_void_p) for index in range(9)]

class Devices(Args):
    _fields_ = [
        ("client", ctypes.c_void_p),
        ("devices", ctypes.POINTER(ctypes.c_void_p)),
        ("count", ctypes.c_size_t),
    ]

class Clear(Args):
    _fields_ = [("device", ctypes.c_void_p)]

# The plugin of CUDA is known once JAX has made its own client.
jax.devices()
plugin = ctypes.CDLL(vramfit._native.__file__)
plugin.GetPjrtApi.restype = ctypes.c_void_p
# Size, extensions and version come before the functions, whose places never change.
api = ctypes.cast(plugin.GetPjrtApi(), ctypes.POINTER(ctypes.c_void_p))
table = api[0] // 8

def call(place, args):
    args.size = ctypes.sizeof(args)
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(api[place])
    assert not function(ctypes.byref(args)), place

def clear():
    # Options and their number, five callbacks and their arguments, the client in between.
    client = Create()
    call(15, client)
    devices = Devices(client=client.f6)
    call(21, devices)
    call(140, Clear(device=devices.devices[0]))
"""

STATISTICS = ("num_allocs", "largest_alloc_size", "bytes_in_use", "peak_bytes_in_use", "pool_bytes")


def test_cleared_statistics_begin_with_what_is_in_use():
    values = on_gpu(
        CALL
        + """
kept = jax.device_put(np.zeros(1 << 20, np.uint8))
freed = jax.device_put(np.zeros(1 << 24, np.uint8))
del freed
report(before=stats())
clear()
report(after=stats())
jax.device_put(np.zeros(1 << 22, np.uint8)).block_until_ready()
report(later=stats())
""",
        PYTHONPATH=f"{SHIM}{os.pathsep}{PACKAGE.parent}",
    )
    before, after, later = (
        [values[when][name] for name in STATISTICS] for when in ("before", "after", "later")
    )
    pool = before[-1]
    assert before == [2, 1 << 24, 1 << 20, (1 << 24) + (1 << 20), pool]
    assert after == [0, 0, 1 << 20, 1 << 20, pool]
    assert later == [1, 1 << 22, 1 << 20, (1 << 22) + (1 << 20), pool]
