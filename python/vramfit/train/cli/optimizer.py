"""The optimizer that the table ``[optimizer]`` of a configuration describes, from optax."""

from __future__ import annotations

from typing import Any


def build(config: dict[str, Any], batches: int) -> Any:
    """Return the optimizer.

    Args:
        config: The table, with a value for each key.
        batches: Number of batches in the whole run, for schedules that end with it.
    """
    import optax

    # An update of the parameters takes as many batches as are accumulated.
    updates = max(batches // config["accumulate"], 1)
    optimizer = _update_rule(config, _learning_rate(config, updates))
    if config["clip"] is not None:
        optimizer = optax.chain(optax.clip_by_global_norm(config["clip"]), optimizer)
    if config["accumulate"] > 1:
        optimizer = optax.MultiSteps(optimizer, config["accumulate"])
    return optimizer


def _learning_rate(config: dict[str, Any], updates: int) -> Any:
    import optax

    rate = config["learning_rate"]
    if config["schedule"] == "cosine":
        return optax.cosine_decay_schedule(rate, updates)
    if config["schedule"] == "warmup_cosine":
        warmup = config["warmup_steps"]
        return optax.warmup_cosine_decay_schedule(0.0, rate, warmup, max(updates, warmup + 1))
    return rate


def _update_rule(config: dict[str, Any], learning_rate: Any) -> Any:
    import optax

    decay = config["weight_decay"]
    match config["name"]:
        case "adamw":
            return optax.adamw(learning_rate, weight_decay=decay)
        case "adam":
            return optax.adam(learning_rate)
        case "lion":
            return optax.lion(learning_rate, weight_decay=decay)
        case _:
            return optax.sgd(learning_rate, momentum=config["momentum"])
