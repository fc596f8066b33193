"""Steps as compiled programs: compiled before their first call, with the time that takes apart.

A step that is a plain function is jitted here, its state donated and its batch never: a batch may
be a view of the loader's memory, which XLA would write into. Nothing is added to the program, so
that its numbers are those of ``jax.jit`` of the step. A step that is jitted already is used as is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.metric_sums import ROW_COUNT


class CompiledStep:
    """A function of a state and a batch, compiled once for each shape of batch.

    Args:
        function: The function, jitted or not.
        donate: Whether the state is donated, where it is jitted here.
        out_shardings: The shardings of its results, or None.
        returns_state: Whether it returns a new state beside metrics, which is then checked.

    Attributes:
        count: Number of programs compiled so far.
        seconds: How long that took.
        batch_shapes: The structures, shapes and types of batches that they were compiled for.
        memory_plan: XLA's memory analysis of the latest program, or None where it has none.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        donate: bool = False,
        out_shardings: Any = None,
        returns_state: bool = False,
    ) -> None:
        import jax

        if not callable(function):
            raise InvalidArgumentError(
                f"a step must be a function, not a {type(function).__name__}",
                hint="pass a function of state and batch that returns the new state and metrics",
            )
        self._returns_state = returns_state
        self._was_jitted = isinstance(function, type(jax.jit(lambda: None)))
        self._jit = function
        if not self._was_jitted:
            options: dict[str, Any] = {"donate_argnums": 0} if donate else {}
            if out_shardings is not None:
                options["out_shardings"] = out_shardings
            self._jit = jax.jit(function, **options)
        self._current: Callable[..., Any] | None = None
        self._programs: dict[Any, Callable[..., Any]] = {}
        self.count = 0
        self.seconds = 0.0
        self.batch_shapes: set[Any] = set()
        self._taken_seconds = 0.0
        self.memory_plan: Any = None

    def __call__(self, state: Any, batch: Any) -> Any:
        """Run it; compile it first if the shape of the batch is new."""
        if self._current is None:
            return self._program_for(state, batch)(state, batch)
        try:
            return self._current(state, batch)
        except (TypeError, ValueError):
            # What a compiled program raises for other shapes or devices, before it runs.
            if _signature((state, batch)) in self._programs and len(self._programs) == 1:
                raise
            return self._program_for(state, batch)(state, batch)

    def take_compile_seconds(self) -> float:
        """Return how long tracing and compiling took since the last call of this method."""
        seconds, self._taken_seconds = self.seconds - self._taken_seconds, self.seconds
        return seconds

    def _program_for(self, state: Any, batch: Any) -> Callable[..., Any]:
        signature = _signature((state, batch))
        program = self._programs.get(signature)
        if program is None:
            start = time.perf_counter()
            lowered = self._jit.lower(state, batch)  # type: ignore[attr-defined]
            if self._returns_state:
                _ensure_same_state(lowered.out_info, state)
            compiled = lowered.compile()
            try:
                self.memory_plan = compiled.memory_analysis()
            except Exception:  # not every backend has it
                self.memory_plan = None
            # A function that was jitted finds the compiled program by itself, and keeps its rules.
            program = self._jit if self._was_jitted else compiled
            self._programs[signature] = program
            self.seconds += time.perf_counter() - start
            self.count += 1
            self.batch_shapes.add(_signature(batch))
        self._current = program
        return program


def train_function(step: Callable[..., Any], stacked: int) -> Callable[..., Any]:
    """Return the function that is compiled for training: one step, or a scan over a stack."""
    import jax

    if stacked == 1 or not callable(step):
        return step

    def steps(state: Any, batches: Any) -> Any:
        return jax.lax.scan(step, state, batches)

    return steps


def eval_function(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that is compiled for evaluation, which counts real rows as well."""

    def evaluate(state: Any, batch: Any) -> Any:
        import jax.numpy as jnp

        metrics = by_name(step(state, batch))
        has_mask = isinstance(batch, Mapping) and "mask" in batch
        rows = batch["mask"].sum() if has_mask else jnp.ones(())
        return {**metrics, ROW_COUNT: rows}

    return evaluate


def by_name(metrics: Any) -> Mapping[str, Any]:
    """Return metrics by name; a scalar alone is the loss."""
    return metrics if isinstance(metrics, Mapping) else {"loss": metrics}


def check_metrics(
    metrics: Any, *, stacked: int = 0, role: str = "step", accumulated: Collection[str] = ()
) -> None:
    """Raise an error unless metrics are scalars by name, or stacks of `stacked` scalars.

    Those that are `accumulated` must be there, with any shape.
    """
    found = {name: value for name, value in by_name(metrics).items() if name != ROW_COUNT}
    for name in accumulated:
        if name not in found:
            names = ", ".join(f"`{name}`" for name in found)
            raise InvalidArgumentError(
                f"there is an accumulator for `{name}`, but `{role}` returns only {names}",
                hint=f"return an array of the batch as `{name}`, too",
            )
        del found[name]
    if "loss" not in found:
        names = ", ".join(f"`{name}`" for name in found) or "nothing"
        raise InvalidArgumentError(
            f"`{role}` returns metrics without a `loss`: {names}",
            hint="return a scalar, or a dictionary of scalars with a `loss`",
        )
    expected = (stacked,) if stacked else ()
    for name, value in found.items():
        shape = getattr(value, "shape", ())
        if shape != expected:
            raise InvalidArgumentError(
                f"the metric `{name}` of `{role}` has the shape {shape[len(expected) :]}, "
                "but must be a scalar",
                hint="return its mean"
                + (
                    f", or pass what merges it over batches: `accumulators={{{name!r}: ...}}`"
                    if role == "eval_step"
                    else ""
                ),
            )


def _signature(arguments: Any) -> Any:
    """Return what a compiled program depends on, of its arguments."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten(arguments)
    return tree, tuple(
        (getattr(leaf, "shape", ()), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves
    )


def _ensure_same_state(results: Any, state: Any) -> None:
    """Raise an error unless a step returns the state with its structure, shapes and types."""
    import jax

    if not (isinstance(results, tuple) and len(results) == 2):
        raise InvalidArgumentError(
            f"`step` returns {_describe(results)}, but must return two values",
            hint="return `(state, metrics)`: the new state, and a scalar loss or a dictionary",
        )
    new = results[0]
    before, after = (jax.tree_util.tree_flatten_with_path(tree)[0] for tree in (state, new))
    names = [[jax.tree_util.keystr(path) for path, _ in leaves] for leaves in (before, after)]
    if names[0] != names[1]:
        missing = [name for name in names[0] if name not in names[1]]
        added = [name for name in names[1] if name not in names[0]]
        what = f"without `state{missing[0]}`" if missing else f"with a new `state{added[0]}`"
        raise InvalidArgumentError(
            f"`step` returns the state {what}",
            hint="return `(state, metrics)`, with a state of the same structure",
        )
    for name, (_, old_leaf), (_, new_leaf) in zip(names[0], before, after, strict=True):
        if (old_leaf.shape, old_leaf.dtype) != (new_leaf.shape, new_leaf.dtype):
            raise InvalidArgumentError(
                f"`step` changes `state{name}` from {_type_of(old_leaf)} to {_type_of(new_leaf)}",
                hint="keep its type and shape, or every step would be compiled again",
            )


def _describe(results: Any) -> str:
    if hasattr(results, "shape"):
        return "an array"
    what = f"a {type(results).__name__}"
    return f"{what} of {len(results)}" if isinstance(results, tuple | list) else what


def _type_of(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
