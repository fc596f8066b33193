"""`vramfit plan`, and what a plan does to a program: the same numbers in less memory."""

import html
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import run_python
from fake_driver import gpu
from planning import LAYERS, peak, vramfit

HERE = Path(__file__).resolve().parent
SCANNED = HERE / "plan" / "scanned.py"

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


def test_losses_and_gradients_are_the_same():
    """Sixteen kinds of programs, each cut in four ways.

    They keep nothing, products, every second value, and every second value in host memory.
    """
    done = run_python(
        HERE / "plan" / "same_numbers.py", env={"JAX_PLATFORMS": "cpu"}, code=0, timeout=600
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 16
    for name, each in found.items():
        assert each["difference"] < 1e-5, (name, each)
        # A function that calls the host is left alone.
        assert ("grad" in each["kinds"]) == (each["calls"] == 0), name
    assert found["effects"]["calls"] == 4
    assert "scan" in found["rnn"]["kinds"]
    assert "checkpoint" in found["gpt_with_checkpoint"]["kinds"]


def test_a_plan_makes_a_program_smaller_and_is_what_the_dry_run_measures(write_script, tmp_path):
    program, plan, answer = write_script(LAYERS), tmp_path / "plan.toml", tmp_path / "answer.json"
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


def test_values_are_offloaded_to_the_host(write_script, tmp_path):
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
    refused = vramfit("plan", *options, "--html", "x.html", *command, code=2)
    assert "has no page and no picture" in refused.stderr
    done = vramfit("plan", *options, "--json", "-", *command)
    found = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert found["smallest_too_large"] == found["largest"] + 1
    assert found["largest_peak_bytes"] <= found["limit_bytes"]
    for batch, code in ((found["largest"], 0), (found["smallest_too_large"], 1)):
        options = ["dryrun", "--full", "--gpu", "t4", "--limit", "2GiB", "--steps", 3]
        assert vramfit(*options, *command[:-1], batch).returncode == code, batch


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

    program.write_text(program.read_text().replace("x @ w) @ w.T", "x @ w) @ w.T * 2"))
    changed = vramfit(*fit, code=0)
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


def test_run_fits_a_program_on_the_gpu_at_hand(write_script, fake_driver):
    program = ["--", sys.executable, write_script(LAYERS), 64]
    one = fake_driver({"gpus": [gpu()]})
    done = vramfit("run", "--limit", "2MiB", "--fit", *program, **one.environment)
    assert "which exceeds 2.0 MiB on t4" in done.stderr
    two = fake_driver({"gpus": [gpu(), gpu(1, name="NVIDIA L4")]})
    done = vramfit("run", "--fit", *program, **two.environment, code=125)
    assert "the GPUs are of several models: NVIDIA L4, Tesla T4" in done.stderr


def test_effects_happen_as_often_as_before(write_script, tmp_path):
    """A function with effects is left alone."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "schema = 1\n[source]\nvramfit = ''\njax = ''\ngpu = ''\ncommand = []\npeak_bytes = 0\n"
        "[[site]]\nkind = 'grad'\ndefinition = 'train.py:7 (loss)'\nfingerprint = 'a'\n"
        "structure = 'b'\nsegments = [[0, 3]]\nsave = 'nothing'\n"
    )
    program = write_script(EFFECTS)
    plain = vramfit("run", "--", sys.executable, program, JAX_PLATFORMS="cpu")
    planned = vramfit("run", "--plan", plan, "--", sys.executable, program, JAX_PLATFORMS="cpu")
    assert plain.stdout == planned.stdout == "calls 3\n", planned.stderr
    assert "never called `train.py:7 (loss)`" in planned.stderr


def test_a_plan_for_another_program_is_refused(write_script, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "schema = 1\n[source]\nvramfit = ''\njax = ''\ngpu = ''\ncommand = []\npeak_bytes = 0\n"
        "[[site]]\nkind = 'grad'\ndefinition = '/elsewhere/train.py:70 (loss)'\n"
        "fingerprint = 'a'\nstructure = 'b'\nsegments = [[0, 3]]\nsave = 'nothing'\n"
    )
    program = write_script(LAYERS)
    done = vramfit(
        "run", "--plan", plan, "--", sys.executable, program, 16, JAX_PLATFORMS="cpu", code=1
    )
    assert "does not fit" in done.stderr
    assert "make the plan again" in done.stderr


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = 2\n", "schema 2"),
        ("[[site]\n", "is not a plan"),
        ("schema = 1\nsite = 3\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(write_script, tmp_path, text, message):
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    done = vramfit("run", "--plan", plan, "--", sys.executable, write_script(LAYERS), 16, code=125)
    assert message in done.stderr
    assert "invalid-file" in done.stderr
