"""How long `import vramfit.jax_memory_fix` takes, beside an interpreter that imports nothing.

Each is started many times, in turn, and the fastest start counts: what else the machine does
only adds time.
"""

import functools
import subprocess
import sys

from measuring import print_load, time_call

STARTS = 41
STATEMENTS = {
    "nothing": "pass",
    "import vramfit": "import vramfit",
    "import vramfit.jax_memory_fix": "import vramfit.jax_memory_fix",
    "import jax": "import jax",
}


def seconds(statement):
    run = functools.partial(subprocess.run, stderr=subprocess.DEVNULL, check=True)
    return time_call(run, [sys.executable, "-c", statement])[0]


def main():
    print_load("before")
    for statement in STATEMENTS.values():
        seconds(statement)  # the files are in memory then
    took = {name: [] for name in STATEMENTS}
    for _ in range(STARTS):
        for name, statement in STATEMENTS.items():
            took[name].append(seconds(statement))
    bare = min(took["nothing"])
    for name, values in took.items():
        fastest = min(values)
        more = f"  +{(fastest - bare) * 1000:6.1f} ms" if name != "nothing" else ""
        print(f"{name:32} {fastest * 1000:7.1f} ms  {fastest / bare:5.2f} times{more}")


if __name__ == "__main__":
    main()
