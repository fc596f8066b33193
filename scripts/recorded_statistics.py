"""The allocator statistics that a program of `gpu_programs/` prints, and their comparison."""

import json

# The statistics that must agree, step by step; others may not be there in a release.
COMPARED = (
    "bytes_limit",
    "pool_bytes",
    "bytes_in_use",
    "peak_bytes_in_use",
    "largest_alloc_size",
    "num_allocs",
)
MAX_PRINTED_DIFFERENCES = 12


def read_statistics(output):
    """Return the statistics that a program printed, by step."""
    lines = [line.removeprefix("TOLD ") for line in output.splitlines() if line.startswith("TOLD ")]
    return {one.pop("step"): one for one in map(json.loads, lines)}


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
