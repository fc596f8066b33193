"""Tells what the allocator says, as lines that `record_gpu.py` reads."""

import json

import jax


def tell(step, device=None):
    """Print the statistics of a device's pool, behind a step with this name."""
    stats = (device or jax.local_devices()[0]).memory_stats() or {}
    told = {"step": step} | {name: int(value) for name, value in stats.items()}
    print("TOLD", json.dumps(told), flush=True)


def steps(step, state, batch, count):
    """Take so many steps whose state is donated, tell what was planned and what each left."""
    compiled = jax.jit(step, donate_argnums=0).lower(state, batch).compile()
    planned("step", compiled)
    tell("compiled")
    for number in range(count):
        state, loss = compiled(state, batch)
        loss.block_until_ready()
        tell(f"step {number}")
    return state


def planned(step, compiled):
    """Print what XLA has planned for a compiled program."""
    sizes = compiled.memory_analysis()
    names = ("argument", "output", "alias", "temp", "generated_code")
    told = {f"{name}_bytes": int(getattr(sizes, f"{name}_size_in_bytes")) for name in names}
    print("PLANNED", json.dumps({"step": step} | told), flush=True)
