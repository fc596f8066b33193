"""Records the functions of a program that a plan can change, for the search of one."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from vramfit._plan._evaluate import Site, nested_sites
from vramfit._plan._jaxpr import FlatJaxpr
from vramfit._plan._segment import SiteChange
from vramfit._plan._trace import TracedCall


class CallCounter:
    """Counts what a program differentiates, apart from what is inside of others.

    Each once, whatever its shapes: JAX traces a function anew for a batch of another size.
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    @property
    def count(self) -> int:
        """How many there were so far."""
        return len(self._known)

    def add(self, definition: str, jaxpr: FlatJaxpr | None) -> None:
        """Count a call of a function, with what it computes if it was traced."""
        self._known.add((definition, jaxpr.structure() if jaxpr is not None else ""))


class SiteRecorder:
    """Traces every function that is differentiated or mapped, and writes its sites to a file.

    The file has one JSON object per line: a site, a function that is mapped by `jax.vmap` or for a
    Jacobian (``mapped``), or a function that is to be left alone and why:
    it reads a value (``value_read``), or something keeps a value of the trace (``value_kept``),
    which matters only if the program then fails. Functions that the file leaves alone already are
    not traced.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._left_alone = set(_read_left_alone(path))
        self._recorded: set[tuple[str, str]] = set()
        self._mapped: set[tuple[str, str, int]] = set()
        self._calls = CallCounter()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A function that was replaced may be sent to another process.
        return SiteRecorder, (self._path,)

    def traces(self, definition: str, is_within: bool) -> bool:
        """Return whether the function may be traced."""
        return definition not in self._left_alone

    def on_trace(self, site: Site, traced: TracedCall) -> None:
        """Record a function and what is nested in it."""
        line = traced.kept_line()
        with self._lock:
            if line is not None:
                # Outside of `jax.jit` the program may read the value at any time.
                reason = "value_read" if traced.is_eager else "value_kept"
                self._leave_alone(site.definition, reason, line)
            for each in (site, *nested_sites(site)):
                self._record(each)

    def change(self, site: Site) -> SiteChange | None:
        """Return None: the program is recorded as it is."""
        return None

    def on_value_read(self, definition: str, line: str) -> None:
        """Record that a function cannot be traced."""
        with self._lock:
            self._leave_alone(definition, "value_read", line)

    def on_return(self, definition: str, jaxpr: FlatJaxpr | None) -> None:
        """Count the functions that are differentiated."""
        with self._lock:
            self._calls.add(definition, jaxpr)

    def batch_size(self, transform: str, definition: str, elements: int) -> int | None:
        """Record a function that is mapped; the program is recorded as it is."""
        key = (transform, definition, elements)
        with self._lock:
            if key not in self._mapped:
                self._mapped.add(key)
                line = {"mapped": definition, "elements": elements, "transform": transform}
                self._write(line)
        return None

    def on_indivisible(self, definition: str) -> None:
        """Do nothing: no function is divided."""

    def _record(self, site: Site) -> None:
        fingerprint = site.jaxpr.fingerprint()
        if (site.kind, fingerprint) in self._recorded:
            return
        self._recorded.add((site.kind, fingerprint))
        self._write(
            {
                "kind": site.kind,
                "definition": site.definition,
                "inside": site.inside,
                "depth": site.depth,
                "call": self._calls.count + 1,
                "iterations": site.iterations,
                "fingerprint": fingerprint,
                "structure": site.jaxpr.structure(),
                "input_bytes": site.jaxpr.input_bytes,
                "outputs": site.jaxpr.outputs,
                "equations": list(site.jaxpr.describe(site.policy)),
            }
        )

    def _leave_alone(self, definition: str, reason: str, line: str) -> None:
        if definition in self._left_alone:
            return
        self._left_alone.add(definition)
        self._write({"left_alone": definition, "reason": reason, "line": line})

    def _write(self, entry: dict[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _read_left_alone(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        entries = [json.loads(line) for line in file]
    return [entry["left_alone"] for entry in entries if "left_alone" in entry]
