"""Prints allocator statistics as lines that `record_gpu.py` reads."""

import json

import jax


def print_stats(step, device=None):
    """Print the statistics of a device's pool, behind a step with this name."""
    stats = (device or jax.local_devices()[0]).memory_stats() or {}
    values = {"step": step} | {name: int(value) for name, value in stats.items()}
    print("STATS", json.dumps(values), flush=True)


def steps(step, state, batch, count):
    """Run steps with a donated state; print XLA's plan, and the statistics after each step."""
    compiled = jax.jit(step, donate_argnums=0).lower(state, batch).compile()
    planned("step", compiled)
    print_stats("compiled")
    for number in range(count):
        state, loss = compiled(state, batch)
        loss.block_until_ready()
        print_stats(f"step {number}")
    return state


def planned(step, compiled):
    """Print what XLA has planned for a compiled program."""
    sizes = compiled.memory_analysis()
    names = ("argument", "output", "alias", "temp", "generated_code")
    planned = {f"{name}_bytes": int(getattr(sizes, f"{name}_size_in_bytes")) for name in names}
    print("PLANNED", json.dumps({"step": step} | planned), flush=True)
