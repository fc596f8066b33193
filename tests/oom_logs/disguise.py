"""The same log as terminals, containers, launchers and chats leave it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

from .log import Line, OomLog, Role, encoded

Lines = list[Line]


def disguise(log: OomLog, seed: int) -> OomLog:
    """Returns the same content with one to three changes of its looks."""
    rng = random.Random(f"{seed} {log.name}")
    fitting = sorted(_CHANGES)
    if not any(_TSL.match(line.text) for line in log._lines):
        fitting.remove("absl-prefix")
    chosen = rng.sample(fitting, rng.randint(1, 3))
    if "hard-wrap" in chosen and _PER_LINE & set(chosen):
        chosen.remove("hard-wrap")
    chosen.sort(key=list(_CHANGES).index)
    lines = list(log._lines)
    for name in chosen:
        change = _CHANGES[name]
        lines = noise(lines, rng, log.exit_code) if name == "noise" else change(lines, rng)
    if lines == list(log._lines):
        chosen, lines = ["rank-tag"], rank_tag(lines, rng)
    return _with_lines(log, lines, f"{log.name}+{'+'.join(chosen)}#{seed}")


def cut(log: OomLog, seed: int) -> OomLog:
    """Returns the log without a random part of what precedes or follows the decisive lines."""
    rng = random.Random(f"{seed} {log.name}")
    starts = [0, *accumulate(map(len, log._lines))]
    total = starts[-1]
    places = [n for n, line in enumerate(log._lines) if line.role is Role.DECISIVE]
    first = starts[places[0]] if places else rng.randint(0, total)
    last = starts[places[-1] + 1] if places else total
    side = rng.choice(("begin", "end", "both"))
    begin = rng.randint(0, first) if side != "end" else 0
    end = rng.randint(last, total) if side != "begin" else total
    kept, lost = [], False
    for line, start in zip(log._lines, starts, strict=False):
        whole = begin <= start and start + len(line) <= end
        lost = lost or (line.role is Role.TELLS and not whole)
        kept += [line] if whole else _fragment(line, begin - start, end - start)
    shorter = _with_lines(log, kept, f"{log.name}+cut#{seed}")
    return _less_certain(shorter) if lost and log._fallback else shorter


def _fragment(line: Line, begin: int, end: int) -> Lines:
    text = (line.text + line.end)[max(begin, 0) : max(end, 0)]
    return [Line(text, end="", whole=False)] if text else []


def _less_certain(log: OomLog) -> OomLog:
    return replace(
        log, first=log.first | log._fallback, present=frozenset(), wrong=log.wrong - log._fallback
    )


def _with_lines(log: OomLog, lines: Lines, name: str) -> OomLog:
    text = encoded(tuple(lines))
    figure = str(log.requested_bytes).encode()
    known = figure in encoded(tuple(replace(line, end="") for line in lines if line.whole))
    return replace(
        log,
        name=name,
        text=text,
        _lines=tuple(lines),
        requested_bytes=log.requested_bytes if known else None,
    )


def _each(lines: Lines, change: Callable[[str], str]) -> Lines:
    return [replace(line, text=change(line.text)) for line in lines]


_TSL = re.compile(r"^\d{4}-(\d\d)-(\d\d) ([\d:.]+): ([IWEF]) (?:[^ ]*/)?([^ /]+\.cc:\d+\] )")


def absl_prefix(lines: Lines, rng: random.Random) -> Lines:
    """Writes the newer prefix of log records instead of the older."""
    thread = rng.randrange(1000, 999_999)
    return _each(lines, lambda text: _TSL.sub(rf"\4\1\2 \3 {thread:>7} \5", text))


def lost_indentation(lines: Lines, rng: random.Random) -> Lines:
    """Removes the white space that lines begin with."""
    return _each(lines, str.lstrip)


def tabs(lines: Lines, rng: random.Random) -> Lines:
    """Writes tabs instead of runs of spaces."""
    width = rng.choice((4, 8))
    return _each(lines, lambda text: re.sub(rf" {{{width},}}", "\t", text))


def repeated(lines: Lines, rng: random.Random) -> Lines:
    """Repeats the whole report."""
    return [*lines, *(Line("") for _ in range(rng.randint(0, 2))), *lines]


def glued_bar(lines: Lines, rng: random.Random) -> Lines:
    """Puts a progress bar in front of some lines, as when it writes to the same terminal."""
    glued = []
    for line in lines:
        share = 0.3 if line.role is Role.DECISIVE else 0.05
        done = rng.randint(3, 96)
        bar = f"{done:>3}%|{'█' * (done // 10):<10}| {done}/100 [00:{done:02}<00:31,  3.1file/s]"
        start = f"\rReading files: {bar}" * rng.randint(1, 3)
        glued.append(replace(line, text=start + line.text) if rng.random() < share else line)
    return glued


def noise(lines: Lines, rng: random.Random, exit_code: int = 0) -> Lines:
    """Adds what else a run prints, before and after."""
    made = [noise_line(rng, exit_code) for _ in range(rng.randint(100, 5000))]
    before = rng.randint(0, len(made))
    return [*made[:before], *lines, *made[before:]]


def noise_line(rng: random.Random, exit_code: int) -> Line:
    """Returns a line that tells nothing; steps of training only where they cannot mislead."""
    number = rng.randrange(10_000)
    texts = [
        f"INFO:data:reading shard {number:05}-of-10000 of /data/books/train",
        f"[tokenizer] part {number}: {rng.randrange(90_000)} documents, {rng.random():.3f} done",
        f"params/layers_{number % 48}/mlp/wi/kernel  ({256 * (number % 9 + 1)}, 4096)  bf16",
        f"wandb: uploading file media/samples_{number}.png",
        f"I tensorboard: event file part {number} opened",
        f"<class 'flax.linen.Dense'> Dense_{number % 60} initialized with lecun_normal",
        f"  cache hit: /scratch/cache/{number:08x}.arrow",
    ]
    if exit_code:
        texts.append(f"step {number:>6} | loss {rng.uniform(1.9, 4.2):.4f} | {number * 3} tok/s")
    return Line(rng.choice(texts))


def not_utf8(lines: Lines, rng: random.Random) -> Lines:
    """Adds lines with bytes that are no UTF-8."""

    def broken() -> Line:
        raw = bytes(rng.choice(b"\xff\xfe\xe9\x80\xb5abc ") for _ in range(rng.randint(4, 60)))
        return Line("caption: " + raw.decode("utf-8", "surrogateescape"))

    some = [broken() for _ in range(rng.randint(2, 20))]
    half = len(some) // 2
    return [*some[:half], *lines, *some[half:]]


def compose(lines: Lines, rng: random.Random) -> Lines:
    """Adds the prefix of a container."""
    prefix = rng.choice(("trainer-1  | ", "worker_3     | ", "[pod/train-0/main] "))
    return _each(lines, lambda text: prefix + text)


def rank_tag(lines: Lines, rng: random.Random) -> Lines:
    """Adds the tag of a launcher."""
    rank = rng.randrange(16)
    prefix = rng.choice((f"[{rank}] ", f"{rank}: ", f"[1,{rank}]<stderr>:"))
    return _each(lines, lambda text: prefix + text)


def iso_timestamps(lines: Lines, rng: random.Random) -> Lines:
    """Adds a time to each line."""
    now = rng.randrange(20_000_000)
    stamped = []
    for line in lines:
        now += rng.randrange(300)
        hours, minutes, seconds = now // 3_600_000 % 24, now // 60_000 % 60, now // 1000 % 60
        time = f"2025-10-07T{hours:02}:{minutes:02}:{seconds:02}.{now % 1000:03}000000Z"
        stamped.append(replace(line, text=f"{time} {line.text}"))
    return stamped


def hard_wrap(lines: Lines, rng: random.Random) -> Lines:
    """Breaks lines at a column, inside words too."""
    width = rng.randint(60, 120)
    wrapped = []
    for line in lines:
        places = range(0, max(len(line.text), 1), width)
        wrapped += [replace(line, text=line.text[at : at + width]) for at in places]
    return wrapped


def colors(lines: Lines, rng: random.Random) -> Lines:
    """Colors some lines."""
    return [
        replace(line, text=f"\x1b[{rng.choice(('31', '1;33', '0;36'))}m{line.text}\x1b[0m")
        if line.role is Role.DECISIVE or rng.random() < 0.2
        else line
        for line in lines
    ]


def quoted(lines: Lines, rng: random.Random) -> Lines:
    """Quotes the text as in a mail or in Markdown."""
    return _each(lines, lambda text: f"> {text}")


def crlf(lines: Lines, rng: random.Random) -> Lines:
    """Ends lines as Windows does."""
    return [replace(line, end=line.end.replace("\n", "\r\n")) for line in lines]


_PER_LINE = {"compose", "rank-tag", "iso-timestamps", "colors", "quoted"}
_CHANGES: dict[str, Callable[[Lines, random.Random], Lines]] = {
    "absl-prefix": absl_prefix,
    "lost-indentation": lost_indentation,
    "tabs": tabs,
    "glued-bar": glued_bar,
    "repeated": repeated,
    "noise": noise,
    "not-utf8": not_utf8,
    "colors": colors,
    "compose": compose,
    "rank-tag": rank_tag,
    "iso-timestamps": iso_timestamps,
    "hard-wrap": hard_wrap,
    "crlf": crlf,
    "quoted": quoted,
}
