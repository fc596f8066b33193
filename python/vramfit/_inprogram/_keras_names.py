"""Calls the variables of a Keras model by their paths, where JAX only counts them.

Keras's trainer hands JAX its variables as lists, ``state[0][4]``. The model knows better:
``state['sequential/dense/kernel']``. Relies on internals of Keras; where they are other than those
known, JAX's own names stay. Seen to work with Keras 3.15.1.
"""

from __future__ import annotations

import sys
from typing import Any

from vramfit._inprogram._named_leaves import named_leaves


def with_paths(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of a trainer's step with paths for its variables; others as they are."""
    module = sys.modules.get("keras.src.backend.jax.trainer")
    if module is None or not args or not isinstance(args[0], tuple):
        return args, kwargs
    trainer = _calling_trainer(module.JAXTrainer)
    paths = _paths(trainer, args[0]) if trainer is not None else None
    if paths is None:
        return args, kwargs
    leaves = [leaf for part in args[0] for leaf in part]
    return (named_leaves([f"[{path!r}]" for path in paths], leaves), *args[1:]), kwargs


def _calling_trainer(kind: type) -> Any:
    """Return the model whose method is running, if there is one."""
    frame = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), kind):
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_locals["self"] if frame is not None else None


def _paths(trainer: Any, state: tuple[Any, ...]) -> list[str] | None:
    """Return the paths of a state's leaves; None where it is not what the trainer hands to JAX."""
    model = [trainer.trainable_variables, trainer.non_trainable_variables]
    kinds = {
        2: model,
        3: [*model, trainer.metrics_variables],
        4: [*model, getattr(trainer.optimizer, "variables", []), trainer.metrics_variables],
    }.get(len(state))
    if kinds is None or [len(part) for part in state] != [len(kind) for kind in kinds]:
        return None
    pairs = [
        (leaf, variable)
        for part, kind in zip(state, kinds, strict=True)
        for leaf, variable in zip(part, kind, strict=True)
    ]
    if any(tuple(leaf.shape) != tuple(variable.shape) for leaf, variable in pairs):
        return None
    return [variable.path for _, variable in pairs]
