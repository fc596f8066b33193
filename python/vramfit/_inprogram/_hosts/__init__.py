"""Lets one process of a dry run act as one of many hosts (`vramfit dryrun --hosts`).

The program calls `jax.distributed.initialize` and the functions of `multihost_utils` as on the
cluster; nothing here opens a connection, and nothing waits for another host. The devices of the
other hosts are the plugin's matter. Relies on JAX's internals, as `_plugin` does.
"""

from __future__ import annotations

import functools
from types import ModuleType

from vramfit._inprogram._hosts._exchange import HostExchange
from vramfit._inprogram._jax_shim.run_config import run_config


@functools.cache
def _exchange() -> HostExchange:
    return HostExchange.from_config()


def install_in_distributed(jax: ModuleType) -> None:
    """Replace the coordination service that `jax.distributed` connects to; refuse transfers."""
    from jax._src import dispatch, distributed

    from vramfit._inprogram._hosts import _initialization, _transfers

    _initialization.install(distributed, _exchange())
    _transfers.install(dispatch)


def exchange_inputs(
    program: str, own: bytes | None, hosts: list[int]
) -> tuple[list[bytes | None], str | None] | None:
    """Publish small arguments of an execution, and return those of all hosts; see `_executions`.

    None if this process is not one of the hosts of a dry run.
    """
    if not run_config().get("host"):
        return None
    from vramfit._inprogram._hosts import _executions

    return _executions.exchange_inputs(_exchange(), program, own, hosts)


def record_assumption(call: str) -> None:
    """Record that a result depends on what was assumed of other hosts; see `_executions`."""
    from vramfit._inprogram._hosts import _executions

    _executions.record_assumption(_exchange(), call)


def install_in_multihost_utils(multihost_utils: ModuleType) -> None:
    """Replace what `multihost_utils` asks other hosts for, where this process can know it."""
    from vramfit._inprogram._hosts._multihost_utils import install

    install(multihost_utils, _exchange())
