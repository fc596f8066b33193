"""The arrays of a state by name, and copies of them."""

from __future__ import annotations

from typing import Any


def state_structure(state: Any) -> list[list[Any]]:
    """Return the names, shapes and types of the arrays of a state."""
    leaves, _ = named_leaves(state)
    return [[name, list(leaf.shape), str(leaf.dtype)] for name, leaf in leaves.items()]


def named_leaves(state: Any) -> tuple[dict[str, Any], Any]:
    """Return the arrays of a state by name, and its tree structure."""
    import jax

    found, tree = jax.tree_util.tree_flatten_with_path(state)
    leaves: dict[str, Any] = {}
    for path, leaf in found:
        name = jax.tree_util.keystr(path, simple=True, separator="/") or "state"
        while name in leaves:
            name += "'"
        leaves[name] = leaf
    return leaves, tree


def without_empty(leaves: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays that are not empty; orbax stores no others."""
    return {name: leaf for name, leaf in leaves.items() if leaf.size}


def copy_arrays(leaves: dict[str, Any]) -> dict[str, Any]:
    """Return copies of arrays on the same devices; waits for them."""
    import jax

    shardings = {name: leaf.sharding for name, leaf in leaves.items()}
    # Not `jnp.copy`, which compiles a program for each shape.
    copies: dict[str, Any] = jax.device_put(leaves, shardings, may_alias=False)
    return jax.block_until_ready(copies)  # type: ignore[no-any-return]


def shape_struct(leaf: Any) -> Any:
    """Return the shape, type and sharding of an array, as orbax takes them for restoring."""
    import jax

    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
