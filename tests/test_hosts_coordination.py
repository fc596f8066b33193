"""The coordination service of a dry run with several hosts answers as jaxlib's own does."""

import json

import jax
import pytest
from commands import hold_port, run_python

from vramfit._inprogram._hosts._coordination import CoordinationClient
from vramfit._inprogram._hosts._exchange import HostExchange

# Makes the same calls with both; each outcome is a value, or the first line of an error.
CALLS = """
import json, sys
import jax
from jax._src import distributed
from vramfit._inprogram._hosts._coordination import CoordinationClient
from vramfit._inprogram._hosts._exchange import HostExchange

jax.distributed.initialize(f"localhost:{sys.argv[1]}", 1, 0)


def outcome_of(call, *arguments, **named):
    try:
        value = call(*arguments, **named)
        return value.hex() if isinstance(value, bytes) else value
    except jax.errors.JaxRuntimeError as error:
        return str(error).splitlines()[0]


def converse(client):
    return [
        outcome_of(client.key_value_set, "a/1", "x"),
        outcome_of(client.key_value_set, "a/1", "y"),
        outcome_of(client.key_value_set, "a/2", "y"),
        outcome_of(client.key_value_set, "a/2", "z", allow_overwrite=True),
        outcome_of(client.key_value_try_get, "a/2"),
        outcome_of(client.key_value_try_get, "b"),
        outcome_of(client.blocking_key_value_get, "a/1", 1000),
        outcome_of(client.key_value_set_bytes, "c", b"\\xff"),
        outcome_of(client.key_value_try_get_bytes, "c"),
        sorted(map(list, client.key_value_dir_get("a"))),
        sorted(map(list, client.key_value_dir_get("a/"))),
        outcome_of(client.key_value_delete, "a"),
        outcome_of(client.key_value_try_get, "a/1"),
        outcome_of(client.key_value_increment, "n", 2),
        outcome_of(client.key_value_increment, "n", 3),
        outcome_of(client.wait_at_barrier, "one", 1000),
        outcome_of(client.wait_at_barrier, "two", 1000, process_ids=[0]),
    ]


own = CoordinationClient(HostExchange(None, 0, 1))
print(json.dumps([converse(distributed.global_state.client), converse(own)]))
"""


def test_a_dry_run_answers_as_jaxlib_does():
    done = run_python("-c", CALLS, hold_port(), code=0)
    jaxlib, own = json.loads(done.stdout.splitlines()[-1])
    assert own == jaxlib
    assert jaxlib[1] == "ALREADY_EXISTS: key a/1 already exists."


def test_a_host_that_takes_no_part_in_a_barrier_is_refused():
    client = CoordinationClient(HostExchange(None, 1, 4))
    client.wait_at_barrier("odd", 1000, process_ids=[1, 3])
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: A non-participating"):
        client.wait_at_barrier("even", 1000, process_ids=[0, 2])
