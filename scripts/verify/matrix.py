"""Runs the same programs on every release of JAX that is supported, with one build of vramfit.

Makes one small environment per `requirements/jax-*.txt`, under `.cache/matrix`, and runs the tests
marked `matrix` in them. An environment takes about 1.2 GB and a minute or two.

    python scripts/verify/matrix.py               # all releases
    python scripts/verify/matrix.py 0.6.2         # one
    python scripts/verify/matrix.py --newest      # the newest of them
    python scripts/verify/matrix.py --outdated    # does pip's index have a newer one?

A release that needs a newer Python than this one gets one: `newer_python.py` says which. Where none
can be found or made the release is skipped, and that is said; in CI, and for a release that was
asked for, it is an error.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

from environments import make_environment
from newer_python import CannotMakeError, find_python, make_python

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / ".cache" / "matrix"
OLDEST = (3, 11)
NEWEST_PYTHON = "3.13"


def main():
    lists = (ROOT / "requirements").glob("jax-*.txt")
    releases = sorted((path.stem.removeprefix("jax-") for path in lists), key=in_order)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=", ".join(releases))
    parser.add_argument("--newest", action="store_true", help=f"the newest, {releases[-1]}")
    parser.add_argument(
        "--outdated", action="store_true", help="exit with 1 if there is a newer JAX"
    )
    arguments = parser.parse_args()
    if arguments.outdated:
        sys.exit(tell_whether_outdated(releases[-1]))
    asked_for = arguments.releases + releases[-1:] * arguments.newest
    tried = []
    for release in asked_for or releases:
        if release not in releases:
            parser.error(f"there is no requirements/jax-{release}.txt")
        needed = needed_python(release)
        try:
            command = find_python(needed) or make_python(needed)
        except CannotMakeError as error:
            told = f"JAX {release} needs Python {'.'.join(map(str, needed))} or newer: {error}"
            if asked_for or os.environ.get("CI"):
                sys.exit(f"matrix: {told}; name one in VRAMFIT_MATRIX_PYTHON")
            print(f"matrix: skipped: {told} (see docs/internals/developing.md)", flush=True)
            continue
        folder = PLACE / f"jax-{release}"
        python = make_environment(folder, list_of_packages(release), command, f"JAX {release}")
        (folder / "command.json").write_text(json.dumps(python))
        tried.append(release)
    # Closed on the right, since 0.12.0 is also how 0.12.0.1 begins.
    wanted = " or ".join(f"[{release}{end}" for release in tried for end in "-]")
    tests = ["tests/test_matrix.py", "tests/test_shortage.py"]
    command = [sys.executable, "-m", "pytest", "-m", "matrix", "-k", wanted, *tests]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)


def in_order(release):
    return [int(number) for number in release.split(".")]


def tell_whether_outdated(listed):
    """Say whether pip's index has a newer JAX than the newest list; return the exit code."""
    found = newest_on_index()
    if in_order(found) <= in_order(listed):
        print(f"JAX {listed} is the newest on pip's index")
        return 0
    print(f"JAX {found} is on pip's index; the newest list is requirements/jax-{listed}.txt")
    return 1


def list_of_packages(release):
    return ROOT / "requirements" / f"jax-{release}.txt"


def needed_python(release):
    """Return the oldest Python that has a release of JAX, as its list of packages says."""
    listed = list_of_packages(release).read_text()
    said = re.search(r"^# Needs Python (\d+)\.(\d+) or newer", listed, re.MULTILINE)
    return (int(said[1]), int(said[2])) if said else OLDEST


def newest_on_index():
    """Return the newest JAX of pip's index, with the newest Python that is tried here."""
    command = [sys.executable, "-m", "pip", "index", "versions", "jax", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--python-version", NEWEST_PYTHON]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    found = re.match(r"jax \((\S+)\)", answer.stdout)
    if found is None:
        sys.exit("matrix: pip's index does not say which releases of JAX there are")
    return found[1]


if __name__ == "__main__":
    main()
