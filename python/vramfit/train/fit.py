"""`fit`: from a step, a state and data to a trained state."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from vramfit.errors import InvalidArgumentError
from vramfit.train.loop.build import build_loop
from vramfit.train.options import FitKeywords, FitOptions
from vramfit.train.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vramfit.data import Loader, Mixture
    from vramfit.data.device import DeviceBatches
    from vramfit.train.accumulators import Accumulator
    from vramfit.train.events import Callback

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _with_option_keywords(function: _Function) -> _Function:
    """Show the fields of `FitOptions` as keyword arguments in `help` and `inspect.signature`."""
    signature = inspect.signature(function)
    kept = [part for part in signature.parameters.values() if part.kind is not part.VAR_KEYWORD]
    fields = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=field.type,
        )
        for field in dataclasses.fields(FitOptions)
    ]
    function.__signature__ = signature.replace(parameters=kept + fields)  # type: ignore[attr-defined]
    return function


@_with_option_keywords
def fit(
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    data: Loader | Mixture | DeviceBatches | Iterable[Any],
    options: FitOptions | None = None,
    *,
    eval_step: Callable[[Any, Any], Any] | None = None,
    eval_data: Loader | Mixture | DeviceBatches | Iterable[Any] | None = None,
    callbacks: Sequence[Callback] = (),
    accumulators: Mapping[str, Accumulator] | None = None,
    **overrides: Unpack[FitKeywords],
) -> Result:
    """Train: run `step` over `data`, epoch by epoch, and return the new state with a report.

    Args:
        step: A function of the state and a batch that returns the new state and metrics: a scalar
            loss, or a dictionary of scalars with a `loss`. A plain function is jitted; one that is
            jitted already is used as it is.
        state: Any pytree of arrays. It is donated, so these arrays can no longer be used; use
            `result.state` instead.
        data: A :class:`vramfit.data.Loader` or :class:`vramfit.data.Mixture`, what its
            `to_device` returns, or any batches that can be iterated over repeatedly. Batches are
            never donated.
        options: All options as one value; its documentation describes each of them.
        eval_step: A function of the state and a batch that returns metrics, evaluated after each
            epoch, or by `eval_every`. Means are weighted by real rows where batches have a `mask`.
        eval_data: Batches for `eval_step`.
        callbacks: Functions of an event and the run, called in this order with
            :class:`vramfit.train.RunStart`, :class:`vramfit.train.LogPoint`,
            :class:`vramfit.train.Evaluation`, :class:`vramfit.train.EpochEnd`,
            :class:`vramfit.train.CheckpointSaved` and :class:`vramfit.train.RunEnd`. The run is a
            :class:`vramfit.train.TrainingRun`. One with `save_state` (which returns values that
            JSON has, or None for no state) and `restore_state` is part of checkpoints, by its
            `name` or its class; one with `close` is closed at the end, also after an exception.
        accumulators: For each metric of `eval_step` that is not a scalar, what merges it over
            batches, such as :class:`vramfit.train.ConfusionMatrix`.
        **overrides: Fields of :class:`vramfit.train.FitOptions`, such as `epochs=3`; they take
            precedence over `options`.

    Raises:
        InvalidArgumentError: An argument is invalid, or does not match the checkpoint.
        VerificationFailedError: The required device is not available.
        InsufficientMemoryError: Device memory was not enough for a step.
        InvalidFileError: There are checkpoints, but none of them can be read.
        PackageMissingError: Orbax or tensorboardX is needed and not installed.
        DirectoryInUseError: Another process trains in `directory`.
        FileChangedError: The data differs from the data that the checkpoint was made with.
    """
    options = _merge_options(options, overrides)
    accumulators = {} if accumulators is None else accumulators
    _check_evaluation(options, eval_step, eval_data, accumulators)
    if eval_data is not None and (options.eval_every or options.steps):
        _check_separate_loaders(data, eval_data)
    with ExitStack() as cleanup:
        loop = build_loop(
            step, state, data, eval_step, eval_data, callbacks, accumulators, options, cleanup
        )
        # Otherwise this frame would keep a second state alive.
        del state
        loop.run(loop.restore())
        return loop.finish()


def _merge_options(options: FitOptions | None, overrides: FitKeywords) -> FitOptions:
    known = {field.name for field in dataclasses.fields(FitOptions)}
    for name in overrides:
        if name not in known:
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
    return dataclasses.replace(options or FitOptions(), **overrides)


def _check_separate_loaders(data: Any, eval_data: Any) -> None:
    from vramfit.train.data.batch_source import share_loader
    from vramfit.train.loop.evaluations import shared_loader_error

    if share_loader(data, eval_data):
        raise shared_loader_error()


def _check_evaluation(
    options: FitOptions, eval_step: Any, eval_data: Any, accumulators: Mapping[str, Any]
) -> None:
    if (eval_step is None) != (eval_data is None):
        missing = "eval_step" if eval_step is None else "eval_data"
        raise InvalidArgumentError(
            f"`eval_step` and `eval_data` go together, but `{missing}` is missing",
            hint="pass both, or neither to train without evaluation",
        )
    needs_evaluation = {
        "stop_after": options.stop_after is not None,
        "eval_every": options.eval_every is not None,
        "accumulators": bool(accumulators),
    }
    for name, is_given in needs_evaluation.items():
        if is_given and eval_step is None:
            raise InvalidArgumentError(
                f"`{name}` needs metrics of an evaluation, and there is no evaluation",
                hint="pass `eval_step` and `eval_data`",
            )
