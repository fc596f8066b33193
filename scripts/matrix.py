"""Runs the same programs on every release of JAX that is supported, with one build of vramfit.

Makes one small environment per `requirements/jax-*.txt`, under `.cache/matrix`, and runs the tests
marked `matrix` in them. An environment takes about 1.2 GB and a minute or two.

    python scripts/matrix.py            # all releases
    python scripts/matrix.py 0.6.2      # one
"""

import argparse
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / ".cache" / "matrix"


def main():
    releases = [path.stem.removeprefix("jax-") for path in (ROOT / "requirements").glob("jax-*")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=", ".join(sorted(releases)))
    chosen = parser.parse_args().releases or sorted(releases)
    for release in chosen:
        if release not in releases:
            parser.error(f"there is no requirements/jax-{release}.txt")
        make_environment(release)
    wanted = " or ".join(f"[{release}-" for release in chosen)
    command = [sys.executable, "-m", "pytest", "-m", "matrix", "-k", wanted, "tests/test_matrix.py"]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)


def make_environment(release):
    """Make the environment of a release, unless it is there and its list has not changed."""
    listed = ROOT / "requirements" / f"jax-{release}.txt"
    folder = PLACE / f"jax-{release}"
    stamp = folder / ".complete"
    if stamp.is_file() and stamp.read_text() == listed.read_text():
        return
    print(f"matrix: installing JAX {release}", flush=True)
    venv.create(folder, with_pip=True)
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
    install += ["--disable-pip-version-check", "-r", listed]
    if subprocess.run(install).returncode != 0:
        sys.exit(f"matrix: JAX {release} could not be installed; see above")
    stamp.write_text(listed.read_text())


if __name__ == "__main__":
    main()
