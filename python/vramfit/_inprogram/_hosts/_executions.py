"""Small arguments of programs that the devices of several hosts execute together.

The plugin computes the results of such a program from the arguments on all devices
(`crates/vramfit-vgpu/src/buffer/host_exchange.rs`).
"""

from __future__ import annotations

from collections.abc import Sequence

from vramfit._inprogram._hosts._exchange import HostExchange

_KIND = "execution"

# By call: the hosts whose arguments are assumed, and what they are taken to be.
_assumed: dict[str, tuple[list[int], bytes]] = {}


def exchange_inputs(
    exchange: HostExchange, program: str, own: bytes | None, hosts: Sequence[int]
) -> tuple[list[bytes | None], str | None]:
    """Publish the arguments on this host's devices, and return those of the hosts that take part.

    Those of a host that was not run before are taken to equal those of the first host of which they
    are known, as for `process_allgather`. That they are missing is recorded only once a result
    depends on them (`record_assumption`): of most programs nobody reads any.

    Args:
        exchange: Of this host.
        program: Its name, the same on every host. It has arguments.
        own: The bytes of the arguments, device by device; None if they are not known.
        hosts: The numbers of the hosts, this one among them.

    Returns:
        The bytes of each host, None if it does not know them; and the name of the call, if some are
        assumed.
    """
    call = f"{program} {exchange.next_call(program)}"
    exchange.publish(_KIND, call, own or b"")
    sent = {host: exchange.read(host, _KIND, call) for host in hosts} | {exchange.index: own or b""}
    first = next((sent[host] for host in hosts if sent[host]), None)
    missing = [host for host in hosts if sent[host] is None]
    if missing and first is not None:
        _assumed[call] = missing, first
    found = [first if sent[host] is None else sent[host] or None for host in hosts]
    return found, call if missing else None


def record_assumption(exchange: HostExchange, call: str) -> None:
    """Record, once, that a result depends on what was assumed: its hosts are to be asked again."""
    hosts, assumed = _assumed.pop(call, ([], b""))
    for host in hosts:
        exchange.record_missing(_KIND, call, host, assumed=assumed)
