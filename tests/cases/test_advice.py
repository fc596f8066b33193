"""What a report offers against a shortage: nothing that a later part of the run rules out."""

import pytest

TRAINING = """
import jax, jax.numpy as jnp, numpy as np

def loss(p, x):
    return jnp.mean((jnp.tanh(x @ p["w"]) + p["b"]) ** 2)

@jax.jit
def step(p, x):
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, jax.grad(loss)(p, x))

@jax.jit
def distance(a, b):
    return sum(jax.tree.leaves(jax.tree.map(lambda u, v: jnp.sum((u - v) ** 2), a, b)))

params = {"w": jnp.ones((1024, 1024)), "b": jnp.ones((1024,))}
x = jnp.ones((128, 1024))
for i in range(4):
    new = step(params, x)
    READ
    params = new
"""
DONATE = "donate arguments that are returned updated"
# Reads of what a step has replaced. One leaf that is read keeps its whole argument.
READS = {
    "a program": "distance(params, new)",
    "an operation": "params['w'] + 1",
    "an operation in the last step": "params['b'] + 1 if i == 3 else None",
    "the host": "np.asarray(params['b'])",
    "a copy": "jnp.copy(params['w'])",
    "the same step": "step(params, x)",
    "a branch": "new = new if i else params",
}
OTHERS = {
    "nothing": "",
    "reads of what replaces it": "distance(new, new), np.asarray(new['b'])",
    "a wait": "jax.block_until_ready(params)",
    "its shape": "params['w'].shape, params['w'].nbytes, params['w'].sharding",
}


def report_of(dryrun, write_script, text):
    run = dryrun(write_script(text, "program.py"))
    return " ".join(run.err.split())


@pytest.mark.parametrize("read", READS)
def test_what_is_read_after_the_step_is_not_to_be_donated(dryrun, write_script, read):
    text = report_of(dryrun, write_script, TRAINING.replace("READ", READS[read]))
    assert "peak in use" in text
    assert DONATE not in text
    assert "not donated" not in text


@pytest.mark.parametrize("other", OTHERS)
def test_what_nothing_reads_after_the_step_can_be_donated(dryrun, write_script, other):
    text = report_of(dryrun, write_script, TRAINING.replace("READ", OTHERS[other]))
    assert f"{DONATE}: 4.0 MiB are allocated twice" in text
    assert "`p['w']` and 1 more argument are not donated" in text


UNREAD = "do not return outputs that are not used"


def test_an_operation_has_no_outputs_to_leave_out(dryrun, write_script):
    operations = """
        import jax.numpy as jnp
        x = jnp.ones((1024, 1024))
        for _ in range(4):
            jnp.exp(x)
    """
    assert UNREAD not in report_of(dryrun, write_script, operations)


OUTPUTS = """
import jax, jax.numpy as jnp, numpy as np
@jax.jit
def both(x):
    return jnp.sum(x), jnp.exp(x)
x = jnp.ones((1024, 1024))
for _ in range(4):
    total, values = both(x)
END
"""


@pytest.mark.parametrize("end", ["", "del values", "print(total)"])
def test_a_function_can_leave_out_what_nothing_reads(dryrun, write_script, end):
    text = report_of(dryrun, write_script, OUTPUTS.replace("END", end))
    assert f"{UNREAD}: in this run nothing reads `result[1]`" in text


@pytest.mark.parametrize("end", ["np.asarray(values)", "jnp.sum(values)", "print(values[0, 0])"])
def test_what_is_read_after_the_last_call_is_an_output_to_keep(dryrun, write_script, end):
    assert UNREAD not in report_of(dryrun, write_script, OUTPUTS.replace("END", end))


ARRAYS = """
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def widen(x):
    return jnp.sort(jnp.outer(x, x))[:, 0]

@jax.jit
def use(array):
    return jnp.sum(array)

held = [jnp.ones((1024, 1024)) for _ in range(8)]
widen(jnp.ones((1024,)))
READ
"""
FREE = "free arrays before the peak"
LATER = {
    "a program": "use(held[3])",
    "the host": "np.asarray(held[3])",
    "a copy": "jax.block_until_ready(jnp.copy(held[3]))",
    "a part": "held[3][0]",
}


@pytest.mark.parametrize("read", LATER)
def test_an_array_that_is_read_after_the_peak_is_not_to_be_freed(dryrun, write_script, read):
    text = report_of(dryrun, write_script, ARRAYS.replace("READ", LATER[read]))
    assert f"{FREE}: in this run, nothing after it reads 28.0 MiB" in text


def test_arrays_that_are_all_read_after_the_peak_are_not_to_be_freed(dryrun, write_script):
    text = report_of(dryrun, write_script, ARRAYS.replace("READ", "[use(it) for it in held]"))
    assert "peak in use" in text
    assert FREE not in text


def test_what_a_stopped_run_would_read_is_not_known(dryrun, write_script):
    text = report_of(dryrun, write_script, ARRAYS.replace("READ", "use(held[3]); raise ValueError"))
    assert "keeps: 28.0 MiB" in text


def test_a_program_of_a_library_can_leave_out_what_nothing_reads(dryrun, write_script, tmp_path):
    library = tmp_path / "site-packages" / "pair.py"
    library.parent.mkdir()
    library.write_text(
        "import jax, jax.numpy as jnp\n"
        "@jax.jit\n"
        "def both(x):\n"
        "    total = jnp.sum(x)\n"
        "    return total, jnp.exp(x)\n"
    )
    caller = f"""
        import sys
        sys.path.insert(0, {str(library.parent)!r})
        import pair, jax.numpy as jnp
        x = jnp.ones((1024, 1024))
        for _ in range(4):
            total, _ = pair.both(x)
            del _
    """
    assert f"{UNREAD}: in this run nothing reads `result[1]`" in report_of(
        dryrun, write_script, caller
    )
