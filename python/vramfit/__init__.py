"""Know how much GPU memory your JAX program needs, before it runs out.

Most of vramfit is the command line, ``vramfit`` or ``python -m vramfit``. What is importable from
here loads on first use, and none of it imports JAX until it is called, so that
``import vramfit`` costs next to nothing and changes nothing.
"""

from __future__ import annotations

from vramfit._functions._lazy import lazy_getattr

TYPE_CHECKING = False  # of `typing`, whose import takes longer than all of this
if TYPE_CHECKING:
    from vramfit._functions._estimate import estimate as estimate
    from vramfit._functions._watch import watch as watch
    from vramfit._native import __version__ as __version__
    from vramfit._plan._search import PlanResult as PlanResult
    from vramfit._plan._search import plan as plan
    from vramfit.errors import VramfitError as VramfitError
    from vramfit.errors import VramfitWarning as VramfitWarning
    from vramfit.report import DryrunReport as DryrunReport
    from vramfit.report import dryrun_report as dryrun_report

__all__ = [
    "DryrunReport",
    "PlanResult",
    "VramfitError",
    "VramfitWarning",
    "__version__",
    "dryrun_report",
    "estimate",
    "plan",
    "watch",
]

_SOURCES = {
    "DryrunReport": "vramfit.report",
    "PlanResult": "vramfit._plan._search",
    "VramfitError": "vramfit.errors",
    "VramfitWarning": "vramfit.errors",
    "__version__": "vramfit._native",
    "dryrun_report": "vramfit.report",
    "estimate": "vramfit._functions._estimate",
    "plan": "vramfit._plan._search",
    "watch": "vramfit._functions._watch",
}

__getattr__ = lazy_getattr(__name__, _SOURCES)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
