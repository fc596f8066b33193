"""Wall time of a dry run over that of compiling the same programs and doing nothing else.

The first rival does by hand what a dry run does: it imports the script, traces and lowers its step,
and gives every program the dry run compiled (JAX writes them out) to the same compiler, without a
virtual GPU. Goal: at most 1.10. The second one only compiles: neither the script's libraries nor
tracing are in it, which no run can do without; it tells what all of that adds.

The last figure is what it costs to find out whose the bytes inside programs are: a dry run over
one with `--no-attribution`. Goal: at most 1.10.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import print_load, time_call

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ["examples/train_gpt.py", "--steps", "50", "--layers", "4", "--width", "256"]
SCRIPT += ["--heads", "4", "--vocab", "8192", "--sequence", "256"]
GPU = "h100-80g"

TRACE = """
import sys
sys.path.insert(0, "examples")
import jax
import numpy as np
import train_gpt as script
from flax import nnx

args = script.arguments().parse_args(sys.argv[3:])
model, optimizer = nnx.eval_shape(lambda: script.build(args))
batch = jax.ShapeDtypeStruct((args.batch, args.sequence + 1), np.int32)
script.train_step.lower(model, optimizer, batch)
"""

COMPILE = """
import sys
from pathlib import Path
import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax.experimental import topologies

target, folder = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
topology = topologies.get_topology_desc(platform="cuda", target_config=target, topology="1x1x1")
client = topology.devices[0].client
options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
devices = xla_client.DeviceList(tuple(topology.devices))
modules = sorted(folder.glob("*compile.mlir"))
with mlir.make_ir_context():
    for module in modules:
        parsed = mlir.ir.Module.parse(module.read_text())
        client.compile(parsed, devices, options)
print(len(modules))
"""


def timed(command, **settings):
    """Run a command; return its wall time in seconds and its standard output."""
    run = functools.partial(
        subprocess.run,
        cwd=ROOT,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    seconds, done = time_call(run, [str(word) for word in command])
    return seconds, done.stdout


def main():
    """Print both times and their ratio."""
    print_load("before")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        target = folder / "target.txt"
        _, text = timed(
            ["cargo", "run", "-q", "-p", "vramfit-analysis", "--example", "target_config", GPU]
        )
        target.write_text(text)
        dryrun = [sys.executable, "-m", "vramfit", "dryrun", "--gpu", GPU, "--json", "-", "--"]
        dryrun += [sys.executable, *SCRIPT]
        modules = folder / "modules"
        timed(dryrun, JAX_DUMP_IR_TO=str(modules), JAX_DUMP_IR_MODES="stablehlo")
        hand = [sys.executable, "-c", TRACE + COMPILE, target, modules, *SCRIPT[1:]]
        bare = [sys.executable, "-c", COMPILE, target, modules]
        no_gpu = {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
        plain = [*dryrun[:4], "--no-attribution", *dryrun[4:]]
        ours, without, by_hand, rival, count = [], [], [], [], ""
        for _ in range(3):
            seconds, out = timed(dryrun)
            ours.append(seconds)
            without.append(timed(plain)[0])
            by_hand.append(timed(hand, **no_gpu)[0])
            seconds, count = timed(bare, **no_gpu)
            rival.append(seconds)
        answer = json.loads(out[out.index("{") :])
        print(f"script            {' '.join(SCRIPT)}")
        print(f"programs          {count.strip()}, {answer['executions']} executions")
        print(f"dry run           {min(ours):.2f} s  (best of {len(ours)})")
        print(f"by hand           {min(by_hand):.2f} s  (import, trace, lower, compile the same)")
        print(f"ratio             {min(ours) / min(by_hand):.2f}")
        print(f"compile alone     {min(rival):.2f} s  (the same programs, from text)")
        print(f"ratio             {min(ours) / min(rival):.2f}")
        print(f"without owners    {min(without):.2f} s  (best of {len(without)}, in turn)")
        print(f"ratio             {min(ours) / min(without):.2f}")
        print_load("after")


if __name__ == "__main__":
    main()
