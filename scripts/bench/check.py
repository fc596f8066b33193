"""How long does `vramfit check` of an unchanged GPT with 124 million parameters take?

The rival is the same check without its cache, as after a change of the program. Goal: 10 s for an
entry that has not changed.
"""

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import print_load, time_call

ENTRY = """
[[check.entry]]
name = "step"
function = "plan:step"
arguments = "plan:arguments"
gpus = ["h100-80g"]
"""


def main():
    print_load("before")
    with tempfile.TemporaryDirectory(prefix="vramfit-bench-") as folder:
        Path(folder, "vramfit.toml").write_text(ENTRY)
        scripts = str(Path(__file__).parent)
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "PYTHONPATH": scripts}

        def seconds(*options):
            command = [sys.executable, "-m", "vramfit", "--quiet", "check", *options]
            run = functools.partial(
                subprocess.run, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
            )
            return time_call(run, command)[0]

        seconds("--update")
        whole = seconds("--no-cache")
        unchanged = [seconds() for _ in range(3)]
        print(f"without a cache   {whole:6.1f} s")
        ratio = whole / min(unchanged)
        print(f"unchanged         {min(unchanged):6.1f} s  ({ratio:.1f} times as fast)")


if __name__ == "__main__":
    main()
