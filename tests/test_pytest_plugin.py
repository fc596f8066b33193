"""The pytest plugin, in test files as users write them."""

import re

import pytest
from commands import run_python

TESTS = """
import jax
import jax.numpy as jnp
import pytest

def step(w, x):
    return w - jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)

W, X = jax.ShapeDtypeStruct((1024, 1024), "float32"), jax.ShapeDtypeStruct((64, 1024), "float32")

def test_small(vramfit_estimate):
    report = vramfit_estimate(step, W, X, gpu="l4", max="20MiB", spare="50%")
    assert report.fits

def test_too_large(vramfit_estimate):
    vramfit_estimate(step, W, X, gpu="l4", max="5MiB")

@pytest.mark.vramfit(gpu="t4", max="1MiB")
def test_limits_of_the_marker(vramfit_estimate):
    vramfit_estimate(step, W, X)

@pytest.mark.vramfit(gpu="l4", max="20MiB")
def test_whole_on_a_virtual_gpu():
    assert "L4" in jax.devices()[0].device_kind
    w = jnp.ones((1024, 1024))
    assert step(w, jnp.ones((64, 1024))).shape == (1024, 1024)

@pytest.mark.vramfit(gpu="l4", max="2MiB")
def test_whole_and_too_large():
    jnp.ones((1024, 1024)).block_until_ready()

@pytest.mark.vramfit(gpu="l4", fraction=0.0001)
def test_that_does_not_fit():
    jnp.ones((1024, 1024)).block_until_ready()

@pytest.mark.vramfit(gpu="l4")
def test_that_fails_by_itself():
    jnp.ones(3).block_until_ready()
    assert 1 == 2, "no luck"

@pytest.mark.vramfit(max="1GiB")
def test_without_a_gpu():
    pass

@pytest.mark.vramfit(gpu="l400")
def test_unknown_gpu():
    pass

@pytest.mark.vramfit(gpu="l4", maximum="1GiB")
def test_unknown_argument():
    pass

def test_of_something_else():
    pass
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The failures of the file by test, and the whole output."""
    folder = tmp_path_factory.mktemp("tests")
    (folder / "test_memory.py").write_text(TESTS)
    options = ["-p", "no:cacheprovider", "-rA", "--strict-markers"]
    done = run_python("-m", "pytest", *options, env={"JAX_PLATFORMS": "cpu"}, code=1, cwd=folder)
    return done.stdout


def failure(output, test):
    """Return what pytest prints for a failed test."""
    [text] = re.findall(rf"^_+ {test} _+$(.*?)^(?:[_=]+ |-+ )", output, re.MULTILINE | re.DOTALL)
    return text.strip().splitlines()


@pytest.mark.parametrize(
    "test", ["test_small", "test_whole_on_a_virtual_gpu", "test_of_something_else"]
)
def test_what_keeps_its_limits_passes(run, test):
    assert f"PASSED test_memory.py::{test}" in run


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("test_too_large", "`step` needs "),
        ("test_limits_of_the_marker", "more than `max=1MiB`"),
        ("test_whole_and_too_large", "the test needs 4.0 MiB on l4, 2.0 MiB more than `max=2MiB`"),
        ("test_that_does_not_fit", "the test does not fit: short by "),
        ("test_that_fails_by_itself", "no luck"),
        ("test_without_a_gpu", "no GPU; write `@pytest.mark.vramfit("),
        ("test_unknown_gpu", "unknown GPU `l400`"),
        ("test_unknown_argument", "unknown argument `maximum`"),
    ],
)
def test_a_failure_is_ten_lines_and_no_traceback(run, test, words):
    lines = failure(run, test)
    assert words in "\n".join(lines)
    assert len([line for line in lines if line.strip()]) <= 10, lines
    assert "Traceback" not in "\n".join(lines)


def test_a_failure_names_lines(run):
    assert "test_memory.py:" in "\n".join(failure(run, "test_too_large"))


def test_the_marker_is_listed():
    done = run_python("-m", "pytest", "--markers")
    assert "@pytest.mark.vramfit(gpu, max=None" in done.stdout
