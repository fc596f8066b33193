"""Where training runs: a device that is required, several, several processes, a virtual GPU."""

import json
import sys
import textwrap

import numpy as np
import pytest
from cli_dryrun import dryrun_of
from commands import ROOT, hold_port, start_command
from training import evaluate, load, start, step

from vramfit.errors import VerificationFailedError
from vramfit.train import fit

HEAD = """
import sys
sys.path.insert(0, "TESTS")
import jax, jax.numpy as jnp, numpy as np
from training import evaluate, load, start, step
from vramfit.train import Checkpoints, fit
""".replace("TESTS", str(ROOT / "tests"))


def begin(code, *arguments, devices=1, **environment):
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags} | environment
    words = [sys.executable, "-c", HEAD + textwrap.dedent(code), *arguments]
    return start_command(*words, env=environment)


def run(code, *arguments, **options):
    child = begin(code, *arguments, **options)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    return out


def test_t8_a_device_that_is_not_there_is_an_error_that_says_what_is(train):
    for wish in ("cuda", "gpu", "metal"):
        with pytest.raises(VerificationFailedError) as caught:
            fit(step, start(), load(train), device=wish)
        assert f"`device='{wish}'` is required, but JAX has only: cpu" in str(caught.value)


def test_t8_a_device_that_is_preferred_only_is_done_without_and_reported(train):
    result = fit(step, start(), load(train), device="cuda?", progress="none")
    assert result.device.startswith("CPU")
    assert "no GPU is available" in result.notes[0]
    assert "no GPU is available" in str(result)


def test_t8_the_device_is_named(train):
    result = fit(step, start(), load(train), device="cpu", progress="none")
    assert "CPU" in result.device
    assert result.peak_host_bytes > 1 << 20
    assert result.peak_device_bytes is None
    assert "JAX does not count memory on cpu" in result.peak_device_unknown


DIVIDED = """
result = fit(step, start(), load(sys.argv[1]), epochs=2, log_every=4, progress="none", **OPTIONS)
print(result.device, jax.tree.leaves(result.state)[0].sharding.num_devices, sep="|")
print(*[epoch.train["loss"] for epoch in result.epochs])
"""


def test_v9_a_batch_is_divided_among_all_devices(train):
    out = run(DIVIDED.replace("OPTIONS", "{}"), train, devices=4).splitlines()
    assert out[0] == "4 × CPU|4"
    alone = fit(step, start(), load(train), epochs=2, progress="none")
    losses = [epoch.train["loss"] for epoch in alone.epochs]
    assert np.allclose([float(word) for word in out[1].split()], losses, rtol=1e-5)


def test_batches_of_a_mixture_are_divided_and_padded(train):
    code = """
        from vramfit.data import Mixture
        # Not of the sizes of their last batches, of which 4 devices have no equal parts.
        loaders = {
            "most": load(sys.argv[1], last_batch=None, mask=None, split=("train", 0.25)),
            "few": load(sys.argv[1], last_batch=None, mask=None, rows=range(101)),
        }
        mixture = Mixture(loaders, batches=30, seed=1)
        result = fit(step, start(), mixture, epochs=2, progress="none")
        print(result.device, result.steps, *np.asarray(result.state["w"]))
    """
    found = [run(code, train, devices=devices).split() for devices in (1, 4)]
    assert found[1][:4] == ["4", "×", "CPU", "60"]
    numbers = [[float(word) for word in words[-4:]] for words in found]
    assert np.allclose(*numbers, rtol=1e-5)


def test_v9_a_state_that_is_divided_stays_so(train):
    code = """
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("model", "data"))
        state = start()
        state["w"] = jax.device_put(state["w"], NamedSharding(mesh, P("model")))
        run = sys.argv[2]
        fit(step, state, load(sys.argv[1]), progress="none", directory=run)
        state = start()
        state["w"] = jax.device_put(state["w"], NamedSharding(mesh, P("model")))
        result = fit(step, state, load(sys.argv[1]), epochs=2, progress="none", directory=run)
        print(result.state["w"].sharding.spec, result.state["momentum"].sharding.spec)
        print(result.resumed_at, *np.asarray(result.state["w"]))
    """
    where, numbers = run(code, train, train.parent / "run", devices=4).splitlines()
    assert where.split(" P", 1)[0].endswith("('model',)")
    alone = fit(step, start(), load(train), epochs=2, progress="none")
    found = [float(word) for word in numbers.split()]
    assert found[0] == 32
    assert np.allclose(found[1:], alone.state["w"], rtol=1e-5)


def test_v9_a_batch_that_cannot_be_divided_is_refused(train):
    code = """
        try:
            fit(step, start(), load(sys.argv[1], batch_size=30))
        except ValueError as error:
            print(error)
    """
    out = run(code, train, devices=4)
    assert "the batches of `data` have 30 rows" in out
    assert "hint: use batches of 32 rows" in out


def test_changes_of_the_state_keep_its_place_on_several_devices(train):
    code = """
    from vramfit.train import EpochEnd, LogPoint
    def train_step(state, batch):
        new, metrics = step(state["own"], batch)
        return {**state, "own": new}, metrics
    def change(event, run):
        if isinstance(event, LogPoint):
            run.learning_rate = run.learning_rate / 2
        elif isinstance(event, EpochEnd):
            run.state = {**run.state, "own": {**run.state["own"], "w": np.ones(4, "f4")}}
            print(run.evaluate()["loss"] > 0)
    state = {"own": start(), "hyperparams": {"learning_rate": jnp.asarray(1.0)}}
    result = fit(train_step, state, load(sys.argv[1]), epochs=2, log_every=8, progress="none",
                 eval_step=lambda s, b: evaluate(s["own"], b), eval_data=load(sys.argv[1]),
                 callbacks=[change])
    print(result.programs, float(result.state["hyperparams"]["learning_rate"]))
    print({len(leaf.sharding.device_set) for leaf in jax.tree.leaves(result.state)})
    """
    assert run(code, train, devices=4).splitlines() == ["True", "True", f"2 {0.5**8}", "{4}"]


PROCESSES = """
import signal
jax.distributed.initialize(f"localhost:{sys.argv[2]}", 2, int(sys.argv[3]))
from vramfit.train.devices import batch_sharding
sharding = batch_sharding()
def at(path, **options):
    return load(path, sharding=sharding, **options)
mode, run = sys.argv[4], sys.argv[5]
def make(epochs, **more):
    return fit(step, start(), at(sys.argv[1], split=("train", 0.1)), eval_step=evaluate,
               eval_data=at(sys.argv[1], split=("validation", 0.1), mask=True), epochs=epochs,
               log_every=4, progress="plain", directory=run, **more)
callbacks = []
if mode in ("signal", "callback"):
    # One process of the two is asked to stop, at some moment of the second epoch.
    def ask(event, control):
        if control.epoch != 2 or jax.process_index() != 1 or type(event).__name__ != "LogPoint":
            return
        if mode == "signal":
            control._loop.signals.received = int(signal.SIGTERM)
        else:
            control.stop("it is enough")
    callbacks = [ask]
if mode == "blind":
    from vramfit.train.checkpoint.manager import CheckpointManager
    read = CheckpointManager.read_metadata
    def fails(method, at, rank):
        def either(self, step, *more):
            if step == at and jax.process_index() == rank:
                raise OSError("this process cannot read it")
            return method(self, step, *more)
        return either
    CheckpointManager.read_metadata = fails(read, 87, 1)
result = make(3, callbacks=callbacks)
numbers = np.asarray(result.state["w"].addressable_data(0))
print(json.dumps({"stopped": result.stop_reason, "steps": result.steps, "w": numbers.tolist(),
                  "at": result.resumed_at, "reason": str(result).splitlines()[3],
                  "losses": [[e.train["loss"], e.validation["loss"]] for e in result.epochs
                             if e.complete]}))
""".replace("import signal\n", "import json, signal\n", 1)


def two_processes(train, directory, mode="whole"):
    port = hold_port()
    both = [begin(PROCESSES, train, port, rank, mode, directory) for rank in (0, 1)]
    ends = [child.communicate(timeout=150) for child in both]
    for child, (_, err) in zip(both, ends, strict=True):
        assert child.returncode == 0, err
    # Gloo says who is connected before.
    return [json.loads(out.splitlines()[-1]) for out, _ in ends]


def test_v9_two_processes_learn_what_one_does(train, tmp_path):
    first, second = two_processes(train, tmp_path / "run")
    assert first == second
    alone = fit(
        step,
        start(),
        load(train, split=("train", 0.1)),
        eval_step=evaluate,
        eval_data=load(train, split=("validation", 0.1), mask=True),
        epochs=3,
        progress="none",
    )
    losses = [[epoch.train["loss"], epoch.validation["loss"]] for epoch in alone.epochs]
    assert first["steps"] == alone.steps
    assert np.allclose(first["losses"], losses, rtol=1e-5)
    assert np.allclose(first["w"], alone.state["w"], rtol=1e-5)


@pytest.mark.parametrize("mode", ["signal", "callback"])
def test_v9_a_request_to_one_process_stops_both_at_one_step(train, tmp_path, mode):
    run = tmp_path / "run"
    first, second = two_processes(train, run, mode)
    reasons = [result.pop("reason") for result in (first, second)]
    assert reasons[0].endswith(f"a {mode} in another process".replace("signal in", "signal to"))
    assert first == second
    assert first["stopped"] == mode
    assert 29 < first["steps"] < 58
    again, _ = two_processes(train, run)
    assert again["at"] == first["steps"]
    whole, _ = two_processes(train, tmp_path / "whole")
    assert again["losses"] == whole["losses"]
    assert again["w"] == whole["w"]


def test_v9_no_process_resumes_from_what_one_cannot_read(train, tmp_path):
    run = tmp_path / "run"
    whole, _ = two_processes(train, run)
    assert whole["steps"] == 87
    first, second = two_processes(train, run, "blind")
    assert first == second
    assert 0 < first["at"] < 87, "the newest one was passed over by both"
    assert first["losses"] == whole["losses"]
    assert first["w"] == whole["w"]
    assert (run / "damaged-checkpoints" / "87").is_dir()


def dry_run(tmp_path, program, gpu="t4"):
    lines = HEAD + textwrap.dedent(program)
    return dryrun_of(tmp_path, lines, gpu=gpu, timeout=170)


def test_v1_training_runs_on_a_virtual_gpu_and_believes_no_value(train, tmp_path):
    run = tmp_path / "run"
    said = dry_run(
        tmp_path,
        f"""
        result = fit(step, start(), load({str(train)!r}, split=("train", 0.1)),
                     eval_step=evaluate, eval_data=load({str(train)!r}, split=("validation", 0.1)),
                     epochs=3, stop_after=1, device="cuda", directory={str(run)!r})
        print(result.stop_reason, result.steps, result.epochs[0].train, result.peak_device_bytes)
        """,
    )
    assert said.code == 0, said.err
    assert said.summary["fits"] is True
    assert said.summary["unknown_reads"] == []
    assert said.out.startswith("finished 87 None")
    assert "unknown on a virtual GPU" in said.err
    assert "nothing is written" in said.err
    assert not run.exists()


def test_t14_a_step_that_finds_no_memory_says_what_it_needs(train, tmp_path):
    said = dry_run(
        tmp_path,
        f"""
        def large(state, batch):
            rows = batch["x"].shape[0]
            noise = jax.random.normal(jax.random.key(0), (rows, 1 << 27))
            hidden = jnp.tanh(noise @ noise.T @ noise)
            return state, hidden.sum()

        fit(large, start(), load({str(train)!r}), progress="none")
        """,
    )
    assert said.summary["fits"] is False
    text = said.err
    message = "InsufficientMemoryError: out of memory: step 1 on cuda:0 with a batch of 32 rows"
    assert message in text
    assert "the step needs" in text
    assert "hint: use a smaller batch" in text
