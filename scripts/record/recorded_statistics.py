"""The allocator statistics that a program of `gpu_programs/` prints, and their comparison."""

import json
import os
import re

# The statistics that must agree, step by step; others may not be there in a release.
COMPARED = (
    "bytes_limit",
    "pool_bytes",
    "bytes_in_use",
    "peak_bytes_in_use",
    "largest_alloc_size",
    "num_allocs",
)
# What is kept of a GPU, in `fixtures/gpu/`.
KEPT = (*COMPARED, "largest_free_block_bytes")
MAX_PRINTED_DIFFERENCES = 12
# A virtual run uses the CPU for the compiler only, which has several threads.
CPUS_PER_VIRTUAL_RUN = 4


def virtual_runs_at_once():
    """Return how many programs may run on virtual GPUs at the same time."""
    return max(1, (os.cpu_count() or 1) // CPUS_PER_VIRTUAL_RUN)


def read_statistics(output):
    """Return the statistics that a program printed, by step."""
    marker = "STATS "
    lines = [line for line in output.splitlines() if line.startswith(marker)]
    values = [json.loads(line.removeprefix(marker)) for line in lines]
    return {one.pop("step"): one for one in values}


def compare(recorder, name, real, virtual, sides=("really", "virtually")):
    """Say in which steps the statistics of two outputs differ."""
    if real is None or virtual is None:
        return
    real, virtual = read_statistics(real), read_statistics(virtual)
    names = [key for key in COMPARED if any(key in stats for stats in real.values())]
    equal = differences = 0
    for step in real.keys() | virtual.keys():
        for key in names:
            there = [side.get(step, {}).get(key) for side in (real, virtual)]
            equal += there[0] == there[1]
            if there[0] != there[1]:
                differences += 1
                if differences <= MAX_PRINTED_DIFFERENCES:
                    recorder.say(
                        f"    {step}: {key} is {there[0]} {sides[0]}, {there[1]} {sides[1]}"
                    )
    recorder.say(f"  {name}: {equal} figures are equal, {differences} differ")


def read_versions(folder):
    """Return the versions of JAX and of what it uses, as `pip list` has them."""
    packages = json.loads((folder / "packages.out.txt").read_text() or "[]")
    return {
        package["name"]: package["version"]
        for package in packages
        if package["name"].startswith(("jax", "nvidia-"))
    }


def collect_statistics(folder, programs):
    """Return the statistics of all runs on the GPU that came to their end, by the name of the run.

    Args:
        folder: What was recorded.
        programs: The folder of the programs.
    """
    runs = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        output = path.with_suffix(".out.txt")
        if not (output.exists() and record.get("exit_code") == 0):
            continue
        text = output.read_text(errors="replace")
        words = [word for word in record["command"] if word.startswith(f"{programs}{os.sep}")]
        is_virtual = "dryrun" in record["command"]
        if is_virtual or not words or not (statistics := read_statistics(text)):
            continue
        arguments = record["command"][record["command"].index(words[0]) + 1 :]
        seconds = re.search(r"^SECONDS (.*)", text, re.M)
        planned = re.findall(r"^PLANNED (.*)", text, re.M)
        runs[path.stem.removesuffix(".real")] = {
            "program": " ".join([os.path.basename(words[0]), *arguments]),
            "settings": record["settings"],
            "planned": [json.loads(line) for line in planned],
            "seconds_per_step": float(seconds[1]) if seconds else None,
            "statistics": {
                step: {key: stats[key] for key in KEPT if key in stats}
                for step, stats in statistics.items()
            },
        }
    return runs
