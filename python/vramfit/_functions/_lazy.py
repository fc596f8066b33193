"""Public names that load on first use."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # of `typing`, whose import takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_getattr(module: str, sources: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module's ``__getattr__``, which loads each name from the module that defines it."""

    def load(name: str) -> object:
        source = sources.get(name)
        if source is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(source), name)
        setattr(sys.modules[module], name, value)
        return value

    return load
