"""The coordination service of `jax.distributed`, for one host of a dry run.

Has the methods of jaxlib's `DistributedRuntimeClient`. What would wait for another host is answered
at once, from what that host has published, or refused; only for threads of this process it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from vramfit._inprogram._hosts._exchange import HostExchange

_KIND = "key-value"

# How long a thread of this process may take to set what another one waits for.
_THREADS_TIMEOUT_S = 60.0


class CoordinationClient:
    """Answers for all hosts."""

    def __init__(self, exchange: HostExchange) -> None:
        self._exchange = exchange
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition(threading.RLock())

    def connect(self) -> None:
        """Connect to nothing."""

    def shutdown(self) -> None:
        """Disconnect from nothing."""

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Set a text for all hosts."""
        self.key_value_set_bytes(key, value.encode(), allow_overwrite)

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        """Set bytes for all hosts."""
        with self._changed:
            if key in self._values and not allow_overwrite:
                _fail(f"ALREADY_EXISTS: key {key} already exists.")
            self._values[key] = bytes(value)
            self._exchange.publish(_KIND, key, self._values[key])
            self._changed.notify_all()

    def key_value_increment(self, key: str, increment: int) -> int:
        """Add to a number; what other hosts would add is not in it."""
        with self._changed:
            value = int(self._find(key) or b"0") + increment
            self.key_value_set_bytes(key, str(value).encode(), allow_overwrite=True)
            return value

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Return a text; what only a host that was not run could set is refused."""
        return self.blocking_key_value_get_bytes(key, timeout_in_ms).decode()

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """Return bytes; what only a host that was not run could set is refused."""
        value = self._wait_for(key, timeout_in_ms / 1000)
        if value is None:
            self._exchange.record_missing(_KIND, key)
            _fail(
                f"DEADLINE_EXCEEDED: vramfit: host {self._exchange.index} waits for the key"
                f" `{key}`, which neither it nor a host run before it has set. On the cluster it"
                " waits until another host sets it. If no host does that is run, name the one that"
                " sets it in `--host`."
            )
        return value

    def key_value_try_get(self, key: str) -> str:
        """Return a text that is there already."""
        return self.key_value_try_get_bytes(key).decode()

    def key_value_try_get_bytes(self, key: str) -> bytes:
        """Return bytes that are there already."""
        value = self._find(key)
        if value is None:
            _fail(f"NOT_FOUND: Config key {key} not found.")
        return value

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """Return the texts in a directory."""
        return [(name, value.decode()) for name, value in self.key_value_dir_get_bytes(key)]

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """Return the values in a directory."""
        directory = key if key.endswith("/") else f"{key}/"
        names = sorted({*self._values, *self._exchange.keys(_KIND)})
        found = [(name, self._find(name)) for name in names if name.startswith(directory)]
        return [(name, value) for name, value in found if value is not None]

    def key_value_delete(self, key: str) -> None:
        """Delete a key, or all keys of a directory."""
        directory = f"{key}/"
        with self._changed:
            for name in [name for name in self._values if f"{name}/".startswith(directory)]:
                del self._values[name]

    def wait_at_barrier(
        self, barrier_id: str, timeout_in_ms: int, process_ids: Sequence[int] | None = None
    ) -> None:
        """Pass a barrier: the other hosts are taken to be there."""
        if process_ids is not None and self._exchange.index not in process_ids:
            _fail(
                f"INVALID_ARGUMENT: A non-participating task ({self._exchange.index}) called the"
                f" barrier. Barrier Id: {barrier_id}"
            )
        self._exchange.publish("barrier", barrier_id)

    def get_live_nodes(self, process_ids: Sequence[int]) -> dict[int, int]:
        """Return that every host lives, in its first incarnation."""
        return dict.fromkeys(process_ids, 1)

    def _wait_for(self, key: str, timeout_s: float) -> bytes | None:
        """Return a value, once a thread of this process has set it where no host has."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._find(key) is not None or threading.active_count() == 1,
                min(timeout_s, _THREADS_TIMEOUT_S),
            )
            return self._find(key)

    def _find(self, key: str) -> bytes | None:
        own = self._values.get(key)
        return self._exchange.read_any(_KIND, key) if own is None else own


class CoordinationService:
    """The service that host 0 starts; it listens on no port."""

    def shutdown(self) -> None:
        """End it."""


class PreemptionSyncManager:
    """Tells no host that it is about to be preempted."""

    def initialize(self, client: CoordinationClient) -> None:
        """Begin."""

    def reached_sync_point(self, step: int) -> bool:
        """Return whether all hosts are to save a checkpoint now, before some are preempted."""
        return False

    def shutdown(self) -> None:
        """End."""


def without_client(function: Any, result_without: Any = ...) -> Any:
    """Return a function of jaxlib that gets no client in place of one that is not jaxlib's.

    With `result_without`, the function is not called in that case, and this is its result.
    """

    def call(*arguments: Any, **named: Any) -> Any:
        both = [*arguments, *named.values()]
        if not any(isinstance(argument, CoordinationClient) for argument in both):
            return function(*arguments, **named)
        if result_without is not ...:
            return result_without
        return function(*map(_drop, arguments), **{name: _drop(v) for name, v in named.items()})

    return call


def _drop(argument: Any) -> Any:
    return None if isinstance(argument, CoordinationClient) else argument


def _fail(message: str) -> NoReturn:
    """Raise as jaxlib does."""
    import jax

    raise jax.errors.JaxRuntimeError(message)
