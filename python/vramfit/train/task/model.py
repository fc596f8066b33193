"""Models as pure functions of their parameters, whichever library they are written with.

A module is taken apart once, because taking it apart in each step can take longer than the step
(3.8 times with `nnx.jit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from vramfit.errors import InvalidArgumentError, PackageMissingError, VramfitError
from vramfit.train.task.python_name import (
    call_with,
    failure_in_code,
    is_python_name,
    load_object,
)


class Model(Protocol):
    """A model without its parameters.

    Attributes:
        library: `flax.nnx`, `flax.linen` or `equinox`.
    """

    library: str

    def init(self, example: Any) -> tuple[Any, Any]:
        """Return initial parameters, and the other arrays of the model: None without any.

        Args:
            example: A batch of inputs, of which only shape and type matter.
        """

    def apply(self, parameters: Any, variables: Any, inputs: Any, key: Any) -> tuple[Any, Any]:
        """Return the outputs for a batch, and the other arrays after it.

        Args:
            parameters: The parameters.
            variables: The other arrays, such as the running means of batch normalization.
            inputs: A batch.
            key: The key of random numbers for training, such as of dropout; None to evaluate.
        """

    def build(self, parameters: Any, variables: Any) -> Any:
        """Return the module with these parameters, as its library has it, for evaluation."""

    def named_arrays(self, parameters: Any, variables: Any) -> dict[str, Any]:
        """Return the arrays that inference needs, by their names in the module."""


def find_model(
    config: Mapping[str, Any],
    row: Sequence[int],
    outputs: int,
    *,
    seed: int,
    vocabulary: int | None,
    each_step: bool,
) -> Model:
    """Return the model that the table ``[model]`` of a configuration describes.

    Args:
        config: The table, with a value for each key.
        row: The shape of one row of inputs.
        outputs: Number of values to predict for each row.
        seed: Seed of the initial parameters.
        vocabulary: Number of different tokens; None if inputs are numbers.
        each_step: Whether to predict at each step, from this and earlier steps.
    """
    kind = config["kind"]
    if not is_python_name(kind):
        from vramfit.train import models
        from vramfit.train.task.nnx_model import NnxModel

        return NnxModel(
            lambda: models.build(
                config, row, outputs, seed=seed, vocabulary=vocabulary, each_step=each_step
            )
        )
    function = load_object(kind, "model.kind")
    offered = {"row_shape": tuple(row), "outputs": outputs, "vocabulary": vocabulary}
    return _own_model(function, config["arguments"] or {}, offered, kind, seed)


def _own_model(
    function: Any,
    arguments: Mapping[str, Any],
    offered: Mapping[str, Any],
    kind: str,
    seed: int,
) -> Model:
    import jax

    if not callable(function):
        raise InvalidArgumentError(
            f"`model.kind` is `{kind}`, which is a {type(function).__name__}",
            hint="name a class, or a function that returns a module",
        )
    name = kind.rsplit(":", 1)[1]

    def build() -> Any:
        random = {"rngs": _flax_rngs(seed), "key": jax.random.key(seed)}
        return call_with(function, arguments, {**offered, **random}, name)

    made: list[Any] = []

    def probe() -> None:
        made.append(build())

    try:
        # Its parameters are not computed yet.
        jax.eval_shape(probe)
    except VramfitError:
        raise
    except Exception as error:
        raise failure_in_code(f"`{name}` cannot be made", error) from error
    if _is_instance(made[0], "flax.nnx", "Module"):
        from vramfit.train.task.nnx_model import NnxModel

        return NnxModel(build)
    if _is_instance(made[0], "flax.linen", "Module"):
        from vramfit.train.task.linen_model import LinenModel

        return LinenModel(made[0], seed)
    if _is_instance(made[0], "equinox", "Module"):
        from vramfit.train.task.equinox_model import EquinoxModel

        return EquinoxModel(build, name)
    raise InvalidArgumentError(
        f"`{kind}` makes a `{type(made[0]).__name__}`, which is not a model",
        hint="return a module of Flax (`nnx` or `linen`) or Equinox; other models are trained by "
        "`vramfit.train.fit` from a program of your own",
    )


def _flax_rngs(seed: int) -> Any:
    try:
        from flax import nnx
    except ImportError as error:
        raise PackageMissingError(
            "models need Flax, which is not installed",
            cause=str(error),
            hint="`pip install 'vramfit[train]'`",
        ) from error
    return nnx.Rngs(seed)


def _is_instance(value: Any, module: str, name: str) -> bool:
    """Return whether a value is of a class of a library, which need not be installed."""
    import sys

    # An instance of a class of it cannot exist before it is imported.
    library = sys.modules.get(module)
    return library is not None and isinstance(value, getattr(library, name))


def by_path(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Return the arrays of a tree by their paths, such as `layers.0.kernel`."""
    import jax

    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        prefix + jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in found
    }


def accepts(function: Callable[..., Any], *names: str) -> str | None:
    """Return the first of these names that a function has a parameter of."""
    import inspect

    parameters = inspect.signature(function).parameters
    return next((name for name in names if name in parameters), None)
