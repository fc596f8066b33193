"""Changes of the state between two steps, which must not make another program necessary."""

from __future__ import annotations

from typing import Any

from vramfit.errors import InvalidArgumentError

_HYPERPARAMS = ("hyperparams", "learning_rate")
_SCHEDULES = ("hyperparams_states", "learning_rate")
_MAX_SHOWN = 3


def replaced_state(old: Any, new: Any) -> Any:
    """Return a new state as arrays that are where those of the old one are.

    Raises:
        InvalidArgumentError: It has another structure, or an array of another shape or type.
    """
    import jax
    import jax.numpy as jnp

    old_leaves, old_tree = jax.tree_util.tree_flatten_with_path(old)
    new_leaves, new_tree = jax.tree_util.tree_flatten(new)
    if old_tree != new_tree:
        names = [
            {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)}
            for tree in (old, new)
        ]
        differing = sorted(names[0] ^ names[1])[:_MAX_SHOWN]
        parts = ", ".join(f"`state{name}`" for name in differing) or "other containers"
        raise InvalidArgumentError(
            f"the state that a callback assigned has another structure: {parts}",
            hint="assign a state with the structure of `run.state`",
        )
    placed: list[Any] = []
    seen: set[int] = set()
    for (path, old_leaf), leaf in zip(old_leaves, new_leaves, strict=True):
        given = leaf if isinstance(leaf, jax.Array) else jnp.array(leaf)
        if (given.shape, given.dtype) != (old_leaf.shape, old_leaf.dtype):
            raise InvalidArgumentError(
                f"the state that a callback assigned has {given.dtype}{list(given.shape)} as "
                f"`state{jax.tree_util.keystr(path)}`, which is "
                f"{old_leaf.dtype}{list(old_leaf.shape)}",
                hint="keep its type and shape, or every step would be compiled again",
            )
        given = jax.device_put(given, old_leaf.sharding)
        if id(given) in seen:
            # The memory of an array can be donated only once.
            given = jax.device_put(given, old_leaf.sharding, may_alias=False)
        seen.add(id(given))
        placed.append(given)
    return old_tree.unflatten(placed)


def get_learning_rate(state: Any) -> float:
    """Return the learning rate in the state of an optimizer; waits for the device.

    Raises:
        InvalidArgumentError: There is none, or more than one.
    """
    import numpy as np

    (leaf,) = _learning_rates(state).values()
    return float(np.asarray(leaf))


def with_learning_rate(state: Any, value: float) -> Any:
    """Return the state with another learning rate, of the same type and in the same place.

    Raises:
        InvalidArgumentError: There is none, or more than one, or it is that of a schedule.
    """
    import jax
    import jax.numpy as jnp

    (rate,) = _learning_rates(state)
    schedule = (*rate[: -len(_HYPERPARAMS)], *_SCHEDULES)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    if any(_names(path)[: len(schedule)] == schedule for path in paths):
        raise InvalidArgumentError(
            "the learning rate of the state is that of a schedule, which sets it at every step",
            hint="pass a number as `learning_rate` to the optimizer in `optax.inject_hyperparams`",
        )

    def change(path: Any, leaf: Any) -> Any:
        if _names(path) != rate:
            return leaf
        # `full_like` keeps the type, with its weakness.
        return jax.device_put(jnp.full_like(leaf, value), leaf.sharding)

    return jax.tree_util.tree_map_with_path(change, state)


def _learning_rates(state: Any) -> dict[tuple[str, ...], Any]:
    """Return the only learning rate of a state by the names on its path."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(state)
    found = {_names(path): leaf for path, leaf in leaves if _is_learning_rate(_names(path))}
    if not found:
        raise InvalidArgumentError(
            "the state has no learning rate that can be read or changed",
            hint="create the optimizer by "
            "`optax.inject_hyperparams(optax.adam)(learning_rate=0.001)`, and keep its state in "
            "the state of the step",
        )
    if len(found) > 1:
        paths = ", ".join(f"`{'/'.join(names)}`" for names in list(found)[:_MAX_SHOWN])
        raise InvalidArgumentError(
            f"the state has {len(found)} learning rates: {paths}",
            hint="read and assign them as parts of `run.state`",
        )
    return found


def _is_learning_rate(names: tuple[str, ...]) -> bool:
    return names[-len(_HYPERPARAMS) :] == _HYPERPARAMS


def _names(path: Any) -> tuple[str, ...]:
    """Return the names on a path to a leaf, without the `value` of variables of flax."""
    import jax

    names = [jax.tree_util.keystr((key,), simple=True) for key in path]
    return tuple(names[:-1] if names[-1:] == ["value"] else names)
