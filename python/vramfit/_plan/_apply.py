"""Applies a plan to a program while it runs.

The configuration of a dry run names the plan to apply, or the file that sites are recorded in
(`_record`); under `vramfit run --plan` the variable ``VRAMFIT_PLAN`` names the plan.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from vramfit import _stderr
from vramfit._inprogram._jax_shim.run_config import run_config
from vramfit._plan import _chunk, _edits, _file, _sites
from vramfit._plan._chunk import Chunk
from vramfit._plan._evaluate import Site
from vramfit._plan._file import SitePlan
from vramfit._plan._jaxpr import FlatJaxpr
from vramfit._plan._record import CallCounter, SiteRecorder
from vramfit._plan._segment import SiteChange
from vramfit._plan._trace import TracedCall
from vramfit.errors import InvalidFileError

PLAN = "VRAMFIT_PLAN"
# A file that is made when a plan is applied: a launcher may start a Python that does not.
APPLIED = "VRAMFIT_PLAN_APPLIED"

_AGAIN = "make the plan again with `vramfit plan`, with the same command and versions"


def install(jax: Any) -> None:
    """Apply the plan that the command line names to everything that `jax` traces from now on."""
    config = run_config()
    path, record = config.get("plan") or os.environ.get(PLAN), config.get("plan_sites")
    if record:
        recorder = SiteRecorder(record)
        _sites.install(jax, recorder)
        _chunk.install(jax, recorder)
    if not path:
        return
    plan = _file.read(path)
    if plan.sites and not record:
        applier = PlanApplier(plan.sites, path)
        _sites.install(jax, applier)
        atexit.register(applier.warn_of_unmet)
        _print_without_traceback(applier.is_refusal)
    if plan.chunks and not record:
        chunks = ChunkApplier(plan.chunks)
        _chunk.install(jax, chunks)
        atexit.register(chunks.warn_of_unmet)
    if plan.edits:
        _edits.install(jax, plan.edits, AppliedEdits(path).note)
    if applied := os.environ.get(APPLIED):
        with open(applied, "ab"):
            pass


def _print_without_traceback(is_refusal: Callable[[BaseException], bool]) -> None:
    """Have Python print a plan's refusal alone: the frames of JAX in between say nothing."""
    others = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        if is_refusal(error):
            _stderr.write_line(f"vramfit: {error}")
        else:
            others(kind, error, traceback)

    sys.excepthook = hook


class AppliedEdits:
    """Writes which edits were applied to which functions, a line each, beside the plan file.

    Whoever measures an edit must know that it was made.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}.applied"
        self._written: set[str] = set()

    def note(self, kind: str, definition: str) -> None:
        """Write that a function was changed."""
        line = f"{kind} {definition}"
        # A plan of the user's may be in a folder that nothing can be written to.
        with contextlib.suppress(OSError):
            if line not in self._written and os.path.exists(self._path):
                with open(self._path, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
        self._written.add(line)


class PlanApplier:
    """Decides by a plan file.

    An entry is of the function that has its fingerprint, whatever others are called. Only functions
    in which an entry was found are traced; those are looked for by file and name.
    """

    def __init__(self, plans: Sequence[SitePlan], path: str, is_counted: bool = True) -> None:
        """Decide by these entries of the plan file `path`.

        Args:
            plans: The entries.
            path: Of the file.
            is_counted: Whether calls are those of the whole program, as when the plan was made;
                else the entries are of the first call.
        """
        self.plans = plans
        self._path = path
        self._is_counted = is_counted
        self._calls = CallCounter()
        self._refusal: InvalidFileError | None = None
        self._met: set[SitePlan] = set()
        # Entries of functions that were traced, and did not have their fingerprint.
        self._differing: dict[SitePlan, str] = {}
        self._notices = _Notices()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A function that it decorates may be called in another process, see `vramfit.estimate`.
        return PlanApplier, (self.plans, self._path, self._is_counted)

    def traces(self, definition: str, is_within: bool) -> bool:
        """Return whether an entry was found in a function of this file and name.

        What is called by a function that is traced is traced as well: that was so when sites were
        recorded, and the fingerprint of the caller may depend on it.
        """
        if is_within or not self._is_counted:
            return True
        return any(_is_same_function(plan.inside, definition) for plan in self.plans)

    def on_trace(self, site: Site, traced: TracedCall) -> None:
        """Note which entries should be met in the function."""
        with self._lock:
            for plan in self.plans:
                if _is_same_function(plan.inside, site.definition):
                    self._differing[plan] = site.definition

    def change(self, site: Site) -> SiteChange | None:
        """Return what the plan says of a site; None if it says nothing."""
        plans = [plan for plan in self.plans if plan.kind == site.kind]
        fingerprint = site.jaxpr.fingerprint()
        same = [plan for plan in plans if plan.fingerprint == fingerprint]
        if not same:
            structure = site.jaxpr.structure()
            same = [plan for plan in plans if plan.structure == structure]
        if not same:
            return None
        # Of two functions that compute the same, the one that is defined there.
        plan = next((plan for plan in same if plan.definition == site.definition), same[0])
        if plan.equations != len(site.jaxpr.equations):
            raise self._refuse(
                f"the plan `{self._path}` does not fit `{site.definition}`",
                f"the plan divides {plan.equations} equations, and the function has "
                f"{len(site.jaxpr.equations)}",
                _AGAIN,
            )
        with self._lock:
            self._met.add(plan)
        if plan.fingerprint != fingerprint:
            self._notices.show(
                f"`{site.definition}` has other shapes or types than in the plan; the plan is "
                "applied, but its memory figures do not hold"
            )
        return plan.to_change()

    def on_value_read(self, definition: str, line: str) -> None:
        """Refuse to call the function again: its random numbers would be others.

        Raises:
            InvalidFileError: Always.
        """
        raise self._refuse(
            f"the plan `{self._path}` cannot be applied to `{definition}`",
            f"it reads a value at {line or 'a line of a library'}, which it did not when the "
            "plan was made, and calling it again could change the result",
            "remove the entry with this function from the plan",
        )

    def on_return(self, definition: str, jaxpr: FlatJaxpr | None) -> None:
        """Refuse the plan as soon as it is certain that it is of another program.

        That is so when none of its entries was met where the first was when the plan was made. Of a
        plan that is applied, another entry may be met later: what no entry is of runs as it is.

        Raises:
            InvalidFileError: If it is.
        """
        with self._lock:
            if len(self._met) == len(self.plans):
                return
            self._calls.add(definition, jaxpr)
            count = self._calls.count
            due = [plan for plan in self.plans if not self._is_counted or plan.call <= count]
            unmet = [plan for plan in due if plan not in self._met]
            is_other_program = bool(unmet) and not self._met
        if is_other_program:
            differing = [plan for plan in unmet if plan in self._differing]
            [plan, *_] = differing or unmet
            found = "the program has called no function like"
            if differing:
                found = f"`{self._differing[plan]}` computes something else than"
            raise self._refuse(
                f"the plan `{self._path}` does not fit the program",
                f"{found} `{plan.definition}` did when the plan was made",
                _AGAIN,
            )
        for plan in unmet:
            self._notices.show(
                f"no function so far computes what `{plan.definition}` did when the plan was made: "
                "this entry of the plan is not applied yet"
            )

    def is_refusal(self, error: BaseException) -> bool:
        """Return whether an error is that by which the plan was refused."""
        return error is self._refusal

    def _refuse(self, message: str, cause: str, hint: str) -> InvalidFileError:
        self._refusal = InvalidFileError(message, cause=cause, hint=hint)
        return self._refusal

    def warn_of_unmet(self) -> None:
        """Say which sites of the plan the program never reached."""
        for plan in self.plans if self._refusal is None else ():
            if plan not in self._met:
                self._notices.show(
                    f"the program never called `{plan.definition}`, which is in the plan"
                )


class ChunkApplier:
    """Decides by the entries of a plan file for functions that are mapped, by file and name.

    What such a function computes does not matter: the result of each element is its own.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._met: set[Chunk] = set()
        self._notices = _Notices()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A function that was mapped may be sent to another process.
        return ChunkApplier, (self._chunks,)

    def batch_size(self, transform: str, definition: str, elements: int) -> int | None:
        """Return what the entry of the function says, if it has one."""
        of_transform = (each for each in self._chunks if each.transform == transform)
        same = (each for each in of_transform if _is_same_function(each.function, definition))
        chunk = next(same, None)
        if chunk is None:
            return None
        with self._lock:
            self._met.add(chunk)
        # The program that was measured may map it over fewer elements as well.
        if elements > chunk.elements:
            self._notices.show(
                f"`{definition}` is mapped over {elements} elements, in the plan over"
                f" {chunk.elements}; the plan is applied, but its memory figures do not hold"
            )
        return chunk.batch_size

    def warn_of_unmet(self) -> None:
        """Say which functions of the plan the program never mapped."""
        for chunk in self._chunks:
            if chunk not in self._met:
                self._notices.show(
                    f"the program never mapped `{chunk.function}`, which is in the plan"
                )

    def on_indivisible(self, definition: str) -> None:
        """Say that the function is mapped as it is."""
        self._notices.show(
            f"`{definition}` is mapped as it is, not in chunks: it calls Python, or its result"
            " could depend on how many elements are computed together"
        )


class _Notices:
    """Prints lines for the user, each once."""

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        with self._lock:
            if text in self._shown:
                return
            self._shown.add(text)
        _stderr.write_line(f"vramfit: {text}")


def _is_same_function(one: str, other: str) -> bool:
    """Return whether two definitions have the same file and function, whatever the line."""
    return _file_and_function(one) == _file_and_function(other)


def _file_and_function(definition: str) -> str:
    place, _, function = definition.partition(" ")
    return os.path.basename(place.rpartition(":")[0]) + function
