"""Saving checkpoints with Orbax on a host that is run alone.

Each host of a dry run has directories of its own (`vramfit._inprogram._dryrun_checkpoints`), as
where hosts share no file system: it creates them itself, and completes a checkpoint with its part
alone. The functions take modules of Orbax 0.11 and 0.12, and leave alone what a release does not
have.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any


def install_in_multihost(multihost: ModuleType) -> None:
    """Let each host create the directories that others would wait for until host 0 has them."""
    multihost.is_primary_host = lambda primary_host: True  # type: ignore[attr-defined]


def install_in_signaling_client(signaling_client: ModuleType) -> None:
    """Let what waits for a directory wait for this host to create it, and not for host 0."""
    if not hasattr(signaling_client, "ThreadSafeKeyValueSignalingClient"):
        return
    client: Any = signaling_client.ThreadSafeKeyValueSignalingClient()
    client.wait_at_barrier = lambda *_, **__: None
    signaling_client.get_signaling_client = lambda: client  # type: ignore[attr-defined]


def install_in_serialization(serialization: ModuleType) -> None:
    """Let each host write the metadata of arrays; Orbax compares the host's number itself here."""
    serialize = getattr(serialization, "async_serialize_from_host", None)
    if serialize is None:
        return

    @functools.wraps(serialize)
    def serialize_as_primary(*arguments: Any, **named: Any) -> Any:
        return serialize(*arguments, **named | {"primary_host": None})

    serialization.async_serialize_from_host = serialize_as_primary  # type: ignore[attr-defined]


def install_in_array_metadata_store(array_metadata_store: ModuleType) -> None:
    """Let a host complete a checkpoint that lacks the metadata which other hosts write."""
    validator = getattr(array_metadata_store, "Validator", None)
    if validator is not None and hasattr(validator, "_validate_process_count"):
        validator._validate_process_count = lambda *_, **__: None


def install_in_ocdbt_utils(module: ModuleType) -> None:
    """Let a host complete a checkpoint that lacks the arrays of which other hosts write all."""

    async def accept_params(*_: Any, **__: Any) -> None:
        pass

    if hasattr(module, "_validate_params"):
        module._validate_params = accept_params  # type: ignore[attr-defined]


def install_in_type_handlers(type_handlers: ModuleType) -> None:
    """Let each host write what is no `jax.Array`: NumPy arrays, numbers and strings."""
    install_in_ocdbt_utils(type_handlers)  # Orbax 0.11 has its functions here
    multihost = getattr(type_handlers, "multihost", None)
    if multihost is None:
        return
    as_host_0 = ModuleType(multihost.__name__)
    vars(as_host_0).update(vars(multihost))
    as_host_0.process_index = lambda: 0  # type: ignore[attr-defined]
    type_handlers.multihost = as_host_0  # type: ignore[attr-defined]
    if hasattr(type_handlers, "_is_host_for_primary_replica"):
        type_handlers._is_host_for_primary_replica = lambda replica: (  # type: ignore[attr-defined]
            multihost.process_index() in replica
        )


def install_in_types(types: ModuleType) -> None:
    """Let a host restore a checkpoint that lacks the data which other hosts write: as zeros."""
    if not hasattr(types, "ParamInfo"):
        return
    initialize = types.ParamInfo.__init__

    @functools.wraps(initialize)
    def initialize_without_error(self: Any, *arguments: Any, **named: Any) -> None:
        initialize(self, *arguments, **named | {"raise_array_data_missing_error": False})

    types.ParamInfo.__init__ = initialize_without_error
