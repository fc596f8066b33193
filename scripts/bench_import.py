"""How long `import vramfit.jax_memory_fix` takes, beside an interpreter that imports nothing.

Each is started many times, in turn; the medians are compared, because a busy machine adds time.
"""

import statistics
import subprocess
import sys
import time

STARTS = 41
STATEMENTS = {
    "nothing": "pass",
    "import vramfit": "import vramfit",
    "import vramfit.jax_memory_fix": "import vramfit.jax_memory_fix",
    "import jax": "import jax",
}


def seconds(statement):
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main():
    for statement in STATEMENTS.values():
        seconds(statement)  # the files are in memory then
    took = {name: [] for name in STATEMENTS}
    for _ in range(STARTS):
        for name, statement in STATEMENTS.items():
            took[name].append(seconds(statement))
    medians = {name: statistics.median(values) for name, values in took.items()}
    bare = medians["nothing"]
    for name, median in medians.items():
        more = f"+{(median - bare) * 1000:6.1f} ms" if name != "nothing" else ""
        print(f"{name:32} {median * 1000:7.1f} ms  {median / bare:5.2f} times  {more}")


if __name__ == "__main__":
    main()
