"""Modules of `flax.nnx`, the built-in ones among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramfit.train.task.model import accepts, by_path


class NnxModel:
    """A module of `flax.nnx`.

    Its `Param` are trained. All else that it has (running means, the counters of its random
    numbers) is carried from step to step.

    Args:
        build: Makes the module.
    """

    library = "flax.nnx"

    def __init__(self, build: Callable[[], Any]) -> None:
        from flax import nnx

        self._build = build
        abstract = nnx.eval_shape(build)
        self._takes_rngs = accepts(type(abstract).__call__, "rngs") is not None
        abstract.train()
        self._train_graph = nnx.split(abstract, nnx.Param, ...)[0]
        abstract.eval()
        self._eval_graph, _, rest = nnx.split(abstract, nnx.Param, ...)
        self._has_variables = bool(nnx.to_pure_dict(rest))

    def init(self, example: Any) -> tuple[Any, Any]:
        """Return the parameters and the other arrays of a new module."""
        return self._take_apart(self._build())

    def apply(self, parameters: Any, variables: Any, inputs: Any, key: Any) -> tuple[Any, Any]:
        """Call the module, in its mode of training if there is a key."""
        from flax import nnx

        graph = self._eval_graph if key is None else self._train_graph
        module = self._put_together(graph, parameters, variables)
        rest = {}
        if self._takes_rngs:
            rest["rngs"] = None if key is None else nnx.Rngs(dropout=key)
        outputs = module(inputs, **rest)
        if not self._has_variables or key is None:
            return outputs, variables
        return outputs, self._take_apart(module)[1]

    def build(self, parameters: Any, variables: Any) -> Any:
        """Return the module, which can be called with a batch."""
        return self._put_together(self._eval_graph, parameters, variables)

    def named_arrays(self, parameters: Any, variables: Any) -> dict[str, Any]:
        """Return all arrays but the random numbers of training."""
        from flax import nnx

        module = self.build(parameters, variables)
        kept = nnx.state(module, lambda _path, value: not isinstance(value, nnx.RngState))
        return by_path(nnx.to_pure_dict(kept))

    def _take_apart(self, module: Any) -> tuple[Any, Any]:
        from flax import nnx

        _, parameters, rest = nnx.split(module, nnx.Param, ...)
        variables = nnx.to_pure_dict(rest) if self._has_variables else None
        return nnx.to_pure_dict(parameters), variables

    def _put_together(self, graph: Any, parameters: Any, variables: Any) -> Any:
        from flax import nnx

        return nnx.merge(graph, nnx.State(parameters), nnx.State(variables or {}))
