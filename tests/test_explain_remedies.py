"""What `vramfit explain` says a remedy brings is what a dry run shows that applies it."""

import json
import sys

import pytest
from commands import run_vramfit

# An MLP whose step takes 12.0 GiB: more than the 10.9 GiB of a T4's pool, less than the GPU has.
PROGRAM = """
import jax
import jax.numpy as jnp

def loss(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x * x)

@jax.jit
def step(weights, x):
    gradient = jax.grad(loss)(weights, x)
    return [w - 0.1 * g for w, g in zip(weights, gradient)]

weights = [jnp.full((4096, 4096), 0.01) for _ in range(5)]
x = jnp.ones((106496, 4096))
for _ in range(3):
    weights = step(weights, x)
jax.block_until_ready(weights)
"""
DONATED = PROGRAM.replace("@jax.jit", "@jax.jit(donate_argnames=['weights'])")
# The stated bytes may differ from those of the dry run by so much.
TOLERANCE = 0.01


def vramfit(*arguments, **options):
    return run_vramfit("--quiet", *arguments, **options)


def dryrun(*arguments):
    """Return the critical device of a dry run, whether it fits, and what it logged."""
    options = ["--full", "--gpu", "t4", "--steps", 3, "--json", "-", *arguments]
    done = vramfit("dryrun", *options)
    summary = json.loads(done.stdout)
    return summary["devices"][0], summary["fits"], done.stderr


def remedies(*arguments, log):
    """Return the measured remedies by their ids."""
    done = vramfit("explain", "--gpu", "t4", "--json", "-", *arguments, input=log)
    assert done.stdout, done.stderr
    listed = json.loads(done.stdout)["remedies"]
    return {remedy["id"]: remedy for remedy in listed if remedy["basis"] in ("dryrun", "replay")}


def assert_stated(remedy, measured, basis):
    assert remedy["basis"] == basis
    assert measured > 0
    assert abs(remedy["bytes"] - measured) <= TOLERANCE * measured


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """Return the command of a program that does not fit, its log and its trace."""
    folder = tmp_path_factory.mktemp("program")
    program = folder / "train.py"
    program.write_text(PROGRAM)
    command = ["--", sys.executable, program]
    trace = folder / "run.trace"
    device, fits, log = dryrun("--trace", trace, *command)
    assert not fits
    return command, device, log, trace


def recompute(folder, command):
    """Return a plan that recomputes activations, with the pool as it is."""
    plan = folder / "plan.toml"
    vramfit("plan", "--gpu", "t4", "--try", "remat", "--out", plan, *command, code=0)
    return plan


def test_remedies_are_worth_what_a_dry_run_shows(failed, tmp_path, write_script):
    command, before, log, _ = failed
    found = remedies(*command, log=log)
    for name, option in (
        ("raise-fraction", ["--fraction", 0.92]),
        ("cuda-async", ["--allocator", "cuda_async"]),
    ):
        after, fits, _ = dryrun(*option, *command)
        assert_stated(found[name], after["capacity_bytes"] - before["capacity_bytes"], "dryrun")
        assert fits == (found[name]["outcome"] == "it fits")
    # The peak of the program as it is, in a pool that is large enough.
    whole, fits, _ = dryrun("--fraction", 0.92, *command)
    assert fits
    plan = recompute(tmp_path, command)
    planned, fits, _ = dryrun("--plan", plan, *command)
    assert fits == (found["plan"]["outcome"] == "it fits")
    assert_stated(found["plan"], whole["peak_bytes"] - planned["peak_bytes"], "dryrun")
    donated = write_script(DONATED, "donated.py")
    spared, _, _ = dryrun("--fraction", 0.92, "--", sys.executable, donated)
    assert_stated(found["donate"], whole["peak_bytes"] - spared["peak_bytes"], "dryrun")
    # Those about most bytes come first.
    sizes = [remedy["bytes"] for remedy in found.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_a_plan_is_worth_what_a_dry_run_with_it_shows(failed, tmp_path):
    command, _, log, _ = failed
    plan = recompute(tmp_path, command)
    found = remedies("--with", plan, *command, log=log)
    whole, _, _ = dryrun("--fraction", 0.92, *command)
    planned, _, _ = dryrun("--plan", plan, *command)
    assert_stated(found["plan"], whole["peak_bytes"] - planned["peak_bytes"], "dryrun")
    assert f"--plan {plan}" in found["plan"]["command"]


def test_a_replay_states_what_a_dry_run_shows(failed):
    command, before, log, trace = failed
    found = remedies("--with", trace, log=log)
    for name, option in (
        ("raise-fraction", ["--fraction", 0.92]),
        ("cuda-async", ["--allocator", "cuda_async"]),
    ):
        after, _, _ = dryrun(*option, *command)
        assert_stated(found[name], after["capacity_bytes"] - before["capacity_bytes"], "replay")
        assert found[name]["outcome"] == "the request succeeds"


def test_a_replay_states_what_others_occupy(failed, tmp_path):
    command, alone, _, _ = failed
    trace = tmp_path / "run.trace"
    shared, _, log = dryrun("--trace", trace, "--occupied", "6GiB", *command)
    found = remedies("--with", trace, log=log)
    gained = alone["capacity_bytes"] - shared["capacity_bytes"]
    assert_stated(found["free-gpu"], gained, "replay")
