"""What a log with a known cause is, and the lines that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

CAUSES = frozenset(
    {
        "pool-too-small",
        "request-larger-than-gpu",
        "fragmentation",
        "pool-not-obtained",
        "memory-taken-later",
        "outside-pool",
        "address-space",
        "autotuning",
        "leak",
        "recompilation",
        "host-memory",
        "wrong-setting",
        "tpu",
        "not-memory",
    }
)


class Role(IntEnum):
    """What a line contributes to the verdict."""

    NOISE = 0
    TELLS = 1
    """Tells two causes apart; without it the verdict may be another."""
    DECISIVE = 2
    """Without it there is no verdict."""


@dataclass(frozen=True)
class Line:
    """One physical line of a log; bytes that are no UTF-8 are surrogates, as in file names."""

    text: str
    role: Role = Role.NOISE
    end: str = "\n"
    whole: bool = True

    def __len__(self) -> int:
        return len(self.text) + len(self.end)


@dataclass(frozen=True)
class OomLog:
    """A log and what a reader has to find in it.

    Attributes:
        name: `cause/wording`, followed by what was done to the text.
        text: the log as it lies on the disk.
        first: the cause listed first must be one of these; empty where nothing can be recognized.
        present: causes that must be listed, first or not.
        wrong: causes that are false here and must never be called sure.
        requested_bytes: the request that failed, or None where the text does not say it exactly.
        exit_code: 0 for memory (a setting about memory and TPU memory too), 1 for something else,
            2 where nothing is recognized.
    """

    name: str
    text: bytes = field(repr=False)
    first: frozenset[str]
    present: frozenset[str]
    wrong: frozenset[str]
    requested_bytes: int | None
    exit_code: int
    _lines: tuple[Line, ...] = field(repr=False)
    _fallback: frozenset[str] = field(repr=False)


def plain(*texts: str, role: Role = Role.NOISE) -> list[Line]:
    """Returns the lines of some texts, each of which may have several."""
    return [Line(line, role) for text in texts for line in text.split("\n")]


def tells(*texts: str) -> list[Line]:
    """Returns lines that tell this cause from a similar one."""
    return plain(*texts, role=Role.TELLS)


def decisive(*texts: str) -> list[Line]:
    """Returns lines without which the cause cannot be named."""
    return plain(*texts, role=Role.DECISIVE)


def encoded(lines: tuple[Line, ...]) -> bytes:
    """Returns the bytes of some lines."""
    text = "".join(line.text + line.end for line in lines)
    return text.encode("utf-8", "surrogateescape")


def ids(names: str) -> frozenset[str]:
    """Returns the causes named in a text, separated by spaces."""
    chosen = frozenset(names.split())
    assert chosen <= CAUSES, chosen - CAUSES
    return chosen


def log(
    name: str,
    lines: list[Line],
    first: str,
    *,
    present: str | None = None,
    maybe: str = "",
    requested: int | None = None,
    exit_code: int = 0,
    fallback: str = "",
) -> OomLog:
    """Returns the log of some lines.

    Args:
        name: its name.
        lines: its lines.
        first: the causes that may be listed first.
        present: the causes that must be listed; by default that of `first` where it is only one.
        maybe: causes that are neither asked for nor wrong.
        requested: the request that failed.
        exit_code: as in `OomLog`.
        fallback: what else may come first once a line that `tells` is lost.
    """
    top = ids(first)
    due = (top if len(top) == 1 else frozenset()) if present is None else ids(present)
    text = encoded(tuple(lines))
    assert requested is None or str(requested).encode() in text, name
    assert not top or any(line.role is Role.DECISIVE for line in lines), name
    return OomLog(
        name=name,
        text=text,
        first=top,
        present=due,
        wrong=CAUSES - top - due - ids(maybe),
        requested_bytes=requested,
        exit_code=exit_code,
        _lines=tuple(lines),
        _fallback=ids(fallback),
    )
