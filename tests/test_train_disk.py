"""`vramfit train` where nothing can be written: exit code 1, in words, whatever it is."""

import subprocess
import sys

import pytest
from commands import VRAMFIT, run_command
from train_command import environment, write

# A file system of its own, which this process may make in a namespace of its own.
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.fixture
def small_disk(sequences):
    """Run a shell script beside a file system `small` of a megabyte."""
    (sequences / "small").mkdir()
    mount = "mount -t tmpfs -o size=1m none small"
    tried = subprocess.run([*UNSHARE, "sh", "-c", mount], cwd=sequences, capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"no file system can be made here: {tried.stderr.decode().strip()}")

    def run(script, *options):
        words = [*VRAMFIT, "train", "train.toml", *options]
        command = " ".join(f"'{word}'" for word in words)
        return run_command(
            *[*UNSHARE, "sh", "-c", f"{mount} && {script.replace('TRAIN', command)}"],
            cwd=sequences,
            env=environment(),
        )

    return run


FILL = "dd if=/dev/zero of=small/fill bs=1k 2> dd.log;"
IN_SMALL = ["--set", "training.directory=small/run"]
CASES = {
    "full from the start": (f"{FILL} TRAIN", IN_SMALL, "cannot"),
    "read-only": ("mount -o remount,ro small && TRAIN", IN_SMALL, "cannot create the directory"),
    "full temporary directory": (f"{FILL} TMPDIR=small TRAIN", [], "cannot"),
    "full while it trains": ("TRAIN", IN_SMALL, "the final state (step 2) could not be saved"),
    "full standard output": (f"{FILL} TRAIN --json > small/out", [], "cannot write to standard"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_written_is_a_failure_and_no_wrong_request(sequences, small_disk, name):
    script, options, said = CASES[name]
    # Some megabytes of parameters.
    write(
        sequences,
        data={"batch_size": 2700},
        model={"hidden_sizes": [600, 600]},
        training={"epochs": 1},
    )
    done = small_disk(script, *options)
    assert done.returncode == 1, done.stderr
    assert "error[io]: " in done.stderr or '"id":"io"' in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_that_cannot_be_written_does_not_hide_the_outcome(sequences):
    write(sequences, training={"epochs": 1})
    (sequences / "run/report.html").mkdir(parents=True)
    done = run_command(*VRAMFIT, "train", "train.toml", cwd=sequences, env=environment(), code=1)
    assert "TRAINING COMPLETE!" in done.stderr
    assert "error[io]: cannot write `run/report.html`" in done.stderr
    assert list((sequences / "run/checkpoints").iterdir())


def test_messages_that_cannot_be_written_do_not_end_the_training(sequences, small_disk):
    write(sequences)
    done = small_disk(f"{FILL} TRAIN 2> small/log")
    assert done.returncode == 0, done.stdout
    assert list((sequences / "run/checkpoints").iterdir())


def test_what_is_wrong_with_the_request_is_exit_code_2(sequences):
    write(sequences, data={"path": "nowhere.h5"})
    command = [sys.executable, "-m", "vramfit", "train", "train.toml"]
    done = run_command(*command, cwd=sequences, env=environment(), code=2)
    assert "nowhere.h5" in done.stderr
    assert not (sequences / "run").exists()
