"""The programs of `tests/matrix` run on every supported release of JAX.

The release that is installed here runs with the ordinary tests; the others with `make matrix`, and
those that need a newer Python where there is one.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from on_gpu import environment

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "tests" / "matrix").glob("*.py"))
RELEASES = sorted(path.stem.removeprefix("jax-") for path in (ROOT / "requirements").glob("jax-*"))
# All others run on one GPU.
ON_EIGHT_CARDS = ("devices", "sharded_offloading", "sharded_step")


def run(command, script):
    count = 8 if script.stem in ON_EIGHT_CARDS else 1
    done = subprocess.run(
        [*command, script],
        env=environment(count=count),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_installed_release(script):
    run([sys.executable], script)


@pytest.mark.matrix
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("release", RELEASES)
def test_release(release, script):
    command = ROOT / ".cache" / "matrix" / f"jax-{release}" / "command.json"
    assert command.is_file(), f"{command} is not there: `make matrix`"
    run(json.loads(command.read_text()), script)
