"""What a report says that a change of the program would need is what the changed program needs."""

import functools
import textwrap

import pytest
from hosts import EXAMPLES, run_hosts

LLAMA = EXAMPLES / "train_llama.py"

STEP = """
import functools, jax, jax.numpy as jnp, numpy as np

# Without products of matrices, whose scratch memory would leave open whether it fits.
def loss(p, x):
    return jnp.mean((jnp.tanh(x[0] * p["w"]) * p["v"]) ** 2)

@functools.partial(jax.jit, DONATE)
def step(p, x):
    updated = jax.tree.map(lambda a, b: a - 0.1 * b, p, jax.grad(loss)(p, x))
    return updated, LOGITS

params = {name: jnp.ones((1024, 1024)) for name in "wv"}
for _ in range(3):
    params, kept = step(params, np.ones((64, 1024), np.float32))
"""
PLAIN = {"DONATE": "", "LOGITS": "loss(p, x)"}


def program(**changes):
    text = STEP
    for name, value in (PLAIN | changes).items():
        text = text.replace(name, value)
    return text


DONATED = program(DONATE="donate_argnums=0")
# The plain program needs 16.3 MiB, with the donation 12.3; the pool of this limit has 16.
LIMIT = "17MiB"


def summary_of(dryrun, script, *options):
    return dryrun(script, options=options).summary


def edits_of(summary):
    return {"+".join(edit["kinds"]): edit for edit in summary["measured_edits"]}


def test_a_donation_is_measured_where_the_program_does_not_fit(dryrun, write_script):
    script = write_script(program(), "program.py")
    edit = edits_of(summary_of(dryrun, script, "--limit", LIMIT))["donate"]
    donated = summary_of(dryrun, write_script(DONATED, "donated.py"), "--remedies", "full")
    assert edit["peak_bytes"] == donated["peak_bytes"]
    assert edit["fits"] is True
    assert 'donate_argnames=["p"]' in edit["change"]
    # Nothing is left to change.
    assert "donate" not in edits_of(donated)


def test_the_report_shows_what_was_measured_and_not_again_what_is_expected(dryrun, write_script):
    run = dryrun(write_script(program(), "program.py"), options=["--limit", LIMIT])
    text = " ".join(run.err.split())
    assert "measuring a change of the program by a dry run with it" in text
    assert "donate p, returned updated, to `step`, called at program.py:" in text
    assert "fits (the program must not use them after the call)" in text
    assert "donate arguments that are returned updated" not in text


STACKED = """
import jax, jax.numpy as jnp

@jax.jit
def decode(cache, x):
    def layer(x, cache):
        cache = {name: each.at[0].set(x) for name, each in cache.items()}
        return jnp.tanh(x * cache["k"].sum(0) * cache["v"].sum(0)), cache
    return jax.lax.scan(layer, x, cache)

cache = {name: jnp.ones((8, 512, 1024)) for name in "kv"}
for _ in range(3):
    x, cache = decode(cache, jnp.ones(1024))
"""


def test_a_donation_that_brings_nothing_is_no_cause(dryrun, write_script):
    run = dryrun(write_script(STACKED, "program.py"), options=["--limit", "50MiB"], code=1)
    edit = edits_of(run.summary)["donate"]
    assert edit["peak_bytes"] >= run.summary["oom"]["needed_bytes"]
    text = " ".join(run.err.split())
    assert "are returned updated; with them donated it is 64.0 MiB, measured" in text
    assert "not donated" not in text


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ([], set()),
        (["--remedies", "full"], {"donate"}),
        (["--limit", LIMIT, "--remedies", "off"], set()),
    ],
    ids=["it fits", "full", "off"],
)
def test_what_is_measured_is_what_was_asked_for(dryrun, write_script, options, kinds):
    script = write_script(program(), "program.py")
    assert edits_of(summary_of(dryrun, script, *options)).keys() == kinds


def test_changes_are_measured_beside_the_plan_of_the_user(dryrun, write_script, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'schema = 2\n[source]\nvramfit = ""\njax = ""\ngpu = ""\ncommand = []\npeak_bytes = 0\n'
        '[[edit]]\nkind = "omit"\nfunction = "step"\noutputs = ["result[1]"]\n'
    )
    text = program(LOGITS="jnp.tanh(jnp.repeat(x, 64, 0) @ p['w'])")
    script = write_script(text, "program.py")
    with_plan = summary_of(dryrun, script, "--plan", plan, "--remedies", "full")
    both = text.replace("jnp.tanh(jnp.repeat(x, 64, 0) @ p['w'])", "jnp.zeros((0,))")
    both = both.replace("partial(jax.jit, )", "partial(jax.jit, donate_argnums=0)")
    expected = summary_of(dryrun, write_script(both, "both.py"), "--remedies", "off")
    assert edits_of(with_plan)["donate"]["peak_bytes"] == expected["peak_bytes"]


EVALUATED = (
    DONATED
    + """
@jax.jit
def evaluate(p):
    return jnp.sort(jnp.concatenate([jnp.tanh(p["w"])] * 8))[:1]
evaluate(params)
"""
)


def test_a_run_that_was_ended_says_so_and_one_that_was_not_is_measured_whole(dryrun, write_script):
    text = EVALUATED.replace("donate_argnums=0", "").replace("range(3)", "range(300)")
    script = write_script(text, "program.py")
    failed = edits_of(summary_of(dryrun, script, "--limit", LIMIT))["donate"]
    assert (failed["fits"], failed["steps"]) == (True, 201)
    script = write_script(program().replace("range(3)", "range(300)"), "program.py")
    whole = edits_of(summary_of(dryrun, script, "--remedies", "full"))["donate"]
    assert (whole["peak_bytes"], whole["steps"]) == (failed["peak_bytes"], None)


FORMS = {
    "a lambda": ("step = jax.jit(lambda p, x: plain(p, x))", {"donate"}),
    "a partial function": ("step = jax.jit(functools.partial(plain))", {"donate"}),
    "arguments without names": ("step = jax.jit(lambda *args: plain(*args))", set()),
    "two of one name": ("other, step = jax.jit(plain), jax.jit(second)", set()),
    "another jit": ("from jax.experimental.pjit import pjit; step = pjit(plain)", set()),
}


@pytest.mark.parametrize("form", FORMS)
def test_only_a_change_that_was_made_is_measured(dryrun, write_script, form):
    wrapped, kinds = FORMS[form]
    text = program().replace("@functools.partial(jax.jit, )\ndef step", "def plain")
    second = "def second(p, x):\n    return plain(p, x)\nsecond.__name__ = 'plain'\n"
    text = text.replace("\nparams =", f"\n{second}{wrapped}\nparams =")
    run = dryrun(write_script(text, "program.py"), options=["--limit", LIMIT])
    assert edits_of(run.summary).keys() == kinds
    assert ("donate arguments that are returned updated" in run.err) == (not kinds)


def test_what_is_used_after_the_call_cannot_be_donated(dryrun, write_script):
    text = program().replace("    params, kept =", "    old = params\n    params, kept =")
    script = write_script(text + "    old['w'] + 1\n", "program.py")
    edit = edits_of(summary_of(dryrun, script, "--limit", LIMIT))["donate"]
    assert edit["failure"] == "not possible: the program uses what is donated after the call"


def test_a_donation_that_is_not_possible_is_not_advised(dryrun, write_script):
    text = program().replace("    params, kept =", "    old = params\n    params, kept =")
    script = write_script(text + "    old['w'] + 1\n", "program.py")
    said = " ".join(dryrun(script, options=["--limit", LIMIT], code=1).err.split())
    assert "not possible: the program uses what is donated after the call" in said
    assert "donate arguments that are returned updated" not in said


def test_a_change_that_cannot_be_made_is_said_not_to_be_measured(dryrun, write_script):
    text = program().replace("@functools.partial(jax.jit, )\ndef step", "def plain")
    compiled = "from jax.experimental.pjit import pjit; step = pjit(plain)"
    text = text.replace("\nparams =", f"\n{compiled}\nparams =")
    script = write_script(text, "program.py")
    said = " ".join(dryrun(script, options=["--limit", LIMIT], code=1).err.split())
    assert "measuring a change of the program" in said
    assert "not measured: donate p to `plain`: the program gives `jax.jit` no such function" in said


LIBRARIES = {
    "equinox": (
        """
import equinox, jax, jax.numpy as jnp, numpy as np

class Model(equinox.Module):
    w: jax.Array

@equinox.filter_jit
def step(model, x):
    gradient = equinox.filter_grad(lambda m: jnp.mean((x[0] * m.w) ** 2))(model)
    return jax.tree.map(lambda a, b: a - 0.1 * b, model, gradient)

model = Model(jnp.ones((16384, 16384)))
for _ in range(3):
    model = step(model, np.ones((64, 16384), np.float32))
""",
        '`eqx.filter_jit(..., donate="all")` lets the outputs reuse their memory',
        set(),
    ),
    "flax.nnx": (
        """
import jax, jax.numpy as jnp, numpy as np
from flax import nnx

class Model(nnx.Module):
    def __init__(self):
        self.w = nnx.Param(jnp.ones((16384, 16384)))

@nnx.jit
def step(model, x):
    gradient = nnx.grad(lambda m: jnp.mean((x[0] * m.w[...]) ** 2))(model)
    weights = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda a, b: a - 0.1 * b, weights, gradient))

model = Model()
for _ in range(3):
    step(model, np.ones((64, 16384), np.float32))
""",
        '`nnx.jit(..., donate_argnames=["model"])`',
        {"donate"},
    ),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_donation_is_written_as_the_library_takes_it(dryrun, write_script, library):
    pytest.importorskip(library)
    text, expected, kinds = LIBRARIES[library]
    run = dryrun(write_script(text, "program.py"), options=["--limit", "1792MiB"], code=1)
    said = " ".join(run.err.split())
    assert expected in said
    assert "jax.jit(" not in said
    assert edits_of(run.summary).keys() == kinds


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Run a small Llama on eight GPUs of four hosts; each run is made once."""

    @functools.cache
    def run(arguments, remedies, length):
        arguments = ["--small", "--length", length, "--distributed", *arguments]
        folder = tmp_path_factory.mktemp("llama")
        return run_hosts(folder, LLAMA, "--remedies", remedies, hosts=4, arguments=arguments)

    return lambda *arguments, remedies="off", length=1024: run(arguments, remedies, length)


@pytest.mark.parametrize(
    ("mistakes", "others", "kind", "length"),
    [
        (["--replicate-optimizer"], [], "shard_outputs", 16),
        (["--unconstrained"], ["--last-axis"], "constrain_batch", 1024),
    ],
    ids=["outputs", "batch"],
)
def test_what_is_not_divided_is_measured_divided(llama, mistakes, others, kind, length):
    run = llama(*mistakes, *others, remedies="full", length=length)
    corrected = llama(*others, length=length)
    [edit] = [edit for edit in run.summary["measured_edits"] if edit["kinds"] == [kind]]
    assert edit["peak_bytes"] == corrected.summary["peak_bytes"] < run.summary["peak_bytes"]


@pytest.mark.parametrize(
    ("arguments", "level", "is_said"),
    [
        (["--unconstrained", "--last-axis"], "full", True),
        (["--unconstrained", "--last-axis"], "off", False),
        (["--last-axis"], "full", False),
    ],
)
def test_the_batch_is_said_to_be_whole_only_where_that_was_measured(
    llama, arguments, level, is_said
):
    text = " ".join(llama(*arguments, remedies=level).err.split())
    assert ("values of all 8 rows, although `tokens` has 1 on each" in text) == is_said


def test_arrays_in_full_on_all_gpus_are_counted_by_hand(llama, tmp_path):
    run = llama("--last-axis", length=16)
    assert run.summary["replicated_arrays"] is None
    script = """
        import jax, jax.numpy as jnp, functools
        from jax.sharding import NamedSharding, PartitionSpec as P
        jax.distributed.initialize()
        mesh = jax.make_mesh((jax.device_count(),), ("all",))
        full, parts = NamedSharding(mesh, P()), NamedSharding(mesh, P("all"))
        @functools.partial(jax.jit, out_shardings=(full, full, parts))
        def make():
            return jnp.ones((3, 1024, 256)), jnp.ones((5, 3)), jnp.ones((1024, 1024))
        kept = make()
        jnp.ones((1024,)) + 1
    """
    found = run_hosts(tmp_path, textwrap.dedent(script)).summary["replicated_arrays"]
    assert found == {
        "devices": 4,
        "bytes": 3 * 1024 * 256 * 4,
        "count": 1,
        "largest": "result[0]",
        "shape": "f32[3,1024,256]",
        "divisible": [1, 1024],
    }
