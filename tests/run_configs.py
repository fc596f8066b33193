"""Configurations of dry runs, for programs that are started without the command line."""

import atexit
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent / "python"
VARIABLE = "VRAMFIT_RUN_CONFIG"
_numbers = itertools.count()


def write_run_config(gpu="h100-80g", count=1, **fields):
    """Write a configuration that this process removes when it ends, and return its path.

    Args:
        gpu: Name of the virtual GPU.
        count: How many of it.
        fields: Other fields of `RunConfig` in Rust; those left out have their defaults.
    """
    described = _describe(gpu)
    config = {
        "gpus": {"gpu": described, "name": gpu, "count": count},
        "context_bytes": described["context_bytes_estimate"],
        "compilation_cache": os.environ.get("VRAMFIT_COMPILATION_CACHE") or None,
        **fields,
    }
    path = _folder() / f"{next(_numbers)}.json"
    path.write_text(json.dumps(config))
    return str(path)


@functools.cache
def _describe(gpu):
    done = subprocess.run(
        [sys.executable, "-m", "vramfit", "gpus", "show", gpu, "--json"],
        env=os.environ | {"PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)["gpu"]


@functools.cache
def _folder():
    folder = tempfile.mkdtemp(prefix="vramfit-run-configs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
