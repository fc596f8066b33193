"""The settings that were applied to this process, as a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vramfit import _native
    from vramfit._settings import Applied


class Setting(NamedTuple):
    """A variable with a value, and why it has that."""

    name: str
    value: str
    reason: str


class AppliedSettings(NamedTuple):
    """The settings that were applied to this process."""

    set: tuple[Setting, ...]
    """Variables that were set."""
    removed: tuple[str, ...]
    """Variables that were removed; a note says why."""
    kept: tuple[Setting, ...]
    """Variables of the environment that take precedence over a default."""
    notes: tuple[str, ...]
    """What else there is to know, one clause each."""
    jax_version: str | None
    """The installed JAX that reads the settings; None if unknown."""

    def value(self, name: str) -> str | None:
        """Return what a variable was set to, None if it was not."""
        return next((setting.value for setting in self.set if setting.name == name), None)

    def __str__(self) -> str:
        lines = [f"set {name}={value}: {reason}" for name, value, reason in self.set]
        lines += [f"removed {name}" for name in self.removed]
        lines += [f"kept {name}={value}: {reason}" for name, value, reason in self.kept]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines) or "nothing to set"

    def __repr__(self) -> str:
        text = "\n  ".join(str(self).splitlines())
        return f"<AppliedSettings for JAX {self.jax_version or '(unknown)'}\n  {text}>"


def applied_settings(applied: Applied) -> AppliedSettings:
    """Return what was applied as a value."""
    settings = applied.settings
    return AppliedSettings(
        _as_tuples(settings.set),
        tuple(settings.removed),
        _as_tuples(settings.kept),
        tuple(applied.notes),
        applied.jax_version,
    )


def _as_tuples(settings: list[_native.Setting]) -> tuple[Setting, ...]:
    return tuple(Setting(one.name, one.value, one.reason) for one in settings)
