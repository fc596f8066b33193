"""Runs the same programs on every release of JAX that is supported, with one build of vramfit.

Makes one small environment per `requirements/jax-*.txt`, under `.cache/matrix`, and runs the tests
marked `matrix` in them. An environment takes about 1.2 GB and a minute or two.

    python scripts/matrix.py            # all releases
    python scripts/matrix.py 0.6.2      # one

A release that needs a newer Python than this one gets the first that is new enough: the command in
VRAMFIT_MATRIX_PYTHON, or a python3.N on the PATH. The command may have words before the Python, as
has `chroot /srv/trixie python3`; the checkout must be there under the same path. Without one the
release is skipped, and that is said; one that was asked for by name is then an error.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from environments import make_environment

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / ".cache" / "matrix"
OLDEST = (3, 11)
NEWEST_LOOKED_FOR = 14


def main():
    releases = [path.stem.removeprefix("jax-") for path in (ROOT / "requirements").glob("jax-*")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=", ".join(sorted(releases)))
    asked_for = parser.parse_args().releases
    tried = []
    for release in asked_for or sorted(releases):
        if release not in releases:
            parser.error(f"there is no requirements/jax-{release}.txt")
        needed = needed_python(release)
        command = python_of_at_least(needed)
        if command is not None:
            folder, listed = PLACE / f"jax-{release}", list_of_packages(release)
            python = make_environment(folder, listed, command, f"JAX {release}")
            (folder / "command.json").write_text(json.dumps(python))
            tried.append(release)
            continue
        wanted = ".".join(map(str, needed))
        told = f"JAX {release} needs Python {wanted} or newer; name one in VRAMFIT_MATRIX_PYTHON"
        if asked_for:
            sys.exit(f"matrix: {told}")
        print(f"matrix: skipped: {told} (CONTRIBUTING.md says how to get one)", flush=True)
    wanted = " or ".join(f"[{release}" for release in tried)
    command = [sys.executable, "-m", "pytest", "-m", "matrix", "-k", wanted, "tests/test_matrix.py"]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)


def list_of_packages(release):
    return ROOT / "requirements" / f"jax-{release}.txt"


def needed_python(release):
    """Return the oldest Python that has a release of JAX, as its list of packages says."""
    listed = list_of_packages(release).read_text()
    said = re.search(r"^# Needs Python (\d+)\.(\d+) or newer", listed, re.MULTILINE)
    return (int(said[1]), int(said[2])) if said else OLDEST


def python_of_at_least(needed):
    """Return the command of a Python that is new enough, as a list of words; None without one."""
    named = shlex.split(os.environ.get("VRAMFIT_MATRIX_PYTHON", ""))
    if named and version(named) is None:
        sys.exit(f"matrix: VRAMFIT_MATRIX_PYTHON: `{shlex.join(named)}` is no Python that starts")
    on_path = ([f"python3.{minor}"] for minor in range(needed[1], NEWEST_LOOKED_FOR + 1))
    for command in ([sys.executable], named, *on_path):
        found = version(command) if command else None
        if found is not None and found >= needed:
            return command
    return None


def version(command):
    """Return the version of a Python, as two numbers; None when it does not start."""
    ask = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([*command, "-c", ask], capture_output=True, text=True)
        return tuple(map(int, answer.stdout.split())) if answer.returncode == 0 else None
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    main()
