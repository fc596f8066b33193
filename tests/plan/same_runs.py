"""Compares training runs with and without plans that cut every function everywhere, on the CPU.

Each run of `runs` is made in processes of its own: as it is; with its sites recorded, as the search
of a plan does; and with plans that rematerialize every site in segments of some equations, and
unroll its loop if it is short. Prints
one JSON object for each: how many sites it has, what was left alone, and the largest difference.
"""

import json
import os
import pickle
import sys
import tempfile
import traceback
from pathlib import Path

os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8"
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax
import numpy as np

from vramfit._plan import _sites
from vramfit._plan._apply import PlanApplier
from vramfit._plan._file import SitePlan
from vramfit._plan._record import SiteRecorder

# Equations of a segment, and its policy.
CUTS = ((5, "nothing"), (1000, "dots"))
# The search of a plan unrolls no longer loops.
MAX_UNROLLED = 16
# What is computed again in 16 bits is rounded again.
HALF_PRECISION = {"half_precision", "a_loss_scale_that_adapts"}
# JAX's own `jax.checkpoint` cannot save a product of complex numbers.
WITHOUT_SAVED_PRODUCTS = {"complex_parameters"}


class _Failed(Exception):
    pass


def in_child(name, planner=None):
    """Make a run in a process of its own, and return the leaves of its results and its output."""
    with tempfile.TemporaryFile() as printed:
        result = _result_of_child(name, planner, printed)
        printed.seek(0)
        return [*result, printed.read().decode()]


def _result_of_child(name, planner, printed):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            os.dup2(printed.fileno(), 1)
            if planner is not None:
                _sites.install(jax, planner)
            import runs
            import styles

            run = (runs.RUNS | styles.RUNS)[name]
            leaves = jax.tree.leaves(jax.block_until_ready(run()))
            result = [x if isinstance(x, str) else np.asarray(x) for x in leaves]
            sys.stdout.flush()
        except BaseException:
            result = traceback.format_exc()
        with os.fdopen(write, "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        result = pickle.load(file)
    os.waitpid(child, 0)
    if isinstance(result, str):
        raise _Failed(result)
    return result


def difference(one, other):
    """Return the largest difference between results, relative to each.

    It is infinite where results that are no floating-point numbers differ at all.
    """
    if len(one) != len(other):
        return float("inf")
    worst = 0.0
    for a, b in zip(one, other, strict=True):
        if isinstance(a, str) or isinstance(b, str) or a.dtype.kind not in "fcV":
            if not np.array_equal(a, b):
                return float("inf")
            continue
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        scale = np.max(np.abs(a), initial=0) or 1.0
        worst = max(worst, float(np.max(np.abs(a - b), initial=0)) / scale)
    return worst


def record(name, path):
    """Record the sites of a run; return them, what was left alone, and the results."""
    known = 0
    while True:
        results = error = None
        try:
            results = in_child(name, SiteRecorder(path))
        except _Failed as failed:
            error = failed
        lines = Path(path).read_text().splitlines() if os.path.exists(path) else []
        entries = [json.loads(line) for line in lines]
        left_alone = [entry for entry in entries if "left_alone" in entry]
        if error is None:
            # What reads a value in one call is left alone in all.
            read = [each["left_alone"] for each in left_alone if each["reason"] == "value_read"]
            sites = [each for each in entries if "kind" in each and each["inside"] not in read]
            return sites, left_alone, results
        if len(left_alone) == known:
            raise error
        known = len(left_alone)
        Path(path).write_text("".join(json.dumps(entry) + "\n" for entry in left_alone))


def cut(site, length, save):
    """Return a plan of a site that rematerializes everything, in segments of some equations."""
    equations, segments, start = site["equations"], [], 0
    for index, equation in enumerate([*equations, {"barrier": True}]):
        if equation["barrier"] or index - start == length:
            if index > start:
                segments.append((start, index))
            start = index + equation["barrier"]
    iterations = site["iterations"]
    names = ("kind", "definition", "inside", "call", "fingerprint", "structure")
    return SitePlan(
        **{name: site[name] for name in names},
        equations=len(equations),
        segments=tuple(segments),
        save=save,
        saved=(),
        offloaded=(),
        unroll=iterations if iterations in range(2, MAX_UNROLLED + 1) else None,
    )


def compare(name, cuts):
    """Compare the ways to make one run."""
    plain = in_child(name)
    with tempfile.TemporaryDirectory() as folder:
        sites, left_alone, recorded = record(name, os.path.join(folder, "sites.jsonl"))
    found = {
        "name": name,
        "sites": len(sites),
        "kinds": sorted({site["kind"] for site in sites}),
        "left_alone": sorted({entry["reason"] for entry in left_alone}),
        "recorded": difference(plain, recorded),
        "planned": 0.0,
        "tolerance": 2.0**-8 if name in HALF_PRECISION else 1e-5,
    }
    # What an outer function computes depends on how an inner one is divided.
    depths = sorted({site["depth"] for site in sites})
    groups = [[site for site in sites if site["depth"] == depth] for depth in depths]
    for length, save in cuts:
        if save == "dots" and name in WITHOUT_SAVED_PRODUCTS:
            continue
        for group in groups:
            plans = [cut(site, length, save) for site in group]
            applier = PlanApplier(
                [plan for plan in plans if plan.segments or plan.unroll], "plan.toml"
            )
            found["planned"] = max(found["planned"], difference(plain, in_child(name, applier)))
    return found


if __name__ == "__main__":
    names = [argument for argument in sys.argv[1:] if argument != "--all-cuts"]
    for name in names:
        print(json.dumps(compare(name, CUTS if "--all-cuts" in sys.argv else CUTS[:1])), flush=True)
