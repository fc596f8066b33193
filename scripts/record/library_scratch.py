"""What library routines take beside the plan, on the GPU and as the virtual one estimates it.

A part of `gpu.py`. Each case of `gpu_programs/library_scratch.py` runs on the GPU in a process of
its own, since a peak stays, and all of them in one dry run, whose report has the ranges.
"""

import concurrent.futures
import json
import sys

# Most of the time of a process is that of Python and the compiler.
REAL_RUNS_AT_ONCE = 12
# In a pool that grows, a request may get all of a new region, and all of it counts.
SETTINGS = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.07"}
# What the autotuner takes while it compiles would hide what a routine takes when it runs. Kernels
# of cuDNN are the autotuner's choice, with workspaces that are arrays of the program.
UNTUNED = SETTINGS | {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}
UNIT = 256


def record_scratch(recorder, gpu, programs):
    """Run the cases, compare them with the ranges of a dry run, and write `library_scratch.json`.

    Args:
        recorder: Runs commands and keeps their output.
        gpu: The virtual GPU.
        programs: The folder of the programs.
    """
    program = str(programs / "library_scratch.py")
    report = recorder.folder / "library_scratch.report.json"
    dry_run = gpu.dryrun(sys.executable, program, options=("--json", str(report)))
    listed = recorder.run("scratch-names", [sys.executable, program, "--list"], virtual=True)

    def run_case(name):
        is_tuned = name.startswith(("attention", "convolution"))
        command = [sys.executable, program, name]
        settings = SETTINGS if is_tuned else UNTUNED
        return read_cases(recorder.run(f"scratch-{name}", command, settings)).get(name)

    names = (listed or "").split()
    with concurrent.futures.ThreadPoolExecutor(REAL_RUNS_AT_ONCE + 1) as pool:
        virtual = pool.submit(recorder.run, "scratch.virtual", dry_run, limit=150, virtual=True)
        real = dict(zip(names, pool.map(run_case, names), strict=True))
        virtual.result()
    cases = {name: taken_by(case) for name, case in real.items() if case and "error" not in case}
    (recorder.folder.parent / "library_scratch.json").write_text(
        json.dumps(cases, indent=1, sort_keys=True) + "\n"
    )
    if report.exists():
        compare_ranges(recorder, cases, json.loads(report.read_text())["scratch"]["needs"])


def read_cases(output):
    """Return what a run of the program printed, by the name of the case."""
    lines = [line for line in (output or "").splitlines() if line.startswith("SCRATCH ")]
    cases = [json.loads(line.removeprefix("SCRATCH ")) for line in lines]
    return {case["case"]: case for case in cases}


def taken_by(case):
    """Return the bytes that the routines of a case took while they ran, and their workspaces.

    `execution` is `None` where compiling took more, or where the results are not all that stayed.
    """
    made, compiled, executed = (case[name] for name in ("made", "compiled", "executed"))
    stayed = executed["bytes_in_use"] - compiled["bytes_in_use"]
    temporaries = round_up(case["planned"]["temp"])
    # Where there are several results, a table of their addresses.
    table = round_up(case["planned"]["output"] - sum(case["result_bytes"]))
    is_hidden = executed["peak_bytes_in_use"] == compiled["peak_bytes_in_use"]
    taken = executed["peak_bytes_in_use"] - made["bytes_in_use"] - stayed - temporaries - table
    return {
        "execution": None if is_hidden else taken,
        "workspaces": case["workspaces"],
        "temporaries": temporaries,
    }


def round_up(size):
    """Return the bytes of a request as the pool counts them."""
    return -(-size // UNIT) * UNIT


def compare_ranges(recorder, cases, needs):
    """Say of each case whether what its routines took is within the range of the report."""
    for name, case in sorted(cases.items()):
        of_case = [need for need in needs if need["program"] == f"jit_{name}"]
        for phase, taken in (
            ("execution", case["execution"]),
            ("plan", max((size for _, size in case["workspaces"]), default=0)),
        ):
            ranges = [need for need in of_case if need["phase"] == phase]
            known = [need for need in ranges if need["source"] != "unknown"]
            if taken is None or not (ranges or taken):
                continue
            low = max((need["low_bytes"] for need in known), default=0)
            high = max((need["high_bytes"] for need in known), default=0)
            within = low <= taken <= high
            word = "within" if within else "unknown" if ranges and not known else "OUTSIDE"
            recorder.say(f"  {word:<8}{name}: {taken} in {phase}, range {low} to {high}")
