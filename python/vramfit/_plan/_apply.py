"""Applies a plan to a program while it runs, and records the sites that a plan could change.

Two variables, set by the command line, decide: ``VRAMFIT_PLAN`` names the plan to apply,
``VRAMFIT_PLAN_SITES`` the file that sites are recorded in, one JSON object per line.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from vramfit._plan import _edits, _file, _sites
from vramfit._plan._file import SitePlan
from vramfit._plan._jaxpr import Segment
from vramfit._plan._sites import Site
from vramfit.errors import InvalidFileError

PLAN = "VRAMFIT_PLAN"
SITES = "VRAMFIT_PLAN_SITES"


def install(jax: Any) -> None:
    """Apply the plan that the environment names to everything that `jax` traces from now on."""
    path, record = os.environ.get(PLAN), os.environ.get(SITES)
    if not path and not record:
        return
    plan = _file.read(path) if path else _file.Plan()
    planner = FilePlanner(plan.sites, path or "", record)
    if plan.sites or record:
        _sites.install(jax, planner)
    if plan.donations or plan.omissions:
        _edits.install(jax, plan.donations, plan.omissions)
    if path:
        atexit.register(planner.warn_of_unused)


class FilePlanner:
    """Decides by a plan file, and records the sites it was asked about."""

    def __init__(self, plans: Sequence[SitePlan], path: str, record: str | None = None) -> None:
        self.plans = plans
        self._path = path
        self._record = record
        self._recorded: set[tuple[str, str, bool]] = set()
        self._used: set[SitePlan] = set()
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A function that it decorates may be called in another process, see `vramfit.estimate`.
        return FilePlanner, (self.plans, self._path, self._record)

    def wants(self, kind: str) -> bool:
        """Return whether the plan has a site of this kind, or all sites are recorded."""
        return self._record is not None or any(plan.kind == kind for plan in self.plans)

    def segments(self, site: Site) -> list[Segment] | None:
        """Return what the plan says of a site; None if it says nothing.

        Raises:
            InvalidFileError: If the plan is of a site with this name that was another program, and
                the one that it is of was not seen before.
        """
        with self._lock:
            if self._record:
                self._record_site(site)
            plan = self._find_site_plan(site)
            if plan is None:
                return None
            self._used.add(plan)
            return plan.to_segments()

    def _find_site_plan(self, site: Site) -> SitePlan | None:
        plans = [plan for plan in self.plans if plan.kind == site.kind]
        if not plans:
            return None
        fingerprint = site.jaxpr.fingerprint()
        same = [plan for plan in plans if plan.fingerprint == fingerprint]
        if same:
            # Of two functions that compute the same, the one that is defined there.
            return next((plan for plan in same if plan.definition == site.definition), same[0])
        structure = site.jaxpr.structure()
        alike = [plan for plan in plans if plan.structure == structure]
        if alike:
            self._tell(
                f"`{site.definition}` has other shapes or types than in the plan; the plan is "
                "applied, but its memory figures do not hold"
            )
            return alike[0]
        changed = [
            plan
            for plan in plans
            if _file_and_function(plan.definition) == _file_and_function(site.definition)
        ]
        if changed and not self._used.intersection(changed):
            raise InvalidFileError(
                f"the plan `{self._path}` does not fit `{site.definition}`",
                cause=f"the function computes something else than `{changed[0].definition}` did "
                f"when the plan was made ({len(site.jaxpr.equations)} equations now)",
                hint="make the plan again with `vramfit plan`, with the same command and versions",
            )
        if changed:
            self._tell(f"`{site.definition}` also computes something that the plan does not cover")
        return None

    def warn_of_unused(self) -> None:
        """Say which sites of the plan the program never reached."""
        for plan in self.plans:
            if plan not in self._used:
                self._tell(f"the program never called `{plan.definition}`, which is in the plan")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            print(f"vramfit: {text}", file=sys.stderr, flush=True)

    def _record_site(self, site: Site) -> None:
        fingerprint = site.jaxpr.fingerprint()
        key = (site.kind, fingerprint, site.is_differentiated)
        if key in self._recorded:
            return
        self._recorded.add(key)
        entry = {
            "kind": site.kind,
            "definition": site.definition,
            "differentiated": site.is_differentiated,
            "fingerprint": fingerprint,
            "structure": site.jaxpr.structure(),
            "input_bytes": site.jaxpr.input_bytes,
            "outputs": site.jaxpr.outputs,
            "equations": list(site.jaxpr.describe()),
        }
        assert self._record is not None
        with open(self._record, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _file_and_function(definition: str) -> str:
    """Return file and function of a definition, without its line."""
    place, _, function = definition.partition(" ")
    return os.path.basename(place.rpartition(":")[0]) + function
