"""Out-of-memory logs of JAX programs whose cause is known, in the words of each JAX version.

`scenarios` returns one clean log for each cause and wording, `visible_error_elsewhere` logs whose
last error is not the one that matters. `disguise` and `cut` change their layout and length. All
figures are made up; the words are those of the JAX releases that the names mention.
"""

from __future__ import annotations

from . import beside, driver, other, pool, reported, slow
from .disguise import cut, disguise
from .elsewhere import visible_error_elsewhere
from .log import CAUSES, OomLog

__all__ = ["CAUSES", "OomLog", "cut", "disguise", "scenarios", "visible_error_elsewhere"]


def scenarios() -> list[OomLog]:
    """Returns one clean log for each cause and wording."""
    groups = [
        pool.pool_too_small,
        pool.request_larger_than_gpu,
        pool.fragmentation,
        driver.pool_not_obtained,
        driver.memory_taken_later,
        beside.outside_pool,
        driver.address_space,
        beside.autotuning,
        slow.leaks,
        slow.recompilation,
        other.host_memory,
        other.wrong_setting,
        other.tpu,
        other.not_memory,
        other.nothing,
        reported.reported,
    ]
    return [log for group in groups for log in group()]
