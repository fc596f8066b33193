"""Checkpoints that are not whole are passed over with a word; a full disk harms none."""

import asyncio
import gc
import shutil
import sys
import textwrap
import types

import jax
import numpy as np
import pytest
from commands import run_python
from training import load, same, start, step, write

from vramfit.errors import InvalidFileError
from vramfit.train import Checkpoints, fit
from vramfit.train.checkpoint.tracebacks import TracebackFilter


def cut(path, data):
    path.write_bytes(data[: len(data) // 2])


def lose(path, data):
    path.unlink()


def flip(path, data):
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :])


# Orbax leaves coroutines behind when it cannot read.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", [cut, lose, flip], ids=lambda damage: damage.__name__)
def test_t7_a_damaged_checkpoint_is_never_loaded(tmp_path, damage):
    train = write(tmp_path / "train.h5", rows=256)
    good, run = tmp_path / "good", tmp_path / "run"
    policy = Checkpoints(every_steps=3, keep_last=2, keep_best=0)
    options = {"checkpoints": policy, "progress": "none"}
    fit(step, start(), load(train), directory=good, **options)
    whole = fit(step, start(), load(train), epochs=2, progress="none").state
    files = [path for path in (good / "checkpoints" / "8").rglob("*") if path.is_file()]
    assert len(files) > 5
    skipped = 0
    for file in files:
        shutil.copytree(good, run)
        damage(run / file.relative_to(good), file.read_bytes())
        result = fit(step, start(), load(train), directory=run, epochs=2, **options)
        assert same(result.state, whole), file
        # Some files are of no consequence; without the others the checkpoint is not used.
        if result.resumed_at != 8:
            assert result.resumed_at == 6
            assert "the checkpoint of step 8 is damaged and was skipped" in result.notes[0]
            assert (run / "damaged-checkpoints" / "8").is_dir()
            skipped += 1
        shutil.rmtree(run)
    assert skipped >= 3
    gc.collect()


def test_t7_a_bit_that_changed_is_noticed(tmp_path):
    # Orbax itself restores such a checkpoint: its data has no checksums.
    batches = [np.zeros(1)]
    state = {"w": jax.random.normal(jax.random.key(0), (64, 64))}
    run = tmp_path / "run"

    def keep(state, batch):
        return state, batch[0]

    fit(keep, state, batches, directory=run, progress="none", donate=False)
    data = max((run / "checkpoints" / "1").rglob("*"), key=lambda path: path.stat().st_size)
    content = data.read_bytes()
    assert len(content) > 64 * 64 * 3
    data.write_bytes(content[:9000] + bytes([content[9000] ^ 1]) + content[9001:])
    with pytest.raises(InvalidFileError, match="step 1: checksum mismatch in its arrays"):
        fit(keep, state, batches, directory=run, progress="none")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("resume", ["auto", True])
def test_a_run_none_of_whose_checkpoints_can_be_read_does_not_begin_anew(tmp_path, resume):
    train = write(tmp_path / "train.h5", rows=256)
    run = tmp_path / "run"
    options = {
        "directory": run,
        "checkpoints": Checkpoints(every_steps=3, keep_last=2, keep_best=0),
        "progress": "none",
    }
    fit(step, start(), load(train), **options)
    for kept in (6, 8):
        lose(run / f"checkpoints/{kept}/run_metadata/metadata", None)
    before = content(run)
    with pytest.raises(InvalidFileError) as caught:
        fit(step, start(), load(train), epochs=2, resume=resume, **options)
    assert f"no checkpoint in `{run}/checkpoints` can be read: step 8: " in caught.value.message
    assert "; step 6: " in caught.value.message
    assert caught.value.message.count("No such file") == 2
    assert "`resume=False` starts over" in caught.value.hint
    assert content(run) == before, "nothing was moved or written"

    (note,) = fit(step, start(), load(train), resume=False, **options).notes
    assert note.endswith(f"(`checkpoints`, `metrics.jsonl`, `run.json`) to `{run}/previous-1`")
    kept = {
        name.removeprefix("previous-1/"): data
        for name, data in content(run).items()
        if name.startswith("previous-1/")
    }
    assert kept == before
    assert fit(step, start(), load(train), epochs=2, **options).resumed_at == 8
    # Also one that is whole is not lost.
    (note,) = fit(step, start(), load(train), resume=False, **options).notes
    assert note.endswith("previous-2`")


def content(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".vramfit.lock"
    }


FOREIGN = {
    "garbage": (b"\xff\xfe\x00binary\x80", 1),
    "half a line": (b'{"event": "steps", "st', 1),
    "a tail of zeros": (bytes(4096), 0),
    "a number beyond all": (b'{"event": "steps", "step": 1e999}', 1),
    "deep": (b"[" * 100_000, 1),
    "no object": (b"7\nnull", 2),
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_run_resumes_with_foreign_bytes_in_its_metrics(tmp_path, foreign):
    train = write(tmp_path / "train.h5", rows=256)
    run = tmp_path / "run"
    fit(step, start(), load(train), directory=run, log_every=2, progress="none")
    path = run / "metrics.jsonl"
    good = path.read_bytes().splitlines(keepends=True)
    assert len(good) > 4
    added, left_out = FOREIGN[foreign]
    # In the middle, where zeros have no end of their own, and at the end.
    tail = b"" if left_out == 0 else b"\n"
    path.write_bytes(b"".join([*good[:3], added, tail, *good[3:], added]))
    result = fit(step, start(), load(train), epochs=2, directory=run, progress="none")
    assert result.resumed_at == 8
    assert path.read_bytes().splitlines(keepends=True)[: len(good)] == good
    if left_out == 0:
        assert result.notes == ()
    else:
        text = f"{2 * left_out} lines of `metrics.jsonl` could not be read"
        assert result.notes == (f"{text}, moved to `metrics.jsonl.unreadable`",)
        assert (run / "metrics.jsonl.unreadable").read_bytes() == 2 * (added + b"\n")


def test_a_write_that_ends_after_its_event_loop_prints_nothing(monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    tracebacks = TracebackFilter()
    tracebacks.install()
    tracebacks.remove()
    loop = asyncio.new_event_loop()
    loop.close()
    for function in (loop.call_soon_threadsafe, lambda _: 1 / 0):
        try:
            function(print)
        except Exception as error:
            # Called from C, there is no frame of the caller's.
            cause = types.SimpleNamespace(
                exc_value=error, exc_traceback=error.__traceback__.tb_next
            )
            sys.unraisablehook(cause)
    assert [type(each.exc_value) for each in printed] == [ZeroDivisionError]


def test_t7_a_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    # A limit on the size of files stands for the disk: what is too large cannot be written.
    code = """
        import resource, signal, sys
        import jax, jax.numpy as jnp
        from vramfit.train import Checkpoints, fit

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        def step(state, batch):
            if_large = jnp.where(batch[0] > 3, 1.0, 0.0)
            noise = jax.random.normal(jax.random.key(0), state["w"].shape)
            return {"w": state["w"] + if_large * noise}, state["w"][0]

        batches = [jnp.full(1, number) for number in range(8)]
        # Zeros compress to nothing, so the first checkpoints are written.
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        result = fit(
            step,
            {"w": jnp.zeros(100_000)},
            batches,
            directory=sys.argv[1],
            checkpoints=Checkpoints(every_steps=2),
            progress="plain",
        )
        print(result.steps, result.save_error, *result.notes, sep="\\n")
    """
    run = tmp_path / "run"
    done = run_python("-c", textwrap.dedent(code), run, env={"JAX_PLATFORMS": "cpu"}, timeout=100)
    steps, save_error, *notes = done.stdout.splitlines()
    assert steps == "8", done.stderr
    assert save_error == "File too large"
    assert notes == ["2 checkpoints (steps 6, 8) could not be saved: File too large"]
    # Told once when it happens, and once in the report; orbax's own tracebacks are not shown.
    assert done.stderr.count("could not be saved: File too large") == 2
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["2", "4"]
    calm = {"w": jax.numpy.zeros(100_000)}
    batches = [np.full(1, number) for number in range(8)]
    again = fit(
        lambda state, batch: (state, batch[0]), calm, batches, directory=run, progress="none"
    )
    assert again.resumed_at == 4
