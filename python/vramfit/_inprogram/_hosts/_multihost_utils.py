"""`multihost_utils` in a process that stands for one of many hosts.

Each function runs as it is, so that arrays and programs are those of the cluster. Their results
come from devices that are not there; they are replaced by what the other hosts have published. The
value of a host that was not run before is taken to equal that of the first host of which it is
known, on each host the same, and counts as a placeholder.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from vramfit import _native
from vramfit._inprogram._hosts._exchange import HostExchange


def install(multihost_utils: Any, exchange: HostExchange) -> None:
    """Let the functions return what the hosts of the dry run know of each other."""
    gather = multihost_utils._handle_array_process_allgather
    broadcast = multihost_utils.broadcast_one_to_all

    @functools.wraps(gather)
    def gather_known(inp: Any, tiled: bool) -> Any:
        return _gather(gather, exchange, inp, tiled)

    @functools.wraps(broadcast)
    def broadcast_known(in_tree: Any, is_source: bool | None = None) -> Any:
        return _broadcast(broadcast, exchange, in_tree, is_source)

    multihost_utils._handle_array_process_allgather = gather_known
    multihost_utils.broadcast_one_to_all = broadcast_known
    for name in ("assert_equal", "sync_global_devices"):
        setattr(multihost_utils, name, _without_recording_reads(getattr(multihost_utils, name)))


def _without_recording_reads(function: Any) -> Any:
    """Return a function whose reads of placeholders are not reported: it only compares them."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with _native.UnrecordedReads():
            return function(*arguments, **named)

    return call


def _record_reads_unless(is_known: bool) -> contextlib.AbstractContextManager[None]:
    """Return a context in which a result is read: what is known already takes its place."""
    return _native.UnrecordedReads() if is_known else contextlib.nullcontext()


def _broadcast(broadcast: Any, exchange: HostExchange, tree: Any, is_source: bool | None) -> Any:
    import jax
    import numpy

    if jax.process_count() == 1:
        return broadcast(tree, is_source)
    call = exchange.next_call("broadcast")
    sends = exchange.index == 0 if is_source is None else is_source
    own = [numpy.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    joined = b"".join(leaf.tobytes() for leaf in own)
    if sends:
        exchange.publish("broadcast", call, joined)
    sent = None if sends else _decode_arrays(exchange.read_any("broadcast", call), own)
    if not sends and sent is None:
        exchange.record_missing("broadcast", call, assumed=joined)
    with _record_reads_unless(sends or sent is not None):
        result = broadcast(tree, is_source)
    leaves, structure = jax.tree.flatten(result)
    values = own if sent is None else sent
    replaced = [
        value.astype(leaf.dtype).reshape(leaf.shape)
        for value, leaf in zip(values, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, replaced)


def _decode_arrays(sent: bytes | None, own: list[Any]) -> list[Any] | None:
    """Return what was sent as arrays like `own`; None if it is nothing, or of another size."""
    import numpy

    if sent is None or len(sent) != sum(leaf.nbytes for leaf in own):
        return None
    found, begin = [], 0
    for leaf in own:
        part = sent[begin : begin + leaf.nbytes]
        found.append(numpy.frombuffer(part, leaf.dtype).reshape(leaf.shape))
        begin += leaf.nbytes
    return found


def _gather(gather: Any, exchange: HostExchange, inp: Any, tiled: bool) -> Any:
    import jax
    import numpy

    if jax.process_count() == 1 or not getattr(inp, "is_fully_addressable", True):
        # A global array has its own values, known or not.
        return gather(inp, tiled)
    call = exchange.next_call("allgather")
    own = numpy.asarray(inp)
    exchange.publish("allgather", call, own.tobytes())
    read = (exchange.read(host, "allgather", call) for host in range(exchange.count))
    sent = [_decode_arrays(value, [own]) for value in read]
    sent[exchange.index] = [own]
    first = next(arrays[0] for arrays in sent if arrays is not None)
    for host, arrays in enumerate(sent):
        if arrays is None:
            exchange.record_missing("allgather", call, host, assumed=first.tobytes())
    with _record_reads_unless(all(arrays is not None for arrays in sent)):
        result = gather(inp, tiled)
    parts = [first if arrays is None else arrays[0] for arrays in sent]
    return numpy.stack(parts).astype(result.dtype).reshape(result.shape)
