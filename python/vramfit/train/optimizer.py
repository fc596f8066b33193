"""The optimiser that the table ``[optimizer]`` of a configuration describes, made of optax."""

from __future__ import annotations

from typing import Any


def build(config: dict[str, Any], batches: int) -> Any:
    """Return the optimiser.

    Args:
        config: The table, with a value for each key.
        batches: Batches of the whole run, for schedules that end with it.
    """
    import optax

    # A change of the parameters takes as many batches as are accumulated.
    changes = max(batches // config["accumulate"], 1)
    rule = _rule(config, _rate(config, changes))
    if config["clip"] is not None:
        rule = optax.chain(optax.clip_by_global_norm(config["clip"]), rule)
    if config["accumulate"] > 1:
        rule = optax.MultiSteps(rule, config["accumulate"])
    return rule


def _rate(config: dict[str, Any], changes: int) -> Any:
    import optax

    rate = config["learning_rate"]
    if config["schedule"] == "cosine":
        return optax.cosine_decay_schedule(rate, changes)
    if config["schedule"] == "warmup_cosine":
        warmup = config["warmup_steps"]
        return optax.warmup_cosine_decay_schedule(0.0, rate, warmup, max(changes, warmup + 1))
    return rate


def _rule(config: dict[str, Any], rate: Any) -> Any:
    import optax

    decay = config["weight_decay"]
    match config["name"]:
        case "adamw":
            return optax.adamw(rate, weight_decay=decay)
        case "adam":
            return optax.adam(rate)
        case "lion":
            return optax.lion(rate, weight_decay=decay)
        case _:
            return optax.sgd(rate, momentum=config["momentum"])
