"""Memory attribution: what changes it, and that every byte has an owner, a name and a line."""

import shutil

import pytest

# Six layers over a batch whose activations outweigh everything else by far.
STEP = """
import sys
from functools import partial
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

options = set(sys.argv[1:])
kind = jnp.bfloat16 if "bfloat16" in options else jnp.float32
layers = {"w": jnp.zeros((6, 128, 128), kind), "b": jnp.zeros((6, 128), kind)}
x = jnp.ones((4096, 128), kind)

def layer(x, params):
    x = jnp.tanh(x @ params["w"] + params["b"])
    return checkpoint_name(jnp.sin(x), "kept") @ params["w"], None

if "checkpoint" in options:
    layer = jax.checkpoint(layer)
if "keep" in options:
    layer = jax.checkpoint(layer, policy=jax.checkpoint_policies.save_only_these_names("kept"))
if "offload" in options:
    layer = jax.checkpoint(layer, policy=jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["kept"],
        offload_src="device", offload_dst="pinned_host"))

def loss(layers, x):
    if "scan" in options:
        return jax.lax.scan(layer, x, layers)[0].astype(jnp.float32).mean()
    for number in range(6):
        x, _ = layer(x, jax.tree.map(lambda stack: stack[number], layers))
    return x.astype(jnp.float32).mean()

@partial(jax.jit, donate_argnums=0 if "donate" in options else ())
def step(state, x):
    gradients = jax.grad(loss)(state["layers"], x)
    return {"layers": jax.tree.map(lambda p, g: p - 0.1 * g, state["layers"], gradients)}

for _ in range(3):
    new = step({"layers": layers}, x)
    layers = new["layers"]
jax.block_until_ready(layers)
"""
KINDS = [
    ("donate",),
    ("donate", "checkpoint"),
    ("donate", "scan"),
    ("donate", "scan", "checkpoint"),
    ("donate", "scan", "bfloat16"),
    ("donate", "scan", "offload"),
    ("scan",),
]
LAYER_BYTES = 6 * (128 * 128 + 128) * 4


class Attribution:
    """The attribution of a dry run."""

    def __init__(self, summary):
        self.all = summary["attribution"]
        self.entries = self.all["entries"]
        self.owners = {owner["kind"]: owner["bytes"] for owner in summary["owners"]}
        self.peak = summary["peak_bytes"]

    def sum(self, **wanted):
        found = [p for p in self.entries if all(p[key] == value for key, value in wanted.items())]
        return sum(entry["bytes"] for entry in found)


@pytest.fixture
def attribution(dryrun, tmp_path):
    """Run the step above with options and return the attribution of its peak."""

    def run(*options, script=STEP, **settings):
        path = tmp_path / "step.py"
        path.write_text(script)
        return Attribution(dryrun(path, *options, **settings).summary)

    return run


@pytest.mark.parametrize("options", KINDS, ids=" ".join)
def test_every_byte_has_an_owner_a_name_and_a_line(attribution, options):
    got = attribution(*options)
    assert got.all["program"] == "jit_step"
    assert sum(entry["bytes"] for entry in got.entries) == got.all["total_bytes"] == got.peak
    assert sum(got.owners.values()) == got.peak
    for entry in got.entries:
        if entry["kind"] in ("parameters", "optimizer_state", "other_state", "batch"):
            assert entry["path"], entry
        if entry["kind"] == "outputs" and "copy" not in entry["producer"]:
            assert entry["path"], entry
    lines = sum(p["bytes"] for p in got.entries if "step.py:" in p["site"])
    assert lines >= 0.95 * got.peak, [p for p in got.entries if "step.py:" not in p["site"]]


def test_checkpoint_turns_activations_into_what_is_computed_again(attribution):
    kept, again = attribution("donate"), attribution("donate", "checkpoint")
    assert kept.sum(rematerialized=True) == 0
    assert again.sum(rematerialized=True) > 0
    assert again.owners["activations"] < kept.owners["activations"]


def test_what_scan_saves_is_a_stack(attribution):
    got = attribution("donate", "scan")
    stacks = [entry for entry in got.entries if entry["stacked"] and entry["kind"] == "activations"]
    assert stacks
    assert all(entry["shape"].startswith("f32[6,4096,128]") for entry in stacks), stacks
    assert attribution("donate").sum(stacked=True, kind="activations") == 0


@pytest.mark.fast
def test_donation_moves_the_new_state_into_the_old(attribution):
    kept, donated = attribution("scan"), attribution("donate", "scan")
    assert kept.owners["parameters"] == donated.owners["parameters"] == LAYER_BYTES
    assert kept.owners["outputs"] - donated.owners["outputs"] == LAYER_BYTES


def test_half_precision_halves_what_is_saved(attribution):
    whole, half = attribution("donate", "scan"), attribution("donate", "scan", "bfloat16")
    saved = {"kind": "activations", "stacked": True}
    assert whole.sum(**saved) == 2 * half.sum(**saved) > 0


def test_offloaded_activations_are_not_on_the_gpu(attribution):
    kept, away = attribution("donate", "scan", "keep"), attribution("donate", "scan", "offload")
    saved = {"kind": "activations", "stacked": True}
    stack = 6 * 4096 * 128 * 4
    # What each layer is given, and what it makes; only the latter is offloaded.
    assert kept.sum(**saved) == 2 * stack
    assert away.sum(**saved) == stack


def test_without_attribution_the_total_is_the_same(attribution):
    attributed, plain = (
        attribution("donate", "scan"),
        attribution("donate", "scan", options=["--no-attribution"]),
    )
    assert plain.peak == attributed.peak == sum(plain.owners.values())
    assert "activations" not in plain.owners


DEEP = """
import gc, sys
gc.disable()  # when it frees a number that JAX keeps in a cycle decides about 256 bytes of the peak
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp
from deep import apply

def model(x):
    return apply(120, x)  # the line

jax.config.update("jax_compilation_cache_dir", sys.argv[2])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.jit(lambda x: jnp.tanh(model(x) @ x).sum())(jnp.ones((512, 512))).block_until_ready()
"""
LIBRARY = """
import jax.numpy as jnp

def apply(depth, x):
    return apply(depth - 1, x) if depth else jnp.sin(x @ x) @ x
"""


def test_the_users_line_is_found_below_a_deep_library(attribution, tmp_path):
    library = tmp_path / "env" / "site-packages"
    library.mkdir(parents=True)
    (library / "deep.py").write_text(LIBRARY)
    line = next(n for n, text in enumerate(DEEP.splitlines(), 1) if "# the line" in text)
    cache, keys = tmp_path / "cache", []
    got = attribution(library, cache, script=DEEP)
    keys.append({entry.name for entry in cache.glob("*-cache")})
    # A key holds the folder's name, so it must be the same one, and empty.
    shutil.rmtree(cache)
    sites = {entry["site"] for entry in got.entries if entry["kind"] == "temporaries"}
    assert any(f"step.py:{line} " in site for site in sites), sites
    # The user's own setting counts, and changes neither the program nor its key in JAX's cache.
    cut = attribution(library, cache, script=DEEP, env={"JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "10"})
    sites = {entry["site"] for entry in cut.entries if entry["kind"] == "temporaries"}
    assert not any(f"step.py:{line} " in site for site in sites), sites
    assert cut.peak == got.peak
    keys.append({entry.name for entry in cache.glob("*-cache")})
    assert keys[0] == keys[1] != set()


UNUSED_DONATION = """
import functools, warnings
import jax, jax.numpy as jnp

warnings.simplefilter("ignore")  # JAX tells of it by shape

@functools.partial(jax.jit, donate_argnames=("state", "scratch"))
def step(state, scratch):
    return {"w": state["w"] + scratch["large"].sum()}

step({"w": jnp.ones((256, 256))}, {"large": jnp.ones((1024, 1024))})
"""


def test_a_donation_without_effect_is_named_with_its_bytes(dryrun, write_script):
    path = write_script(UNUSED_DONATION, "step.py")
    text = " ".join(dryrun(path).err.split())
    assert "`scratch['large']` is donated without effect (4.0 MiB)" in text, text
