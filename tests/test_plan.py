"""`vramfit plan`, and what a plan does to a program: the same numbers in less memory."""

import html
import json
import math
import re
import sys
from pathlib import Path

import pytest
from commands import run_python
from fake_driver import gpu
from planning import LAYERS, peak, vramfit

HERE = Path(__file__).resolve().parent
SCANNED = HERE / "plan" / "scanned.py"

PLAN = """
schema = 2
[source]
vramfit = ""
jax = ""
gpu = ""
command = []
peak_bytes = 0
[[site]]
kind = "grad"
definition = "/elsewhere/train.py:70 (FUNCTION)"
inside = "/elsewhere/train.py:70 (FUNCTION)"
call = 1
equations = 20
fingerprint = "a"
structure = "b"
segments = [[0, 3]]
save = "nothing"
"""


def test_losses_and_gradients_are_the_same():
    """Sixteen kinds of programs, each cut in four ways.

    They keep nothing, products in loops that are unrolled, every second value, and every second
    value in host memory.
    """
    done = run_python(HERE / "plan" / "same_numbers.py", env={"JAX_PLATFORMS": "cpu"}, code=0)
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 16
    for name, each in found.items():
        assert each["difference"] < 1e-5, (name, each)
        assert "grad" in each["kinds"], name
    assert found["effects"]["calls"] == 4
    assert "scan" in found["rnn"]["kinds"]
    assert "checkpoint" in found["gpt_with_checkpoint"]["kinds"]


def test_a_plan_makes_a_program_smaller_and_is_what_the_dry_run_measures(write_script, tmp_path):
    program, plan, json_file = write_script(LAYERS), tmp_path / "plan.toml", tmp_path / "plan.json"
    command = ["--", sys.executable, program, 65536]
    page = tmp_path / "plan.html"
    options = ["--max-trials", 8, "--out", plan, "--json", json_file, "--html", page]
    done = vramfit("plan", "--gpu", "t4", "--budget", "2000MiB", *options, *command)
    found = json.loads(json_file.read_text())
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
    assert "train.py:9 (loss)" in page.read_text()

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


def test_values_are_offloaded_to_the_host(write_script, tmp_path):
    """What enters the body of a scan goes to the host: the stack of it is not on the GPU."""
    program, plan, json_file = SCANNED, tmp_path / "plan.toml", tmp_path / "plan.json"
    command = ["--", sys.executable, program, 32768]
    options = ["--try", "remat,offload", "--out", plan, "--json", json_file, "--max-trials", 16]
    done = vramfit("plan", "--gpu", "t4", "--budget", "700MiB", *options, *command)
    found = json.loads(json_file.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    recommended = found["recommended"]
    assert recommended["moves"][0].endswith(
        ": recompute everything, offload its inputs to the host"
    )
    # 16 iterations of 32,768 x 512 in float32.
    assert recommended["host_memory_bytes"] == 16 * (64 << 20)
    assert recommended["time"]["host_wait_us"] > 0
    assert "keeps 1.0 GiB in pinned host memory for each GPU" in done.stdout
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
    done = vramfit("plan", "--gpu", "t4", "--budget", "700MiB", *options, *command, code=1)
    assert json.loads(done.stdout.splitlines()[-1])["meets_budget"] is False


UNROLLED = """
import jax, jax.numpy as jnp

def layer(x, w):
    return jnp.sin(jnp.sin(x @ w) @ w), None

def loss(ws, x):
    x, _ = jax.lax.scan(layer, x, ws, unroll=UNROLL)
    return jnp.mean(x**2)

step = jax.jit(jax.value_and_grad(loss))
print(step(jnp.ones((8, 256, 256)) * 0.01, jnp.ones((16384, 256)))[0])
"""


def test_loops_are_unrolled_and_rematerialized_in(write_script, tmp_path):
    """A loop stacks what it keeps, and copies it; where there is none, XLA would merge what is
    computed again with what was computed before, so that nothing is saved.
    """
    found = {}
    for unroll in ("1", "True"):
        program, plan = write_script(UNROLLED.replace("UNROLL", unroll)), tmp_path / "plan.toml"
        options = [
            "--budget",
            "1MiB",
            "--json",
            "-",
            "--try",
            "remat,unroll",
            "--out",
            plan,
            "--force",
        ]
        command = ["--", sys.executable, program]
        done = vramfit("plan", "--gpu", "t4", *options, *command, code=1)
        found[unroll] = json.loads(done.stdout.splitlines()[-1])
    peaks = {
        unroll: {"; ".join(row["moves"]): row["peak_bytes"] for row in result["rows"]}
        for unroll, result in found.items()
    }
    place = f"{Path(program).name}:4 (layer)"
    everything = f"{place}: recompute everything"
    unrolled = f"{place}: unroll the loop of 8 iterations"
    assert unrolled in peaks["1"], peaks
    # Unrolled by the plan is unrolled by the program.
    assert peaks["1"][unrolled] == peaks["True"][""]
    assert peaks["1"][f"{unrolled}, recompute everything"] == peaks["True"][everything]
    for each in peaks.values():
        assert each[everything] < each[""] // 2, peaks


@pytest.mark.usefixtures("no_compilation_cache")
def test_a_search_that_is_repeated_compiles_nothing(write_script, tmp_path):
    """The figures are the same, whether programs were compiled or not."""
    cache = tmp_path / "vramfit" / "compilations"
    command = ["--max-trials", 4, "--json", "-", "--", sys.executable, write_script(LAYERS), 2048]
    fresh = vramfit(
        "plan", "--gpu", "t4", "--no-cache", *command, XDG_CACHE_HOME=str(tmp_path), code=0
    )
    assert not cache.exists()
    kept = []
    for _ in range(2):
        found = vramfit("plan", "--gpu", "t4", *command, XDG_CACHE_HOME=str(tmp_path))
        assert found.stdout == fresh.stdout
        files = (file for file in cache.rglob("*") if file.is_file())
        kept.append({file.name: file.stat().st_mtime_ns for file in files})
    assert kept[0] == kept[1] != {}


def test_a_dry_run_that_takes_too_long_is_ended(write_script):
    program = write_script("import jax, time; jax.numpy.ones(3); time.sleep(600)", "wait.py")
    options = ["--gpu", "t4", "--trial-timeout", "5s"]
    done = vramfit("plan", *options, "--", sys.executable, program, code=2)
    assert "error[time-limit]: the program did not end within 5 s" in done.stderr


def test_a_program_that_takes_too_long_to_be_steady_is_measured_for_its_first_steps(write_script):
    """It blocks at its tenth step."""
    source = """
import threading
import jax, jax.numpy as jnp

@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

w, x = jnp.ones((512, 512)), jnp.ones((256, 512))
for step in range(1000):
    if step == 10:
        threading.Event().wait()
    w = train_step(w, x)
"""
    options = ["--gpu", "t4", "--trial-timeout", "20s", "--max-trials", "3"]
    done = vramfit("plan", *options, "--", sys.executable, write_script(source))
    assert "it takes too long until it is steady; dry run of its first steps" in done.stderr
    [text] = [line for line in done.stdout.splitlines() if line.startswith("fits as it is")]
    assert text.endswith("ended after 3 calls of jit_train_step; what comes after them was not measured")  # fmt: skip # noqa: E501


@pytest.mark.fast
def test_a_budget_that_no_plan_meets_names_the_lowest_peak(write_script):
    done = vramfit(
        *("plan", "--gpu", "t4", "--budget", "1MiB", "--max-trials", 5, "--json", "-"),
        *("--", sys.executable, write_script(LAYERS), 4096),
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


def test_plans_of_several_batches_are_compared_by_samples(write_script):
    """A larger batch takes longer for a step, and here less for a sample."""
    options = ["--gpu", "t4", "--try", "compiler", "--vary", "batch=2048,4096,65536"]
    options += ["--limit", "2GiB", "--json", "-"]
    command = ["--", sys.executable, write_script(LAYERS), "{batch}"]
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


def test_the_largest_batch_is_proven(write_script):
    command = ["--", sys.executable, write_script(LAYERS), "{batch}"]
    options = ["--gpu", "t4", "--limit", "2GiB", "--vary", "batch=64..1000000"]
    for name in ("--html", "--out"):
        refused = vramfit("plan", *options, name, "x", *command, code=2)
        assert "has no plan and no page" in refused.stderr
    done = vramfit("plan", *options, "--json", "-", *command)
    found = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert found["smallest_too_large"] == found["largest"] + 1
    assert found["largest_peak_bytes"] <= found["limit_bytes"]
    for batch, code in ((found["largest"], 0), (found["smallest_too_large"], 1)):
        options = ["dryrun", "--full", "--gpu", "t4", "--limit", "2GiB", "--steps", 3]
        assert vramfit(*options, *command[:-1], batch).returncode == code, batch


# A scan whose stacked activations take longer to write than to compute again.
SCAN = """
import jax
import jax.numpy as jnp

def loss(ws, x):
    x, _ = jax.lax.scan(lambda x, w: (x + jax.nn.gelu(x @ w[0]) @ w[1], None), x, ws)
    return jnp.mean(x**2)

@jax.jit
def step(ws, x):
    value, slopes = jax.value_and_grad(loss)(ws, x)
    return jax.tree.map(lambda w, slope: w - slope, ws, slopes), value

ws = jnp.ones((16, 1024, 4096)), jnp.ones((16, 4096, 1024))
x = jnp.ones((16384, 1024))
for _ in range(4):
    ws, value = step(ws, x)
print("loss", float(value))
"""


def test_a_program_that_fits_is_offered_what_is_faster(write_script):
    command = ["--", sys.executable, write_script(SCAN)]
    offered = vramfit("plan", "--gpu", "h100-80g", "--json", "-", *command, code=0)
    found = json.loads(offered.stdout.splitlines()[-1])
    assert found["recommended"]["moves"] == []
    faster, plain = found["faster"], found["baseline"]
    assert faster["time"]["model_us"] < 0.95 * plain["time"]["model_us"]
    assert faster["fits"]["h100-80g"]
    # The estimate of the fastest that was tried.
    times = [row["time"]["model_us"] for row in found["rows"] if row["fits"]["h100-80g"]]
    assert faster["time"]["model_us"] == min(times)
    done = vramfit("plan", "--gpu", "h100-80g", "--fastest", *command, code=0)
    assert done.stdout.startswith("a plan that fits is ")
    assert " faster, by the estimate: peak " in done.stdout
    assert f"> {faster['moves'][0]}"[2:] in done.stdout
    low, high = (faster["time"][end] / 1e3 for end in ("low_us", "model_us"))
    # With two digits; a bound is not rounded up.
    low = math.floor(low * 10) / 10 if low < 10 else math.floor(low)
    low, high = (f"{time:.{int(time < 10)}f}" for time in (low, high))
    assert f"{low} to {high} ms" in done.stdout


def test_numbers_of_a_list_that_a_program_rejects_are_passed_over(write_script):
    options = ["--gpu", "t4", "--fastest", "--try", "pool", "--json", "-"]
    command = ["--", sys.executable, write_script(RULES + LAYERS), "{batch}"]
    done = vramfit("plan", *options, "--vary", "batch=40..64:8", *command, code=0)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["recommended"]["moves"] == ["batch=48"]
    assert {row["moves"][0] for row in found["rows"]} == {"batch=48"}
    failures = [failure["message"] for failure in found["failures"]]
    assert [message.split(":")[0] for message in failures] == ["batch=40", "batch=56", "batch=64"]
    assert all(message.endswith("cannot be divided among 48 samplers") for message in failures)
    refused = vramfit("plan", *options, "--vary", "batch=1..64", *command, code=2)
    assert "`--fastest` measures each number of `batch`" in refused.stderr


RULES = """
import sys
batch = int(sys.argv[1])
if batch > 6000:
    raise ValueError(f"a batch of {batch} is too large for the data")
if batch % 48:
    sys.exit(f"train.py: error: {batch} rows cannot be divided among 48 samplers")
"""


@pytest.mark.parametrize(
    ("budget", "largest", "above"),
    [("100MiB", 1152, 1200), ("2GiB", 6000, None)],
)
def test_numbers_that_a_program_rejects_are_not_the_answer(write_script, budget, largest, above):
    command = ["--", sys.executable, write_script(RULES + LAYERS), "{batch}"]
    options = ["--gpu", "t4", "--budget", budget, "--vary", "batch=1..100000", "--json", "-"]
    done = vramfit("plan", *options, *command, code=0)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["largest"] == largest, found
    assert found["smallest_too_large"] == above
    # Above 6000 nothing says that another number is not accepted, either.
    assert found["is_proven"] == (above is not None)
    assert found["largest_peak_bytes"] <= found["limit_bytes"]
    said = {each["number"]: each["error"] for each in found["rejected"]}
    assert said[1].endswith("train.py: error: 1 rows cannot be divided among 48 samplers")
    assert all(number % 48 or number > 6000 for number in said)


def test_a_program_that_accepts_no_number_is_an_error(write_script):
    command = ["--", sys.executable, write_script("raise ValueError('no batch is right')"), "{n}"]
    options = ["--gpu", "t4", "--vary", "n=8..16:x2"]
    refused = vramfit("plan", *options, *command, code=2)
    assert "none of 2 numbers for `{n}` was accepted by the program" in refused.stderr
    assert "no batch is right" in refused.stderr


def test_run_finds_a_plan_and_keeps_it(write_script):
    """It searches once, measures again the next time, and does not start what cannot fit."""
    program = write_script(LAYERS)
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

    whole = program.read_text()
    program.write_text(whole.replace("range(8)", "range(2)"))
    changed = vramfit(*fit, code=0)
    assert "it cannot be applied to the program any more" in changed.stderr
    assert "dry run of the program as it is" in changed.stderr
    program.write_text(whole)

    occupied = [*fit[:5], "--occupied", "14.45GiB", *fit[5:]]
    none = vramfit(*occupied)
    assert (none.returncode, none.stdout) == (1, "")
    # The driver leaves less than the 60 MiB for the pool.
    more = r"the lowest peak found is .* MiB, .* more than [12]\d\.\d MiB on t4"
    assert re.search(more, none.stderr)
    assert "not started: no plan with which it fits was found" in none.stderr


def test_run_fits_a_program_on_the_gpu_at_hand(write_script, fake_driver):
    program = ["--", sys.executable, write_script(LAYERS), 64]
    one = fake_driver({"gpus": [gpu()]})
    done = vramfit("run", "--limit", "2MiB", "--fit", *program, **one.environment)
    assert "more than 2.0 MiB on t4" in done.stderr
    two = fake_driver({"gpus": [gpu(), gpu(1, name="NVIDIA L4")]})
    done = vramfit("run", "--fit", *program, **two.environment, code=125)
    assert "the GPUs are of several models: NVIDIA L4, Tesla T4" in done.stderr


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("loss", "train.py:9 (loss)` computes something else than `/elsewhere/train.py:70 (loss)`"),
        ("other", "has called no function like `/elsewhere/train.py:70 (other)`"),
    ],
)
def test_a_plan_for_another_program_is_refused(write_script, tmp_path, function, reason):
    """In the first step, in one sentence."""
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.replace("FUNCTION", function))
    program = [sys.executable, write_script(LAYERS), 16]
    done = vramfit("run", "--plan", plan, "--", *program, JAX_PLATFORMS="cpu", code=1)
    assert done.stdout == ""
    assert "does not fit the program" in done.stderr
    assert reason in done.stderr
    assert "make the plan again" in done.stderr
    assert "Traceback" not in done.stderr


RAGGED = """
import sys
import jax, jax.numpy as jnp

def loss(ws, x, depth):
    for w in ws[:depth]:
        x = jnp.sin(x @ w)
    return jnp.mean(x**2)

ws, rows = [jnp.eye(8)] * 4, jnp.ones((96, 8))
for depth in (2, 4):
    step = jax.jit(jax.value_and_grad(lambda ws, x, depth=depth: loss(ws, x, depth)))
    for start in range(0, 96, int(sys.argv[1])):
        value, _ = step(ws, rows[start : start + int(sys.argv[1])])
    print(value)
"""
RECORD = """
import runpy, sys
import jax
from vramfit._plan import _sites
from vramfit._plan._record import SiteRecorder

_sites.install(jax, SiteRecorder(sys.argv[1]))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_last_batch_of_another_size_does_not_end_the_program(write_script, tmp_path):
    """JAX traces a function anew for it: nothing of a plan is missing then."""
    program, sites, plan = write_script(RAGGED), tmp_path / "sites.jsonl", tmp_path / "plan.toml"
    run_python("-c", RECORD, sites, program, 32, code=0, env={"JAX_PLATFORMS": "cpu"})
    entries = [json.loads(line) for line in sites.read_text().splitlines()]
    assert [entry["call"] for entry in entries] == [1, 2]
    plan.write_text(PLAN.partition("[[site]]")[0] + "".join(map(_to_entry, entries)))
    [one, other] = (
        vramfit("run", *options, "--", sys.executable, program, 20, JAX_PLATFORMS="cpu", code=0)
        for options in ([], ["--plan", plan])
    )
    assert one.stdout == other.stdout
    assert len(one.stdout.split()) == 2
    # Of the later entry alone nothing is met before its turn.
    plan.write_text(PLAN.partition("[[site]]")[0] + _to_entry(entries[1]))
    options = ["--plan", plan, "--", sys.executable, program, 20]
    assert vramfit("run", *options, JAX_PLATFORMS="cpu", code=0).stdout == one.stdout


def _to_entry(site):
    names = ("kind", "definition", "inside", "call", "fingerprint", "structure")
    lines = [f"{name} = {json.dumps(site[name])}" for name in names]
    count = len(site["equations"])
    lines += [f"equations = {count}", f"segments = [[0, {count}]]", 'save = "nothing"']
    return "\n[[site]]\n" + "\n".join(lines) + "\n"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = 1\n", "schema 1"),
        ("[[site]\n", "is not a plan"),
        ("schema = 2\nsite = 3\n", "cannot be read"),
        (PLAN.replace("[0, 3]", "[0, 999999]"), "a segment ends at 999999"),
        (PLAN.replace("[0, 3]", "[3, 3]"), "is out of order"),
        (PLAN + "saved = [7]\n", "the equation 7 is in no segment"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(write_script, tmp_path, text, message):
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    done = vramfit("run", "--plan", plan, "--", sys.executable, write_script(LAYERS), 16, code=125)
    assert message in done.stderr
    assert "invalid-file" in done.stderr


KEPT = """
import json
import jax
import jax.extend
import jax.numpy as jnp
from vramfit._plan._jaxpr import FlatJaxpr

kept = {}
policies = jax.checkpoint_policies
for name in (None, "everything_saveable", "nothing_saveable", "dots_saveable"):
    policy = name and getattr(policies, name)
    function = jax.checkpoint(lambda x: jnp.sin(x @ x), policy=policy)
    [equation] = jax.make_jaxpr(function)(jnp.ones((4, 4))).jaxpr.eqns
    inner = jax.extend.core.ClosedJaxpr(equation.params["jaxpr"], ())
    described = FlatJaxpr(inner).describe(equation.params["policy"])
    kept[str(name)] = {each["name"]: each["kept"] for each in described}
print(json.dumps(kept))
"""


def test_what_the_policy_of_the_program_keeps_is_recorded():
    found = json.loads(run_python("-c", KEPT, code=0, env={"JAX_PLATFORMS": "cpu"}).stdout)
    nothing = {"dot_general": False, "sin": False}
    assert found == {
        "None": nothing,
        "everything_saveable": {"dot_general": True, "sin": True},
        "nothing_saveable": nothing,
        "dots_saveable": {"dot_general": True, "sin": False},
    }
