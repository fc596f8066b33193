"""Steps as compiled programs: ahead of their first call, with the time that took apart.

A step that is a plain function is jitted here, its state donated and its batch never: a batch may
look into memory of the loader, which XLA would write into. Nothing is added to the program, so that
its numbers are those of ``jax.jit`` of the step. A step that is jitted already is used as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from vramfit._errors import InvalidArgumentError

ROWS = "(rows)"
"""The metric by which an evaluation says how much a batch counts."""


class Program:
    """A function of a state and a batch, compiled once for each shape of batch.

    Args:
        function: The function, jitted or not.
        donate: Whether the state is donated, where it is jitted here.
        results: Where its results go, or None.
        trains: Whether it returns a new state beside metrics, which is then checked.

    Attributes:
        jitted: Whether the function was jitted already.
        count: How many programs were compiled.
        planned: What XLA plans in memory for the latest one, or None where it does not tell.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        donate: bool = False,
        results: Any = None,
        trains: bool = False,
    ) -> None:
        import jax

        if not callable(function):
            raise InvalidArgumentError(
                f"a step has to be a function, and not a {type(function).__name__}",
                hint="give a function of state and batch that returns the new state and metrics",
            )
        self._trains = trains

        self.jitted = isinstance(function, type(jax.jit(lambda: None)))
        self._jit = function
        if not self.jitted:
            options: dict[str, Any] = {"donate_argnums": 0} if donate else {}
            if results is not None:
                options["out_shardings"] = results
            self._jit = jax.jit(function, **options)
        self._run: Callable[..., Any] | None = None
        self._programs: dict[Any, Callable[..., Any]] = {}
        self.count = 0
        self._seconds = 0.0
        self.planned: Any = None

    def __call__(self, state: Any, batch: Any) -> Any:
        """Run it; compile it before, where this batch has a shape that is new."""
        if self._run is None:
            return self._prepared(state, batch)(state, batch)
        try:
            return self._run(state, batch)
        except (TypeError, ValueError):
            # What a compiled program says of other shapes or places, before it does anything.
            if _signature(state, batch) in self._programs and len(self._programs) == 1:
                raise
            return self._prepared(state, batch)(state, batch)

    def take_seconds(self) -> float:
        """Return how long tracing and compiling took since this was last asked."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _prepared(self, state: Any, batch: Any) -> Callable[..., Any]:
        signature = _signature(state, batch)
        program = self._programs.get(signature)
        if program is None:
            begun = time.perf_counter()
            lowered = self._jit.lower(state, batch)  # type: ignore[attr-defined]
            if self._trains:
                _check(lowered.out_info, state)
            compiled = lowered.compile()
            try:
                self.planned = compiled.memory_analysis()
            except Exception:  # not every backend tells it
                self.planned = None
            # What is jitted finds the compiled program by itself, and keeps its own rules.
            program = self._jit if self.jitted else compiled
            self._programs[signature] = program
            self._seconds += time.perf_counter() - begun
            self.count += 1
        self._run = program
        return program


def training(step: Callable[..., Any], stacked: int) -> Callable[..., Any]:
    """Return the function that is compiled for training: one step, or a scan over a stack."""
    import jax

    if stacked == 1 or not callable(step):
        return step

    def steps(state: Any, batches: Any) -> Any:
        return jax.lax.scan(step, state, batches)

    return steps


def evaluation(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that is compiled for evaluation, which counts real rows as well."""

    def evaluate(state: Any, batch: Any) -> Any:
        import jax.numpy as jnp

        metrics = named(step(state, batch))
        masked = isinstance(batch, Mapping) and "mask" in batch
        rows = batch["mask"].sum() if masked else jnp.ones(())
        return {**metrics, ROWS: rows}

    return evaluate


def named(metrics: Any) -> Mapping[str, Any]:
    """Return metrics with names; a scalar alone is the loss."""
    return metrics if isinstance(metrics, Mapping) else {"loss": metrics}


def check_metrics(metrics: Any, *, stacked: int = 0, role: str = "step") -> None:
    """Refuse metrics that are not scalars by name, or stacks of so many."""
    found = {name: value for name, value in named(metrics).items() if name != ROWS}
    if "loss" not in found:
        names = ", ".join(f"`{name}`" for name in found) or "nothing"
        raise InvalidArgumentError(
            f"`{role}` returns metrics without a `loss`: {names}",
            hint="return a scalar, or a dictionary of scalars with a `loss`",
        )
    wanted = (stacked,) if stacked else ()
    for name, value in found.items():
        shape = getattr(value, "shape", ())
        if shape != wanted:
            raise InvalidArgumentError(
                f"the metric `{name}` of `{role}` has the shape {shape[len(wanted) :]}, "
                "and has to be a scalar",
                hint="return its mean",
            )


def _signature(state: Any, batch: Any) -> Any:
    """Return what a compiled program depends on, of its arguments."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten((state, batch))
    return tree, tuple(
        (getattr(leaf, "shape", ()), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves
    )


def _check(results: Any, state: Any) -> None:
    """Refuse a step that does not return the state in the form in which it came."""
    import jax

    if not (isinstance(results, tuple) and len(results) == 2):
        raise InvalidArgumentError(
            f"`step` returns {_kind(results)}, and has to return two things",
            hint="return `(state, metrics)`: the new state, and a scalar loss or a dictionary",
        )
    new = results[0]
    before, after = (jax.tree_util.tree_flatten_with_path(tree)[0] for tree in (state, new))
    names = [[jax.tree_util.keystr(path) for path, _ in leaves] for leaves in (before, after)]
    if names[0] != names[1]:
        lost = [name for name in names[0] if name not in names[1]]
        more = [name for name in names[1] if name not in names[0]]
        what = f"without `state{lost[0]}`" if lost else f"with `state{more[0]}`, which is new"
        raise InvalidArgumentError(
            f"`step` returns the state {what}",
            hint="a step returns `(state, metrics)`, the state in the form in which it came",
        )
    for name, (_, old), (_, new_leaf) in zip(names[0], before, after, strict=True):
        if (old.shape, old.dtype) != (new_leaf.shape, new_leaf.dtype):
            raise InvalidArgumentError(
                f"`step` makes `state{name}` {_form(new_leaf)}, and it was {_form(old)}",
                hint="keep its type and shape, or every step would be compiled anew",
            )


def _kind(results: Any) -> str:
    if hasattr(results, "shape"):
        return "an array"
    what = f"a {type(results).__name__}"
    return f"{what} of {len(results)}" if isinstance(results, tuple | list) else what


def _form(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
