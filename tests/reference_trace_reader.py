"""A reader of trace files, written from `docs/reference/trace-format.md` alone, and a replay.

The Rust reader and allocator are what `vramfit` itself uses. This second pair lets the tests
say what was in the pool at the peak, and tell what was asked for from what the allocator counted.
"""

import dataclasses
import json
import zlib
from pathlib import Path

from reference_bfc import Bfc, pool_limit, rounded

# Fields of each kind of event, by its tag.
EVENTS = {
    2: "program number name argument output alias temp constant code devices loaded"
    " compile_attempt site",
    3: "unload number",
    4: "begin number site",
    5: "end",
    6: "allocate device bytes alignment space purpose slot site",
    7: "free back",
    8: "allocation-failure device bytes alignment space purpose slot message",
    9: "driver device asked address granted",
    10: "outside-pool device bytes",
    11: "unknown site bytes",
    15: "clear-peak device",
    16: "free-aborts back message",
    17: "variant number name argument output alias temp constant code",
    18: "argument parameter back",
    19: "shape site bytes",
    20: "scratch number library routine site low high source phase",
    21: "callback site calls errors error",
    22: "callback-skipped site calls reason",
    23: "unread back",
    24: "decisive site bytes expression value",
}
TEXTS = {
    "name",
    "compile_attempt",
    "site",
    "message",
    "error",
    "library",
    "routine",
    "expression",
    "value",
}


class Bytes:
    """Bytes read one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def number(self):
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value


def read(path):
    """Return the header, the unfolded events and the footer of a complete trace."""
    data = Path(path).read_bytes()
    magic, header, _ = data.split(b"\n", 2)
    assert magic == b"vramfit trace 2"
    source = Bytes(data)
    source.at = len(magic) + len(header) + 2
    texts, events, history, footer = [""], [], [], None
    while source.at < len(data):
        tag = source.take(1)[0]
        if tag == 1:
            texts.append(source.take(source.number()).decode())
        elif tag == 12:
            distance, count = source.number(), source.number()
            start = len(history) - distance
            copies = [history[start + j % distance] for j in range(count)]
            events += copies
            history += copies[-16384:]
        elif tag == 13:
            expected = zlib.crc32(data[: source.at])
            assert int.from_bytes(source.take(4), "little") == expected
        elif tag == 14:
            footer = json.loads(source.take(source.number()))
        elif tag >= 128:
            source.take(source.number())
        else:
            kind, *fields = EVENTS[tag].split()
            values = {field: source.number() for field in fields}
            for field in TEXTS & values.keys():
                values[field] = texts[values[field]]
            event = {"kind": kind, **values}
            events.append(event)
            history.append(event)
    return json.loads(header), events, footer


def read_notes(path):
    """Return the header and the notes about the process (132) of a trace."""
    data = Path(path).read_bytes()
    magic, header, _ = data.split(b"\n", 2)
    source = Bytes(data)
    source.at = len(magic) + len(header) + 2
    notes = []
    while source.at < len(data):
        tag = source.take(1)[0]
        if tag in (1, 14) or tag >= 128:
            body = source.take(source.number())
            if tag == 132:
                notes.append(json.loads(body))
        elif tag == 13:
            source.take(4)
        elif tag == 12:
            source.number(), source.number()
        else:
            for _ in EVENTS[tag].split()[1:]:
                source.number()
    return json.loads(header), notes


@dataclasses.dataclass(frozen=True)
class Peak:
    """The moment a device's pool gave out most."""

    bytes: int  # in whole chunks, as the allocator counts
    requested: int  # the requests of what was alive then, in whole blocks of 256 bytes
    program: str  # what ran, or nothing

    @property
    def surplus(self):
        """Return what chunks had beyond their requests and was too little to split off."""
        return self.bytes - self.requested


def peak_of(path, device=0):
    """Replay the trace at `path` in a pool made by the rules and return its peak."""
    header, events, _ = read(path)
    total = header["run"]["gpus"]["gpu"]["total_memory_bytes"]
    limit = pool_limit(total, header["memory_fraction"], header["jax"])
    pool, chunks, names, running = Bfc(limit, header["preallocate"]), [], {}, [""]
    live, best = {}, Peak(0, 0, "")
    for event in events:
        kind = event["kind"]
        if kind == "program":
            names[event["number"]] = event["name"]
        elif kind == "begin":
            running.append(names[event["number"]])
        elif kind == "end":
            running.pop()
        elif kind == "free":
            number = len(chunks) - event["back"]
            if live.pop(number, None) is not None:
                pool.free(chunks[number])
        elif kind == "allocate":
            mine = event["device"] == device
            chunks.append(pool.allocate(event["bytes"]) if mine else None)
            if mine:
                live[len(chunks) - 1] = rounded(event["bytes"])
            if pool.in_use > best.bytes:
                best = Peak(pool.in_use, sum(live.values()), running[-1])
    return best
