"""`vramfit plan`, and what a plan does to a program: the same numbers in less memory."""

import html
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import clean_environment
from fake_driver import gpu

HERE = Path(__file__).resolve().parent
VRAMFIT = [sys.executable, "-m", "vramfit"]
SCANNED = HERE / "plan" / "scanned.py"

# Eight layers whose activations are most of the peak; argument: rows of the batch.
LAYERS = """
import sys
import jax
import jax.numpy as jnp

def layer(x, w):
    return x + jnp.sin(jnp.sin(x @ w) @ w.T)

def loss(ws, x):
    for w in ws:
        x = layer(x, w)
    return jnp.mean(x**2)

@jax.jit
def step(ws, x):
    value, gradients = jax.value_and_grad(loss)(ws, x)
    return [w - g for w, g in zip(ws, gradients)], value

ws = [jnp.ones((512, 512)) * 0.01 for _ in range(8)]
x = jnp.ones((int(sys.argv[1]), 512))
for _ in range(4):
    ws, value = step(ws, x)
print("loss", float(value))
"""

# 12 GiB that nothing can make smaller.
STATE = """
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x + 1, donate_argnums=0)
x = jnp.zeros((3, 1 << 30))
for _ in range(4):
    x = step(x)
"""

EFFECTS = """
import jax
import jax.numpy as jnp

calls = []

def loss(ws, x):
    for w in ws:
        x = jnp.sin(x @ w)
        jax.debug.callback(lambda: calls.append(1))
    return jnp.mean(x**2)

ws = [jnp.ones((8, 8)) for _ in range(3)]
jax.block_until_ready(jax.jit(jax.grad(loss))(ws, jnp.ones((4, 8))))
jax.effects_barrier()
print("calls", len(calls))
"""


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Programs that tests compile are kept from each other only by what they are."""
    CACHE["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


CACHE = {}


def vramfit(*arguments, **env):
    return subprocess.run(
        [*VRAMFIT, *map(str, arguments)],
        env=clean_environment(**(CACHE | env)),
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


def peak(done):
    answer = json.loads(done.stdout.splitlines()[-1])
    return max(device["peak_bytes"] for device in answer["devices"])


def test_losses_and_gradients_are_the_same():
    """Sixteen kinds of programs, each cut in four ways.

    They keep nothing, products, every second value, and every second value in host memory.
    """
    done = subprocess.run(
        [sys.executable, HERE / "plan" / "same_numbers.py"],
        env=clean_environment(JAX_PLATFORMS="cpu"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 16
    for name, each in found.items():
        assert each["difference"] < 1e-5, (name, each)
        # A function that calls the host is left alone.
        assert ("grad" in each["kinds"]) == (each["calls"] == 0), name
    assert found["effects"]["calls"] == 4
    assert "scan" in found["rnn"]["kinds"]
    assert "checkpoint" in found["gpt_with_checkpoint"]["kinds"]


def test_a_plan_makes_a_program_smaller_and_is_what_the_dry_run_measures(script, tmp_path):
    program, plan, answer = script(LAYERS), tmp_path / "plan.toml", tmp_path / "answer.json"
    command = ["--", sys.executable, program, 65536]
    page, picture = tmp_path / "plan.html", tmp_path / "plan.svg"
    options = ["--max-trials", 8, "--out", plan, "--json", answer]
    options += ["--html", page, "--svg", picture]
    done = vramfit("plan", "--gpu", "t4", "--budget", "2000MiB", *options, *command)
    found = json.loads(answer.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    baseline, recommended = found["baseline"], found["recommended"]
    assert baseline["peak_bytes"] > 2000 << 20 >= recommended["peak_bytes"]
    assert baseline["moves"] == []
    assert len(recommended["moves"]) == 1
    assert "train.py:9 (loss)" in recommended["moves"][0]
    assert found["meets_budget"] is True
    assert found["failures"] == []
    headline = done.stdout.splitlines()[0]
    assert headline.startswith("fits with a plan: peak ")
    assert "> recommended  = as it is" in done.stdout
    assert html.unescape(page.read_text()).count(headline) >= 2
    circles = ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}circle")
    titles = [title.text for circle in circles for title in circle]
    assert any(title.startswith("as it is: ") for title in titles)
    assert any(recommended["moves"][0] in title for title in titles)

    dry = ["dryrun", "--full", "--gpu", "t4", "--steps", 3, "--json", "-"]
    assert peak(vramfit(*dry, *command)) == baseline["peak_bytes"]
    assert peak(vramfit(*dry, "--plan", plan, *command)) == recommended["peak_bytes"]

    # Really, on the CPU: the same loss, with the plan applied by `run`.
    small = ["--", sys.executable, program, 16]
    plain = vramfit("run", *small, JAX_PLATFORMS="cpu")
    planned = vramfit("run", "--plan", plan, *small, JAX_PLATFORMS="cpu")
    assert plain.stdout.startswith("loss ")
    assert planned.stdout == plain.stdout
    assert "plan: train.py:9 (loss) in" in planned.stderr
    assert f"`{program}:9 (loss)` has other shapes" in planned.stderr


def test_values_are_offloaded_to_the_host(script, tmp_path):
    """What enters the body of a scan goes to the host: the stack of it is not on the GPU."""
    program, plan, answer = SCANNED, tmp_path / "plan.toml", tmp_path / "answer.json"
    command = ["--", sys.executable, program, 32768]
    options = ["--try", "remat,offload", "--out", plan, "--json", answer, "--max-trials", 16]
    done = vramfit("plan", "--gpu", "t4", "--budget", "700MiB", *options, *command)
    found = json.loads(answer.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    recommended = found["recommended"]
    assert recommended["moves"][0].endswith(": recompute everything, offload what enters")
    # 16 iterations of 32,768 x 512 in float32.
    assert recommended["host_memory_bytes"] == 16 * (64 << 20)
    assert recommended["time"]["host_wait_us"] > 0
    assert "keeps 1.0 GiB in pinned memory of the host for each GPU" in done.stdout
    without = [recommended["moves"][0].partition(",")[0]]
    [kept] = [row for row in found["rows"] if row["moves"] == without]
    assert kept["host_memory_bytes"] == 0
    assert kept["peak_bytes"] > recommended["peak_bytes"] + (700 << 20)
    dry = ["dryrun", "--full", "--gpu", "t4", "--steps", 3, "--json", "-", "--plan", plan]
    assert peak(vramfit(*dry, *command)) == recommended["peak_bytes"]

    small = ["--", sys.executable, program, 512]
    plain = vramfit("run", *small, JAX_PLATFORMS="cpu")
    planned = vramfit("run", "--plan", plan, *small, JAX_PLATFORMS="cpu")
    assert planned.stdout == plain.stdout != ""

    options = ["--try", "remat,offload", "--json", "-", "--host-budget", "100MiB"]
    done = vramfit("plan", "--gpu", "t4", "--budget", "700MiB", *options, *command)
    assert done.returncode == 1, done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["meets_budget"] is False


DONATION = """
import functools
import jax
import jax.numpy as jnp

@functools.partial(jax.jit, donate_argnums=())
def step(state, x):
    return {{"w": state["w"] + x}}, x.sum()

state = {{"w": jnp.zeros((1 << 20, 64))}}
for _ in range(3):
    new, total = step(state, 2.0 * jnp.ones(()))
    {use}
    state = new
"""


@pytest.mark.parametrize("use", ["pass", "jax.block_until_ready(state)"])
def test_what_could_be_donated_is_measured(script, use):
    program = script(DONATION.format(use=use))
    done = vramfit("plan", "--gpu", "t4", "--json", "-", "--", sys.executable, program)
    found = json.loads(done.stdout.splitlines()[-1])
    donation = found["donation"]
    assert (donation["function"], donation["arguments"]) == ("step", ["state"])
    assert donation["site"].endswith("train.py:12 (<module>)")
    if use == "pass":
        # The new state takes the place of the old one.
        assert donation["peak_bytes"] < found["baseline"]["peak_bytes"] - (255 << 20)
    else:
        assert donation["peak_bytes"] is None
    assert found["recommended"]["moves"] == []


# The step returns its logits, 250 MiB, beside the loss; argument: what the program does with them.
LOGITS = """
import jax
import jax.numpy as jnp

@jax.jit
def step(w, x):
    def loss(w):
        logits = x @ w
        return jnp.mean(logits**2), {{"logits": logits, "sum": logits.sum()}}
    (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(w)
    return w - gradient, value, aux

w, x = jnp.ones((256, 32000)), jnp.ones((2048, 256))
for _ in range(4):
    w, value, aux = step(w, x)
    {use}
"""


@pytest.mark.parametrize(
    ("use", "is_read"),
    [
        ("print(float(aux['sum']))", False),
        ("jax.block_until_ready(aux)", False),
        ("print(aux['logits'].shape)", False),
        ("print(aux['logits'].max())", True),
        ("jax.device_get(aux)", True),
        ("jax.device_put(aux['logits'], jax.devices()[0], may_alias=False)", True),
    ],
)
def test_outputs_that_nothing_reads_are_found_and_measured(script, use, is_read):
    command = ["--", sys.executable, script(LOGITS.format(use=use))]
    done = vramfit("plan", "--gpu", "t4", "--try", "compiler", "--json", "-", *command)
    found = json.loads(done.stdout.splitlines()[-1])
    omission = found["omission"]
    dry = vramfit("dryrun", "--gpu", "t4", *command)
    advice = "nothing reads `result[2]['logits']`, 250.0 MiB"
    assert (advice in " ".join(dry.stderr.split())) == (not is_read), dry.stderr
    if is_read:
        assert omission is None
        return
    assert (omission["function"], omission["outputs"]) == ("step", ["result[2]['logits']"])
    assert omission["site"].endswith("train.py:15 (<module>)")
    # Without the output of the call before, which is replaced only after the next one.
    assert omission["peak_bytes"] <= found["baseline"]["peak_bytes"] - (250 << 20)
    assert found["recommended"]["moves"] == []


# Arrays of 1 GiB with holes between them, and a request that is larger than a hole.
HOLES = """
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x * 2)
blocks = [jnp.zeros((1 << 28,)) for _ in range(9)]
del blocks[::2]
x = step(jnp.zeros((3 << 27,)))
x = step(x)
"""

# Each pair of arrays is twice as large as the one before, which is freed. A pool that grows keeps
# their regions apart.
GROWING = """
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x * 2)
for gibibytes in 1, 2, 4:
    x = None
    x = step(jnp.zeros((gibibytes << 28,)))
"""


@pytest.mark.parametrize(
    ("program", "preallocate", "move", "setting"),
    [
        (HOLES, "true", "use the allocator `cuda_async`", 'allocator = "cuda_async"'),
        (GROWING, "false", "let JAX preallocate its pool", "preallocate = true"),
    ],
)
def test_a_fragmented_pool_is_cured(script, tmp_path, program, preallocate, move, setting):
    """Bytes would suffice, and no free block does."""
    plan, answer = tmp_path / "plan.toml", tmp_path / "answer.json"
    command = ["--", sys.executable, script(program)]
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": preallocate}
    options = ["--try", "pool", "--out", plan, "--json", answer]
    done = vramfit("plan", "--gpu", "t4", *options, *command, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  fragmented  none\n" in done.stdout
    assert ("is by a model" in done.stdout) == (program is HOLES)
    found = json.loads(answer.read_text())
    baseline, best = found["baseline"], found["recommended"]
    assert baseline["fits"] == {"t4": False}
    assert baseline["spare_bytes"]["t4"] > 0
    assert best["fits"] == {"t4": True}
    assert best["moves"] == [move]
    assert setting in plan.read_text()
    dry = vramfit("dryrun", "--gpu", "t4", "--json", "-", "--plan", plan, *command, **environment)
    assert (dry.returncode, peak(dry)) == (0, best["peak_bytes"])
    name = "ALLOCATOR" if program is HOLES else "PREALLOCATE"
    code = f"import os; print(os.environ['XLA_PYTHON_CLIENT_{name}'])"
    done = vramfit("run", "--plan", plan, "--", sys.executable, "-c", code, **environment)
    assert done.stdout == ("cuda_async\n" if program is HOLES else "true\n"), done.stderr


def test_more_memory_for_the_pool_is_a_plan(script, tmp_path):
    """What does not fit in 0.75 of the GPU, but in 0.92, needs nothing else."""
    plan, answer = tmp_path / "plan.toml", tmp_path / "answer.json"
    command = ["--", sys.executable, script(STATE)]
    options = ["--try", "pool", "--out", plan, "--json", answer]
    done = vramfit("plan", "--gpu", "t4", *options, *command)
    found = json.loads(answer.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["baseline"]["fits"] == {"t4": False}
    assert found["baseline"]["xla_remat"]["recomputed_us"] >= 0
    assert found["recommended"]["fits"] == {"t4": True}
    assert found["recommended"]["moves"] == ["let JAX's pool use 0.92 of GPU memory"]
    assert "memory_fraction = 0.92" in plan.read_text()
    dry = vramfit(
        "dryrun", "--full", "--gpu", "t4", "--steps", 3, "--json", "-", "--plan", plan, *command
    )
    assert (dry.returncode, peak(dry)) == (0, found["recommended"]["peak_bytes"])
    code = "import os; print(os.environ['XLA_CLIENT_MEM_FRACTION'])"
    started = ["run", "--plan", plan]
    done = vramfit(*started, "--", sys.executable, "-c", code)
    assert done.stdout == "0.92\n", done.stderr
    done = vramfit(*started, "--fraction", 0.5, "--", sys.executable, "-c", code)
    assert done.stdout == "0.5\n", done.stderr


def test_a_search_that_is_repeated_compiles_nothing(script, tmp_path):
    """The figures are the same, whether programs were compiled or not."""
    command = ["--max-trials", 4, "--json", "-", "--", sys.executable, script(LAYERS), 2048]
    fresh = vramfit("plan", "--gpu", "t4", "--no-cache", *command, XDG_CACHE_HOME=str(tmp_path))
    assert fresh.returncode == 0, fresh.stderr
    assert not (tmp_path / "vramfit" / "compilations").exists()
    for _ in range(2):
        found = vramfit("plan", "--gpu", "t4", *command, XDG_CACHE_HOME=str(tmp_path))
        assert found.stdout == fresh.stdout
        [folder] = (tmp_path / "vramfit" / "compilations").iterdir()
        assert folder.name.startswith("t4-")
        assert list(folder.iterdir())


def test_a_dry_run_that_takes_too_long_is_ended(script):
    program = script("import jax, time; jax.numpy.ones(3); time.sleep(600)", "wait.py")
    options = ["--gpu", "t4", "--trial-timeout", "5s"]
    done = vramfit("plan", *options, "--", sys.executable, program)
    assert done.returncode == 2
    assert "error[time-limit]: the program did not end within 5 s" in done.stderr


def test_a_budget_that_no_plan_meets_names_the_lowest_peak(script):
    done = vramfit(
        *("plan", "--gpu", "t4", "--budget", "1MiB", "--max-trials", 5, "--json", "-"),
        *("--", sys.executable, script(LAYERS), 4096),
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1
    assert found["meets_budget"] is False
    lowest = min(row["peak_bytes"] for row in found["rows"])
    assert found["recommended"]["peak_bytes"] == lowest
    largest = found["recommended"]["largest"]
    assert largest[0]["bytes"] == max(entry["bytes"] for entry in largest)
    assert any("train.py:7 (layer)" in entry["name"] for entry in largest)
    [edit] = [each for each in found["recommended"]["edits"] if "train.py" in each]
    assert edit.startswith("train.py:9 (loss): call its layers, in ")
    assert "through `jax.checkpoint(layer" in edit


def test_plans_of_several_batches_are_compared_by_samples(script):
    """A larger batch takes longer for a step, and here less for a sample."""
    options = ["--gpu", "t4", "--try", "compiler", "--vary", "batch=2048,4096,65536"]
    command = ["--limit", "2GiB", "--json", "-", "--", sys.executable, script(LAYERS), "{batch}"]
    found = json.loads(vramfit("plan", *options, *command).stdout.splitlines()[-1])
    for row in found["rows"]:
        [batch] = [int(move[6:]) for move in row["moves"] if move.startswith("batch=")]
        rate = 1e6 * batch / row["time"]["model_us"]
        assert row["samples_per_second"] == pytest.approx(rate, rel=1e-9)
    best = found["recommended"]
    assert best["moves"] == ["batch=4096"]
    fitting = [row["samples_per_second"] for row in found["rows"] if row["fits"]["t4"]]
    assert best["samples_per_second"] == max(fitting)
    assert {move for row in found["rows"] for move in row["moves"]} >= {"batch=65536"}


def test_the_largest_batch_is_proven(script):
    command = ["--", sys.executable, script(LAYERS), "{batch}"]
    options = ["--gpu", "t4", "--limit", "2GiB", "--vary", "batch=64..1000000"]
    refused = vramfit("plan", *options, "--html", "x.html", *command)
    assert refused.returncode == 2
    assert "has no page and no picture" in refused.stderr
    done = vramfit("plan", *options, "--json", "-", *command)
    found = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert found["smallest_too_large"] == found["largest"] + 1
    assert found["largest_peak_bytes"] <= found["limit_bytes"]
    for batch, code in ((found["largest"], 0), (found["smallest_too_large"], 1)):
        options = ["dryrun", "--full", "--gpu", "t4", "--limit", "2GiB", "--steps", 3]
        assert vramfit(*options, *command[:-1], batch).returncode == code, batch


def test_run_finds_a_plan_and_keeps_it(script):
    """It searches once, measures again the next time, and does not start what cannot fit."""
    program = script(LAYERS)
    fit = ["run", "--gpu", "t4", "--limit", "60MiB", "--fit", "--", sys.executable, program, 1024]
    plain = vramfit("run", "--", sys.executable, program, 1024)
    first, second = vramfit(*fit), vramfit(*fit)
    assert first.stdout == second.stdout == plain.stdout
    assert "dry run of the program as it is" in first.stderr
    assert "dry run with the plan that was found before" in second.stderr
    assert "dry run of the program as it is" not in second.stderr
    for done in (first, second):
        assert done.returncode == 0
        assert "plan: train.py:9 (loss) in" in done.stderr

    program.write_text(program.read_text().replace("x @ w) @ w.T", "x @ w) @ w.T * 2"))
    changed = vramfit(*fit)
    assert changed.returncode == 0, changed.stderr
    assert "dry run of the program as it is" in changed.stderr

    occupied = [*fit[:5], "--occupied", "14.45GiB", *fit[5:]]
    none = vramfit(*occupied)
    assert (none.returncode, none.stdout) == (1, "")
    # The driver leaves less than the 60 MiB for the pool.
    assert re.search(r"the lowest peak found is .* exceeds [12]\d\.\d MiB on t4", none.stderr)
    assert "not started: no plan with which it fits was found" in none.stderr

    fit[4] = "10MiB"
    none = vramfit(*fit)
    assert (none.returncode, none.stdout) == (1, "")
    assert "no plan fits: the lowest peak found is" in none.stderr
    assert "not started: no plan with which it fits was found" in none.stderr


def test_run_fits_a_program_on_the_gpu_at_hand(script, fake_driver):
    program = ["--", sys.executable, script(LAYERS), 64]
    one = fake_driver({"gpus": [gpu()]})
    done = vramfit("run", "--limit", "2MiB", "--fit", *program, **one.environment)
    assert "which exceeds 2.0 MiB on t4" in done.stderr
    two = fake_driver({"gpus": [gpu(), gpu(1, name="NVIDIA L4")]})
    done = vramfit("run", "--fit", *program, **two.environment)
    assert done.returncode == 125
    assert "the GPUs are of several models: NVIDIA L4, Tesla T4" in done.stderr


def test_effects_happen_as_often_as_before(script, tmp_path):
    """A function with effects is left alone."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "schema = 1\n[source]\nvramfit = ''\njax = ''\ngpu = ''\ncommand = []\npeak_bytes = 0\n"
        "[[site]]\nkind = 'grad'\ndefinition = 'train.py:7 (loss)'\nfingerprint = 'a'\n"
        "structure = 'b'\nsegments = [[0, 3]]\nsave = 'nothing'\n"
    )
    program = script(EFFECTS)
    plain = vramfit("run", "--", sys.executable, program, JAX_PLATFORMS="cpu")
    planned = vramfit("run", "--plan", plan, "--", sys.executable, program, JAX_PLATFORMS="cpu")
    assert plain.stdout == planned.stdout == "calls 3\n", planned.stderr
    assert "never called `train.py:7 (loss)`" in planned.stderr


def test_a_plan_for_another_program_is_refused(script, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "schema = 1\n[source]\nvramfit = ''\njax = ''\ngpu = ''\ncommand = []\npeak_bytes = 0\n"
        "[[site]]\nkind = 'grad'\ndefinition = '/elsewhere/train.py:70 (loss)'\n"
        "fingerprint = 'a'\nstructure = 'b'\nsegments = [[0, 3]]\nsave = 'nothing'\n"
    )
    program = script(LAYERS)
    done = vramfit("run", "--plan", plan, "--", sys.executable, program, 16, JAX_PLATFORMS="cpu")
    assert done.returncode == 1
    assert "does not fit" in done.stderr
    assert "make the plan again" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = 2\n", "schema 2"),
        ("[[site]\n", "is not a plan"),
        ("schema = 1\nsite = 3\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(script, tmp_path, text, message):
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    done = vramfit("run", "--plan", plan, "--", sys.executable, script(LAYERS), 16)
    assert done.returncode == 125
    assert message in done.stderr
    assert "invalid-file" in done.stderr
