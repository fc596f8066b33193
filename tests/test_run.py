"""What `vramfit run` sets is what JAX obeys: on the virtual GPU, row by row of what was wanted."""

import dataclasses
import json
import subprocess
import sys
import uuid

import pytest
from commands import VRAMFIT, run_vramfit, start_command

GIB = 1 << 30
PAGE = 2 << 20

# Uses the GPU, then tells the figures of JAX's own allocator.
PRINTS_STATS = """
import json, jax, jax.numpy as jnp
jax.block_until_ready(jnp.ones(8))
stats = jax.devices()[0].memory_stats()
print("VALUES", json.dumps(stats), flush=True)
"""


@dataclasses.dataclass(frozen=True)
class Started:
    """What a program that was started by `run` inside a dry run left behind."""

    summary: dict
    values: dict
    err: str


def read_values(out):
    """Return the values that a program printed on a line that begins with `VALUES`."""
    lines = [
        line.removeprefix("VALUES ") for line in out.splitlines() if line.startswith("VALUES ")
    ]
    return json.loads(lines[-1]) if lines else None


@pytest.fixture
def start(tmp_path):
    """Run a program on a virtual GPU by `run`: `start(PRINTS_STATS, "--limit", "8GiB")`."""
    runs = 0

    def run(program, *policy, gpu="t4", options=(), code=0, **env):
        nonlocal runs
        runs += 1
        script, summary_file = tmp_path / f"program-{runs}.py", tmp_path / f"summary-{runs}.json"
        script.write_text(program)
        command = ["dryrun", "--full", "--gpu", gpu, *options, "--json", summary_file, "--"]
        command += [*VRAMFIT, "run", *policy, "--", sys.executable, script]
        done = run_vramfit(*command, env=env, code=code)
        return Started(json.loads(summary_file.read_text()), read_values(done.stdout), done.stderr)

    return run


def run_here(*arguments, code=None, **env):
    """Run `vramfit run` on this machine, without a dry run around it."""
    return run_vramfit("run", *arguments, env=env, code=code)


def total_bytes(gpu):
    listed = run_vramfit("gpus", "show", gpu, "--json", code=0)
    return json.loads(listed.stdout)["gpu"]["total_memory_bytes"]


# Rows S: the settings of a project.


@pytest.mark.parametrize("word", ["FALSE", "no", "off"])
def test_s1_words_that_mean_off_switch_preallocation_off(start, word):
    done = start(PRINTS_STATS, XLA_PYTHON_CLIENT_PREALLOCATE=word)
    assert done.values["pool_bytes"] == PAGE, "a pool that grows begins with one page"
    assert f"JAX takes `{word}` for on" in done.err


@pytest.mark.fast
def test_s1_preallocation_takes_the_whole_limit(start):
    done = start(PRINTS_STATS, "--preallocate", XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert done.values["pool_bytes"] == done.values["bytes_limit"] > 10 * GIB
    assert "`XLA_PYTHON_CLIENT_PREALLOCATE` was false and is now true" in done.err


def test_s2_platform_is_set_and_what_it_costs_is_reported(start):
    done = start(PRINTS_STATS, "--allocator", "platform", "--fraction", "0.5")
    assert done.values is None, "there are no statistics of a pool that is not there"
    assert done.summary["settings"]["allocator"] == "platform"
    assert "exact, and slow" in done.err
    assert "neither a fraction nor preallocation applies" in done.err
    assert "since 0.10, JAX is reported to retain" in done.err


def test_s3_a_fraction_has_the_name_that_jax_wants_and_its_rest_is_reported_in_bytes(start):
    done = start(PRINTS_STATS, "--fraction", "0.95", XLA_PYTHON_CLIENT_MEM_FRACTION="0.5")
    total = total_bytes("t4")
    assert abs(done.values["bytes_limit"] - 0.95 * total) < PAGE
    assert "set XLA_CLIENT_MEM_FRACTION=0.95" in done.err
    assert "leaves 745.9 MiB outside the pool" in done.err
    assert "`XLA_PYTHON_CLIENT_MEM_FRACTION`, which was 0.5, is removed" in done.err


def test_s4_no_silent_fall_to_the_cpu():
    program = "import jax; print(jax.devices()[0].platform)"
    command = [sys.executable, "-c", program]
    # There is no GPU here, and JAX goes on without one: also when its list begins with one.
    assert run_here("--", *command, JAX_PLATFORMS="").stdout == "cpu\n"
    assert run_here("--", *command, JAX_PLATFORMS="cuda,cpu").stdout == "cpu\n"
    required = run_here("--require-gpu", "--", *command)
    assert (required.returncode, required.stdout) == (1, "")
    assert "Unknown backend cuda" in required.stderr


def test_s4_a_required_gpu_is_had_and_the_cpu_beside_it(start):
    done = start(PRINTS_STATS + "print(jax.devices('cpu'))", "--require-gpu")
    assert done.values["bytes_limit"] > GIB


def test_s4_the_deprecated_name_is_reported_and_its_intent_delivered(start):
    done = start(PRINTS_STATS, JAX_PLATFORM_NAME="gpu")
    assert done.values["bytes_limit"] > GIB
    assert "warning[platform-name-deprecated]" in done.err
    alone = run_here("--print", JAX_PLATFORM_NAME="gpu")
    assert alone.stdout == "JAX_PLATFORMS=cuda,cpu\n"
    assert "`JAX_PLATFORM_NAME` is deprecated" in alone.stderr


def test_s5_flags_are_merged_and_none_is_lost():
    program = "import jax, os; print(jax.device_count(), os.environ['XLA_FLAGS'])"
    command = ["--", sys.executable, "-c", program]
    users = "--xla_cpu_enable_fast_math=true --xla_dump_max_hlo_modules=3"
    flag = "--xla_force_host_platform_device_count"
    done = run_here("--host-devices", "3", *command, JAX_PLATFORMS="cpu", XLA_FLAGS=users)
    assert done.stdout == f"3 {users} {flag}=3\n"
    assert "does not affect GPUs" in done.stderr
    own = f"{flag}=2"
    done = run_here("--host-devices", "3", *command, JAX_PLATFORMS="cpu", XLA_FLAGS=own)
    assert done.stdout == f"2 {own}\n"
    assert "already, and stays as it is" in done.stderr


def test_s6_truth_values_are_those_that_jax_reads():
    program = (
        "import jax, jax.numpy as jnp; print(jnp.arange(2.0).dtype, jax.config.jax_disable_jit)"
    )
    command = ["--", sys.executable, "-c", program]
    on = run_here("--x64", "--no-jit", *command, JAX_PLATFORMS="cpu")
    assert on.stdout == "float64 True\n"
    assert "twice as large" in on.stderr
    settings = {"JAX_ENABLE_X64": "true", "JAX_DISABLE_JIT": "true", "JAX_PLATFORMS": "cpu"}
    off = run_here("--no-x64", "--jit", *command, **settings)
    assert off.stdout == "float32 False\n"
    assert "`JAX_ENABLE_X64` was true and is now false" in off.stderr


@pytest.mark.parametrize("gpu", ["t4", "a100-40g-mig-3g.20gb"])
def test_s7_an_absolute_limit_becomes_the_pool(start, gpu):
    done = start(PRINTS_STATS, "--limit", "8GiB", gpu=gpu)
    assert 8 * GIB - PAGE <= done.values["bytes_limit"] <= 8 * GIB
    assert done.summary["limit_bytes"] == done.values["bytes_limit"] == done.values["pool_bytes"]


@pytest.mark.fast
def test_s7_the_invented_limit_is_made_true(start):
    settings = {
        "JAX_PREALLOCATION_SIZE_LIMIT_BYTES": "8589934592",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95",
    }
    done = start(PRINTS_STATS, **settings)
    assert 8 * GIB - PAGE <= done.values["bytes_limit"] <= 8 * GIB
    assert "no release of JAX reads" in done.err
    less = start(PRINTS_STATS, **settings | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25"})
    assert abs(less.values["bytes_limit"] - 0.25 * total_bytes("t4")) < PAGE


# Rows A: the rules of allocation.

# Eight arrays of 64 MiB, dropped, and then one that needs them in one piece.
GROWS = """
import jax, jax.numpy as jnp
arrays = [jax.block_until_ready(jnp.full((1 << 24,), i, jnp.float32)) for i in range(8)]
del arrays
jax.block_until_ready(jnp.ones((225 << 20,), jnp.float32))
"""


def test_a2_a_growing_pool_fragments_where_a_preallocated_one_lives(start):
    lives = start(GROWS, "--limit", "1GiB", "--preallocate")
    assert lives.summary["fits"]
    dies = start(GROWS, "--limit", "1GiB", "--no-preallocate", code=1)
    assert not dies.summary["fits"]
    assert dies.summary["oom"]["free_bytes"] >= 512 << 20, "what the arrays held is free"
    assert "makes fragmentation more likely" in dies.err


@pytest.mark.parametrize("name", ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"])
def test_a3_either_name_of_the_fraction_is_left_as_it_is(start, name):
    done = start(PRINTS_STATS, **{name: "0.4"})
    assert abs(done.values["bytes_limit"] - 0.4 * total_bytes("t4")) < PAGE
    assert "set " not in done.err


def test_a3_both_names_together_are_parted(start):
    both = {"XLA_CLIENT_MEM_FRACTION": "0.4", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.8"}
    done = start(PRINTS_STATS, **both)
    assert abs(done.values["bytes_limit"] - 0.4 * total_bytes("t4")) < PAGE
    assert "JAX rejects it together with" in done.err


HOLDS = """
import jax, jax.numpy as jnp
array = jax.block_until_ready(jnp.ones((100 << 18,), jnp.float32))
del array
jax.block_until_ready(jnp.ones((10 << 18,), jnp.float32))
"""


def test_a4_platform_takes_exactly_what_is_needed(start):
    exact = start(HOLDS, "--allocator", "platform")
    assert exact.summary["limit_bytes"] is None
    assert exact.summary["pool_bytes"] is None
    assert 100 << 20 <= exact.summary["peak_bytes"] < 101 << 20


# Tells its pool, then holds it until its standard input ends.
STAYS = PRINTS_STATS + "\nimport sys; sys.stdin.read()\n"


def two_on_one_gpu(tmp_path, *policy):
    """Start one process after the other on a shared GPU; return what both tell of their pools."""
    script = tmp_path / "stays.py"
    script.write_text(STAYS)
    # A name of its own, since GPUs are shared by all processes of a user.
    name = f"test-{uuid.uuid4().hex[:12]}"
    command = [*VRAMFIT, "dryrun", "--full", "--gpu", "t4", "--share-as", name, "--"]
    command += [*VRAMFIT, "run", *policy, "--", sys.executable, str(script)]
    processes, pools = [], []
    try:
        for _ in range(2):
            process = start_command(*command, stdin=subprocess.PIPE)
            processes.append(process)
            pools.append(read_values(process.stdout.readline()))
    finally:
        for process in processes:
            process.communicate()
    return pools


def test_a5_two_processes_at_75_percent_collide_and_share_2_fit(tmp_path):
    first, second = two_on_one_gpu(tmp_path, "--fraction", "0.75")
    assert first["pool_bytes"] == first["bytes_limit"]
    assert second["pool_bytes"] < second["bytes_limit"] / 2, "JAX backs off without a word"

    first, second = two_on_one_gpu(tmp_path, "--processes", "2")
    assert first["pool_bytes"] == first["bytes_limit"]
    assert second["pool_bytes"] == second["bytes_limit"]
    # The second knows that the first is no stranger: both have the same part.
    assert first["bytes_limit"] == second["bytes_limit"] > 6 * GIB


def test_a6_what_another_framework_holds_is_left_to_it(start):
    taken = ["--occupied", "6GiB"]
    jax_alone = start(PRINTS_STATS, options=taken)
    assert jax_alone.values["pool_bytes"] < jax_alone.values["bytes_limit"]
    done = start(PRINTS_STATS, "--keep-free", "1GiB", options=taken)
    assert done.values["pool_bytes"] == done.values["bytes_limit"]
    assert done.values["bytes_limit"] <= total_bytes("t4") - 7 * GIB
    assert "6.0 GiB used by other processes, 1.0 GiB kept free" in done.err


# Temporaries of 10 GiB, of which XLA can compute 3 again.
DEEP = """
import jax, jax.numpy as jnp

@jax.jit
def step(weights, x):
    def loss(weights):
        h = x
        for w in weights:
            h = h + jax.nn.gelu(h @ w) @ w.T
        return h.sum()
    return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights))]

weights = [jnp.ones((256, 1024))] * 8
jax.block_until_ready(step(weights, jnp.ones((1 << 17, 256))))
"""


def step_bytes(done):
    [step] = [row for row in done.summary["programs"] if row["name"] == "jit_step"]
    return step["temp_bytes"]


def test_a8_remat_on_and_off_differ(start):
    limit = ["--limit", "8GiB"]
    on = start(DEEP, *limit, "--remat", "on", JAX_COMPILER_ENABLE_REMAT_PASS="false")
    off = start(DEEP, *limit, "--remat", "off", code=1)
    assert on.summary["fits"]
    assert not off.summary["fits"]
    assert step_bytes(on) < 8 * GIB < step_bytes(off)


def test_a8_other_disabled_passes_stay_disabled_without_rematerialization():
    users = "--xla_disable_hlo_passes=cse"
    done = run_here("--print", "--remat", "off", XLA_FLAGS=users)
    merged = f"{users} --xla_disable_hlo_passes=cse,rematerialization"
    assert done.stdout == f"XLA_FLAGS='{merged}'\n"


def test_a9_cuda_async_is_chosen_where_jax_reads_it(start):
    tensorflows = start(PRINTS_STATS, TF_GPU_ALLOCATOR="cuda_malloc_async")
    assert tensorflows.summary["settings"]["allocator"] == "bfc"
    assert not [line for line in tensorflows.err.splitlines() if line.startswith("set ")]
    done = start(PRINTS_STATS, "--allocator", "cuda_async", TF_GPU_ALLOCATOR="cuda_malloc_async")
    assert done.summary["settings"]["allocator"] == "cuda_async"
    assert "not with TF_GPU_ALLOCATOR" in done.err


# Tells what the books of the shared GPU say of this process, the context included.
HELD = """
import json, os, jax, jax.numpy as jnp
jax.block_until_ready(jnp.ones(8))
books = open(os.path.join(os.environ["XDG_RUNTIME_DIR"], "vramfit", "desk")).read().splitlines()
[held] = [int(line.split()[3]) for line in books[1:] if int(line.split()[0]) == os.getpid()]
print("VALUES", json.dumps({"held": held, "limit": jax.devices()[0].memory_stats()["bytes_limit"]}))
"""


@pytest.mark.parametrize("amount", ["1073741824", "-1"])
def test_a9_preallocation_of_cuda_async(start, tmp_path, amount):
    env = {"TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC": amount, "XDG_RUNTIME_DIR": str(tmp_path)}
    policy, shared = ["--allocator", "cuda_async"], ["--share-as", "desk"]
    grows = start(HELD, *policy, "--no-preallocate", options=shared, **env)
    # Beside the context, what was taken at the start has been given back.
    assert grows.values["held"] < 200 << 20
    assert "without preallocation the pool retains nothing" in grows.err
    whole = start(HELD, *policy, "--limit", "4GiB", options=shared, **env)
    assert 0 <= whole.values["held"] - whole.values["limit"] < 200 << 20
    assert "has no effect: the whole fraction is preallocated" in whole.err


def test_a10_newer_allocators_are_known_by_version(start):
    assert start(PRINTS_STATS, "--allocator", "vmm").summary["settings"]["allocator"] == "vmm"
    refused = run_here(
        "--allocator", "address", "--", sys.executable, "-c", "print('no')", code=125
    )
    assert refused.stdout == ""
    assert "it was added in 0.11.0" in refused.stderr


PUBLISHES = """
import os, jax
print("VALUES", __import__("json").dumps({n: os.environ.get(n) for n in ("VRAMFIT_PUBLISH",
    "VRAMFIT_POLICY", "PYTHONPATH", "VRAMFIT_RUN_CONFIG")}))
jax.block_until_ready(jax.numpy.ones(8))
"""


@pytest.mark.fast
def test_v7_a_program_lets_top_see_inside_its_pool(start):
    published = start(PUBLISHES, "--limit", "8GiB").values
    assert published["VRAMFIT_PUBLISH"] == "1"
    assert published["VRAMFIT_POLICY"] == "--limit 8.0 GiB"
    # What the dry run around it has set is still there, and once.
    assert published["VRAMFIT_RUN_CONFIG"]
    assert published["PYTHONPATH"].count("_jax_shim") == 1
    assert start(PUBLISHES, "--no-publish").values["VRAMFIT_PUBLISH"] is None


def test_v7_the_shim_comes_before_the_users_own_path():
    program = "import os; print(os.environ['PYTHONPATH'])"
    done = run_here("--", sys.executable, "-c", program, PYTHONPATH="/mine")
    shim, own = done.stdout.strip().split(":")
    assert shim.endswith("_jax_shim")
    assert own == "/mine"
