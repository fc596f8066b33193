"""The optimizer that the table ``[optimizer]`` of a configuration describes, from optax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Optimizer:
    """An optimizer.

    Attributes:
        rule: The gradient transformation, whose `update` takes the loss as `value`.
        learning_rate: Returns the learning rate of a step, from its number and the state.
    """

    rule: Any
    learning_rate: Callable[[Any, Any], Any]


def build(config: Mapping[str, Any], batches: int, batches_per_epoch: int) -> Optimizer:
    """Return the optimizer.

    Args:
        config: The table, with a value for each key.
        batches: Number of batches in the whole run, for schedules that end with it.
        batches_per_epoch: Number of batches in an epoch, after which a plateau is looked for.
    """
    import jax.numpy as jnp
    import optax

    accumulate = config["accumulate"]
    # An update of the parameters takes as many batches as are accumulated.
    rate = _learning_rate(config, max(batches // accumulate, 1))
    rule = _update_rule(config, rate)
    if config["clip"] is not None:
        rule = optax.chain(optax.clip_by_global_norm(config["clip"]), rule)
    if accumulate > 1:
        rule = optax.MultiSteps(rule, accumulate)
    has_plateau = config["schedule"] == "reduce_on_plateau"
    if has_plateau:
        plateau = optax.contrib.reduce_on_plateau(
            factor=config["plateau_factor"],
            patience=config["plateau_patience"],
            accumulation_size=batches_per_epoch,
        )
        # Around the accumulation, so that it is told the loss of every batch.
        if accumulate > 1:
            rule = rule.gradient_transformation()
        rule = optax.chain(rule, plateau)

    def learning_rate(step: Any, state: Any) -> Any:
        at = rate(step // accumulate) if callable(rate) else rate
        if has_plateau:
            at = at * _plateau_scale(state)
        return jnp.asarray(at, jnp.float32)

    return Optimizer(optax.with_extra_args_support(rule), learning_rate)


def _plateau_scale(state: Any) -> Any:
    """Return what the learning rate is multiplied by, from the state of an optimizer."""
    import jax
    import optax

    def is_plateau(part: Any) -> bool:
        return isinstance(part, optax.contrib.ReduceLROnPlateauState)

    parts = jax.tree.leaves(state, is_leaf=is_plateau)
    return next(part.scale for part in parts if is_plateau(part))


def _learning_rate(config: Mapping[str, Any], updates: int) -> Any:
    import optax

    rate = config["learning_rate"]
    if config["schedule"] == "cosine":
        return optax.cosine_decay_schedule(rate, updates)
    if config["schedule"] == "warmup_cosine":
        warmup = config["warmup_steps"]
        return optax.warmup_cosine_decay_schedule(0.0, rate, warmup, max(updates, warmup + 1))
    return rate


def _update_rule(config: Mapping[str, Any], learning_rate: Any) -> Any:
    import optax

    decay = config["weight_decay"]
    mask = _is_matrix if config["weight_decay_mask"] == "matrices" else None
    match config["name"]:
        case "adamw":
            return optax.adamw(learning_rate, weight_decay=decay, mask=mask)
        case "adam":
            return optax.adam(learning_rate)
        case "lion":
            return optax.lion(learning_rate, weight_decay=decay, mask=mask)
        case _:
            return optax.sgd(learning_rate, momentum=config["momentum"])


def _is_matrix(parameters: Any) -> Any:
    """Return for each parameter whether it has two or more dimensions."""
    import jax

    return jax.tree.map(lambda leaf: leaf.ndim > 1, parameters)
