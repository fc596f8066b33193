"""What several test files share."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture
def on_virtual_gpu():
    """Return a function that runs a script on virtual cards and returns what it printed."""

    def run(script, *, devices=1, gpu="h100-80g", **environment):
        own = {
            "PYTHONPATH": str(ROOT / "python" / "vramfit" / "_standin"),
            "VRAMFIT_GPU": gpu,
            "VRAMFIT_GPU_COUNT": str(devices),
            "JAX_PLATFORMS": "cuda,cpu",
        }
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **own, **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout.split("\n")[:-1]

    return run
