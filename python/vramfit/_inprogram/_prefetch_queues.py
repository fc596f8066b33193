"""Counts the batches that threads have uploaded ahead of a step at the bound of their queue.

How many there are when a step runs is a matter of time: a dry run computes nothing, so its steps
come earlier than on a GPU, where a thread has filled its queue long before the next step. So
`queue.Queue.get` returns when the threads that put batches into that queue can do no more: it is
full again, and each of them waits with another batch. Every run then has the same peak.
"""

from __future__ import annotations

import functools
import itertools
import queue
import sys
import threading
import time
import weakref
from typing import Any

# A queue is not waited for any more whose threads take longer for the next batch …
TIMEOUT_S = 5.0
# … or all together to fill it: its bound may be thousands of batches.
FULL_TIMEOUT_S = 60.0
# So long is waited for a thread that gets from a queue which nobody has put anything into so far.
_UNKNOWN_PRODUCER_TIMEOUT_S = 0.5
_POLL_S = 0.001
# Batches are searched for arrays so deep, and so many of their parts.
_MAX_DEPTH = 3
_MAX_PARTS = 16
_STATE = "_vramfit_state"

# The queue that a thread is getting something from.
_getting: dict[threading.Thread, Any] = {}


class _QueueState:
    """What is known of a queue: the threads that fill it, and whether with arrays."""

    def __init__(self) -> None:
        self._producers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._lock = threading.Lock()
        self.holds_arrays = False
        self.is_waited_for = True

    def add_producer(self, thread: threading.Thread) -> None:
        with self._lock:
            self._producers.add(thread)

    def producers(self) -> set[threading.Thread]:
        """Return the threads that have put something into the queue, and are still referenced."""
        with self._lock:
            return set(self._producers)


def install() -> None:
    """Let the queues of this process wait for the threads that fill them."""
    put, get = queue.Queue.put, queue.Queue.get

    @functools.wraps(put)
    def put_batch(self: Any, item: Any, *args: Any, **kwargs: Any) -> None:
        state = self.__dict__.setdefault(_STATE, _QueueState())
        state.add_producer(threading.current_thread())
        if not state.holds_arrays and self.maxsize > 0:
            state.holds_arrays = _holds_arrays(item)
        put(self, item, *args, **kwargs)

    @functools.wraps(get)
    def get_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        thread = threading.current_thread()
        _getting[thread] = self
        try:
            item = get(self, *args, **kwargs)
            state = getattr(self, _STATE, None)
            if state is not None and state.holds_arrays and state.is_waited_for:
                _wait_until_full(self, state)
        finally:
            _getting.pop(thread, None)
        return item

    queue.Queue.put, queue.Queue.get = put_batch, get_batch  # type: ignore[method-assign]


def _wait_until_full(filled: Any, state: _QueueState) -> None:
    """Wait until each of the other threads that fill a queue can do no more.

    It has ended, waits for room in the queue, or waits for what this thread puts into another one.
    """
    own = threading.current_thread()
    begin = time.monotonic()
    seen, since = None, begin
    while True:
        # The threads that fill what each of the others is getting from; None for one that does not.
        sources = [
            _producers_of(_getting.get(thread))
            for thread in state.producers()
            if thread is not own and thread.is_alive()
        ]
        busy = [threads for threads in sources if threads is None or own not in threads]
        with filled.mutex:
            # Who is notified is no longer among them.
            waiting = len(filled.not_full._waiters)
            size = filled._qsize()
        if waiting >= len(busy):
            return
        unknown = sum(threads is not None and not threads for threads in busy)
        if (size, waiting, len(busy), unknown) != seen:
            seen, since = (size, waiting, len(busy), unknown), time.monotonic()
        now = time.monotonic()
        waited_s = now - since
        if waited_s > _UNKNOWN_PRODUCER_TIMEOUT_S and waiting + unknown >= len(busy):
            return
        if waited_s > TIMEOUT_S or now - begin > FULL_TIMEOUT_S:
            state.is_waited_for = False
            return
        time.sleep(_POLL_S)


def _producers_of(source: Any) -> set[threading.Thread] | None:
    """Return the threads that have put something into a queue; None without one."""
    if source is None:
        return None
    state = getattr(source, _STATE, None)
    return set() if state is None else state.producers()


def _holds_arrays(item: Any, depth: int = 0) -> bool:
    """Return whether something that is put into a queue contains arrays of JAX."""
    jax = sys.modules.get("jax")
    if jax is None or depth > _MAX_DEPTH:
        return False
    if isinstance(item, jax.Array):
        return True
    if isinstance(item, dict):
        item = item.values()
    elif not isinstance(item, (list, tuple)):
        item = getattr(item, "__dict__", {}).values()
    parts = itertools.islice(item, _MAX_PARTS)
    return any(_holds_arrays(each, depth + 1) for each in parts)
