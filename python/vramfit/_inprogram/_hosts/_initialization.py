"""`jax.distributed.initialize` in a process that stands for one of many hosts."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from vramfit._inprogram._hosts._coordination import (
    CoordinationClient,
    CoordinationService,
    PreemptionSyncManager,
    without_client,
)
from vramfit._inprogram._hosts._exchange import HostExchange
from vramfit._inprogram._jax_shim.run_config import run_config

_COORDINATOR = "vramfit-host-0:1234"


def install(distributed: ModuleType, exchange: HostExchange) -> None:
    """Let `initialize` connect to nothing, and check what it is given.

    Args:
        distributed: The module `jax._src.distributed`.
        exchange: What the hosts of the dry run tell each other.
    """
    jaxlib = _runtime_module(distributed)
    jaxlib.get_distributed_runtime_client = lambda *_, **__: CoordinationClient(exchange)
    jaxlib.get_distributed_runtime_service = lambda *_, **__: CoordinationService()
    jaxlib.create_preemption_sync_manager = PreemptionSyncManager
    jaxlib.make_gloo_tcp_collectives = without_client(jaxlib.make_gloo_tcp_collectives, None)
    # jaxlib's clients ask the coordination service for the devices of other hosts; the plugin knows
    # them without, and the CPU client then has those of this host only.
    xla_client = distributed.xla_bridge.xla_client
    for name in ("make_c_api_client", "make_cpu_client"):
        setattr(xla_client, name, without_client(getattr(xla_client, name)))
    _check_arguments(distributed.State, exchange)
    _detect_cluster(distributed.clusters.ClusterEnv, exchange)


def _runtime_module(distributed: ModuleType) -> Any:
    """Return the module of jaxlib that `distributed` calls; its name depends on the release."""
    for module in vars(distributed).values():
        if isinstance(module, ModuleType) and hasattr(module, "get_distributed_runtime_client"):
            return module
    raise ImportError("`jax._src.distributed` calls an unknown module of jaxlib")


def _check_arguments(state: type, exchange: HostExchange) -> None:
    initialize = state.initialize  # type: ignore[attr-defined]
    signature = inspect.signature(initialize)

    def checked_initialize(*arguments: Any, **named: Any) -> None:
        given = signature.bind(*arguments, **named).arguments
        processes, process = given.get("num_processes"), given.get("process_id")
        if processes is not None and processes != exchange.count:
            raise ValueError(
                f"vramfit: `jax.distributed.initialize` is called with num_processes={processes},"
                f" and the dry run has {exchange.count} hosts: pass `--hosts {processes}`, or let"
                " the program read the number from its environment or command line"
            )
        if process is not None and process != exchange.index:
            raise ValueError(
                f"vramfit: `jax.distributed.initialize` is called with process_id={process} on host"
                f" {exchange.index} of the dry run: let the program read it from the variables of"
                " a launcher (`--launcher slurm`, `openmpi` or `kubernetes`), or from an argument:"
                " `{host}` in the command stands for the number of the host"
            )
        initialize(*arguments, **named)

    state.initialize = checked_initialize  # type: ignore[attr-defined]


def _detect_cluster(cluster: type, exchange: HostExchange) -> None:
    """Detect the hosts of the dry run, where JAX does not detect the launcher by its variables."""
    detect = cluster.auto_detect_unset_distributed_params  # type: ignore[attr-defined]

    def detect_hosts(*arguments: Any, **named: Any) -> Any:
        if run_config()["host"].get("launcher") in ("slurm", "openmpi"):
            return detect(*arguments, **named)
        address, processes, process, local_devices, *_ = arguments
        return (
            _COORDINATOR if address is None else address,
            exchange.count if processes is None else processes,
            exchange.index if process is None else process,
            local_devices,
        )

    cluster.auto_detect_unset_distributed_params = detect_hosts  # type: ignore[attr-defined]
