"""Record what a real GPU does, beside what the virtual one says.

    python3 scripts/record/gpu.py --out DIR --wheel build/wheel/vramfit-*.whl

Runs the programs of `gpu_programs/` on the GPU and on the virtual GPU of the same name, with the
same settings, and compares the statistics of the allocator behind each step. `train_blocks.py` runs
as it is and with the plan that `vramfit plan` finds for it. Those that begin with `hosts_` run as
one of several hosts, the others mocked by JAX; hosts.json has their statistics, with the versions
of JAX and of the packages of NVIDIA. The programs of `tests/matrix/` say themselves what must be
true.
Beside that: what library routines take beside the plan (library_scratch.json), a log of every
allocation, reports of running out of memory, `doctor`, `top`, `hold`, a pool that finds the GPU
partly taken; and its rates, as DIR/calibration.toml, for the
`--calibration` of `vramfit dryrun` and `vramfit plan`. Everything said goes into
DIR/record.tar.gz; DIR/statistics.json has what the allocator said of the GPU, and DIR/summary.txt
what agrees. All of it takes a quarter of an hour on an H100 with 16 cores; what is left when
`--seconds` are over is skipped, and `--only` names parts. With `--pretend GPU` the real half runs
on a virtual GPU, too: that shows that this script works, and nothing else. What is worth keeping
goes to `fixtures/gpu/`.
"""

import argparse
import concurrent.futures
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from host_programs import RUNS, record_hosts
from library_scratch import record_scratch
from recorded_statistics import (
    collect_statistics,
    compare,
    read_versions,
    virtual_runs_at_once,
)

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "scripts" / "record" / "gpu_programs"
MATRIX = ROOT / "tests" / "matrix"
# Programs of it that need eight GPUs.
ON_EIGHT_GPUS = ("devices", "sharded_offloading", "sharded_step")
# More than this of one stream says nothing new: the beginning and the end are kept.
MAX_BYTES = 4 << 20
GROWING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# Pairs of runs by name: program and settings.
PAIRS = {
    "train_mlp": ("train_mlp.py", {}),
    "train_attention": ("train_attention.py", {}),
    "attention_cudnn": ("attention_cudnn.py", {}),
    "chunked_vmap": ("chunked_vmap.py", {}),
    "convolutions": ("convolutions.py", {}),
    "fragments": ("fragments.py", {}),
    "fragments-growing": ("fragments.py", GROWING),
    "host_memory": ("host_memory.py", {}),
    "too_large": ("too_large.py", {"TF_CPP_MIN_LOG_LEVEL": "0"}),
    "too_large-growing": ("too_large.py", GROWING | {"TF_CPP_MIN_LOG_LEVEL": "0"}),
    "too_large-async": ("too_large.py", {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}),
    "train_mlp-half": ("train_mlp.py", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}),
}
# Plans of `train_blocks.py`, written as a loop and as a scan, and the peak that they must reach.
PLANS = {"plan-loop": "3GiB", "plan-scan": "8GiB"}


class Recorder:
    """Runs commands one after the other, until the time is over, and keeps all they say.

    A GPU is lent for a time; what is pretended ends by itself.
    """

    def __init__(self, folder, deadline, pretend):
        self.folder = folder
        self.deadline = deadline
        self.pretend = pretend
        self.lines = []

    def say(self, line):
        """Add a line to the summary."""
        self.lines.append(line)
        print(line, flush=True)

    def run(self, name, command, settings=None, limit=90, virtual=False):
        """Run a command, keep what it says under a name, and return its output; None if cut off."""
        left = min(limit, self.deadline - time.monotonic())
        if left < 5 and not self.pretend:
            self.say(f"skipped   {name}: the time is over")
            return None
        if self.pretend and not virtual:
            command = [*vramfit("-q", "dryrun", "--gpu", self.pretend, "--"), *command]
        environment = os.environ | (settings or {})
        began = time.monotonic()
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                cwd=PROGRAMS,
                timeout=None if self.pretend else left,
                check=False,
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as cut:
            code, out, err = None, cut.stdout or b"", cut.stderr or b""
        seconds = time.monotonic() - began
        record = {
            "command": command,
            "settings": settings or {},
            "exit_code": code,
            "seconds": round(seconds, 2),
        }
        for stream, data in (("out", out), ("err", err)):
            if len(data) > MAX_BYTES:
                cut = f"\n... {len(data) - MAX_BYTES} bytes left out ...\n".encode()
                data = data[: MAX_BYTES // 2] + cut + data[-MAX_BYTES // 2 :]
            (self.folder / f"{name}.{stream}.txt").write_bytes(data)
        (self.folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        ended = "cut off" if code is None else f"exit {code}"
        self.say(f"{ended:<9} {name}, {seconds:.1f} s")
        return None if code is None else out.decode(errors="replace")


def vramfit(*arguments):
    """Return the command line of vramfit's own command."""
    return [sys.executable, "-m", "vramfit", *arguments]


def pairs(recorder, gpu, names):
    """Run programs on the GPU and on the virtual one."""
    commands = {name: [sys.executable, str(PROGRAMS / PAIRS[name][0])] for name in names}

    def run_virtually(name):
        command = gpu.dryrun(*commands[name])
        return recorder.run(f"{name}.virtual", command, PAIRS[name][1], virtual=True)

    # The real GPU takes one program at a time; the virtual ones run beside it.
    with concurrent.futures.ThreadPoolExecutor(virtual_runs_at_once()) as pool:
        virtual = {name: pool.submit(run_virtually, name) for name in names}
        for name in names:
            real = recorder.run(f"{name}.real", commands[name], PAIRS[name][1])
            compare(recorder, name, real, virtual[name].result())


def plan(recorder, gpu, names):
    """Run programs on the GPU with a plan and without; compare bytes, losses and times."""
    for name in names:
        options = ("--gpu", gpu.name, "--budget", PLANS[name], "--max-trials", "16")
        command = [sys.executable, str(PROGRAMS / "train_blocks.py"), name.removeprefix("plan-")]
        path = str(recorder.folder / f"{name}.toml")
        search = vramfit("plan", *options, "--out", path, "--json", "-", "--", *command)
        recorder.run(f"{name}.search", search, limit=150, virtual=True)
        if not os.path.exists(path):
            recorder.say(f"  {name}: no plan")
            continue
        plain = recorder.run(f"{name}.plain", command)
        real = recorder.run(f"{name}.real", vramfit("run", "--plan", path, "--", *command))
        dryrun = gpu.dryrun(*command, options=("--plan", path))
        virtual = recorder.run(f"{name}.virtual", dryrun, virtual=True)
        compare(recorder, name, real, virtual)
        if None in (plain, real):
            continue
        compare_steps(recorder, name, plain, real)


def compare_steps(recorder, name, plain, planned):
    """Say how losses and times of a program with a plan differ from those without."""
    seconds = [re.search(r"^SECONDS (.*)", output, re.M) for output in (plain, planned)]
    if None in seconds:
        recorder.say(f"  {name}: not both runs came to their end")
        return
    losses = [re.findall(r"^LOSS (.*)", output, re.M) for output in (plain, planned)]
    pairs_of_losses = [tuple(map(float.fromhex, pair)) for pair in zip(*losses, strict=True)]
    equal = sum(a == b for a, b in pairs_of_losses)
    largest = max(abs(a - b) / (abs(a) or 1) for a, b in pairs_of_losses)
    recorder.say(
        f"  {name}: {seconds[0][1]} s a step as it is, {seconds[1][1]} s with the plan; {equal} of"
        f" {len(pairs_of_losses)} losses are equal, the largest difference is {largest:.1e} of one"
    )


def autotuned(recorder, gpu):
    """Record the choices of the autotuner, and whether a dry run with them comes nearer."""
    results = recorder.folder / "autotune-results.txtpb"
    flags = {"XLA_FLAGS": f"--xla_gpu_dump_autotune_results_to={results}"}
    path = str(PROGRAMS / "train_attention.py")
    real = recorder.run("autotune.real", [sys.executable, path], flags)
    if not results.exists():
        recorder.say("  autotune: the GPU's run left no results")
        return
    options = ("--autotune-results", str(results))
    dryrun = gpu.dryrun(sys.executable, path, options=options)
    virtual = recorder.run("autotune.virtual", dryrun, virtual=True)
    compare(recorder, "autotune", real, virtual)


def calibrate(recorder, gpu, path):
    """Measure the rates of the GPU, and write them as a calibration."""
    output = recorder.run("rates", [sys.executable, str(PROGRAMS / "rates.py")])
    lines = [line.split() for line in (output or "").splitlines() if line.startswith("RATE ")]
    rates = {key: value for _, key, value in lines}
    if "jax" not in rates:
        recorder.say("  calibration: no rates")
        return
    jax = rates.pop("jax")
    head = ["schema = 1", f'gpu = "{gpu.name}"', f'jax = "{jax}"']
    if recorder.pretend:
        head.append("pretended = true")
    tables = {}
    for key, value in rates.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {value}")
    text = "\n".join([*head, *tables.pop("", [])]) + "\n"
    for table, rows in tables.items():
        text += "\n".join(["", f"[{table}]", *rows]) + "\n"
    path.write_text(text)
    shutil.copy(path, recorder.folder)
    recorder.say(f"  calibration: {len(rates)} rates")


def logged(recorder, _gpu):
    """Record every allocation of a run, as XLA's own log tells it."""
    settings = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "bfc_allocator=3"}
    for program in ("fragments.py", "train_mlp.py"):
        name = f"log-{program.removesuffix('.py')}"
        recorder.run(name, [sys.executable, str(PROGRAMS / program)], settings)


def matrix(recorder, _gpu):
    """Run the programs that are tested on every release; they say themselves what must be true."""
    for path in sorted(MATRIX.glob("*.py")):
        if path.stem in ON_EIGHT_GPUS:
            continue
        recorder.run(f"matrix-{path.stem}", [sys.executable, str(path)], limit=60)


def look(recorder, _gpu):
    """Record what the commands for a machine with GPUs say of this one."""
    recorder.run("doctor", vramfit("doctor", "--json", "-"))
    recorder.run("doctor-text", vramfit("doctor", "--train"))
    recorder.run("top", vramfit("top", "--once", "--json", "-"))
    recorder.run("hold", vramfit("hold", "10GiB", "--for", "1s", "--step", "2GiB", "--verify"))
    recorder.run("hold-json", vramfit("hold", "50%", "--for", "1s", "--json", "-"))
    mlp = [sys.executable, str(PROGRAMS / "train_mlp.py")]
    recorder.run("run-limit", vramfit("run", "--limit", "8GiB", "--", *mlp))
    recorder.run("run-share", vramfit("run", "--processes", "2", "--", *mlp))


def taken(recorder, _gpu):
    """Record what a pool does when half of the GPU is taken, and `top` meanwhile."""
    command = vramfit("hold", "50%", "--for", "80s", "--json", "-")
    if recorder.pretend:
        recorder.say("skipped   taken: a virtual GPU is not shared with `hold`")
        return
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        time.sleep(5)
        recorder.run("taken-top", vramfit("top", "--once"))
        recorder.run("taken-smi", ["nvidia-smi"])
        path = str(PROGRAMS / "too_large.py")
        settings = {"TF_CPP_MIN_LOG_LEVEL": "0"}
        recorder.run("taken.real", [sys.executable, path], settings, limit=40)
        recorder.run("taken-doctor", vramfit("doctor"), limit=40)
        started = vramfit("run", "--explain", "--", sys.executable, path)
        recorder.run("taken-run", started, limit=40)
        holder.terminate()
        out, _ = holder.communicate()
    (recorder.folder / "taken-hold.txt").write_text(out)


def scratch(recorder, gpu):
    """Record what library routines take beside what XLA planned."""
    record_scratch(recorder, gpu, PROGRAMS)


def versions(recorder):
    """Record what is installed."""
    recorder.run("packages", [sys.executable, "-m", "pip", "list", "--format=json"], virtual=True)
    if shutil.which("nvidia-smi"):
        recorder.run("smi", ["nvidia-smi", "-q"], virtual=True)
    lines = "import jax; d = jax.devices()[0]; print(jax.__version__, d.device_kind, d.platform)"
    recorder.run("device", [sys.executable, "-c", lines])


class VirtualGpu:
    """The virtual GPU that a real one is compared with.

    Attributes:
        name: As in the catalog.
        total_bytes: What the driver reports as total memory; None for the lowest in the catalog.
    """

    def __init__(self, name, total_bytes=None):
        self.name = name
        self.total_bytes = total_bytes

    def dryrun(self, *command, options=()):
        """Return the command line of a dry run of a program."""
        total = () if self.total_bytes is None else ("--total", str(self.total_bytes))
        return vramfit("dryrun", "--gpu", self.name, *total, *options, "--", *command)


def find_gpu(name):
    """Return the GPU that is here; its name in the catalog may be given."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    product = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    product = product.split("\n")[0]
    listed = subprocess.run(
        vramfit("gpus", "--json", "-"), capture_output=True, text=True, check=True
    )
    gpus = json.loads(listed.stdout)["gpus"]
    name = name or next((gpu["name"] for gpu in gpus if gpu["description"] == product), None)
    if name is None:
        raise SystemExit(f"record_gpu: no GPU in the catalog is called `{product}`; name it: --gpu")
    return VirtualGpu(name, total_memory())


def total_memory():
    """Return what the driver reports as the total memory of the first GPU, in bytes."""
    driver = ctypes.CDLL("libcuda.so.1")
    total = ctypes.c_size_t()
    calls = (
        driver.cuInit(0),
        driver.cuDeviceTotalMem_v2(ctypes.byref(total), ctypes.c_int(0)),
    )
    if any(calls):
        raise SystemExit(f"record_gpu: the driver does not say its total memory (error {calls})")
    return total.value


# Parts that are made as a whole.
OTHER_PARTS = {
    "taken": taken,
    "commands": look,
    "autotune": autotuned,
    "scratch": scratch,
    "log": logged,
    "matrix": matrix,
}
PARTS = ("pairs", "rates", "plans", *OTHER_PARTS, "hosts")


def select(runs, part, only):
    """Return the names of the runs of a part to make: all of them, or those that are named."""
    return [name for name in runs if not only or part in only or name in only]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what is recorded")
    parser.add_argument(
        "--wheel", type=Path, help="vramfit's wheel; else the one that is installed"
    )
    parser.add_argument("--gpu", help="name in the catalog; else asked of nvidia-smi")
    parser.add_argument("--pretend", metavar="GPU", help="use this virtual GPU as the real one")
    parser.add_argument("--seconds", type=float, default=540, help="time for everything")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*PARTS, *PAIRS, *PLANS, *RUNS],
        default=[],
        help="only these parts or runs",
    )
    return parser.parse_args()


def main():
    """Record everything, the most precious first."""
    arguments = parse()
    if not arguments.pretend and not Path("/dev/nvidiactl").exists():
        raise SystemExit("record_gpu: no NVIDIA GPU here (/dev/nvidiactl does not exist)")
    deadline = time.monotonic() + arguments.seconds
    folder = arguments.out / "record"
    folder.mkdir(parents=True)
    if arguments.wheel:
        site = arguments.out / "site"
        install = ["install", "--quiet", "--no-deps", "--no-index", "--target", site]
        subprocess.run([sys.executable, "-m", "pip", *install, arguments.wheel], check=True)
        os.environ["PYTHONPATH"] = str(site.resolve())
    recorder = Recorder(folder.resolve(), deadline, arguments.pretend)
    only = arguments.only
    if arguments.pretend:
        gpu = VirtualGpu(arguments.pretend)
        recorder.say(f"GPU: {gpu.name}, pretended")
    else:
        gpu = find_gpu(arguments.gpu)
        recorder.say(f"GPU: {gpu.name}, {gpu.total_bytes} bytes")
    try:
        versions(recorder)
        pairs(recorder, gpu, select(PAIRS, "pairs", only))
        if not only or "rates" in only:
            calibrate(recorder, gpu, arguments.out.resolve() / "calibration.toml")
        plan(recorder, gpu, select(PLANS, "plans", only))
        for part, run in OTHER_PARTS.items():
            if not only or part in only:
                run(recorder, gpu)
        if hosts := select(RUNS, "hosts", only):
            record_hosts(recorder, gpu, PROGRAMS, hosts)
    finally:
        summary = "\n".join(recorder.lines) + "\n"
        (arguments.out / "summary.txt").write_text(summary)
        kept = {
            "schema": 1,
            "gpu": gpu.name,
            "pretended": bool(arguments.pretend),
            "total_bytes": gpu.total_bytes,
            "versions": read_versions(folder),
            "runs": {} if arguments.pretend else collect_statistics(folder, PROGRAMS),
        }
        (arguments.out / "statistics.json").write_text(json.dumps(kept, indent=1) + "\n")
        with tarfile.open(arguments.out / "record.tar.gz", "w:gz") as archive:
            archive.add(folder, "record")
        shutil.rmtree(folder)
        if arguments.wheel:
            shutil.rmtree(arguments.out / "site")


if __name__ == "__main__":
    main()
