"""Calls the leaves of flax's nnx modules by their paths, where JAX only counts them.

``nnx.jit`` hands a module to JAX as a list of leaves and a description of the module beside it, so
that JAX calls a kernel ``model.states[0][12]``. The description knows better:
``model.blocks[1].attention.kernel``. Relies on internals of JAX and flax; where they are other than
those known, JAX's own names stay. Seen to work with flax 0.10.6 on JAX 0.6.2, and 0.12.8 on 0.10.2.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

from vramfit._inprogram._named_leaves import named_leaves

# The names of results by those that JAX gives; None where programs differ in what they mean.
_results: dict[tuple[str, ...], tuple[str, ...] | None] = {}


def result_names(given: list[str]) -> list[str]:
    """Return better names for a program's results, or those that JAX has given."""
    return list(_results.get(tuple(given)) or given)


@functools.cache
def _record_results(extract: Any) -> None:
    """Take note of what ``nnx.jit`` returns to JAX while a function is traced.

    JAX makes its names for results of the same tree, right after that; so they are the key.
    """
    from jax._src import core

    plain, is_outside = extract.to_tree, core.trace_state_clean

    @functools.wraps(plain)
    def recording(*arguments: Any, **settings: Any) -> Any:
        tree = plain(*arguments, **settings)
        # Arguments come by here, too, in every call; results only while the function is traced.
        if is_outside():
            return tree
        with contextlib.suppress(Exception):
            given, ours = _names(tree), _names(_replace_modules(tree, extract))
            if given != ours and _results.setdefault(given, ours) != ours:
                _results[given] = None
        return tree

    extract.to_tree = recording


def _names(tree: Any) -> tuple[str, ...]:
    import jax

    paths = jax.tree_util.tree_leaves_with_path(tree)
    return tuple(f"result{jax.tree_util.keystr(path)}" for path, _ in paths)


def with_paths(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments with nnx's modules replaced by what has names for its leaves."""
    extract = sys.modules.get("flax.nnx.extract")
    if extract is None:
        return args, kwargs
    _record_results(extract)
    replaced: tuple[Any, Any] = _replace_modules((args, kwargs), extract)
    return replaced


def _replace_modules(tree: Any, extract: Any) -> Any:
    """Return a tree with its modules replaced; the same one, untouched, where it has none."""
    import jax

    def is_module(part: Any) -> bool:
        return isinstance(part, extract.NodeStates)

    if not any(map(is_module, jax.tree.leaves(tree, is_leaf=is_module))):
        return tree
    return jax.tree.map(
        lambda part: _named(part) if is_module(part) else part, tree, is_leaf=is_module
    )


def _named(module: Any) -> Any:
    """Return the leaves with their names, or the module itself where they cannot be matched."""
    names: list[str] = []
    leaves: list[Any] = []
    for state in module.states:
        if hasattr(state, "paths"):  # a part of the module, for a sharding of its own
            names += ["".join(map(_step, path)) for path in state.paths]
            leaves += state.leaves
        elif isinstance(state, list):
            names += leaf_names(module.graphdef)
            leaves += state
        else:
            return module
    return named_leaves(names, leaves) if len(names) == len(leaves) else module


def leaf_names(description: Any) -> Iterator[str]:
    """Yield the names of a module's leaves, in the order of ``nnx``: ``.blocks[0].kernel``.

    What is not a parameter carries its kind: ``.norm.mean (BatchStat)``.

    Args:
        description: nnx's ``GraphDef``: nodes, depth first, and the attributes of each.
    """
    nodes, attributes = iter(description.nodes), iter(description.attributes)

    def below(path: str) -> Iterator[str]:
        node = next(nodes)
        kind = type(node).__name__
        if kind == "VariableDef":
            what = getattr(node.type, "__name__", str(node.type))
            yield path if what == "Param" or what.startswith("Opt") else f"{path} ({what})"
        elif kind == "NodeDef":
            for _ in range(node.num_attributes):
                key, value = next(attributes)
                kind = type(value).__name__
                if kind == "NodeAttr":
                    yield from below(path + _step(key))
                elif kind == "LeafAttr":
                    yield path + _step(key)

    return below("")


def _step(key: Any) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    return f"[{key!r}]"
