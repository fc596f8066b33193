"""Compares losses and gradients of programs with and without a plan, on the CPU.

Prints one JSON object: for each program the sites that were rewritten, and the largest difference.
"""

import json
import os
import sys

# Compiling is most of the time; both of what is compared are compiled alike.
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8"
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax
import jax.numpy as jnp
import numpy as np

from vramfit._plan import _evaluate, _sites
from vramfit._plan._segment import Segment, SiteChange


class Rewrite:
    """Rematerializes every site in segments of `length` equations, and unrolls loops or not."""

    def __init__(self):
        self.length, self.save, self.chosen, self.unrolls = 0, None, None, False
        self.active = False
        self.seen = []

    def traces(self, definition, is_within):
        return self.active

    def on_trace(self, site, traced):
        pass

    def on_value_read(self, definition, line):
        raise AssertionError(f"{definition} reads a value at {line}")

    def on_return(self, definition, jaxpr):
        pass

    def change(self, site):
        self.seen.append(site.kind)
        result, start = [], 0
        equations = site.jaxpr.equations
        for index, equation in enumerate([*equations, None]):
            if equation is None or equation.is_barrier or index - start == self.length:
                if index > start:
                    result.append(self.segment(start, index))
                is_barrier = equation is not None and equation.is_barrier
                start = index + is_barrier
        return SiteChange(tuple(result), site.iterations if self.unrolls else None)

    def segment(self, start, stop):
        chosen = tuple(range(start, stop, 2))
        return Segment(
            start,
            stop,
            self.save,
            saved=chosen if self.chosen == "saved" else (),
            offloaded=chosen if self.chosen == "offloaded" else (),
            offload_inputs=self.chosen == "offloaded",
        )


original = jax.value_and_grad
rewrite = Rewrite()
_evaluate.MIN_OFFLOADED_BYTES = 0
_sites.install(jax, rewrite)

from programs import CALLS, PROGRAMS  # noqa: E402  (JAX's attributes are replaced before)


def gradients(program):
    loss, parameters, data = program()
    has_aux = program.__name__ == "resnet"
    step = jax.value_and_grad(loss, has_aux=has_aux)
    if not has_aux:  # which returns a string, and that cannot leave a compiled function
        step = jax.jit(step)
    CALLS.clear()
    leaves = jax.tree.leaves(jax.block_until_ready(step(parameters, data)))
    jax.effects_barrier()
    return leaves, sorted(CALLS)


def difference(a, b):
    if isinstance(a, str):
        return 0.0 if a == b else float("inf")
    scale = float(jnp.max(jnp.abs(a))) or 1.0
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) / scale


# Equations of a segment, policy, what is done with every second value, and whether loops are
# unrolled.
WAYS = (
    (7, "nothing", None, False),
    (1000, "dots", None, True),
    (12, None, "saved", False),
    (12, None, "offloaded", False),
)
found = {}
for name in sys.argv[1:] or PROGRAMS:
    rewrite.active = False
    plain, calls = gradients(PROGRAMS[name])
    worst, kinds = 0.0, set()
    for rewrite.length, rewrite.save, rewrite.chosen, rewrite.unrolls in WAYS:
        rewrite.active, rewrite.seen = True, []
        planned, planned_calls = gradients(PROGRAMS[name])
        assert planned_calls == calls, (name, planned_calls, calls)
        kinds |= set(rewrite.seen)
        worst = max(worst, *(difference(a, b) for a, b in zip(plain, planned, strict=True)))
    found[name] = {"kinds": sorted(kinds), "difference": worst, "calls": len(calls)}
print(json.dumps(found))
