"""Changes of a site: ranges of equations that are rematerialized as one, and unrolled loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

# By the name in a plan, the attribute of `jax.checkpoint_policies`.
NAMED_POLICIES = {
    "nothing": "nothing_saveable",
    "dots": "dots_saveable",
    "dots-without-batch": "dots_with_no_batch_dims_saveable",
    "everything": "everything_saveable",
}

# Names for `checkpoint_name`: of what enters a segment and is offloaded, and of what devices have
# exchanged, which is always kept: to exchange it again is slower than to compute it again.
INPUT_NAME = "vramfit:input"
COLLECTIVE_NAME = "vramfit:collective"


@dataclasses.dataclass(frozen=True)
class Segment:
    """Equations `start` to `stop` (exclusive), and what is kept of them for the backward pass."""

    start: int
    stop: int
    # A policy's name (`NAMED_POLICIES`).
    save: str | None = None
    # Names of the results of chosen equations, by the equation's index; saved and offloaded.
    saved: tuple[int, ...] = ()
    offloaded: tuple[int, ...] = ()
    # Whether the activations among its inputs are offloaded.
    offload_inputs: bool = False
    # Whether XLA is kept from merging the two computations.
    prevent_cse: bool = True

    def names(self, collectives: Iterable[int]) -> dict[int, str]:
        """Return the name for `jax.ad_checkpoint.checkpoint_name` of each chosen equation.

        Args:
            collectives: Equations of the segment that exchange data between devices.
        """
        names = dict.fromkeys(collectives, COLLECTIVE_NAME)
        return names | {index: f"vramfit:{index}" for index in (*self.saved, *self.offloaded)}

    def policy(self, jax: Any) -> Callable[..., Any]:
        """Return the policy for `jax.checkpoint`."""
        policies = jax.checkpoint_policies
        kept = [COLLECTIVE_NAME, *(f"vramfit:{index}" for index in self.saved)]
        if self.offloaded or self.offload_inputs:
            offloaded: Callable[..., Any] = policies.save_and_offload_only_these_names(
                names_which_can_be_saved=kept,
                names_which_can_be_offloaded=[
                    INPUT_NAME,
                    *(f"vramfit:{index}" for index in self.offloaded),
                ],
                offload_src="device",
                offload_dst="pinned_host",
            )
            return offloaded
        named: Callable[..., Any] = policies.save_only_these_names(*kept)
        if self.save in (None, "nothing"):
            return named
        own = getattr(policies, NAMED_POLICIES[self.save])
        both: Callable[..., Any] = policies.save_from_both_policies(own, named)
        return both


@dataclasses.dataclass(frozen=True)
class SiteChange:
    """What a plan changes at one site."""

    # In order, and disjoint.
    segments: tuple[Segment, ...] = ()
    # The `unroll` of the `jax.lax.scan` whose body the site is; None leaves it to the program.
    unroll: int | None = None
