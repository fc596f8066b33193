"""Plan files: what to change about a program, and how. Written by ``vramfit plan``."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from typing import Any

from vramfit._plan import _edits
from vramfit._plan._chunk import Chunk
from vramfit._plan._edits import Edit
from vramfit._plan._segment import NAMED_POLICIES, Segment, SiteChange
from vramfit.errors import InvalidFileError, IoError

SCHEMA = 2


@dataclasses.dataclass(frozen=True)
class SitePlan:
    """What a plan says of one site."""

    # `grad`, `shard_map`, `scan` or `checkpoint`.
    kind: str
    # The site's definition when the plan was made, as ``file.py:line (function)``.
    definition: str
    # The function that is differentiated in which it was found, in the same way.
    inside: str
    # Which of the functions that are differentiated that was, from 1; each counts once.
    call: int
    # How many equations its jaxpr has.
    equations: int
    # Digests of its jaxpr: with shapes, and without.
    fingerprint: str
    structure: str
    # Ranges of equations; what is kept of each for the backward pass.
    segments: tuple[tuple[int, int], ...]
    save: str | None
    saved: tuple[int, ...]
    offloaded: tuple[int, ...]
    # Whether what enters the segments is offloaded.
    offload_inputs: bool = False
    # The `unroll` of the `jax.lax.scan` whose body it is; None leaves it to the program.
    unroll: int | None = None

    def to_change(self) -> SiteChange:
        """Return the change as a jaxpr is evaluated by it."""
        segments = []
        for start, stop in self.segments:
            within = range(start, stop)
            segments.append(
                Segment(
                    start,
                    stop,
                    self.save,
                    tuple(index for index in self.saved if index in within),
                    tuple(index for index in self.offloaded if index in within),
                    self.offload_inputs,
                )
            )
        return SiteChange(tuple(segments), self.unroll)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a plan file says of the program. Its settings are for the process: not read here."""

    sites: tuple[SitePlan, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    edits: tuple[Edit, ...] = ()


def read(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file.

    Raises:
        IoError: If the file cannot be read.
        InvalidFileError: If it is not a plan, or one of a newer version.
    """
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise IoError(
            f"cannot read the plan `{shown}`", cause=str(error), hint="check the path"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFileError(
            f"`{shown}` is not a plan", cause=str(error), hint="make one with `vramfit plan --out`"
        ) from error
    schema = content.get("schema")
    if schema != SCHEMA:
        raise InvalidFileError(
            f"`{shown}` is a plan of schema {schema!r}; this version of vramfit reads {SCHEMA}",
            hint="make the plan again with `vramfit plan`",
        )
    try:
        return Plan(
            sites=tuple(_site(entry) for entry in content.get("site", [])),
            chunks=tuple(_chunk(entry) for entry in content.get("chunk", [])),
            edits=tuple(_edits.read(entry) for entry in content.get("edit", [])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidFileError(
            f"`{shown}` has an entry that cannot be read",
            cause=f"{type(error).__name__}: {error}",
            hint="make the plan again with `vramfit plan`",
        ) from error


def _chunk(entry: dict[str, Any]) -> Chunk:
    sizes = int(entry["elements"]), int(entry["batch_size"])
    chunk = Chunk(entry["function"], *sizes, entry.get("transform", "vmap"))
    if not 0 < chunk.batch_size < chunk.elements:
        raise ValueError(f"a chunk of {chunk.batch_size} of {chunk.elements} elements")
    return chunk


def _unroll(entry: dict[str, Any]) -> int | None:
    if "unroll" not in entry:
        return None
    unroll = int(entry["unroll"])
    if entry["kind"] != "scan" or unroll < 2:
        raise ValueError(f"`unroll` is {unroll} for the kind `{entry['kind']}`")
    return unroll


def _site(entry: dict[str, Any]) -> SitePlan:
    save = entry.get("save")
    if save is not None and save not in NAMED_POLICIES:
        raise ValueError(f"unknown policy `{save}`; one of {', '.join(NAMED_POLICIES)}")
    equations = int(entry["equations"])
    segments = tuple((int(start), int(stop)) for start, stop in entry["segments"])
    position = 0
    for start, stop in segments:
        if not position <= start < stop:
            raise ValueError(f"the segment [{start}, {stop}] is out of order")
        position = stop
    if position > equations:
        raise ValueError(f"a segment ends at {position}, and there are {equations} equations")
    plan = SitePlan(
        kind=entry["kind"],
        definition=entry["definition"],
        inside=entry["inside"],
        call=int(entry["call"]),
        equations=equations,
        fingerprint=entry["fingerprint"],
        structure=entry["structure"],
        segments=segments,
        save=save,
        saved=tuple(int(index) for index in entry.get("saved", [])),
        offloaded=tuple(int(index) for index in entry.get("offloaded", [])),
        offload_inputs=bool(entry.get("offload_inputs", False)),
        unroll=_unroll(entry),
    )
    for index in (*plan.saved, *plan.offloaded):
        if not any(start <= index < stop for start, stop in segments):
            raise ValueError(f"the equation {index} is in no segment")
    return plan
