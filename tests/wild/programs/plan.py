"""What XLA plans for the step of a program, written down beside the dry run's answer.

The peak of a run can be no lower than what the step's compiled program needs and, where the step
is what needs most, no higher than that with all other arrays that are alive then, but for the
allocator's rounding. It is noted after the last step, when the arrays of the loop are alive.
"""

import json
import os

import jax


def note(step, *arguments, **keywords):
    """Compile a jitted function for these arguments and write down what its plan says."""
    analysis = step.lower(*arguments, **keywords).compile().memory_analysis()
    beyond = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    beyond += analysis.temp_size_in_bytes
    alive = sum(array.nbytes for array in jax.live_arrays())
    plan = {
        "least_bytes": analysis.argument_size_in_bytes + beyond,
        "most_bytes": max(alive, analysis.argument_size_in_bytes) + beyond,
    }
    if path := os.environ.get("WILD_PLAN"):
        with open(path, "w") as file:
            json.dump(plan, file)
