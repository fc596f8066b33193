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


OUTCOMES = """
import jax
import jax.numpy as jnp
import pytest

gpu = pytest.mark.vramfit(gpu="l4", max="20MiB")

def use(rows=4):
    jnp.ones((rows, 1024)).block_until_ready()

@gpu
def test_passes():
    assert "L4" in jax.devices()[0].device_kind
    use()

@gpu
def test_skips():
    pytest.skip("not today")

@gpu
@pytest.mark.skipif(True, reason="never")
def test_is_skipped():
    use()

@pytest.fixture
def absent():
    pytest.skip("no data")

@gpu
def test_of_a_fixture_that_skips(absent):
    use()

@gpu
@pytest.mark.xfail(reason="known")
def test_fails_as_expected():
    use()
    assert 1 == 2

@gpu
def test_expects_to_fail():
    use()
    pytest.xfail("known here")

@gpu
@pytest.mark.xfail(reason="known")
def test_passes_against_expectation():
    use()

@gpu
@pytest.mark.xfail(strict=True, reason="known")
def test_passes_although_it_must_not():
    use()

@gpu
@pytest.mark.xfail(raises=ZeroDivisionError)
def test_fails_in_another_way():
    use()
    raise ValueError("another way")

@gpu
@pytest.mark.xfail(reason="too large for now")
def test_needs_too_much_as_expected():
    use(1 << 14)

@pytest.fixture
def broken():
    raise OSError("no file")

@gpu
def test_of_a_broken_fixture(broken):
    use()

@gpu
def test_expects_an_error():
    with pytest.raises(ValueError):
        raise ValueError("FAILED with an ERROR")
    use()

@gpu
@pytest.mark.parametrize("rows", [4, 1 << 14], ids=["few", "many"])
def test_of_several(rows):
    use(rows)

@gpu
def test_without_jax():
    pass
"""
# What a `conftest.py` does to keep its tests on the CPU, before and after JAX is imported.
CONFTESTS = {
    "none": "",
    "variable": "import os\nos.environ['JAX_PLATFORMS'] = 'cpu'\n",
    "variables": "import os\nos.environ.update(JAX_PLATFORMS='cpu', JAX_PLATFORM_NAME='cpu')\n",
    "configuration": "import jax\njax.config.update('jax_platforms', 'cpu')\n",
    "fixture": (
        "import jax, pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def cpu():\n"
        "    jax.config.update('jax_platform_name', 'cpu')\n"
    ),
    "hook": (
        "def pytest_configure():\n    import jax\n    jax.config.update('jax_platforms', 'cpu')\n"
    ),
}


def outcomes(tmp_path, *options):
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-rA", *options]
    done = run_python(*command, env={"JAX_PLATFORMS": "cpu"}, cwd=tmp_path)
    found = re.findall(
        r"^([A-Z]+) (?:\[1\] )?test_memory\.py(?:::([\w\[\]]+))?(.*)$", done.stdout, re.M
    )
    return {name or rest: (kind, rest) for kind, name, rest in found}, done.stdout


def test_a_test_ends_as_on_the_virtual_gpu(tmp_path):
    (tmp_path / "test_memory.py").write_text(OUTCOMES)
    found, text = outcomes(tmp_path)
    kinds = {name: kind for name, (kind, _) in found.items() if name.startswith("test_")}
    assert kinds == {
        "test_passes": "PASSED",
        "test_fails_as_expected": "XFAIL",
        "test_expects_to_fail": "XFAIL",
        "test_passes_against_expectation": "XPASS",
        "test_passes_although_it_must_not": "FAILED",
        "test_fails_in_another_way": "FAILED",
        "test_needs_too_much_as_expected": "XFAIL",
        "test_of_a_broken_fixture": "ERROR",
        "test_expects_an_error": "PASSED",
        "test_of_several[few]": "PASSED",
        "test_of_several[many]": "FAILED",
        "test_without_jax": "FAILED",
    }, text
    for reason in ("not today", "never", "no data"):
        assert re.search(rf"^SKIPPED \[1\] test_memory\.py:\d+: {reason}$", text, re.M), text
    assert "another way" in text
    assert "did not use JAX" in text


@pytest.mark.parametrize("conftest", CONFTESTS)
def test_a_marked_test_runs_on_the_virtual_gpu_whatever_a_conftest_selects(tmp_path, conftest):
    (tmp_path / "conftest.py").write_text(CONFTESTS[conftest])
    (tmp_path / "test_memory.py").write_text(OUTCOMES)
    names = ("test_passes", "test_of_several")
    found, text = outcomes(tmp_path, *(f"test_memory.py::{name}" for name in names))
    kinds = {name: kind for name, (kind, _) in found.items()}
    assert kinds["test_passes"] == "PASSED", text
    assert kinds["test_of_several[few]"] == "PASSED", text
    assert kinds["test_of_several[many]"] == "FAILED", text
