"""The release wheel runs on old systems, and needs nothing but Python.

`make test-wheel` builds it in `build/wheel` and runs this. What is installed from it is started
without network, with no program on the PATH but those of its environment, and with a home that
cannot be written.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import ROOT, SCRIPTS, run_command, run_python, run_vramfit
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

pytestmark = pytest.mark.wheel

FOLDER = ROOT / "build" / "wheel"
# That of RHEL 8 and its relatives, the oldest system on which the wheels of JAX run.
OLDEST_GLIBC = (2, 28)
# What a process needs of a system beyond glibc itself; other libraries may be missing.
OF_GLIBC = re.compile(r"(libc|libm|libpthread|libdl|librt|libutil|ld-linux-x86-64)\.so\.\d+")
PROGRAM = """
import jax
import jax.numpy as jnp

step = jax.jit(lambda weights, x: weights - jax.grad(lambda w: jnp.sum((x @ w) ** 2))(weights))
weights, x = jnp.ones((1024, 1024)), jnp.ones((256, 1024))
for _ in range(3):
    weights = step(weights, x)
weights.block_until_ready()
"""


@pytest.fixture(scope="module")
def wheel():
    found = sorted(FOLDER.glob("*.whl"))
    assert len(found) == 1, f"there is no wheel, or more than one, in {FOLDER}: `make wheel`"
    return found[0]


@pytest.fixture(scope="module")
def binaries(wheel):
    """Return every ELF file of the wheel, by name."""
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if content.startswith(b"\x7fELF"):
                found[name] = ELFFile(io.BytesIO(content))
    return found


def make_environment(folder, wheel, python, *options):
    """Install the wheel into a new environment, without an index, and return its programs."""
    bin_folder = folder / "bin"
    install = [bin_folder / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    for command in ([*python, "-m", "venv", *options, folder], [*install, wheel]):
        subprocess.run(command, check=True)
    return bin_folder


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return the programs of an environment that has the wheel, and all else of this one."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    bin_folder = make_environment(folder, wheel, [sys.executable])
    # Searched after the packages of the environment itself, so that vramfit is that of the wheel.
    [here] = [path for path in sys.path if path.endswith("site-packages")]
    [there] = folder.glob("lib/python*/site-packages")
    (there / "others.pth").write_text(f"{here}\n")
    return bin_folder


@pytest.fixture(scope="module")
def isolated(tmp_path_factory):
    """Return the words before a command that take the network, and the rights of root, from it.

    Root may write what is read-only, unless it has lost its capabilities.
    """
    words = ["unshare", "--net", *(["--map-root-user"] if os.getuid() else [])]
    words += ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    try:
        tried = run_command(*words, "true")
    except OSError as error:
        pytest.skip(f"the network cannot be taken away here: {error}")
    if tried.returncode != 0:
        pytest.skip(f"the network cannot be taken away here: {tried.stderr.strip()}")
    return words


@pytest.fixture
def bare(installed, isolated, tmp_path):
    """Return a function that runs a program of the environment, and returns what it prints."""
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    environment = {"PATH": str(installed), "HOME": str(home)}

    def run(program, *arguments, code=0):
        # Found before the PATH is taken away: `unshare` is not on the one of the program.
        command = ["/usr/bin/env", "-i", *(f"{k}={v}" for k, v in environment.items())]
        done = run_command(*isolated, *command, program, *arguments, code=code, cwd=tmp_path)
        return done.stdout

    return run


def test_every_python_from_3_11_on_may_install_it(wheel):
    assert re.fullmatch(r"vramfit-[\d.]+-cp311-abi3-manylinux_2_28_x86_64\.whl", wheel.name)


def test_auditwheel_agrees_with_the_tag(wheel):
    said = run_command(SCRIPTS / "auditwheel", "show", wheel, code=0).stdout
    [tag] = re.findall(r'platform tag:\s+"manylinux_(\d+)_(\d+)_x86_64"', said)
    assert tuple(map(int, tag)) <= OLDEST_GLIBC, said


def test_no_symbol_is_newer_than_the_tag(binaries):
    assert [name for name in binaries if re.search(r"/_native\.abi3\.so$", name)]
    for name, file in binaries.items():
        [needed] = [s for s in file.iter_sections() if isinstance(s, GNUVerNeedSection)]
        versions = [
            auxiliary.name
            for _, auxiliaries in needed.iter_versions()
            for auxiliary in auxiliaries
            if auxiliary.name.startswith("GLIBC_")
        ]
        numbers = [tuple(map(int, v.removeprefix("GLIBC_").split("."))) for v in versions]
        assert max(numbers) <= OLDEST_GLIBC, f"{name}: {versions}"


def test_it_needs_no_library_but_those_of_glibc(binaries):
    for name, file in binaries.items():
        needed = [
            tag.needed
            for tag in file.get_section_by_name(".dynamic").iter_tags()
            if tag.entry.d_tag == "DT_NEEDED"
        ]
        others = [library for library in needed if not OF_GLIBC.fullmatch(library)]
        assert others in ([], ["libgcc_s.so.1"]), f"{name}: {others}"


def test_surroundings_are_bare(bare):
    """What the tests below rely on: there is no network, no compiler, and no home."""
    program = """
import os, pathlib, shutil, socket
print(sorted(name for _, name in socket.if_nameindex()))
print([name for name in ("cc", "gcc", "clang", "cargo", "git") if shutil.which(name)])
try:
    (pathlib.Path.home() / "file").touch()
except PermissionError:
    print("read-only")
"""
    assert bare("python", "-c", program).splitlines() == ["['lo']", "[]", "read-only"]


def test_vramfit_is_that_of_the_wheel(bare, installed):
    path = bare("python", "-c", "import vramfit._native; print(vramfit._native.__file__)")
    assert Path(path.strip()).is_relative_to(installed.parent)


def test_version(bare, wheel):
    assert bare("vramfit", "--version").split() == ["vramfit", wheel.name.split("-")[1]]


def test_gpus(bare):
    assert "h100-80g" in bare("vramfit", "gpus")


def test_explain(bare):
    log = ROOT / "crates" / "vramfit" / "tests" / "cli" / "explain.in" / "fragmented.log"
    assert "the pool is fragmented (sure)" in bare("vramfit", "explain", log)


def test_dryrun(bare, tmp_path):
    """Also tells whether the release build computes what the tested build does."""
    (tmp_path / "tiny.py").write_text(PROGRAM)
    command = ["dryrun", "--gpu", "t4", "--json", "-", "--"]
    summary = json.loads(bare("vramfit", *command, "python", "tiny.py").splitlines()[-1])
    here = run_vramfit(*command, sys.executable, "tiny.py", code=0, cwd=tmp_path)
    expected = json.loads(here.stdout.splitlines()[-1])
    assert summary["fits"] is True
    assert summary["peak_bytes"] == expected["peak_bytes"]


@pytest.mark.parametrize("options", [[], ["--make"]], ids=["installed", "made"])
def test_a_newer_python_imports_it(options, wheel, tmp_path):
    """The second of them is what `newer_python.py` makes where no other is installed."""
    found = run_python(
        ROOT / "scripts" / "verify" / "newer_python.py", *options, "3.12", env=os.environ
    )
    if found.returncode != 0 and not os.environ.get("CI"):
        pytest.skip(found.stderr.strip())
    assert found.returncode == 0, found.stderr
    bin_folder = make_environment(tmp_path / "env", wheel, shlex.split(found.stdout))
    ask = "import sys, vramfit._native; print(sys.version_info >= (3, 12))"
    for command, said in (
        (["python", "-c", ask], "True\n"),
        (["vramfit", "--version"], f"vramfit {wheel.name.split('-')[1]}\n"),
    ):
        command[0] = bin_folder / command[0]
        assert run_command(*command, code=0).stdout == said
