"""Executions per second of a loop of one program: the virtual GPU beside JAX's CPU backend.

The program is trivial, so that what is measured is dispatch: JAX's own, and on the virtual GPU the
accounting of every allocation. Goal: at least 30 000 a second with one array.
"""

import os
import subprocess
import sys
import tempfile

from measuring import print_load

LOOP = """
import sys, time
import jax, jax.numpy as jnp

arrays, seconds, shape = int(sys.argv[1]), float(sys.argv[2]), (1024, 1024)
if jax.default_backend() == "cpu":
    shape = (1,)  # the CPU computes; the virtual GPU does not

step = jax.jit(lambda state: [x + 1 for x in state], donate_argnums=0)
state = step([jnp.zeros(shape) for _ in range(arrays)])
best = 0.0
for _ in range(5):
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds / 5:
        for _ in range(50):
            state = step(state)
        calls += 50
    best = max(best, calls / (time.perf_counter() - start))
print(best)
"""


def rate(arrays, *start, **settings):
    """Return calls per second, the best of five stretches, of a program that `start` starts."""
    done = subprocess.run(
        [*start, sys.executable, "-c", LOOP, str(arrays), "2"],
        env=os.environ | settings,
        capture_output=True,
        check=True,
        text=True,
    )
    return float(done.stdout)


def main():
    """Print a table."""
    print_load("before")
    print("calls per second, with the trace written")
    print(f"{'donated arrays':>14} {'virtual GPU':>12} {'CPU backend':>12} {'ratio':>6}")
    for arrays in (1, 10, 100):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "run.trace")
            ours = rate(
                arrays,
                *(sys.executable, "-m", "vramfit", "dryrun", "--gpu", "h100-80g"),
                *("--trace", trace, "--"),
                JAX_PLATFORMS="cuda",
            )
        cpu = rate(arrays, JAX_PLATFORMS="cpu")
        print(f"{arrays:>14} {ours:>12,.0f} {cpu:>12,.0f} {ours / cpu:>6.2f}")


if __name__ == "__main__":
    main()
