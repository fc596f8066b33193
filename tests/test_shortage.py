"""What a run lacks that does not fit: all that the execution asks for, not only one request.

On a GPU with room, the same program has its peak where it failed on the small one. What the small
one needs is that peak, without what blocks have beyond their requests. (No program here is one that
XLA compiles otherwise for a small pool.)
"""

import json

import pytest
from commands import ROOT
from reference_trace_reader import peak_of

RELEASES = sorted(path.stem.removeprefix("jax-") for path in (ROOT / "requirements").glob("jax-*"))

# More buffers than any program below allocates in an execution.
BUFFERS = 20

BEGIN = """
import functools, jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
MIB = jnp.zeros((1 << 18,))
"""
PROGRAMS = {
    "outputs": """
f = jax.jit(lambda x: [x + i for i in range(8)])
out = f(jnp.ones((8 << 18,)))
""",
    "outputs and temporaries": """
f = jax.jit(lambda x: [jnp.sin(x @ x) + i for i in range(4)])
out = f(jnp.ones((2048, 2048)))
""",
    "a donated argument": """
@functools.partial(jax.jit, donate_argnums=0)
def f(state, x):
    return state + 1, jnp.concatenate([x, x]), x * 2, jnp.cumsum(x)
out = f(jnp.ones((16 << 18,)), jnp.ones((8 << 18,)))
""",
    "one output": """
out = jax.jit(lambda x: jnp.tile(x, 64))(MIB)
""",
    "an operation outside jit": """
x = jnp.ones((32 << 18,))
y = x + 1
""",
    "two GPUs": """
mesh = jax.make_mesh((2,), ("data",))
x = jax.device_put(jnp.ones((2, 8 << 18)), NamedSharding(mesh, PartitionSpec("data")))
out = jax.jit(lambda x: [x + i for i in range(6)])(x)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("short_of", [256, 3 << 20, 9 << 20])
def test_what_is_needed_is_the_peak_where_there_is_room(dryrun, write_script, name, short_of):
    check_shortage(dryrun, write_script, name, short_of)


@pytest.mark.matrix
@pytest.mark.parametrize("release", RELEASES)
def test_what_is_needed_on_every_release(dryrun, write_script, release):
    """Partitioned pools, from 0.11 on, grow from their lower end, or from their upper one."""
    command = ROOT / ".cache" / "matrix" / f"jax-{release}" / "command.json"
    for name in PROGRAMS:
        check_shortage(dryrun, write_script, name, 3 << 20, *json.loads(command.read_text()))


def check_shortage(dryrun, write_script, name, short_of, *command):
    script = write_script(BEGIN + PROGRAMS[name], "program.py")
    gpu = "h100-80gx2" if name == "two GPUs" else "h100-80g"
    roomy = dryrun(*command, script, gpu=gpu)
    assert roomy.summary["needed_bytes"] == roomy.summary["peak_bytes"]
    peak = peak_of(roomy.trace)
    limit = peak.requested - short_of
    small = dryrun(*command, script, gpu=gpu, options=("--limit", f"{limit}B"), code=1).summary
    needed, oom = small["needed_bytes"], small["oom"]
    assert oom["program"] == peak.program
    # Buffers that were not allocated yet are not rounded to 256 bytes.
    assert needed <= peak.requested < needed + 256 * BUFFERS
    assert oom["needed_bytes"] == needed
    assert oom["short_bytes"] >= needed - small["limit_bytes"]
    assert small["attribution"]["total_bytes"] == needed
