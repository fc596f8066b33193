"""What `vramfit plan` finds beside rematerialization: settings, and edits of the program."""

import json
import sys

import pytest
from planning import peak, vramfit

# 12 GiB that nothing can make smaller.
STATE = """
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x + 1, donate_argnums=0)
x = jnp.zeros((3, 1 << 30))
for _ in range(4):
    x = step(x)
"""

DONATION = """
import functools
import jax
import jax.numpy as jnp

@functools.partial(jax.jit, donate_argnums=())
def step(state, x):
    return {{"w": state["w"] + x}}, x.sum()

state = {{"w": jnp.zeros((1 << 20, 64))}}
for _ in range(3):
    new, total = step(state, 2.0 * jnp.ones(()))
    {use}
    state = new
"""


@pytest.mark.parametrize("use", ["pass", "jax.block_until_ready(state)"])
def test_what_could_be_donated_is_measured(write_script, use):
    program = write_script(DONATION.format(use=use))
    done = vramfit("plan", "--gpu", "t4", "--json", "-", "--", sys.executable, program)
    found = json.loads(done.stdout.splitlines()[-1])
    donation = found["donation"]
    assert (donation["function"], donation["arguments"]) == ("step", ["state"])
    assert donation["site"].endswith("train.py:12 (<module>)")
    if use == "pass":
        # The new state takes the place of the old one.
        assert donation["peak_bytes"] < found["baseline"]["peak_bytes"] - (255 << 20)
    else:
        assert donation["peak_bytes"] is None
    assert found["recommended"]["moves"] == []


# The step returns its logits, 250 MiB, beside the loss; argument: what the program does with them.
LOGITS = """
import jax
import jax.numpy as jnp

@jax.jit
def step(w, x):
    def loss(w):
        logits = x @ w
        return jnp.mean(logits**2), {{"logits": logits, "sum": logits.sum()}}
    (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(w)
    return w - gradient, value, aux

w, x = jnp.ones((256, 32000)), jnp.ones((2048, 256))
for _ in range(4):
    w, value, aux = step(w, x)
    {use}
"""


@pytest.mark.parametrize(
    ("use", "is_read"),
    [
        ("print(float(aux['sum']))", False),
        ("jax.block_until_ready(aux)", False),
        ("print(aux['logits'].shape)", False),
        ("print(aux['logits'].max())", True),
        ("jax.device_get(aux)", True),
        ("jax.device_put(aux['logits'], jax.devices()[0], may_alias=False)", True),
    ],
)
def test_outputs_that_nothing_reads_are_found_and_measured(write_script, use, is_read):
    command = ["--", sys.executable, write_script(LOGITS.format(use=use))]
    done = vramfit("plan", "--gpu", "t4", "--try", "compiler", "--json", "-", *command)
    found = json.loads(done.stdout.splitlines()[-1])
    omission = found["omission"]
    dry = vramfit("dryrun", "--full", "--gpu", "t4", *command)
    advice = "nothing reads `result[2]['logits']`, 250.0 MiB"
    assert (advice in " ".join(dry.stderr.split())) == (not is_read), dry.stderr
    if is_read:
        assert omission is None
        return
    assert (omission["function"], omission["outputs"]) == ("step", ["result[2]['logits']"])
    assert omission["site"].endswith("train.py:15 (<module>)")
    # Without the output of the call before, which is replaced only after the next one.
    assert omission["peak_bytes"] <= found["baseline"]["peak_bytes"] - (250 << 20)
    assert found["recommended"]["moves"] == []


# Arrays of 1 GiB with holes between them, and a request that is larger than a hole.
HOLES = """
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x * 2)
blocks = [jnp.zeros((1 << 28,)) for _ in range(9)]
del blocks[::2]
x = step(jnp.zeros((3 << 27,)))
x = step(x)
"""

# Each pair of arrays is twice as large as the one before, which is freed. A pool that grows keeps
# their regions apart.
GROWING = """
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x * 2)
for gibibytes in 1, 2, 4:
    x = None
    x = step(jnp.zeros((gibibytes << 28,)))
"""


@pytest.mark.parametrize(
    ("program", "preallocate", "move", "setting"),
    [
        (HOLES, "true", "use the allocator `cuda_async`", 'allocator = "cuda_async"'),
        (GROWING, "false", "let JAX preallocate its pool", "preallocate = true"),
    ],
)
def test_a_fragmented_pool_is_cured(write_script, tmp_path, program, preallocate, move, setting):
    """Bytes would suffice, and no free block does."""
    plan, json_file = tmp_path / "plan.toml", tmp_path / "plan.json"
    command = ["--", sys.executable, write_script(program)]
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": preallocate}
    options = ["--try", "pool", "--out", plan, "--json", json_file]
    done = vramfit("plan", "--gpu", "t4", *options, *command, **environment, code=0)
    assert "  fragmented  as it is\n" in done.stdout
    assert ("is by a model" in done.stdout) == (program is HOLES)
    found = json.loads(json_file.read_text())
    baseline, best = found["baseline"], found["recommended"]
    assert baseline["fits"] == {"t4": False}
    assert baseline["spare_bytes"]["t4"] > 0
    assert best["fits"] == {"t4": True}
    assert best["moves"] == [move]
    assert setting in plan.read_text()
    dry = vramfit("dryrun", "--gpu", "t4", "--json", "-", "--plan", plan, *command, **environment)
    assert (dry.returncode, peak(dry)) == (0, best["peak_bytes"])
    name = "ALLOCATOR" if program is HOLES else "PREALLOCATE"
    code = f"import os; print(os.environ['XLA_PYTHON_CLIENT_{name}'])"
    done = vramfit("run", "--plan", plan, "--", sys.executable, "-c", code, **environment)
    assert done.stdout == ("cuda_async\n" if program is HOLES else "true\n"), done.stderr


def test_more_memory_for_the_pool_is_a_plan(write_script, tmp_path):
    """What does not fit in 0.75 of the GPU, but in 0.92, needs nothing else."""
    plan, json_file = tmp_path / "plan.toml", tmp_path / "plan.json"
    command = ["--", sys.executable, write_script(STATE)]
    options = ["--try", "pool", "--out", plan, "--json", json_file]
    done = vramfit("plan", "--gpu", "t4", *options, *command)
    found = json.loads(json_file.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["baseline"]["fits"] == {"t4": False}
    assert found["baseline"]["xla_remat"]["recomputed_us"] >= 0
    assert found["recommended"]["fits"] == {"t4": True}
    assert found["recommended"]["moves"] == ["raise JAX's memory fraction to 0.92"]
    assert "memory_fraction = 0.92" in plan.read_text()
    dry = vramfit(
        "dryrun", "--full", "--gpu", "t4", "--steps", 3, "--json", "-", "--plan", plan, *command
    )
    assert (dry.returncode, peak(dry)) == (0, found["recommended"]["peak_bytes"])
    code = "import os; print(os.environ['XLA_CLIENT_MEM_FRACTION'])"
    started = ["run", "--plan", plan]
    done = vramfit(*started, "--", sys.executable, "-c", code)
    assert done.stdout == "0.92\n", done.stderr
    done = vramfit(*started, "--fraction", 0.5, "--", sys.executable, "-c", code)
    assert done.stdout == "0.5\n", done.stderr


FAILING = """
import jax
import jax.numpy as jnp

w = jnp.zeros((1 << 12, 1 << 12))
for _ in range(3):
    loss = jnp.sum(w @ w)
    w = w * 0.5
{end}
"""


@pytest.mark.parametrize(
    ("end", "hint"),
    [
        ("raise ValueError('no such optimizer: adamm')", None),
        ("assert float(loss) > 3.0, 'no such optimizer: adamm'", "`float(loss)` at train.py:9"),
    ],
)
def test_an_error_of_the_program_is_not_the_compilers(write_script, end, hint):
    program = write_script(FAILING.format(end=end))
    done = vramfit("plan", "--gpu", "t4", "--", sys.executable, program, code=2)
    assert "error[program-failed]" in done.stderr
    assert "no such optimizer: adamm" in done.stderr
    assert ("hint: " in done.stderr) == (hint is not None)
    assert (hint or "") in done.stderr
