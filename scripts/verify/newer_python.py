"""Finds a Python that is newer than the one of the environment, or makes one.

    python scripts/verify/newer_python.py 3.12     # prints the command of Python 3.12 or newer

The first that works of: this Python, the command in VRAMFIT_MATRIX_PYTHON, a python3.N on the PATH,
one that pyenv installed. Without any, one is made of the packages of a newer Debian, with apt and
from the mirror that the machine's own sources name, and kept under `.cache/python` (63 MB). That
needs neither root, nor a chroot, nor mounts.

The command may have words before the Python, as has `chroot /srv/trixie python3`; the checkout must
be there under the same path.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / ".cache" / "python"
# The order in which minor versions are looked for: first what the lists of packages are tried with.
MINORS = (13, 12, 14)
# The release of Debian that a Python is made of, its version, and what it needs: packages of PyPI
# contain code in C++ and rely on the system for its library.
DEBIAN = "trixie"
MADE = (3, 13)
PACKAGES = ("python3.13-venv", "libstdc++6")
# Packages of PyPI load these by name, some with a search path of their own, on which those of this
# system come first; parts of two releases of glibc do not work in one process.
LOADED_EARLY = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6")

# patchelf is a package of the environment.
SEARCH_PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"


class CannotMakeError(Exception):
    """No Python can be made on this machine; the text says why."""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("needed", metavar="VERSION", help="the oldest that will do, such as 3.12")
    parser.add_argument("--make", action="store_true", help="make one even if one is installed")
    arguments = parser.parse_args()
    needed = tuple(map(int, arguments.needed.split(".")))
    try:
        found = None if arguments.make else find_python(needed)
        print(shlex.join(found or make_python(needed)))
    except CannotMakeError as error:
        sys.exit(f"newer_python: {error}")


def find_python(needed):
    """Return the command of an installed Python that is new enough, as words; None without one."""
    named = shlex.split(os.environ.get("VRAMFIT_MATRIX_PYTHON", ""))
    if named and version(named) is None:
        sys.exit(
            f"VRAMFIT_MATRIX_PYTHON: `{shlex.join(named)}` is no Python that makes environments"
        )
    on_path = [[f"python3.{minor}"] for minor in MINORS]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    of_pyenv = [
        [str(path)]
        for minor in MINORS
        for path in sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python3.{minor}"))
    ]
    for command in ([sys.executable], named, *on_path, *of_pyenv):
        found = version(command) if command else None
        if found is not None and found >= needed:
            return command
    return None


def version(command):
    """Return the version of a Python, as two numbers; None for one that makes no environments."""
    ask = "import sys, ensurepip, ssl, venv; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([*command, "-c", ask], capture_output=True, text=True)
        return tuple(map(int, answer.stdout.split())) if answer.returncode == 0 else None
    except (OSError, ValueError):
        return None


def make_python(needed):
    """Make a Python of Debian's packages, unless it is there, and return its command as words."""
    if needed > MADE:
        raise CannotMakeError(f"{DEBIAN} has no Python {'.'.join(map(str, needed))}")
    python = PLACE / "usr" / "bin" / f"python{MADE[0]}.{MADE[1]}"
    stamp = PLACE / ".complete"
    # Absolute paths are in it, so that it cannot be moved.
    if stamp.is_file() and stamp.read_text() == str(PLACE):
        return [str(python)]
    for tool in ("apt-get", "dpkg-deb", "patchelf"):
        if shutil.which(tool, path=SEARCH_PATH) is None:
            raise CannotMakeError(f"there is no `{tool}`, with which one can be made")
    print(f"making Python {MADE[0]}.{MADE[1]} of packages of Debian", file=sys.stderr, flush=True)
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    for package in download_packages(PLACE / "apt"):
        run("dpkg-deb", "-x", package, PLACE)
    relocate(python)
    if version([str(python)]) != MADE:
        raise CannotMakeError(f"{python} was made but does not work")
    shutil.rmtree(PLACE / "apt")
    stamp.write_text(str(PLACE))
    return [str(python)]


def download_packages(folder):
    """Download the packages and all that they need, verified by apt; return their paths."""
    options = private_apt(folder)
    asked = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    refused = "apt has no sources here"
    for mirror in dict.fromkeys(asked.split()):
        (folder / "sources.list").write_text(f"deb {mirror} {DEBIAN} main\n")
        try:
            run("apt-get", "update", *options)
            run("apt-get", "install", "--yes", "--download-only", *options, *PACKAGES)
        except CannotMakeError as error:
            # A mirror of another distribution, or of security updates, has no such suite.
            refused = str(error)
            continue
        return sorted((folder / "cache" / "archives").glob("*.deb"))
    raise CannotMakeError(f"no source of apt has {DEBIAN}; {refused}")


def private_apt(folder):
    """Return options with which apt has a state of its own, and leaves the machine's alone.

    The machine's configuration, as of a proxy, and its keys are used.
    """
    for below in ("state/lists/partial", "cache/archives/partial"):
        (folder / below).mkdir(parents=True)
    (folder / "state" / "status").touch()
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state" / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Architecture": "amd64",
        "APT::Install-Recommends": "false",
        # Root would otherwise download as a user who may not write here.
        "APT::Sandbox::User": "",
        "APT::Update::Error-Mode": "any",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Acquire::Languages": "none",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def relocate(python):
    """Make an unpacked Python work where it is, with its own loader, glibc and libraries.

    They are named in the executable, not in variables or a wrapper, so that programs that it starts
    are not affected, and `sys.executable` can be started like any other.
    """
    libraries = PLACE / "usr" / "lib" / "x86_64-linux-gnu"
    needed = [word for name in LOADED_EARLY for word in ("--add-needed", name)]
    # RPATH, unlike RUNPATH, is also that of libraries which have none.
    search = ["--force-rpath", "--set-rpath", libraries]
    interpreter = ["--set-interpreter", libraries / "ld-linux-x86-64.so.2"]
    run("patchelf", *interpreter, *search, *needed, python)
    # Where `ensurepip` finds pip.
    wheels = "/usr/share/python-wheels/"
    for constants in (PLACE / "usr" / "lib" / python.name).glob("_sysconfigdata_*.py"):
        constants.write_text(constants.read_text().replace(f"'{wheels}'", f"'{PLACE}{wheels}'"))


def run(*command):
    """Run a program, and return what it prints; its errors become ours."""
    words = [str(word) for word in command]
    environment = os.environ | {"PATH": SEARCH_PATH}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it says nothing"]
        raise CannotMakeError(f"`{command[0]} {command[1]}` failed: {lines[-1]}")
    return done.stdout


if __name__ == "__main__":
    main()
