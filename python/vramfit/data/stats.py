"""Where the time of a loader went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """Where the time of a loader went. Seconds of reader threads are summed over threads.

    They include what the program's own thread read while it waited.

    Attributes:
        batches: Batches (or stacks of them) handed out.
        rows: Real rows handed out.
        bytes: Bytes handed out, padding included.
        reading_s: Reader threads: waiting for the disk, and decoding.
        filling_s: Reader threads: copying rows from windows into batches.
        idle_s: Reader threads: with nothing to do, because all buffers were full.
        waiting_s: The program: waiting for a batch. If this is high, reading is the bottleneck.
        held_bytes: Bytes of batches that the program holds at the moment.
        buffer_bytes: Bytes of all batch buffers, which are recycled.
    """

    batches: int
    rows: int
    bytes: int
    reading_s: float
    filling_s: float
    idle_s: float
    waiting_s: float
    held_bytes: int
    buffer_bytes: int
