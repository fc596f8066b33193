"""What was done to the settings of this process, as a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vramfit._settings import Decided


class Setting(NamedTuple):
    """One variable, its value, and why it has that."""

    name: str
    value: str
    why: str


class AppliedSettings(NamedTuple):
    """What was done to the settings of this process."""

    set: tuple[Setting, ...]
    """What was set."""
    removed: tuple[str, ...]
    """Variables that were taken away; a note says why."""
    kept: tuple[Setting, ...]
    """What the environment said already, and goes before a default."""
    notes: tuple[str, ...]
    """What else there is to know, one clause each."""
    jax_version: str | None
    """The installed JAX that the names are for; None if it could not be told."""

    def value(self, name: str) -> str | None:
        """Return what a variable was set to, None if it was not."""
        return next((setting.value for setting in self.set if setting.name == name), None)

    def __str__(self) -> str:
        lines = [f"set {name}={value}: {why}" for name, value, why in self.set]
        lines += [f"removed {name}" for name in self.removed]
        lines += [f"kept {name}={value}: {why}" for name, value, why in self.kept]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines) or "nothing to set"

    def __repr__(self) -> str:
        text = "\n  ".join(str(self).splitlines())
        return f"<AppliedSettings for JAX {self.jax_version or '(unknown)'}\n  {text}>"


def applied_settings(decided: Decided) -> AppliedSettings:
    """Return what was decided, and is applied, as a value."""
    changes, removed, kept, notes, version = decided
    return AppliedSettings(
        tuple(Setting(name, value, why) for name, value, why, _ in changes),
        tuple(removed),
        tuple(Setting(*row) for row in kept),
        tuple(notes),
        version,
    )
