"""What `vramfit plan` computes in chunks; `tests/matrix/chunks.py` compares numbers."""

import json
import sys

from commands import run_vramfit
from planning import peak, vramfit

MIB = 1 << 20
# A matrix of 4 MiB for each of 96 sets of points.
PAIRS = """
import sys
import jax
import jax.numpy as jnp

def energy(points):
    distances = jnp.sqrt(jnp.sum((points[:, None] - points[None]) ** 2, -1) + 1e-3)
    return jnp.sum(distances @ distances)

@jax.jit
def total(sets):
    {lines}

sets = jax.random.normal(jax.random.key(0), (int(sys.argv[1]), int(sys.argv[2]), 3))
print(*total(sets).tolist())
"""
MAPPED = PAIRS.format(lines="return jax.vmap(energy)(sets)")
NOTED = PAIRS.format(
    lines="return jax.vmap(lambda one: (jax.debug.print('one'), energy(one))[1])(sets)"
)


def search(program, *arguments):
    command = [sys.executable, program, "96", "1024", *arguments]
    options = ["--gpu", "t4", "--limit", "256MiB", "--try", "chunk", "--json", "-"]
    done = vramfit(
        "plan", *options, "--force", "--out", program.parent / "plan.toml", "--", *command
    )
    return json.loads(done.stdout.splitlines()[-1]), done


def test_the_fewest_chunks_that_fit_are_found_and_are_what_their_dry_run_measures(write_script):
    program = write_script(MAPPED)
    found, _ = search(program)
    assert found["meets_budget"] is True
    best = found["recommended"]
    plan = program.parent / "plan.toml"
    [size] = [
        int(line.split()[-1]) for line in plan.read_text().splitlines() if "batch_size" in line
    ]
    name = "train.py:6 (energy)"
    assert best["moves"] == [f"{name}: `jax.vmap` over 96 elements, {size} at a time"]
    # One chunk less does not fit.
    others = [row for row in found["rows"] if row["moves"] and not row["fits"]["t4"]]
    sizes = [int(row["moves"][0].split()[-4]) for row in others]
    larger = min(other for other in sizes if other > size)
    assert -(-96 // larger) == -(-96 // size) - 1
    # In a pool of 256 MiB a rest of less than half would be part of the block.
    options = ["--gpu", "t4", "--plan", plan]
    assert (
        peak(
            vramfit("dryrun", *options, "--json", "-", "--", sys.executable, program, "96", "1024")
        )
        == (best["peak_bytes"])
    )


def test_the_plan_is_applied_to_the_program_that_runs(write_script):
    program = write_script(MAPPED)
    search(program)
    plan = program.parent / "plan.toml"
    env = {"JAX_PLATFORMS": "cpu"}
    # Another number of elements, which the chunks do not divide.
    command = ["--", sys.executable, program, "131", "40"]
    plain = run_vramfit("run", *command, env=env, code=0)
    planned = run_vramfit("run", "--plan", plan, *command, env=env, code=0)
    numbers = [[float(word) for word in done.stdout.split()] for done in (plain, planned)]
    assert all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(*numbers, strict=True))
    assert "is mapped over 131 elements, in the plan over 96" in planned.stderr


def test_what_calls_python_for_each_element_is_left_as_it_is(write_script):
    program = write_script(NOTED)
    found, _ = search(program)
    assert found["recommended"]["moves"] == []
    assert len({row["peak_bytes"] for row in found["rows"]}) == 1


def test_a_plan_says_if_its_function_is_never_mapped(write_script):
    program = write_script(MAPPED)
    search(program)
    other = write_script("import jax\njax.jit(jax.numpy.sin)(1.0)\n", "other.py")
    plan = program.parent / "plan.toml"
    done = run_vramfit(
        "run", "--plan", plan, "--", sys.executable, other, env={"JAX_PLATFORMS": "cpu"}
    )
    assert "the program never mapped" in done.stderr
