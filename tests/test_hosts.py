"""A dry run of one of many hosts sees the cluster, and waits for nobody."""

import json

import pytest
from commands import run_vramfit
from hosts import EXAMPLES, run_hosts

INITIALIZE = "import jax, jax.numpy as jnp, numpy as np\njax.distributed.initialize()\n"
USE = "jnp.ones(8).block_until_ready()\n"
PRINT = """
import json
print(json.dumps({
    "count": jax.process_count(),
    "index": jax.process_index(),
    "devices": [(d.id, d.process_index) for d in jax.devices()],
    "local": [d.id for d in jax.local_devices()],
    "slices": sorted({d.slice_index for d in jax.devices()}),
    "cpu": [d.process_index for d in jax.local_devices(backend="cpu")],
}))
"""


@pytest.mark.fast
def test_a_host_sees_its_own_devices_and_knows_of_the_others(tmp_path):
    run = run_hosts(tmp_path, INITIALIZE + PRINT + USE, "--host", 2, hosts=4)
    seen = run.printed()
    assert (seen["count"], seen["index"]) == (4, 2)
    assert seen["devices"] == [[number, number // 2] for number in range(8)]
    assert seen["local"] == [4, 5]
    assert (seen["slices"], seen["cpu"]) == ([0], [2])


def test_a_program_may_ask_for_jax_before_it_imports_it(tmp_path):
    ask = "import importlib.util\nassert importlib.util.find_spec('jax')\n"
    assert run_hosts(tmp_path, ask + INITIALIZE + PRINT + USE).printed()["count"] == 2


@pytest.mark.parametrize(
    ("launcher", "local"), [("slurm", [1]), ("openmpi", [1]), ("kubernetes", [2, 3])]
)
def test_each_launcher_is_detected_as_on_the_cluster(tmp_path, launcher, local):
    # Under SLURM and Open MPI, JAX takes one GPU for each process.
    options = ["--host", 1, "--launcher", launcher]
    seen = run_hosts(tmp_path, INITIALIZE + PRINT + USE, *options).printed()
    assert (seen["count"], seen["index"], seen["local"]) == (2, 1, local)


def test_a_launcher_gives_all_gpus_to_a_program_that_names_them(tmp_path):
    program = INITIALIZE.replace("initialize()", "initialize(local_device_ids=[0, 1])")
    options = ["--host", 1, "--launcher", "slurm"]
    assert run_hosts(tmp_path, program + PRINT + USE, *options).printed()["local"] == [2, 3]


@pytest.mark.parametrize("argument", ["{host}", "$RANK"])
def test_a_program_may_name_hosts_itself(tmp_path, argument):
    program = (
        "import sys, jax, jax.numpy as jnp\n"
        "jax.distributed.initialize('10.0.0.1:1234', 2, int(sys.argv[1]))\n"
    )
    if argument == "{host}":
        run = run_hosts(tmp_path, program + PRINT + USE, "--host", 1, arguments=[argument])
        assert run.printed()["index"] == 1
    else:
        run = run_hosts(tmp_path, program + USE, "--host", 1, arguments=["0"])
        assert "process_id=0 on host 1" in run.err
        assert "{host}" in run.err


def test_another_number_of_processes_is_an_error_that_names_both(tmp_path):
    program = "import jax\njax.distributed.initialize('10.0.0.1:1234', 8, 0)\n" + USE
    run = run_hosts(tmp_path, program)
    assert "num_processes=8" in run.err
    assert "`--hosts 8`" in run.err


def test_without_initialize_each_host_is_alone_and_the_report_says_so(tmp_path):
    run = run_hosts(tmp_path, "import jax, jax.numpy as jnp\n" + PRINT + USE)
    assert run.printed()["count"] == 1
    assert not run.host(0)["initialized"]
    assert "does not call `jax.distributed.initialize`" in " ".join(run.err.split())


KEY_VALUE = (
    INITIALIZE
    + """
from jax._src import distributed
client = distributed.global_state.client
me = jax.process_index()
client.wait_at_barrier("begin", 60_000)
if me == 0:
    client.key_value_set("config/seed", "17")
    client.key_value_set_bytes("config/blob", b"\\xff")
assert client.blocking_key_value_get("config/seed", 60_000) == "17"
assert client.key_value_try_get_bytes("config/blob") == b"\\xff"
found = [key for key, _ in client.key_value_dir_get_bytes("config")]
assert found == ["config/blob", "config/seed"]
assert client.get_live_nodes([0, 1]) == {0: 1, 1: 1}
assert client.key_value_increment("counter", 2) == 2 * (me + 1)
try:
    client.key_value_set("config/seed", "18")
except jax.errors.JaxRuntimeError as error:
    assert "ALREADY_EXISTS" in str(error)
else:
    assert me == 1, "host 0 has set it"
client.key_value_delete("config")
"""
    + USE
)


def test_the_key_value_store_holds_what_earlier_hosts_have_set(tmp_path):
    run = run_hosts(tmp_path, KEY_VALUE)
    assert (run.code, run.summary["fits"]) == (0, True), run.err
    assert [host["error"] for host in run.summary["hosts"]["runs"]] == [None, None]


def test_a_key_that_no_host_has_set_is_refused_at_once(tmp_path):
    program = (
        INITIALIZE
        + USE
        + (
            "import threading\n"
            "from unittest import mock\n"
            "from jax._src import distributed\n"
            "waits = AssertionError('it waits')\n"
            "with mock.patch.object(threading.Condition, 'wait', side_effect=waits):\n"
            "    distributed.global_state.client.blocking_key_value_get('from-1', 3_600_000)\n"
        )
    )
    run = run_hosts(tmp_path, program, "--host", 0)
    assert "DEADLINE_EXCEEDED: vramfit: host 0 waits for the key `from-1`" in run.err
    assert run.code == 2


def test_a_thread_of_the_same_host_may_set_what_is_waited_for(tmp_path):
    program = (
        INITIALIZE
        + USE
        + (
            "import threading, time\n"
            "from jax._src import distributed\n"
            "client = distributed.global_state.client\n"
            "def late():\n"
            "    while not client._changed._waiters:\n"
            "        time.sleep(0.01)\n"
            "    client.key_value_set('signal', 'set')\n"
            "threading.Thread(target=late).start()\n"
            "assert client.blocking_key_value_get('signal', 60_000) == 'set'\n"
        )
    )
    assert run_hosts(tmp_path, program, "--host", 0).code == 0


MULTIHOST = (
    INITIALIZE
    + """
import json
from jax.experimental import multihost_utils
me = jax.process_index()
multihost_utils.sync_global_devices("begin")
multihost_utils.assert_equal(np.arange(3))
print(json.dumps({
    "broadcast": np.asarray(multihost_utils.broadcast_one_to_all(np.array([me, 7]))).tolist(),
    "gather": multihost_utils.process_allgather(np.array([me, 7])).tolist(),
    "tiled": multihost_utils.process_allgather(np.array([me, 7]), tiled=True).tolist(),
    "preempted": multihost_utils.reached_preemption_sync_point(3),
}))
"""
)


def test_hosts_gather_and_broadcast_what_earlier_hosts_had(tmp_path):
    first = run_hosts(tmp_path, MULTIHOST, "--host", 1).printed()
    # Nothing is known of host 0, which is taken to have the same.
    assert (first["broadcast"], first["gather"]) == ([1, 7], [[1, 7], [1, 7]])
    program = MULTIHOST.replace("print(", f"open(f'{tmp_path}/{{me}}', 'w').write(")
    run = run_hosts(tmp_path, program)
    assert run.code == 0, run.err
    second = json.loads((tmp_path / "1").read_text())
    assert second["broadcast"] == [0, 7]
    assert second["gather"] == [[0, 7], [1, 7]]
    assert second["tiled"] == [0, 7, 1, 7]
    assert second["preempted"] is False


def test_placeholders_of_other_hosts_are_reported_and_comparisons_are_not(tmp_path):
    gathers = INITIALIZE + (
        "from jax.experimental import multihost_utils\n"
        "multihost_utils.process_allgather(np.array([jax.process_index()]))\n"
    )
    assert run_hosts(tmp_path, gathers, "--host", 0).summary["unknown_reads"]
    compares = INITIALIZE + (
        "from jax.experimental import multihost_utils\n"
        "multihost_utils.sync_global_devices('begin')\n"
        "multihost_utils.assert_equal(np.ones(3))\n"
        "multihost_utils.broadcast_one_to_all(np.ones(3))\n"
    )
    assert not run_hosts(tmp_path, compares, "--host", 0).summary["unknown_reads"]


def test_hosts_that_compare_different_values_fail_as_on_the_cluster(tmp_path):
    program = INITIALIZE + (
        "from jax.experimental import multihost_utils\n"
        "multihost_utils.assert_equal(np.array(jax.process_index()), 'the seeds differ')\n"
    )
    run = run_hosts(tmp_path, program)
    assert run.code == 2
    for host in range(2):
        assert f"host {host}: the program ended with exit code 1" in run.err
        assert "the seeds differ" in run.host(host)["error"]["message"]


SHARDED = (
    INITIALIZE
    + """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("all",))
sharded, replicated = NamedSharding(mesh, P("all")), NamedSharding(mesh, P())
me = jax.process_index()
array = jax.jit(lambda: jnp.ones((96, 1024)), out_shardings=sharded)()
gather = jax.jit(lambda x: x, out_shardings=replicated)
"""
)


def test_a_transfer_to_other_hosts_is_refused_with_a_reason(tmp_path):
    program = SHARDED + (
        "stages = [NamedSharding(Mesh(np.array(jax.devices())[[i, i + 1]], 'x'), P('x'))"
        " for i in (0, 2)]\n"
        "first = jax.jit(lambda: jnp.ones((8, 8)), out_shardings=stages[0])()\n"
        "jax.device_put(first, stages[1])\n"
    )
    run = run_hosts(tmp_path, program, "--host", 0)
    assert run.code == 2
    message = run.host(0)["error"]["message"]
    assert "cannot transfer arrays between hosts" in message
    assert "from hosts [0] to hosts [1]" in message


def test_a_program_that_one_host_alone_executes_is_a_deadlock(tmp_path):
    run = run_hosts(tmp_path, SHARDED + "if me == 0: gather(array)\n")
    (mismatch,) = run.summary["hosts"]["mismatches"]
    assert mismatch["hosts"] == [0, 1]
    assert mismatch["programs"] == ["jit__lambda", None]
    assert (run.code, run.summary["fits"]) == (2, None)
    assert "they would wait for each other" in " ".join(run.err.split())


def test_a_callback_on_one_host_alone_makes_another_program(tmp_path):
    program = SHARDED + (
        "@jax.jit\n"
        "def step(x):\n"
        "    if me == 0:\n"
        "        jax.debug.callback(print, jnp.sum(x))\n"
        "    return x @ x.T\n"
        "step(array)\n"
    )
    run = run_hosts(tmp_path, program)
    (mismatch,) = run.summary["hosts"]["mismatches"]
    assert mismatch["programs"] == ["jit_step", "jit_step"]
    assert "different programs that are both called `jit_step`" in " ".join(run.err.split())


def test_a_program_that_hosts_compile_in_different_lines_is_the_same_program(tmp_path):
    program = SHARDED + (
        "step = lambda x: jnp.sum(jnp.sin(x))\n"
        "if me == 0:\n"
        "    print(jax.jit(lambda x: x + 1)(2.0))\n"
        "    print(gather(array).shape, jax.jit(step)(array).shape)\n"
        "else:\n"
        "    gather(array), jax.jit(step)(array)\n"
    )
    run = run_hosts(tmp_path, program)
    assert run.summary["hosts"]["mismatches"] == []
    assert (run.code, run.summary["fits"]) == (0, True)


def test_programs_that_exchange_no_data_may_be_executed_by_one_host(tmp_path):
    program = SHARDED + "whole = gather(array)\nif me == 0: whole + 1\n"
    run = run_hosts(tmp_path, program)
    assert (run.code, run.summary["hosts"]["mismatches"]) == (0, [])
    assert "jit_add" in run.host(0)["own_programs"]


def test_a_host_that_alone_runs_out_of_memory_decides(tmp_path):
    program = SHARDED + "kept = [jnp.ones((1 << 32,)) for _ in range(4 * (me == 2))]\n"
    run = run_hosts(tmp_path, program, "--host", "all", hosts=3)
    assert (run.code, run.summary["hosts"]["critical_host"]) == (1, 2)
    assert [host["fits"] for host in run.summary["hosts"]["runs"]] == [True, True, False]
    assert "of host 2" in run.err
    assert run.host(2)["differences"][0]["bytes"] > 3 << 34


def test_an_array_that_is_not_addressable_is_named(tmp_path):
    run = run_hosts(tmp_path, SHARDED + "np.asarray(array)\n", "--host", 0)
    assert run.code == 2
    assert "non-addressable" in run.host(0)["error"]["message"]


def test_arrays_are_made_of_the_parts_of_this_host(tmp_path):
    program = SHARDED + (
        "import json\n"
        "local = jax.make_array_from_process_local_data(sharded, np.ones((8, 4), np.float32))\n"
        "asked = []\n"
        "def part(index):\n"
        "    asked.append([index[0].start, index[0].stop])\n"
        "    return np.zeros((4, 4), np.float32)\n"
        "called = jax.make_array_from_callback((16, 4), sharded, part)\n"
        "print(json.dumps({'shape': local.shape, 'asked': asked}))\n"
    )
    seen = run_hosts(tmp_path, program, "--host", 1).printed()
    assert (seen["shape"], seen["asked"]) == ([16, 4], [[8, 12], [12, 16]])


def test_the_training_command_runs_on_several_hosts(tmp_path):
    options = ["--kind", "sequences", "--samples", "2k", "--length", "16"]
    for command in (["data", "generate", "train.h5", *options], ["train", "--init"]):
        run_vramfit(*command, code=0, cwd=tmp_path)
    configuration = tmp_path / "train.toml"
    arguments = ["train", configuration, "--set", "model.kind=mlp", "--epochs", "1"]
    command = EXAMPLES.parents[1] / "python" / "vramfit" / "__main__.py"
    run = run_hosts(tmp_path, command, "--steps", 3, arguments=arguments)
    assert run.summary["fits"], run.err[-3000:]
    assert all(host["initialized"] for host in run.summary["hosts"]["runs"])
    assert run.summary["hosts"]["mismatches"] == []


def test_only_hosts_that_were_asked_for_are_run(tmp_path):
    run = run_hosts(tmp_path, SHARDED, "--host", "1,3", hosts=6)
    hosts = run.summary["hosts"]
    assert [host["host"] for host in hosts["runs"]] == [1, 3]
    assert hosts["runs"][0]["represents"] == [2, 4]
    assert hosts["not_run"] == [0, 5]
    assert "hosts 0, 5 were not run" in " ".join(run.err.split())


def test_each_host_keeps_a_trace_that_can_be_reported(tmp_path):
    trace = tmp_path / "run.trace"
    run = run_hosts(tmp_path, SHARDED, "--trace", trace, "--host", "all")
    assert run.code == 0
    assert sorted(path.name for path in tmp_path.glob("*.trace")) == [
        "run-host-0.trace",
        "run-host-1.trace",
    ]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "4"], "there is no host 4"),
        (["--host", "x"], "is no list of hosts"),
        (["--launcher", "pbs"], "slurm"),
    ],
)
def test_wrong_options_are_errors_that_say_what_is_right(tmp_path, options, message):
    run = run_hosts(tmp_path, USE, *options)
    assert run.code != 0
    assert message in run.err
    assert run.summary is None
