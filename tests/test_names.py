"""The record of names that JAX can be set by has every name that the installed JAX knows."""

import pathlib
import subprocess
import sys

import jax
import pytest
from jax._src import config

NAMES = pathlib.Path(__file__).parent.parent / "crates/vramfit-advice/src/lint/names/jax.tsv"


def number(version):
    return tuple(int(part) for part in version.split(".")[:3])


def recorded():
    """Return the kind of each name that is recorded for the installed release."""
    kinds = {}
    for line in NAMES.read_text().splitlines()[1:]:
        name, kind, since, until = line.split("\t")
        installed = number(jax.__version__)
        if (not since or number(since) <= installed) and (not until or installed <= number(until)):
            kinds[name] = kind
    return kinds


def test_every_option_of_the_installed_jax_is_recorded():
    options = [name.upper() for name in config.config._value_holders if name.startswith("jax_")]
    assert len(options) > 100
    assert [name for name in options if name not in recorded()] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_ENABLE_X64", "maybe"),
        ("JAX_NUM_CPU_DEVICES", "two"),
        ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1s"),
    ],
)
def test_a_value_of_another_kind_ends_the_import(name, value):
    kinds = {"JAX_ENABLE_X64": "bool", "JAX_NUM_CPU_DEVICES": "int"}
    assert recorded()[name] == kinds.get(name, "float")
    done = subprocess.run(
        [sys.executable, "-c", "import jax"], env={name: value}, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "ValueError" in done.stderr


def test_options_that_have_no_variable_are_not_moved_by_one():
    name = "JAX_CUDA_VISIBLE_DEVICES"
    assert recorded()[name] == "option"
    program = "import jax; print(jax.config._value_holders['jax_cuda_visible_devices'].value)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={name: "7"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "all"
