"""What a checkpoint has beside the arrays of the state, and what must match when it is restored."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.checkpoint.arrays import state_structure
from vramfit.train.messages import rephrase
from vramfit.train.train_progress import TrainProgress

SCHEMA = 1
_MAX_CHANGES_SHOWN = 5


def build_metadata(
    progress: TrainProgress,
    position: dict[str, Any],
    config: Mapping[str, Any] | None,
    state: Any,
    callbacks: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the metadata of a checkpoint.

    Args:
        progress: How far the run has come.
        position: The position in the data, as the source of batches returned it.
        config: The user's values.
        state: The state.
        callbacks: The states of callbacks by name.
    """
    return {
        "schema": SCHEMA,
        "progress": progress.to_json(),
        "data": position,
        "config": config,
        "state": state_structure(state),
        "callbacks": dict(callbacks),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that a run depends on, where they are installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("vramfit", "jax", "orbax-checkpoint", "flax", "optax", "equinox", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def as_json(config: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a configuration as it is after a round trip through JSON.

    Raises:
        InvalidArgumentError: It has values that JSON does not have.
    """
    if config is None:
        return None
    try:
        values: dict[str, Any] = json.loads(json.dumps(dict(config), sort_keys=True))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "`config` must consist of strings, numbers, lists and dictionaries",
            cause=str(error),
            hint="convert other values to strings, such as `str(path)`",
        ) from error
    return values


def check_state(saved: list[list[Any]], state: Any, step: int) -> None:
    """Raise an error unless a state has the structure of the one in a checkpoint."""
    rows = (saved, state_structure(state))
    old, new = ({name: f"{kind}{shape}" for name, shape, kind in part} for part in rows)
    for name in [*old, *new]:
        if old.get(name) != new.get(name):
            raise InvalidArgumentError(
                f"the checkpoint of step {step} has a different state: `{name}` is "
                f"{old.get(name, 'missing')} in it and {new.get(name, 'missing')} in the program",
                hint=f"restore the previous model and optimizer, {_start_over()}",
            )


def check_config(
    saved: Mapping[str, Any] | None, config: Mapping[str, Any] | None, step: int
) -> None:
    """Raise an error unless a configuration is the one in a checkpoint."""
    old, new = _flatten_config(saved or {}), _flatten_config(config or {})
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    if not changed:
        return
    changes = ", ".join(
        f"`{key}` was {_shown(old, key)} and is {_shown(new, key)}"
        for key in changed[:_MAX_CHANGES_SHOWN]
    )
    hidden = len(changed) - _MAX_CHANGES_SHOWN
    more = f", and {hidden} more" if hidden > 0 else ""
    raise InvalidArgumentError(
        f"the checkpoint of step {step} has a different configuration: {changes}{more}",
        hint="restore the old values, resume with the new ones by "
        + rephrase(program="`force_resume=True`", command="`--force-resume`")
        + f", {_start_over()}",
    )


def _start_over() -> str:
    return rephrase(
        program="use another directory, or start over with `resume=False`",
        command="choose another `training.directory`, or start over with `--fresh`",
    )


def _flatten_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten_config(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _shown(config: Mapping[str, Any], key: str) -> str:
    return json.dumps(config[key]) if key in config else "missing"
