"""What hosts of one dry run tell each other: the hosts run one after the other, through files.

A host publishes what it sets, broadcasts and gathers; a host that is run later reads it. A host
that was not run before has published nothing, which is not the same as an empty answer. What a host
has read, and what was missing, is recorded: `vramfit` runs it once more when that is there, or has
another value (`crates/vramfit-runner/src/dryrun/host_messages.rs` reads both files).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections import Counter
from pathlib import Path

from vramfit._inprogram._jax_shim.run_config import run_config


class HostExchange:
    """Messages between the hosts of one dry run.

    A message has a kind (`key-value`, `broadcast`, ...) and a key: its name, or the number of the
    call for those that have none.
    """

    def __init__(self, folder: str | None, index: int, count: int) -> None:
        self.index = index
        self.count = count
        self._folder = None if not folder else Path(folder)
        self._calls: Counter[str] = Counter()
        self._recorded: set[tuple[str, str, int | None]] = set()

    @classmethod
    def from_config(cls) -> HostExchange:
        """Return the exchange that `vramfit dryrun --hosts` has set up."""
        host = run_config()["host"]
        return cls(host["folder"], host["index"], host["count"])

    def next_call(self, kind: str) -> str:
        """Return the key of the next call of a kind: every host makes the same calls in order."""
        self._calls[kind] += 1
        return str(self._calls[kind])

    def publish(self, kind: str, key: str, value: bytes = b"") -> None:
        """Publish a message for the hosts that are run after this one."""
        if self._folder is None:
            return
        text = base64.b64encode(value).decode()
        message = {"kind": kind, "key": key, "value": text, "digest": _digest_of(value)}
        with self._file(self.index).open("a") as file:
            file.write(json.dumps(message) + "\n")

    def record_missing(
        self, kind: str, key: str, host: int | None = None, assumed: bytes | None = None
    ) -> None:
        """Record that a message is missing, and what takes its place.

        Args:
            kind: Of the message.
            key: Of the message.
            host: Of whom; None for any host.
            assumed: What it is taken to be; None where that is an error.
        """
        self._record_read(kind, key, host, None if assumed is None else _digest_of(assumed), False)

    def _record_read(
        self, kind: str, key: str, host: int | None, digest: str | None, is_known: bool
    ) -> None:
        if self._folder is None or (kind, key, host) in self._recorded:
            return
        self._recorded.add((kind, key, host))
        read = {"kind": kind, "key": key, "host": host, "digest": digest, "is_known": is_known}
        with (self._folder / f"read-{self.index}.jsonl").open("a") as file:
            file.write(json.dumps(read) + "\n")

    def was_run(self, host: int) -> bool:
        """Return whether a host was run before this one."""
        return host != self.index and self._folder is not None and self._file(host).is_file()

    def read(self, host: int, kind: str, key: str) -> bytes | None:
        """Return what a host has published; None if it has not, or was not run before this one."""
        found = self._messages(host).get((kind, key)) if self.was_run(host) else None
        if found is None:
            return None
        value, digest = found
        self._record_read(kind, key, host, digest, True)
        return value

    def read_any(self, kind: str, key: str) -> bytes | None:
        """Return what the first host that has published a key has published."""
        found = (self.read(host, kind, key) for host in range(self.count))
        return next((value for value in found if value is not None), None)

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind that hosts before this one have published."""
        hosts = filter(self.was_run, range(self.count))
        return [key for host in hosts for known, key in self._messages(host) if known == kind]

    def _file(self, host: int) -> Path:
        assert self._folder is not None
        return self._folder / f"host-{host}.jsonl"

    @functools.cache  # noqa: B019 - there is one exchange in a process
    def _messages(self, host: int) -> dict[tuple[str, str], tuple[bytes, str]]:
        """Return value and digest of what a host has published, by kind and key."""
        messages = map(json.loads, self._file(host).read_text().splitlines())
        return {
            (m["kind"], m["key"]): (base64.b64decode(m["value"]), m["digest"]) for m in messages
        }


def _digest_of(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:32]
