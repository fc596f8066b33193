"""How long does `vramfit check` of an unchanged GPT with 124 million parameters take?

The rival is the same check without its cache, as after a change of the program. Goal: 10 s for an
entry that has not changed.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENTRY = """
[[check.entry]]
name = "step"
function = "bench_plan:step"
arguments = "bench_plan:arguments"
gpus = ["h100-80g"]
"""


def main():
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="vramfit-bench-") as folder:
        Path(folder, "vramfit.toml").write_text(ENTRY)
        scripts = str(Path(__file__).parent)
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "PYTHONPATH": scripts}

        def seconds(*options):
            start = time.perf_counter()
            command = [sys.executable, "-m", "vramfit", "--quiet", "check", *options]
            subprocess.run(
                command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
            )
            return time.perf_counter() - start

        seconds("--update")
        whole = seconds("--no-cache")
        unchanged = [seconds() for _ in range(3)]
        print(f"without a cache   {whole:6.1f} s")
        ratio = whole / min(unchanged)
        print(f"unchanged         {min(unchanged):6.1f} s  ({ratio:.1f} times as fast)")


if __name__ == "__main__":
    main()
