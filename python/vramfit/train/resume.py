"""Going on from a checkpoint, and what is refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from vramfit._errors import InvalidArgumentError, InvalidFileError, VramfitError, first_line
from vramfit.train.arrays import structure
from vramfit.train.checkpoint import SCHEMA, Keeper
from vramfit.train.standing import Standing
from vramfit.train.together import ElsewhereError, Together
from vramfit.train.wording import worded

_MAX_CAUSE_LENGTH = 200


def wanted(
    keeper: Keeper | None,
    state: Any,
    config: Mapping[str, Any] | None,
    resume: bool | str,
    force: bool,
    tell: Callable[[str], None],
    together: Together,
) -> tuple[Any, dict[str, Any]] | None:
    """Return the checkpoint to go on from, as far as one is wanted: `auto`, True or False.

    Raises:
        InvalidArgumentError: There is none and there must be.
        InvalidFileError: There are some, and none of them can be read.
    """
    if keeper is None:
        if resume is True:
            raise InvalidArgumentError(
                "`resume=True` needs a directory with checkpoints",
                hint="give `directory`, and do not give `checkpoints=None`",
            )
        return None
    if resume is False:
        return None
    found = find(keeper, state, config, force=force, tell=tell, together=together)
    if found is None and resume is True:
        raise InvalidArgumentError(
            f"there is no checkpoint to go on from in `{keeper.directory}`",
            hint=worded(
                program="`resume='auto'` would begin anew",
                command="without `--resume` the run would begin anew",
            ),
        )
    return found


def find(
    keeper: Keeper,
    state: Any,
    config: Mapping[str, Any] | None,
    *,
    force: bool,
    tell: Callable[[str], None],
    together: Together,
) -> tuple[Any, dict[str, Any]] | None:
    """Return the newest whole checkpoint: the state, and what was kept with it.

    Those that are not whole, for all processes, are told, passed over, and set aside.

    Raises:
        InvalidArgumentError: A whole one belongs to another configuration or another state.
        InvalidFileError: There are some, and none of them is whole. Nothing is changed then.
    """
    damaged: dict[int, str] = {}
    there = keeper.steps()
    while (step := _newest(there, together)) is not None:
        there = [other for other in there if other < step]
        try:
            facts = together.attempt(partial(_facts, keeper, step))
        except Exception as error:  # orbax and tensorstore have many kinds for it
            damaged[step] = first_line(error)[:_MAX_CAUSE_LENGTH]
            continue
        try:
            together.attempt(partial(_must_belong, facts, state, config, force, step))
        except ElsewhereError as error:
            raise InvalidArgumentError(
                f"another process refuses the checkpoint of step {step}, and says why",
                hint="start all processes with the same program and configuration",
            ) from error
        try:
            restored = together.attempt(partial(keeper.restore, step, state))
            found = together.attempt(partial(keeper.verified, restored, state))
        except VramfitError:
            raise
        except Exception as error:
            damaged[step] = first_line(error)[:_MAX_CAUSE_LENGTH]
            continue
        for other, cause in damaged.items():
            tell(
                f"the checkpoint of step {other} is not whole, and is passed over "
                f"(it is kept in `damaged-checkpoints`): {cause}"
            )
        keeper.set_aside(list(damaged))
        for ended, loss in Standing.from_json(facts["standing"]).losses().items():
            keeper.learn(ended, loss)
        keeper.begin_behind(step)
        return found, facts
    if damaged:
        raise InvalidFileError(
            f"no checkpoint in `{keeper.directory}` can be read: "
            + "; ".join(f"step {step}: {cause}" for step, cause in damaged.items()),
            hint="bring them back from a copy, or restore access to them; "
            + worded(program="`resume=False`", command="`--fresh`")
            + " begins anew and keeps them in `previous-N`",
        )
    return None


def _newest(there: list[int], together: Together) -> int | None:
    """Return the newest step that any process sees a checkpoint of."""
    # One more, because a step may be 0.
    newest = together.most(there[0] + 1 if there else 0)
    return newest - 1 if newest else None


def _facts(keeper: Keeper, step: int) -> dict[str, Any]:
    found = keeper.read_facts(step)
    if found["schema"] != SCHEMA:
        raise ValueError(f"it has the form {found['schema']}, not {SCHEMA}")
    return found


def facts(
    standing: Standing, position: dict[str, Any], config: Mapping[str, Any] | None, state: Any
) -> dict[str, Any]:
    """Return what is kept with a state."""
    return {
        "schema": SCHEMA,
        "standing": standing.to_json(),
        "data": position,
        "config": config,
        "structure": structure(state),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of what a run depends on, as far as they are installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("vramfit", "jax", "orbax-checkpoint"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as it is after a way through JSON.

    Raises:
        InvalidArgumentError: It has values that JSON does not have.
    """
    try:
        kept: dict[str, Any] = json.loads(json.dumps(dict(config), sort_keys=True))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "`config` has to be made of texts, numbers, lists and dictionaries",
            cause=str(error),
            hint="turn other values into texts, such as `str(path)`",
        ) from error
    return kept


def _another_directory() -> str:
    return worded(
        program="take another directory, or begin anew with `resume=False`",
        command="take another one as `training.directory`, or begin anew with `--fresh`",
    )


def _must_belong(
    facts: dict[str, Any], state: Any, config: Mapping[str, Any] | None, force: bool, step: int
) -> None:
    _same_state(facts["structure"], structure(state), step)
    if not force:
        _same_config(facts["config"], config, step)


def _same_config(before: Any, now: Mapping[str, Any] | None, step: int) -> None:
    old, new = _flat(before or {}), _flat(now or {})
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    if changed:
        words = ", ".join(
            f"`{key}` was {_shown(old, key)} and is {_shown(new, key)}" for key in changed[:5]
        )
        more = f", and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise InvalidArgumentError(
            f"the checkpoint of step {step} was made with another configuration: {words}{more}",
            hint="bring the old values back, go on all the same with "
            + worded(program="`force_resume=True`", command="`--force-resume`")
            + f", {_another_directory()}",
        )


def _same_state(before: list[list[Any]], now: list[list[Any]], step: int) -> None:
    old, new = ({name: f"{kind}{shape}" for name, shape, kind in rows} for rows in (before, now))
    for name in [*old, *new]:
        if old.get(name) != new.get(name):
            raise InvalidArgumentError(
                f"the checkpoint of step {step} has another state: `{name}` is "
                f"{old.get(name, 'missing')} in it and {new.get(name, 'missing')} in the program",
                hint=f"make the model and optimiser as they were, {_another_directory()}",
            )


def _flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    return flat


def _shown(found: Mapping[str, Any], key: str) -> str:
    return json.dumps(found[key]) if key in found else "missing"
