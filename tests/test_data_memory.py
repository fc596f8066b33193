"""The loader keeps its promise about memory where the system enforces it."""

import json

import h5py
import numpy as np
import pytest
from commands import run_python

MIB = 1 << 20
BUDGET = 16 * MIB
# What the program may have beside the budget.
REST = 32 * MIB
ROWS = 1 << 20
WIDTH = 48

# Streams an epoch through a JAX step under a hard limit, and says what it took.
PROGRAM = """
import json, pathlib, resource, sys
import jax, jax.numpy as jnp, numpy as np
from vramfit.data import Loader

def status(name):
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024

path, width, budget, rest = sys.argv[1], *map(int, sys.argv[2:])
step = jax.jit(lambda total, batch: total + batch.sum(0))
total = jnp.zeros(width)
loader = Loader(path, "x", batch_size=256, memory=budget, threads=2)
step(total, jax.device_put(np.zeros((256, width), "f4"))).block_until_ready()
limit = status("VmData") + budget + rest
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
# The peak is counted from here on.
pathlib.Path("/proc/self/clear_refs").write_text("5")
baseline = status("VmRSS")
for batch in loader.to_device():
    total = step(total, batch["x"])
sums = np.asarray(total, "f8")
peak = status("VmHWM")
try:
    np.ones((budget + 2 * rest) // 8)
    enforced = False
except MemoryError:
    enforced = True
print(json.dumps([baseline, peak, enforced, loader.stats.rows, sums.sum(), loader.plan]))
"""


@pytest.mark.parametrize(
    "layout",
    [{}, {"chunks": (1024, WIDTH), "shuffle": True}, {"chunks": (2048, 16)}],
    ids=["contiguous", "chunked", "columns"],
)
def test_t2_a_file_of_four_times_the_limit_is_streamed_within_it(tmp_path, layout):
    path = tmp_path / "large.h5"
    block = ROWS // 16
    total = 0
    with h5py.File(path, "w") as f:
        x = f.create_dataset("x", (ROWS, WIDTH), "f4", **layout)
        for start in range(0, ROWS, block):
            # Whole numbers below 8: the sum of a column is below 2^24, and exact in any order.
            part = np.random.default_rng(start).integers(0, 8, (block, WIDTH)).astype("f4")
            x[start : start + block] = part
            total += int(part.sum(dtype="f8"))
    assert path.stat().st_size >= 4 * (BUDGET + REST)
    done = run_python(
        "-c", PROGRAM, path, WIDTH, BUDGET, REST, env={"JAX_PLATFORMS": "cpu"}, code=0
    )
    baseline, peak, enforced, rows, streamed, plan = json.loads(done.stdout)
    assert enforced, "the limit was no limit"
    assert (rows, streamed) == (ROWS, total)
    assert peak <= baseline + BUDGET + REST, f"{(peak - baseline) / MIB:.1f} MiB more\n{plan}"
