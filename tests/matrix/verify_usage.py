"""`verify_gpu_usage` finds nothing wrong with healthy pools.

Limits are no multiples of 256 bytes before JAX 0.10.2, and pools are.
"""

import os
import pathlib
import subprocess
import sys

# 0.9 is the default of `jax_memory_fix`. All other fractions, with the allocator alone, are in
# `crates/vramfit-model/src/allocator/preallocation.rs`.
CASES = {
    "t4": "0.9",
    "rtx-4090": "0.95",
    "a100-40g": "0.9",
    "h100-80g": "0.9",
    "b200-180g": "0.7",
}
TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS))
from run_configs import VARIABLE, write_run_config  # noqa: E402

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "python"


def verify():
    sys.path.insert(0, str(PYTHON))
    import jax

    from vramfit.jax_memory_fix import verify_gpu_usage

    usage = verify_gpu_usage()
    assert usage.virtual, usage
    stats = jax.devices()[0].memory_stats()
    assert (usage.limit, usage.reserved) == (stats["bytes_limit"], stats["pool_bytes"])
    evidence = " ".join(usage.evidence)
    assert "as the settings of this process require" in evidence, evidence
    assert "the pool is fully preallocated" in evidence, evidence


if len(sys.argv) > 1:
    verify()
else:
    for gpu, fraction in CASES.items():
        settings = {VARIABLE: write_run_config(gpu), "XLA_PYTHON_CLIENT_MEM_FRACTION": fraction}
        command = [sys.executable, __file__, "verify"]
        done = subprocess.run(command, env=os.environ | settings)
        assert done.returncode == 0, settings
