"""The arrays of a state by name, and copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def structure(state: Any) -> list[list[Any]]:
    """Return the names, shapes and types of a state's arrays."""
    leaves, _ = named(state)
    return [[name, list(leaf.shape), str(leaf.dtype)] for name, leaf in leaves.items()]


def named(state: Any) -> tuple[dict[str, Any], Any]:
    """Return the arrays of a state by name, and how it is made of them."""
    import jax

    found, tree = jax.tree_util.tree_flatten_with_path(state)
    leaves: dict[str, Any] = {}
    for path, leaf in found:
        name = jax.tree_util.keystr(path, simple=True, separator="/") or "state"
        while name in leaves:
            name += "'"
        leaves[name] = leaf
    return leaves, tree


def with_values(leaves: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays that are not empty; orbax stores no others."""
    return {name: leaf for name, leaf in leaves.items() if leaf.size}


def copied(leaves: dict[str, Any]) -> dict[str, Any]:
    """Return copies of arrays in the places where they are, once they are made."""
    import jax

    places = {name: leaf.sharding for name, leaf in leaves.items()}
    # Not `jnp.copy`, which compiles a program for each shape.
    copies: dict[str, Any] = jax.device_put(leaves, places, may_alias=False)
    return jax.block_until_ready(copies)  # type: ignore[no-any-return]


def form(leaf: Any) -> Any:
    """Return the shape, type and place of an array, for one that is to be like it."""
    import jax

    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def named_columns(batch: Any) -> dict[str, Any]:
    """Return the arrays of a batch by name."""
    if isinstance(batch, Mapping):
        return dict(batch)
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(batch)[0]
    return {jax.tree_util.keystr(path) or "the batch": leaf for path, leaf in leaves}
