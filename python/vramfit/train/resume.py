"""Going on from a checkpoint, and what is refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from vramfit._errors import InvalidArgumentError, VramfitError, first_line
from vramfit.train.checkpoint import SCHEMA, Keeper, structure
from vramfit.train.standing import Standing
from vramfit.train.wording import worded


def wanted(
    keeper: Keeper | None,
    state: Any,
    config: Mapping[str, Any] | None,
    resume: bool | str,
    force: bool,
    tell: Callable[[str], None],
) -> tuple[Any, dict[str, Any]] | None:
    """Return the checkpoint to go on from, as far as one is wanted: `auto`, True or False.

    Raises:
        InvalidArgumentError: There is none and there must be, or there is one and must not.
    """
    if keeper is None:
        if resume is True:
            raise InvalidArgumentError(
                "`resume=True` needs a directory with checkpoints",
                hint="give `directory`, and do not give `checkpoints=None`",
            )
        return None
    if resume is False:
        if steps := keeper.steps():
            raise InvalidArgumentError(
                f"there is a checkpoint of step {steps[0]}, and "
                + worded(program="`resume=False` begins anew", command="`--fresh` begins anew"),
                hint=f"{_another_directory()}, or remove its `checkpoints`",
            )
        return None
    found = find(keeper, state, config, force=force, tell=tell)
    if found is None and resume is True:
        raise InvalidArgumentError(
            "there is no whole checkpoint to go on from",
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
) -> tuple[Any, dict[str, Any]] | None:
    """Return the newest whole checkpoint: the state, and what was kept with it.

    Those that are not whole are told, passed over, and set aside.

    Raises:
        InvalidArgumentError: A whole one belongs to another configuration or another state.
    """
    damaged: list[int] = []
    for step in keeper.steps():
        try:
            facts = keeper.read_facts(step)
            if facts["schema"] != SCHEMA:
                raise ValueError(f"it has the form {facts['schema']}, not {SCHEMA}")
        except Exception as error:  # orbax and tensorstore have many kinds for it
            tell(_passed_over(step, error))
            damaged.append(step)
            continue
        _same_state(facts["structure"], structure(state), step)
        if not force:
            _same_config(facts["config"], config, step)
        try:
            found = keeper.read(step, state)
        except VramfitError:
            raise
        except Exception as error:
            tell(_passed_over(step, error))
            damaged.append(step)
            continue
        keeper.set_aside(damaged)
        for ended, loss in Standing.from_json(facts["standing"]).losses().items():
            keeper.learn(ended, loss)
        return found
    keeper.set_aside(damaged)
    return None


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
            "`config` has to be made of texts, numbers, lists and dictionaries", cause=str(error)
        ) from error
    return kept


def _another_directory() -> str:
    return worded(
        program="take another directory", command="take another one as `training.directory`"
    )


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
            hint=f"bring the old values back, {_another_directory()}, or go on all the same with "
            + worded(program="`force_resume=True`", command="`--force-resume`"),
        )


def _same_state(before: list[list[Any]], now: list[list[Any]], step: int) -> None:
    old, new = ({name: f"{kind}{shape}" for name, shape, kind in rows} for rows in (before, now))
    for name in [*old, *new]:
        if old.get(name) != new.get(name):
            raise InvalidArgumentError(
                f"the checkpoint of step {step} has another state: `{name}` is "
                f"{old.get(name, 'missing')} in it and {new.get(name, 'missing')} in the program",
                hint=f"make the model and optimiser as they were, or {_another_directory()}",
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


def _passed_over(step: int, error: Exception) -> str:
    return (
        f"the checkpoint of step {step} is not whole, and is passed over "
        f"(it is kept in `damaged-checkpoints`): {first_line(error)[:200]}"
    )
