"""What publishing costs a JAX process, on the virtual GPU: a look, and a step beside it.

The time of a look is what the process itself counted on its page. Steps are timed in turns, with
and without, so that a busy machine disturbs both alike; the load is printed.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from measuring import print_load

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from on_gpu import finish, start

STEPS = """
import time
from functools import partial
@partial(jax.jit, donate_argnums=0)
def step(x): return x * 1.0001
x = step(jnp.ones((1024, 1024)))
times = []
for _ in range(20):
    began = time.perf_counter()
    for _ in range(2000): x = step(x)
    times.append((time.perf_counter() - began) / 2000)
page = None
import glob, os, struct
for path in glob.glob(os.environ["XDG_RUNTIME_DIR"] + "/vramfit/*.page"):
    page = open(path, "rb").read()
spent = samples = 0
if page:
    live = struct.unpack_from("<I", page, 12)[0]
    _, _, samples, spent = struct.unpack_from("<4Q", page, live)
report(step=sorted(times)[len(times) // 2], spent=spent, samples=samples)
"""


def measure(devices, **settings):
    with tempfile.TemporaryDirectory() as runtime:
        values, _, err, code = finish(
            start(STEPS, count=devices, XDG_RUNTIME_DIR=runtime, **settings)
        )
    if code != 0:
        raise SystemExit(err)
    return values


def main():
    print_load("before")
    for devices in (1, 8):
        values = measure(devices, VRAMFIT_PUBLISH="1", VRAMFIT_PUBLISH_MS=10)
        look = values["spent"] / values["samples"] / 1000
        share = look * 10 / 1e6
        print(
            f"{devices} device(s): {look:.1f} µs a look ({values['samples']} looks), "
            f"{share:.4%} of a core at 10 Hz"
        )
    without, published = [], []
    for _ in range(3):
        without.append(measure(1)["step"])
        published.append(measure(1, VRAMFIT_PUBLISH="1")["step"])
    before, after = statistics.median(without), statistics.median(published)
    print(
        f"step: {before * 1e6:.2f} µs without, {after * 1e6:.2f} µs with 10 Hz "
        f"({after / before - 1:+.1%}; runs differ by {max(without) / min(without) - 1:.1%})"
    )


if __name__ == "__main__":
    main()
