"""The examples train on a CPU, and a dry run of each gives the answer derived without one.

Three independent accounts meet here. `hand` counts the bytes of weights, optimizer and batch
from the shapes alone. `derive` lets XLA compile the step ahead of time and reads its own account
of it. `dryrun` runs the unchanged script on the virtual GPU. What theory says is equal is
compared to the byte; where only a bound can be given, the test says why.
"""

import ast
import itertools
import re
import shlex
import sys

import jax
import pytest
from commands import ROOT, run_python, run_vramfit
from reference_bfc import MIB, Bfc, OutOfMemory, pool_limit, rounded
from reference_trace_reader import peak_of

# 75 % of what the driver reports for an H100 SXM, in whole pages.
LIMIT = pool_limit(84_929_347_584, 0.75, jax.__version__)

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


# --- on a laptop ---------------------------------------------------------------------------


def laptop_commands(example):
    """Return the commands that the docstring of `example` offers for a laptop."""
    docstring = ast.get_docstring(ast.parse(example.read_text())).replace("\\\n", " ")
    return [shlex.split(line) for line in docstring.splitlines() if f"{example.name} --" in line]


LAPTOP = [(e, c) for e in EXAMPLES for c in laptop_commands(e)]


def test_every_example_offers_a_laptop_command():
    assert {example for example, _ in LAPTOP} == set(EXAMPLES)


@pytest.mark.parametrize(
    ("example", "command"), LAPTOP, ids=[f"{e.stem}-{i}" for i, (e, _) in enumerate(LAPTOP)]
)
def test_the_loss_falls_on_a_cpu(example, command):
    start = command.index("python")
    settings = dict(word.split("=", 1) for word in command[:start])
    done = run_python(
        *command[start + 1 :], env={"JAX_PLATFORMS": "cpu", **settings}, code=0, cwd=example.parent
    )
    losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", done.stdout)]
    if losses:
        assert losses[-1] < 0.9 * losses[0], done.stdout
    else:
        # Sampling has no loss; it must find the weights that made the data, which are of size 1.
        error = float(re.search(r"mean error of the weights ([0-9.]+)", done.stdout)[1])
        assert error < 0.4, done.stdout


def test_no_example_knows_vramfit():
    for example in EXAMPLES:
        assert "vramfit" not in example.read_text().lower(), example


# --- loops of one program ------------------------------------------------------------------

F32 = I32 = 4
KEY = 8  # a threefry key is two 32-bit words


def hand_gpt(layers, width, heads, vocab, sequence, batch):
    del heads  # splits the width, adds nothing
    norm = 2 * width
    linears = width * 3 * width + width * width + 2 * width * 4 * width
    biases = 3 * width + width + 4 * width + width
    weights = (vocab + sequence) * width + layers * (2 * norm + linears + biases) + norm
    # AdamW's count, the schedule's count and NNX's own step.
    return 3 * weights * F32 + 3 * I32 + batch * (sequence + 1) * I32


def hand_resnet(stages, width, image, classes, batch):
    convolutions, channels = 7 * 7 * 3 * width, width  # channels: of all the norms
    incoming = width
    for stage, blocks in enumerate(stages):
        inner = width * 2**stage
        for _ in range(blocks):
            convolutions += incoming * inner + 9 * inner * inner + inner * 4 * inner
            channels += inner + inner + 4 * inner
            if incoming != 4 * inner:
                convolutions += incoming * 4 * inner
                channels += 4 * inner
            incoming = 4 * inner
    weights = convolutions + 2 * channels + incoming * classes + classes
    statistics = 2 * channels
    state = (2 * weights + statistics) * F32 + I32 + KEY
    return state + batch * (image * image * 3 * F32 + I32)


def hand_vit(layers, width, heads, image, patch, classes, batch):
    del heads
    embed = 3 * patch * patch * width + width
    positions = (image // patch) ** 2 * width
    mlp = 2 * 4 * width * width + 4 * width + width
    block = 2 * 2 * width + 4 * width * width + mlp  # Equinox's attention has no biases
    weights = embed + positions + layers * block + 2 * width + width * classes + classes
    return 3 * weights * F32 + I32 + batch * (3 * image * image * F32 + I32)


def hand_rnn(layers, width, length, symbols, batch):
    layer = 2 * width * 3 * width + 3 * width
    weights = symbols * width + layers * layer + width * symbols
    return 3 * weights * F32 + I32 + length * batch * I32


def hand_moe(experts, width, hidden, tokens):
    weights = width * experts + 2 * experts * width * hidden
    return 3 * weights * F32 + I32 + 2 * tokens * width * F32


def hand_no_donation(layers, width, batch, donate=None):
    weights = layers * (width * width + width)
    return 3 * weights * F32 + I32 + 2 * batch * width * F32


def hand_svi(rows, features, groups, steps):
    del steps
    # A mean and a spread for every latent: the weights, center, spread and intercepts.
    latents = 2 * (features + 1 + 1 + groups)
    return rows * (features * F32 + I32 + F32) + 3 * latents * F32 + I32 + KEY


# Script, its hand count, its arguments, the program of the loop, and what else is on the device
# when that program runs: in each loop only the results of the step before, 256 bytes apiece.
LOOPS = {
    "train_gpt": (
        hand_gpt,
        {"layers": 2, "width": 256, "heads": 4, "vocab": 1024, "sequence": 128, "batch": 8},
        {"the last loss": 256},
    ),
    "train_resnet": (
        hand_resnet,
        {"stages": [1, 1], "width": 16, "image": 32, "classes": 10, "batch": 16},
        {"the last loss": 256, "the last accuracy": 256},
    ),
    "train_vit": (
        hand_vit,
        # 12,544 rows (64 images of 196 patches) have no default tiling for a Triton product. On a
        # GPU the autotuner would choose another kernel; ahead of time XLA gives up.
        {
            "layers": 1,
            "width": 768,
            "heads": 12,
            "image": 224,
            "patch": 16,
            "classes": 1000,
            "batch": 64,
        },
        {"the last loss": 256},
    ),
    "train_rnn": (
        hand_rnn,
        {"layers": 1, "width": 256, "length": 32, "symbols": 16, "batch": 64},
        {"the last loss": 256},
    ),
    "train_moe": (
        hand_moe,
        {"experts": 4, "width": 128, "hidden": 256, "tokens": 1024},
        {"the last loss": 256},
    ),
    "no_donation": (
        hand_no_donation,
        {"layers": 4, "width": 512, "batch": 256},
        {"the last loss": 256},
    ),
    "no_donation --donate": (
        hand_no_donation,
        {"layers": 4, "width": 512, "batch": 256, "donate": True},
        {"the last loss": 256},
    ),
}


def words(settings):
    """Return `settings` as command line arguments."""
    for name, value in settings.items():
        yield f"--{name.replace('_', '-')}"
        if isinstance(value, list):
            yield from map(str, value)
        elif value is not True:
            yield str(value)


def at_launch(program):
    """Return what the arguments and the allocations of one execution take in the pool."""
    kinds = ("parameter", "output", "tuple", "temporary")
    return sum(rounded(a["size"]) for a in program["allocations"] if a["kind"] in kinds)


def kept_bytes(program):
    """Return what may be left of the first call until Python collects garbage.

    JAX's frames of a call that compiles are in a cycle, on the CPU as well. They hold the seed, and
    the first state where it is not donated: arguments that outputs of their size replace.
    """
    sizes = {kind: [] for kind in ("parameter", "output")}
    for allocation in program["allocations"]:
        if allocation["kind"] in sizes and allocation["size"] > I32:
            sizes[allocation["kind"]].append(allocation["size"])
    state = sum(rounded(size) for size in sizes["parameter"] if size in sizes["output"])
    seed, count = rounded(I32), rounded(I32)
    return {0, seed, seed + state + count} if state else {0, seed}


def assert_same_sizes(ours, theirs):
    keys = ("argument_bytes", "output_bytes", "alias_bytes", "temp_bytes", "constant_bytes")
    assert {k: ours[k] for k in keys} == {k: theirs[k] for k in keys}


def assert_peak(run, expected, program="jit_train_step", devices=1, kept=(0,)):
    """Check that the peak is `expected` and what the allocator could not split off.

    One of the numbers `kept` may be in it.

    A request may be given a chunk that is up to twice its size when nothing closer is free; the
    pool counts all of it. How much that was depends on the holes that the start of the script
    left, which a sum over one program cannot know, so it is taken from a replay of every request.
    """
    for device in range(devices):
        peak = peak_of(run.trace, device)
        assert peak.program == program
        assert peak.requested - expected in kept
        assert run.summary["peak_bytes"] == peak.bytes


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_needs_what_xla_says(loop, dryrun, derive):
    hand, settings, others = LOOPS[loop]
    example = loop.split()[0]
    (program,) = derive(example, *words(settings), limit=LIMIT)
    assert program["argument_bytes"] == hand(**settings)
    assert program["triton"] is (example != "train_vit")

    steps = 6
    run = dryrun(f"{example}.py", *words(settings), "--steps", steps)
    assert run.code == 0
    assert run.summary["fits"] is True
    assert run.summary["limit_bytes"] == run.summary["pool_bytes"] == LIMIT
    (step,) = run.programs("jit_train_step")
    assert step["calls"] == steps
    assert_same_sizes(step, program)
    assert_peak(run, at_launch(program) + sum(others.values()), kept=kept_bytes(program))
    assert run.summary["leaks"] == []
    assert "memory leak" not in run.err


def test_svi_needs_what_xla_says(dryrun, derive):
    # Many groups and few rows, so that the peak is in the scan and not in NumPyro's start, which
    # computes on whole columns of rows one operation at a time.
    rows, groups = 1000, 20000
    settings = {"rows": rows, "features": 16, "groups": groups, "steps": 100}
    (program,) = derive("infer_svi", *words(settings), limit=LIMIT)
    assert program["argument_bytes"] == hand_svi(**settings)

    run = dryrun("infer_svi.py", *words(settings))
    assert run.code == 0
    (scan,) = run.programs("jit_scan")
    assert scan["calls"] == 1
    assert_same_sizes(scan, program)
    # The guide keeps the trace of the model it was made from: the indices of both plates, the
    # intercepts, the logits. How many scalars and short vectors it keeps beside them is NumPyro's
    # affair; a bound for these is as far as theory goes.
    kept = 2 * rounded(groups * F32) + 2 * rounded(rows * F32)
    peak = peak_of(run.trace)
    assert peak.program == "jit_scan"
    assert run.summary["peak_bytes"] == peak.bytes
    assert 0 <= peak.requested - at_launch(program) - kept <= 64 * 256


def test_nuts_samples_to_the_end(dryrun):
    settings = {"rows": 2000, "features": 4, "groups": 5, "samples": 10}
    run = dryrun("infer_svi.py", "--mcmc", *words(settings))
    assert run.code == 0
    # Only a lower bound: NUTS is a nest of programs made by NumPyro, not one loop of ours.
    assert run.summary["peak_bytes"] >= 2000 * (4 * F32 + I32 + F32)


def test_each_of_eight_devices_holds_its_slice(dryrun, derive):
    layers, width, batch = 2, 256, 512
    settings = {"layers": layers, "width": width, "batch": batch}
    (program,) = derive("train_sharded", *words(settings), limit=LIMIT, devices=8)
    # Matrices in eighths, the norms' scales whole, three times over; Adam's count; the batch.
    weights = layers * (2 * width * 4 * width // 8 + width)
    assert program["argument_bytes"] == 3 * weights * F32 + I32 + 2 * batch // 8 * width * F32

    run = dryrun("train_sharded.py", *words(settings), "--steps", 4, gpu="h100-80gx8")
    assert run.code == 0
    assert "on 8 devices" in run.out
    (step,) = run.programs("jit_train_step")
    assert_same_sizes(step, program)
    assert_peak(run, at_launch(program) + 256, devices=8)  # and the last loss
    assert run.summary["leaks"] == []


# --- runs that do not fit ------------------------------------------------------------------


def test_a_gpt_fits_two_gpus_of_three(dryrun):
    """GPT-2 medium needs 14.2 GiB: below 75 % of 80 and of 24 GB, above 75 % of 16 GB."""
    fits = {}
    for gpu in ("h100-80g", "rtx-4090", "rtx-4080"):
        run = dryrun("train_gpt.py", "--steps", 2, gpu=gpu)
        fits[gpu] = run.summary["fits"]
        assert run.code == (0 if fits[gpu] else 1)
    assert fits == {"h100-80g": True, "rtx-4090": True, "rtx-4080": False}
    assert run.summary["oom"]["program"] == "jit_train_step"
    assert "RESOURCE_EXHAUSTED: Out of memory while trying to allocate" in run.err


def test_donation_decides_on_a_48_gb_gpu(dryrun):
    """The state is 18 GiB. Two of it and the temporaries exceed 35.7 GiB, one of it does not."""
    kept = dryrun("no_donation.py", "--steps", 2, gpu="a6000")
    donated = dryrun("no_donation.py", "--steps", 2, "--donate", gpu="a6000")
    assert (kept.summary["fits"], kept.code) == (False, 1)
    assert (donated.summary["fits"], donated.code) == (True, 0)


class Replay:
    """Executions of derived programs, one request after the other, in a pool made by the rules."""

    def __init__(self, pool, state):
        self.pool = pool
        for size in state:
            pool.allocate(size)

    def execute(self, program, release=()):
        """Allocate as one execution does, free `release` and what was temporary; return the rest.

        XLA allocates in the order of its assignment all that is not an argument, a constant or
        thread-local, and frees the temporaries and the result's table when the program is done.
        """
        held = [
            (a["kind"], self.pool.allocate(a["size"]))
            for a in program["allocations"]
            if a["kind"] in ("output", "tuple", "temporary")
        ]
        for kind, chunk in held:
            if kind != "output":
                self.pool.free(chunk)
        for chunk in release:
            self.pool.free(chunk)
        return [chunk for kind, chunk in held if kind == "output"]


def arguments_of(program):
    return [a["size"] for a in program["allocations"] if a["kind"] == "parameter"]


def replay_leak(pool, program):
    """Replay `leak.py` in `pool`; return how many steps were done and what was refused then."""
    replay = Replay(pool, arguments_of(program))
    loss = None
    for done in itertools.count():
        try:
            outputs = replay.execute(program, release=[loss])
        except OutOfMemory as refused:
            return done, refused.size
        (loss,) = [chunk for chunk in outputs if chunk.size == 256]


def test_the_leak_runs_out_when_arithmetic_says(dryrun, derive):
    (program,) = derive("leak", limit=LIMIT)
    scores = 4096 * 10000 * F32  # kept from every step
    done, requested = replay_leak(Bfc(LIMIT), program)
    # The same by hand: step n needs what is always there and n times the scores.
    always = at_launch(program) - scores
    assert done == (LIMIT - always) // scores

    run = dryrun("leak.py")
    assert (run.summary["fits"], run.code) == (False, 1)
    assert f"kept {done - done % 50}" in run.out
    assert f"kept {done - done % 50 + 50}" not in run.out
    oom = run.summary["oom"]
    assert oom["program"] == "jit_train_step"
    assert oom["requested_bytes"] == requested
    # Nothing can be higher than the last step that was done.
    assert_peak(run, always + done * scores + 256)

    script = (ROOT / "examples" / "leak.py").read_text().splitlines()
    line = 1 + next(n for n, text in enumerate(script) if "= train_step(" in text)
    (leak,) = run.summary["leaks"]
    assert leak["site"].endswith(f"/leak.py:{line} (main)")
    assert (leak["program"], leak["purpose"]) == ("jit_train_step", "output")
    assert (leak["bytes_per_step"], leak["requested_bytes"]) == (scores, leak["steps"] * scores)
    # Its first call is known to be a step, as it has a backward pass: all of them are compared.
    assert leak["steps"] == leak["arrays"] == done
    said = " ".join(run.err.split())
    assert "does not fit: memory leak, 156.2 MiB more in every step from leak.py" in said


def test_the_leak_is_gone_when_scores_go_to_the_host(dryrun, derive):
    (program,) = derive("leak", "--batch", 64, limit=LIMIT)
    run = dryrun("leak.py", "--batch", 64, "--steps", 20, "--on-host")
    assert run.code == 0
    # The scores of the last step are still named while the next step makes new ones.
    last = 64 * 10000 * F32 + 256
    assert_peak(run, at_launch(program) + last)
    assert run.summary["leaks"] == []


def replay_stages(pool, programs):
    """Replay `fragment.py` in `pool`; return the program that failed, or None.

    Twenty steps of a stage allocate alike, so two are enough.
    """
    train, evaluate = programs[::2], programs[1::2]
    # First the seed's key, then the weights, Adam's two moments of both, and its count.
    replay = Replay(pool, [KEY] + [8 * 1024 * 1024 * F32] * 6 + [I32])
    inputs = loss = None
    for step, evaluation in zip(train, evaluate, strict=True):
        longer = pool.allocate(max(arguments_of(step)))
        pool.free(inputs)
        inputs = longer
        for program in (step, step):
            try:
                (loss,) = replay.execute(program, release=[loss])
            except OutOfMemory as refused:
                return program, refused.size
        replay.execute(evaluation)  # what it returns is kept
    return None


@pytest.mark.parametrize("preallocate", [True, False])
def test_a_growing_pool_fragments_and_a_preallocated_one_does_not(preallocate, dryrun, derive):
    """Temporaries of 4.7, 9.3, 18.6 and 37.1 GiB want regions of 8, 16, 32 and 64 GiB.

    Three of them are 56 of the pool's 59.3 GiB, and the fourth request fits in none. Regions
    never merge, so 55 GiB lie free and 37.1 cannot be had. In one piece they can.
    """
    programs = derive("fragment", limit=LIMIT)
    pool = Bfc(LIMIT, preallocate)
    failure = replay_stages(pool, programs)

    env = {} if preallocate else {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    run = dryrun("fragment.py", env=env)
    stages = re.findall(r"length +(\d+)", run.out)
    summary = run.summary
    for ours, theirs in zip(run.programs("jit_train_step"), programs[::2], strict=True):
        assert_same_sizes(ours, theirs)

    if preallocate:
        assert failure is None
        assert (summary["fits"], run.code) == (True, 0)
        assert stages == ["512", "1024", "2048", "4096"]
        assert summary["pool_bytes"] == LIMIT
        # The evaluations of the stages before, the inputs, the state, the last loss.
        kept = sum(rounded(length * 1024 * F32) for length in (512, 1024, 2048))
        assert_peak(run, at_launch(programs[-2]) + kept + 256)
        assert summary["leaks"] == []
    else:
        program, requested = failure
        assert program["name"] == "jit_train_step/4096"
        assert (summary["fits"], run.code) == (False, 1)
        assert stages == ["512", "1024", "2048"]
        assert summary["oom"]["program"] == "jit_train_step"
        assert summary["oom"]["requested_bytes"] == requested == program["temp_bytes"]
        # Enough bytes, no room: what is free and what was never taken exceed the request by far.
        free = LIMIT - at_launch(program) + program["temp_bytes"]
        assert free > requested + 10 * 1024 * MIB
        assert summary["largest_free_block_bytes"] < requested
        assert summary["pool_bytes"] == pool.pool


# --- the page of the examples --------------------------------------------------------------


def shown_on_the_page():
    """Return each dry run of `examples/README.md`: settings, arguments, the headline."""
    page = (ROOT / "examples/README.md").read_text()
    for line, headline in re.findall(r"^\$ (.*vramfit dryrun .*)\n([^$].*)$", page, re.M):
        words = shlex.split(line)
        start = words.index("vramfit")
        yield dict(word.split("=", 1) for word in words[:start]), words[start + 1 :], headline


@pytest.mark.parametrize(
    ("settings", "arguments", "headline"),
    list(shown_on_the_page()),
    ids=[f"{arguments[-1]}-{i}" for i, (_, arguments, _) in enumerate(shown_on_the_page())],
)
def test_the_page_of_the_examples_shows_what_a_dry_run_says(settings, arguments, headline):
    words = [sys.executable if word == "python" else word for word in arguments]
    done = run_vramfit(*words, env=settings, cwd=ROOT / "examples")
    assert headline in done.stderr.splitlines(), done.stderr[-4000:]
    assert done.returncode == (0 if headline.startswith("fits") else 1)
