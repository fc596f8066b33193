"""Modules of `flax.linen`."""

from __future__ import annotations

from typing import Any

from vramfit.train.task.model import accepts, by_path

_STREAMS = ("params", "dropout")


class LinenModel:
    """A module of `flax.linen`.

    The collection `params` is trained; others, such as `batch_stats`, are carried from step to
    step. It is told whether it trains by `train`, `training`, `is_training` or `deterministic`, if
    its `__call__` has a parameter of one of these names.

    Args:
        module: The module.
        seed: Seed of the initial parameters.
    """

    library = "flax.linen"

    def __init__(self, module: Any, seed: int) -> None:
        self._module = module
        self._seed = seed
        self._mode = accepts(
            type(module).__call__, "train", "training", "is_training", "deterministic"
        )

    def init(self, example: Any) -> tuple[Any, Any]:
        """Return the collection `params`, and the others."""
        import jax

        keys = jax.random.split(jax.random.key(self._seed), len(_STREAMS))
        rngs = dict(zip(_STREAMS, keys, strict=True))
        collections = dict(self._module.init(rngs, example, **self._mode_argument(train=False)))
        parameters = collections.pop("params", {})
        return parameters, collections or None

    def apply(self, parameters: Any, variables: Any, inputs: Any, key: Any) -> tuple[Any, Any]:
        """Apply the module, in its mode of training if there is a key."""
        collections = {"params": parameters, **(variables or {})}
        mode = self._mode_argument(train=key is not None)
        if key is None:
            return self._module.apply(collections, inputs, **mode), variables
        rngs = {"dropout": key}
        if not variables:
            return self._module.apply(collections, inputs, rngs=rngs, **mode), variables
        return self._module.apply(  # type: ignore[no-any-return]
            collections, inputs, rngs=rngs, mutable=list(variables), **mode
        )

    def build(self, parameters: Any, variables: Any) -> Any:
        """Return the module bound to its collections, which can be called with a batch."""
        return self._module.bind({"params": parameters, **(variables or {})})

    def named_arrays(self, parameters: Any, variables: Any) -> dict[str, Any]:
        """Return the parameters, and other collections with the names of these before theirs."""
        return by_path(parameters) | by_path(variables or {})

    def _mode_argument(self, *, train: bool) -> dict[str, bool]:
        if self._mode is None:
            return {}
        return {self._mode: not train if self._mode == "deterministic" else train}
