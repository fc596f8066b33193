"""`vramfit doctor` finds nothing wrong with this release, at our default fraction and at others."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The default of `jax_memory_fix` is 0.9.
CASES = (("h100-80g", "0.9"), ("t4", "0.5"), ("rtx-4090", "0.95"))


def examine(gpu, fraction):
    vramfit = [sys.executable, "-m", "vramfit"]
    setting = f"XLA_PYTHON_CLIENT_MEM_FRACTION={fraction}"
    command = [*vramfit, "dryrun", "--quiet", "--gpu", gpu, "--"]
    command += ["env", setting, *vramfit, "doctor", "--json"]
    # The dry run makes the virtual GPU itself; nothing of the one around it may be left.
    left = {k: v for k, v in os.environ.items() if not k.startswith(("VRAMFIT_", "JAX_"))}
    environment = left | {"PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"schema"')]
    assert len(lines) == 1, done.stdout + done.stderr
    return json.loads(lines[0])


for gpu, fraction in CASES:
    record = examine(gpu, fraction)
    failed = [check for check in record["checks"] if check["status"] == "fail"]
    assert not failed, failed
    assert record["virtual_gpu"] == gpu
    [pool] = [check for check in record["checks"] if check["id"] == "pool"]
    assert pool["status"] == "pass", pool
    assert "preallocated" in pool["message"], pool
    share = f"{float(fraction) * 100:.1f} % of the GPU"
    assert share in pool["message"], pool
