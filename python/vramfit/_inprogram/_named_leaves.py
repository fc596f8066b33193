"""Leaves that libraries hand to JAX in lists, beside the names that are to be shown of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _Entry:
    """One step down in a tree, written as it is to be shown."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass
class _NamedLeaves:
    names: list[str]
    leaves: list[Any]


def named_leaves(names: list[str], leaves: list[Any]) -> Any:
    """Return a tree of these leaves, of which JAX says their names behind that of the tree.

    Args:
        names: Each with what separates it from the name before: ``.kernel``, ``['kernel']``.
        leaves: As many.
    """
    _register_pytree()
    return _NamedLeaves(names, leaves)


@functools.cache
def _register_pytree() -> None:
    import jax

    jax.tree_util.register_pytree_with_keys(
        _NamedLeaves,
        lambda named: (
            [(_Entry(name), leaf) for name, leaf in zip(named.names, named.leaves, strict=True)],
            tuple(named.names),
        ),
        lambda names, leaves: _NamedLeaves(list(names), list(leaves)),
    )
