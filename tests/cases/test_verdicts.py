"""What a verdict says that it does not cover: the rest of a run, growth, work on the CPU."""

import json
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from checking import Project
from cli_dryrun import dryrun_of
from commands import run_vramfit

PROGRAMS = Path(__file__).parent / "programs"
ENDED = "ended after 3 calls of jit_train_step; what comes after them was not measured"


def dry_run(folder, program, *options, arguments=(), gpu="t4"):
    return dryrun_of(folder, PROGRAMS / program, *options, arguments=arguments, gpu=gpu)


def headline(text):
    """Return the first paragraph of a text, without its line feeds."""
    return " ".join(text.split("\n\n")[0].split())


def kinds(summary):
    return [one["kind"] for one in summary["verdict"]["conditions"]]


# --- the rest of a run ---


def test_a_dry_run_says_that_it_ended_after_some_steps(tmp_path):
    run = dry_run(tmp_path, "evaluates_last.py", "--steps", "3", arguments=["10"])
    assert run.code == 0
    assert f"to spare; the dry run {ENDED}" in headline(run.err)
    assert f"the dry run {ENDED}" in run.page
    [stopped] = run.summary["verdict"]["conditions"]
    assert (stopped["kind"], stopped["bearing"]) == ("stopped_at_step", "excluded")


@pytest.mark.parametrize("steps", [3, 4])
def test_nothing_is_left_out_of_a_run_that_ends_by_itself(tmp_path, steps):
    """The last step was the third: the evaluation is in the summary."""
    whole = dry_run(tmp_path, "evaluates_last.py", arguments=["3"])
    run = dry_run(tmp_path, "evaluates_last.py", "--steps", str(steps), arguments=["3"])
    assert "ended after" not in run.err
    assert "stopped_at_step" not in kinds(run.summary)
    assert run.summary["peak_bytes"] == whole.summary["peak_bytes"] > 1 << 30
    assert run.out == "(2048,)\n"


def plan_of(folder, *options, code=0, arguments=("10",)):
    """Return what `vramfit plan` says: its text, JSON and page."""
    files = {"--json": folder / "plan.json", "--html": folder / "plan.html"}
    words = [str(word) for pair in files.items() for word in pair]
    program = PROGRAMS / "evaluates_last.py"
    done = run_vramfit(
        "plan", "--gpu", "t4", "--budget", "1GiB", "--max-trials", "2", "--force",
        *words, *options, program, *arguments, code=code,
    )  # fmt: skip
    text, page = done.stdout, files["--html"].read_text()
    return text, json.loads(files["--json"].read_text()), page


def test_a_plan_says_that_its_dry_run_ended_after_some_steps(tmp_path):
    text, plan, page = plan_of(tmp_path, "--quiet", "--steps", "3")
    said = f"the dry run {ENDED}"
    assert said in text.splitlines()[0]
    assert said in page
    assert [one["kind"] for one in plan["recommended"]["conditions"]] == ["stopped_at_step"]


@pytest.mark.parametrize("options", [(), ("--steps", "20"), ("--steps", "steady")])
def test_a_plan_measures_the_evaluation(tmp_path, options):
    text, plan, _ = plan_of(tmp_path, *options, code=1)
    assert "no plan fits" in text
    assert "ended after" not in text
    assert plan["baseline"]["peak_bytes"] > 1 << 30


def test_what_begins_after_the_first_steps_is_measured_and_named(tmp_path):
    arguments = ["1000000000", "262144"]
    run = dry_run(tmp_path, "evaluates_often.py", "--steps", "steady", arguments=arguments)
    # The thirteenth call is the first after the evaluation.
    said = "the dry run ended after 213 calls of jit_train_step; what comes after them"
    assert said in headline(run.err)
    first = dry_run(tmp_path, "evaluates_often.py", "--steps", "3", arguments=arguments)
    peaks = [one.summary["peak_bytes"] for one in (first, run)]
    assert peaks[0] < peaks[1]
    [phase] = run.summary["step_search"]["phases"]
    assert phase == {
        "step_calls": 12,
        "program": "jit_evaluate",
        "other_programs": 0,
        "previous_peak_bytes": peaks[0],
        "peak_bytes": peaks[1],
    }
    assert "`jit_evaluate` after 12 calls of the training step: the peak rises from" in run.page
    assert first.summary["step_search"]["phases"] == []


def find_plan(folder, budget, program, *arguments, code=0):
    """Return what `vramfit plan` says: its headline, and its JSON."""
    file = folder / "found.json"
    done = run_vramfit(
        "plan", "--gpu", "t4", "--try", "remat", "--budget", budget, "--max-trials", "8",
        "--force", "--json", file, PROGRAMS / program, *arguments, code=code,
    )  # fmt: skip
    return headline(done.stdout), json.loads(file.read_text())


def test_a_plan_is_judged_by_all_phases(tmp_path):
    """Its steps take less under a plan, the evaluation does not."""
    arguments = ("evaluates_often.py", "1000000000", "8192")
    text, plan = find_plan(tmp_path, "250MiB", *arguments)
    assert text.startswith("fits with a plan: peak ")
    assert text.endswith("ended after 213 calls of jit_train_step; what comes after them was not measured")  # fmt: skip # noqa: E501
    assert [phase["step_calls"] for phase in plan["phases"]] == [12]
    # Other plans were measured until the evaluation had been executed.
    stops = [row["conditions"][0]["calls"] for row in plan["rows"]]
    assert sorted(set(stops)) == [14, 213]
    text, plan = find_plan(tmp_path, "250MiB", *arguments[:2], "262144", code=1)
    assert text.startswith("no plan fits: ")


def test_a_plan_that_fits_in_the_first_steps_only_is_not_recommended(tmp_path):
    """Without a new program there is nothing to see of it in the program as it is."""
    _, plan = find_plan(tmp_path, "200MiB", "keeps_some_outputs.py", code=1)
    lowest = min(row["peak_bytes"] for row in plan["rows"])
    assert lowest > 200 << 20
    # It is recommended with a budget that it meets to the end.
    text, plan = find_plan(tmp_path, "400MiB", "keeps_some_outputs.py")
    assert text.startswith("fits with a plan: peak ")
    assert "ended after" not in text
    assert plan["recommended"]["peak_bytes"] > min(row["peak_bytes"] for row in plan["rows"])


@pytest.fixture
def project(tmp_path, tmp_path_factory):
    """A project that checks the program with an evaluation."""
    project = Project(tmp_path, tmp_path_factory.getbasetemp() / "check-cache")
    shutil.copy(PROGRAMS / "evaluates_last.py", tmp_path / "train.py")
    return project


def set_entry(project, steps, **more):
    command = [sys.executable, "train.py", str(steps)]
    project.write("vramfit.toml", project.entry(command=command, **more))


def test_an_update_measures_the_whole_run_once(project):
    set_entry(project, 10)
    done = project.check("--update")
    assert "; the whole run has a peak of " in done.stdout
    [line] = [line for line in project.lock().splitlines() if line.startswith("train ")]
    [whole] = [word for word in line.split() if word.startswith("whole_run=")]
    assert int(whole.removeprefix("whole_run=")) > 1 << 30

    # What is checked are three steps, and every format says so.
    files = {"--json": "a.json", "--junit": "a.xml", "--sarif": "a.sarif", "--markdown": "a.md"}
    words = [word for pair in files.items() for word in pair]
    done = project.check("--quiet", *words)
    said = f"each dry run {ENDED}"
    assert done.stdout.splitlines()[0] == f"unchanged: train on l4; {said}"
    for name in files.values():
        assert said in (project.folder / name).read_text().replace("\\_", "_"), name
    [row] = json.loads((project.folder / "a.json").read_text())["rows"]
    assert [one["kind"] for one in row["conditions"]] == ["stopped_at_step"]
    assert row["accepted"]["whole_run_peak_bytes"] > 1 << 30
    assert ET.parse(project.folder / "a.xml").find(".//system-out").text.endswith(said)

    # A limit that the whole run exceeds fails, although three steps keep it.
    set_entry(project, 10, max="1GiB")
    done = project.check(code=1)
    assert "the whole run, as measured by the last `--update`: the peak of " in done.stdout
    done = project.check("--update", code=1)
    assert "not accepted: train on l4: the whole run: the peak of " in done.stdout


def test_a_whole_run_that_takes_too_long_is_measured_until_it_is_steady(project):
    set_entry(project, 10**9)
    done = project.check("--update", "--whole-run-timeout", "1s")
    assert (
        "until 200 calls of its training step in a row executed no new program; all" in done.stdout
    )
    [line] = [line for line in project.lock().splitlines() if line.startswith("train ")]
    assert ":until_steady " in line
    set_entry(project, 10**9, max="1GiB")
    assert f"within its limits; each dry run {ENDED}" in project.check("--no-lock").stdout


def test_a_check_of_a_run_that_ends_by_itself_has_nothing_to_add(project):
    set_entry(project, 3)
    done = project.check("--update")
    assert "whole" not in done.stdout
    assert "whole_run=" not in project.lock().split("edit.", 1)[1]
    assert project.check().stdout == "unchanged: train on l4\n"


# --- batches that threads upload ahead ---


@pytest.mark.parametrize(("size", "threads"), [(2, 1), (3, 2)])
def test_batches_ahead_are_counted_at_the_bound_of_their_queue(tmp_path, size, threads):
    """The queue is full, each thread waits with a batch, and the step has one."""
    run = dry_run(tmp_path, "uploads_ahead.py", arguments=[str(size), str(threads)])
    assert run.out == "all batches\n"
    entries = run.summary["attribution"]["entries"]
    [ahead] = [one for one in entries if one["producer"] == "upload"]
    [batch] = [one for one in entries if one["kind"] == "batch"]
    assert (ahead["count"], batch["count"]) == (size + threads, 1)


ACTOR_AND_LEARNER = """
import queue, threading
import jax, jax.numpy as jnp
from vramfit._inprogram import _prefetch_queues

_prefetch_queues.TIMEOUT_S = _prefetch_queues.FULL_TIMEOUT_S = 1e9
parameters, batches = queue.Queue(1), queue.Queue(1)
act = jax.jit(lambda w: w @ w)
train_step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))

def actor():
    for _ in range(10):
        batches.put(act(parameters.get()))

thread = threading.Thread(target=actor)
thread.start()
w = jnp.ones((512, 512))
for _ in range(10):
    parameters.put(w)
    w = train_step(w, batches.get())
thread.join()
print("done")
"""


def test_threads_that_wait_for_each_other_are_not_waited_for(tmp_path):
    """However long a thread may take: without that, this run would never end."""
    program = tmp_path / "train.py"
    program.write_text(ACTOR_AND_LEARNER)
    run = dryrun_of(tmp_path, program, gpu="t4")
    assert (run.code, run.out) == (0, "done\n")


def test_a_program_that_uploads_ahead_is_accepted(project):
    shutil.copy(PROGRAMS / "uploads_ahead.py", project.folder / "train.py")
    command = [sys.executable, "train.py", "2", "1"]
    project.write("vramfit.toml", project.entry(command=command))
    assert "accepted: train on l4: peak " in project.check("--update").stdout
    for _ in range(2):
        assert project.check("--no-cache").stdout.startswith("unchanged: train on l4")


# --- steps that are not over, and growth ---


@pytest.mark.parametrize("steps", [2, 3, 5])
def test_a_step_is_over_when_the_next_one_begins(tmp_path, steps):
    run = dry_run(tmp_path, "updates_eagerly.py", "--steps", str(steps), arguments=["9"])
    whole = dry_run(tmp_path, "updates_eagerly.py", arguments=[str(steps)])
    [step] = [
        row
        for row in run.summary["programs"]
        if row["calls"] and row["name"] == run.summary["step"]
    ]
    stopped = run.summary["step_search"]["stop"]
    assert step["calls"] == stopped["calls"]
    # The update after the last call is in it, and nothing of the step that would follow.
    assert run.out == "".join(f"step {n + 1}\n" for n in range(stopped["calls"]))
    assert stopped["calls"] == max(steps, 3)
    if steps >= 3:
        assert run.summary["peak_bytes"] == whole.summary["peak_bytes"]


def test_an_update_of_the_same_name_is_no_next_step(tmp_path):
    run = dry_run(tmp_path, "updates_by_lambda.py", "--steps", "3")
    assert run.out == "step 1\nstep 2\nstep 3\n"


@pytest.mark.parametrize(
    ("mebibytes", "is_said"), [("32", True), ("1", True), ("0.0001", False), ("0", False)]
)
def test_a_peak_that_still_grows_is_a_condition(tmp_path, mebibytes, is_said):
    run = dry_run(tmp_path, "keeps_outputs.py", "--steps", "5", arguments=[mebibytes])
    assert ("the peak was still growing at step 5" in headline(run.err)) is is_said
    assert ("still_growing" in kinds(run.summary)) is is_said
    if is_said:
        found = next(
            c for c in run.summary["verdict"]["conditions"] if c["kind"] == "still_growing"
        )
        before = dry_run(tmp_path, "keeps_outputs.py", "--steps", "4", arguments=[mebibytes])
        peaks = found["previous_peak_bytes"], found["peak_bytes"]
        assert peaks == (before.summary["peak_bytes"], run.summary["peak_bytes"])
    # All of it was measured, so that nothing can grow any more.
    run = dry_run(tmp_path, "keeps_outputs.py", "--steps", "12", arguments=[mebibytes])
    assert "still growing" not in run.err


def test_a_plan_says_that_the_peak_still_grows(tmp_path):
    program = PROGRAMS / "keeps_outputs.py"
    options = ["--steps", "3", "--max-trials", "2"]
    done = run_vramfit("plan", "--gpu", "t4", *options, program, "32")
    assert done.stdout.splitlines()[0].endswith("; the peak was still growing at step 3")


# --- work on the CPU ---

MODEL = """
import os, sys
BEFORE
import jax, jax.numpy as jnp
import numpy as np

def loss(w, x):
    return (jnp.tanh(x @ w) ** 2).mean()

def step(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)

cpu, gpu = jax.devices("cpu")[0], jax.devices()[0]
N = 512

def train(step=jax.jit(step), device=None, batch=64):
    w, x = np.ones((N, N), "f4"), np.ones((batch, N), "f4")
    if device is not None:
        w, x = jax.device_put(w, device), jax.device_put(x, device)
    for _ in range(4):
        w = step(w, x)
    return w
"""

TRAINING_ON_THE_CPU = {
    "default_device": "jnp.ones(9)\nwith jax.default_device(cpu):\n    train()",
    "config": "jnp.ones(9)\njax.config.update('jax_default_device', cpu)\ntrain()",
    "device_put": "jnp.ones(9)\ntrain(device=cpu)",
    "eager": "jnp.ones(9) + 1\nwith jax.default_device(cpu):\n    train(step)",
    "counter_on_the_gpu": """
counter, count = jnp.zeros(()), jax.jit(lambda n: n + 1)
for _ in range(300):
    counter = count(counter)
train(device=cpu)
""",
    "data_on_the_gpu": "data = jax.device_put(np.ones((4096, 4096), 'f4'), gpu)\ntrain(device=cpu)",
    "nothing_on_the_gpu": "train(device=cpu)",
}

# Whatever is done on the CPU here, the answer is about the GPU.
TRAINING_ON_THE_GPU = {
    "nothing": "train()",
    "scaled_data": """
jax.jit(lambda x: x / 255)(jax.device_put(np.ones((64, N), 'f4'), cpu))
train()
""",
    "random_numbers": """
with jax.default_device(cpu):
    w = jax.random.normal(jax.random.key(0), (N, N))
train(device=gpu)
""",
    "small_product": """
with jax.default_device(cpu):
    rotation = jnp.ones((3, 3)) @ jnp.ones((3, 3))
train()
""",
    "gradient_of_a_number": """
with jax.default_device(cpu):
    print(jax.jit(jax.grad(lambda t: t * t))(3.0))
train()
""",
    "inference_and_gradient_of_a_number": """
with jax.default_device(cpu):
    jax.jit(jax.grad(lambda t: t * t))(3.0)
forward = jax.jit(loss)
for _ in range(4):
    forward(jnp.ones((N, N)), jnp.ones((64, N)))
""",
}

# So much was done on the CPU that the answer says so, and is given.
SOME_ON_THE_CPU = {
    "teacher": "train()\ntrain(device=cpu)",
    "large_preparation": """
x = jax.jit(lambda x: x / 255)(jax.device_put(np.ones((64, 1024, 1024), 'f4'), cpu))
train()
""",
    "product": """
jax.jit(loss)(*jax.device_put((np.ones((N, N), 'f4'), np.ones((N, N), 'f4')), cpu))
train()
""",
}


def run_model(folder, lines, *options):
    return dryrun_of(folder, MODEL.replace("BEFORE", "") + lines, *options, gpu="t4")


@pytest.mark.parametrize("lines", TRAINING_ON_THE_CPU.values(), ids=TRAINING_ON_THE_CPU)
def test_a_training_step_on_the_cpu_is_no_answer(tmp_path, lines):
    run = run_model(tmp_path, lines)
    assert (run.code, run.summary["fits"]) == (2, None), run.err
    assert headline(run.err).startswith("unknown: ")
    assert " ran on the CPU" in headline(run.err)
    condition = run.summary["verdict"]["conditions"][0]
    assert (condition["kind"], condition["bearing"]) == ("ran_on_cpu", "open")


@pytest.mark.parametrize("lines", TRAINING_ON_THE_GPU.values(), ids=TRAINING_ON_THE_GPU)
def test_preparations_on_the_cpu_are_not_mentioned(tmp_path, lines):
    run = run_model(tmp_path, lines)
    assert (run.code, run.summary["fits"]) == (0, True), run.err
    assert "CPU" not in headline(run.err)
    assert "ran_on_cpu" not in kinds(run.summary)


@pytest.mark.parametrize("lines", SOME_ON_THE_CPU.values(), ids=SOME_ON_THE_CPU)
def test_much_work_on_the_cpu_is_said_with_the_answer(tmp_path, lines):
    run = run_model(tmp_path, lines)
    assert (run.code, run.summary["fits"]) == (0, True), run.err
    assert "ran on the CPU and was not measured" in headline(run.err)


def test_a_model_that_only_runs_on_the_cpu_is_no_answer(tmp_path):
    lines = """
forward = jax.jit(loss)
jnp.ones(9).block_until_ready()
forward(*jax.device_put((np.ones((N, N), 'f4'), np.ones((64, N), 'f4')), cpu))
"""
    run = run_model(tmp_path, lines)
    assert run.code == 2
    said = "unknown: what needs most memory ran on the CPU: `jit_loss`"
    assert headline(run.err).startswith(said)


@pytest.mark.parametrize(
    "before",
    [
        "os.environ['JAX_PLATFORMS'] = 'cpu'",
        "import jax\njax.config.update('jax_platforms', 'cpu')",
    ],
)
def test_a_program_without_a_gpu_is_no_answer(tmp_path, before):
    run = dryrun_of(tmp_path, MODEL.replace("BEFORE", before) + "train()\n", gpu="t4")
    assert run.code == 2
    assert "the program never used the GPU" in run.err


def test_a_plan_for_a_program_on_the_cpu_is_refused(tmp_path, write_script):
    program = MODEL.replace("BEFORE", "") + "jnp.ones(9)\ntrain(device=cpu)\n"
    done = run_vramfit("plan", "--gpu", "t4", write_script(program), code=2)
    assert "the training step ran on the CPU" in done.stderr


# --- what lies outside the pool ---


@pytest.mark.parametrize("how", ["captured", "read"])
@pytest.mark.parametrize(
    ("mib", "code", "verdict"),
    [
        # Of 14,917 MiB, 149 are not the pool's; the context takes 99 of them, about.
        (160, 1, "does not fit: 160.0 MiB of constants and code lie outside the pool"),
        (100, 2, "unknown: 100.0 MiB of constants and code lie outside the pool"),
        (40, 0, "fits: peak"),
    ],
)
def test_captured_arrays_need_room_outside_the_pool(tmp_path, mib, code, verdict, how):
    """More than is computed: who reads gets a placeholder, which XLA must not fold."""
    options = ("--fraction", "0.99")
    run = dry_run(tmp_path, "captures.py", *options, arguments=[mib, how])
    assert run.code == code
    assert verdict in " ".join(run.err.split())
    assert f"outside the pool: {mib}.0 MiB are constants of `jit__lambda`" in " ".join(
        run.err.split()
    )
    [constants] = [
        one["constant_bytes"] for one in run.summary["programs"] if one["constant_bytes"]
    ]
    assert constants >= mib << 20
    outside = [kind for kind in kinds(run.summary) if kind == "outside_pool"]
    assert outside == ["outside_pool"] * (code != 0)


def test_an_argument_needs_none(tmp_path):
    options = ("--fraction", "0.99")
    run = dry_run(tmp_path, "captures.py", *options, arguments=[160, "argument"])
    assert run.code == 0
    assert "are constants" not in run.err


# --- managed memory ---

MANAGED = {"TF_FORCE_UNIFIED_MEMORY": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
THREE_ARRAYS = """
import jax.numpy as jnp
arrays = [jnp.zeros(6 << 28) for _ in range(3)]  # 18 GiB, of 14.5 GiB on the card
"""


def dry_run_with_managed_memory(folder, *options, code):
    (folder / "program.py").write_text(THREE_ARRAYS)
    words = ["dryrun", "--gpu", "t4", "--trace", "run.trace", "--force", *options, "program.py"]
    done = run_vramfit(*words, env=MANAGED, cwd=folder, code=code)
    return " ".join(done.stderr.split())


def test_managed_memory_beyond_the_card_lies_in_host_memory(tmp_path):
    verdict = "fits, if the host has 3.5 GiB of free memory: peak 18.0 GiB on t4, 3.5 GiB of it"
    text = dry_run_with_managed_memory(tmp_path, "--fraction", "3.2", code=0)
    assert verdict in text
    assert "3.5 GiB of 18.0 GiB lie in host memory at the peak" in text
    replayed = run_vramfit("replay", "run.trace", cwd=tmp_path, code=0)
    assert verdict in " ".join((replayed.stdout + replayed.stderr).split())
    # A smaller need lies on the card.
    (tmp_path / "program.py").write_text(THREE_ARRAYS.replace("3", "2"))
    words = ["dryrun", "--gpu", "t4", "--fraction", "3.2", "program.py"]
    small = run_vramfit(*words, env=MANAGED, cwd=tmp_path, code=0)
    assert "fits: peak 12.0 GiB of 46.6 GiB" in " ".join(small.stderr.split())


def test_managed_memory_without_a_larger_pool_changes_nothing(tmp_path):
    assert "does not fit: short by" in dry_run_with_managed_memory(tmp_path, code=1)
