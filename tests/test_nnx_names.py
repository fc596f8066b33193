"""Leaves of flax's nnx modules are called by their paths, in arguments and in results."""

import json

import jax
import numpy as np
import pytest
from flax import nnx
from flax.nnx import extract

from vramfit._inprogram import _nnx_names

MODEL = """
import json, sys
import jax, jax.numpy as jnp, optax
from flax import nnx


class Model(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List(nnx.Linear(8 + i, 9 + i, rngs=rngs) for i in range(3))
        self.norm = nnx.BatchNorm(11, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.by_word = nnx.Dict({"a": nnx.Param(jnp.ones(33))})

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.drop(self.norm(x)) * self.by_word["a"].sum()


model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
"""

STEP = """
@nnx.jit
def step(model, optimizer, x):
    loss, slopes = nnx.value_and_grad(lambda model: (model(x) ** 2).sum())(model)
    optimizer.update(model, slopes)
    return loss

paths = {}
for name, part in {"model": model, "optimizer": optimizer}.items():
    for path, leaf in nnx.to_flat_state(nnx.state(part)):
        leaf = leaf.get_value()
        leaf = jax.random.key_data(leaf) if "key" in str(leaf.dtype) else leaf
        paths[f"{name}/" + "/".join(map(str, path))] = list(leaf.shape)
json.dump(paths, open(sys.argv[1], "w"))
for _ in range(2):
    step(model, optimizer, jnp.ones((4, 8)))
"""


def slashes(name):
    """Return a name of ours as flax writes paths: ``model.a[0].bias`` is model/a/0/bias."""
    name = name.partition(" (")[0].replace("['", "/").replace("']", "")
    return name.replace(".", "/").replace("[", "/").replace("]", "")


def shape(part):
    return [int(size) for size in part["shape"].partition("[")[2].rstrip("]").split(",") if size]


@pytest.fixture
def parts_and_paths(dryrun, tmp_path):
    """Return the parts of the step's memory, and flax's own paths and shapes."""
    script = tmp_path / "step.py"
    script.write_text(MODEL + STEP)
    paths = tmp_path / "paths.json"
    parts = dryrun(script, str(paths)).summary["attribution"]["entries"]
    return parts, json.loads(paths.read_text())


def test_arguments_are_called_as_flax_calls_them(parts_and_paths):
    parts, paths = parts_and_paths
    kinds = ("parameters", "optimizer_state", "other_state")
    ours = {slashes(p["path"]): shape(p) for p in parts if p["kind"] in kinds}
    # What no program reads is no argument of it: of three counters Adam's and dropout's are read.
    assert ours.items() <= paths.items()
    unread = paths.keys() - ours.keys()
    assert all(not paths[path] for path in unread), unread
    assert {"model/layers/2/kernel", "model/by_word/a", "model/norm/mean"} <= ours.keys()


def test_the_kind_of_a_variable_decides_whose_it_is(parts_and_paths):
    parts, _ = parts_and_paths
    kinds = {part["path"]: part["kind"] for part in parts}
    assert kinds["model.norm.var (BatchStat)"] == "other_state"
    assert kinds["model.norm.scale"] == "parameters"
    assert kinds["optimizer.opt_state[0].mu.norm.scale"] == "optimizer_state"


def test_results_are_called_by_path_too(parts_and_paths):
    parts, paths = parts_and_paths
    results = {slashes(p["path"]): shape(p) for p in parts if p["kind"] == "outputs" and p["path"]}
    expected = {
        f"result/0/0/{path.partition('/')[2]}" for path in paths if path.startswith("model/l")
    }
    assert expected <= results.keys()
    assert not [name for name in results if "states" in name]


class Two(nnx.Module):
    def __init__(self, first, second):
        setattr(self, first, nnx.Param(np.ones(2)))
        setattr(self, second, nnx.Param(np.ones(2)))


def split(context, _path, _prefix, part):
    """Split a module as ``nnx.jit`` does."""
    return extract.NodeStates.from_split(*context.flatten(part, with_paths=False))


def split_by_kind(context, _path, _prefix, part):
    """Split a module as ``nnx.jit`` does when its parts have shardings of their own."""
    description, *states = context.flatten(part, nnx.PathContains("b"), ...)
    return extract.NodeStates.from_split(description, *states)


def tree(*names, by=split):
    """Return what ``nnx.jit`` returns to JAX, made as there: while a function is traced."""
    made = []
    jax.eval_shape(lambda: made.append(extract.to_tree((Two(*names), 1), split_fn=by)))
    return made[0]


@pytest.fixture
def recording(monkeypatch):
    """Take note of results, in a record of the test's own."""
    monkeypatch.setattr(_nnx_names, "_results", {})
    monkeypatch.setattr(extract, "to_tree", extract.to_tree)
    _nnx_names._record_results.__wrapped__(extract)


def test_names_that_two_programs_would_share_are_left_to_jax(recording):
    given = ["result[0].states[0][0]", "result[0].states[0][1]", "result[1]"]
    tree("a", "b")
    assert _nnx_names.result_names(given) == ["result[0].a", "result[0].b", "result[1]"]
    tree("a", "c")
    assert _nnx_names.result_names(given) == given


def test_parts_with_shardings_of_their_own_are_named(recording):
    given = list(_nnx_names._names(tree("a", "b", by=split_by_kind)))
    assert "states" in given[0]
    assert _nnx_names.result_names(given) == ["result[0].b.value", "result[0].a.value", "result[1]"]


def test_a_description_that_does_not_match_leaves_jaxs_names(recording):
    module, _ = tree("a", "b")
    longer = extract.NodeStates.from_split(module.graphdef, [*module.states[0], 3])
    assert _nnx_names._named(longer) is longer
