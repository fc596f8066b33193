"""Scratch memory of library routines, in dry runs of real programs with the installed JAX.

What each routine takes is computed here by the formulas of the documentation page.
"""

import json
import sys

import pytest
from cli_dryrun import dryrun_of
from commands import run_vramfit

MIB = 1 << 20

FFT = """
import jax, jax.numpy as jnp
transform = jax.jit(jnp.fft.rfft)
transform(jnp.ones((64, 1 << 20)))  # LINE
"""

EIGH = """
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
jax.jit(jnp.linalg.eigh)(jnp.ones((2000, 2000)))  # LINE
"""

SVD = """
import jax, jax.numpy as jnp
jax.jit(lambda x: jnp.linalg.svd(x, full_matrices=False))(jnp.ones((3000, 2000)))  # LINE
"""

QR = """
import jax, jax.numpy as jnp
jax.jit(jnp.linalg.qr)(jnp.ones((3000, 2000)))  # LINE
"""

CONVOLUTION = """
import jax, jax.numpy as jnp
def convolve(images, kernel):
    return jax.lax.conv(images, kernel, (1, 1), "SAME")  # LINE
def loss(kernel, images):
    return convolve(images, kernel).sum()
jax.jit(jax.grad(loss))(jnp.ones((64, 64, 3, 3)), jnp.ones((32, 64, 56, 56)))
"""

SORT = """
import jax, jax.numpy as jnp
jax.jit(jnp.sort)(jnp.ones(1 << 24))  # LINE
"""


def dryrun(tmp_path, source, *options):
    """Return the exit code, the summary and standard error of a dry run."""
    said = dryrun_of(tmp_path, source, *options, gpu="a100-40g")
    return said.code, said.summary, said.err


def line_of(source):
    """Return the number of the marked line."""
    return next(n for n, line in enumerate(source.splitlines(), 1) if "# LINE" in line)


def needs_of(summary, library):
    """Return what the routines of a library need, the largest first."""
    return [need for need in summary["scratch"]["needs"] if need["library"] == library]


# Library, routine, least and most bytes, when. The routines of a QR decomposition are two.
SPECTRUM = 64 * ((1 << 19) + 1) * 8
PANELS = 256 * 5000 + 65536
CASES = {
    "fft": (FFT, "cuFFT", "rfft f32[64,1048576]", SPECTRUM, 2 * SPECTRUM, "execution"),
    "eigh": (
        EIGH,
        "cuSOLVER",
        "syevd f64[2000,2000]",
        8 * 3 * 2000**2,
        8 * (4 * 2000**2 + 256 * 2000 + 65536),
        "execution",
    ),
    "svd": (
        SVD,
        "cuSOLVER",
        "gesvd f32[3000,2000]",
        0,
        4 * (6 * 2000**2 + 2 * 3000 * 2000 + 2000**2 + 65536),
        "execution",
    ),
    "qr": (
        QR,
        "cuSOLVER",
        "geqrf f32[3000,2000]",
        0,
        4 * (3000 * 2000 + PANELS),
        "execution",
    ),
    "orgqr": (
        QR,
        "cuSOLVER",
        "orgqr f32[3000,2000]",
        0,
        4 * (128 * 5000 + 65536),
        "execution",
    ),
    "sort": (
        SORT,
        "CUB",
        "sort f32[16777216]",
        0,
        # Keys, and the positions that XLA adds.
        2 * (4 + 4) * (1 << 24) + (1 << 24) // 2048 * 1024 + 4 * MIB,
        "plan",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_routines_are_recognized_with_line_and_range(tmp_path, case):
    source, library, routine, low, high, phase = CASES[case]
    code, summary, err = dryrun(tmp_path, source)
    assert (code, summary["fits"]) == (0, True), err
    found = [need for need in needs_of(summary, library) if need["routine"] == routine]
    assert found, summary["scratch"]
    need = found[0]
    assert (need["low_bytes"], need["high_bytes"]) == (low, high)
    assert need["phase"] == phase
    assert f"program.py:{line_of(source)}" in need["site"]


def test_convolutions_have_a_bounded_workspace(tmp_path):
    code, summary, err = dryrun(tmp_path, CONVOLUTION)
    assert (code, summary["fits"]) == (0, True), err
    needs = needs_of(summary, "cuDNN")
    assert needs, summary["scratch"]
    for need in needs:
        assert need["low_bytes"] == 0 < need["high_bytes"] <= 4096 * MIB
        assert need["phase"] == "plan"
    assert any(f"program.py:{line_of(CONVOLUTION)}" in need["site"] for need in needs)


def test_the_work_area_of_an_fft_is_in_the_peak(tmp_path):
    _, summary, err = dryrun(tmp_path, FFT)
    # Argument, result and work area, as whole blocks; scalars and the like are small.
    least = 64 * (1 << 20) * 4 + 2 * SPECTRUM
    assert least <= summary["peak_bytes"] < least + MIB
    assert summary["peak"]["purpose"] == "scratch"
    assert "cuFFT rfft" in err
    assert "program.py:4" in err
    kinds = {part["kind"]: part for part in summary["attribution"]["entries"]}
    assert kinds["library_scratch"]["bytes"] == SPECTRUM


@pytest.mark.parametrize(
    ("limit", "fits", "code"),
    # Least 768 MiB, most 1024 MiB and a little.
    [("700MiB", False, 1), ("900MiB", None, 2), ("1200MiB", True, 0)],
)
def test_the_verdict_counts_a_range(tmp_path, limit, fits, code):
    done, summary, err = dryrun(tmp_path, FFT, "--limit", limit)
    assert (done, summary["fits"]) == (code, fits), err
    if fits is None:
        (condition,) = summary["verdict"]["conditions"]
        assert condition["kind"] == "library_scratch"
        available = condition["available_bytes"]
        assert SPECTRUM <= available < 2 * SPECTRUM
        assert "the run fits only if cuFFT (rfft f32[64,1048576])" in " ".join(err.split())
    if fits is False:
        assert "Failed to create cuFFT batched plan with scratch allocator" in err


@pytest.mark.parametrize(("limit", "fits", "code"), [("900MiB", None, 2), ("1200MiB", True, 0)])
def test_a_plan_is_as_sure_as_a_dry_run(write_script, limit, fits, code):
    command = ("plan", "--gpu", "a100-40g", "--limit", limit, "--json", "-")
    done = run_vramfit(*command, "--", sys.executable, write_script(FFT), code=code)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["recommended"]["fits"] == {"a100-40g": fits}
    kinds = [condition["kind"] for condition in found["recommended"]["conditions"]]
    assert ("library_scratch" in kinds) == (fits is None)


def test_the_largest_number_fits_for_certain(write_script):
    source = FFT.replace("(64,", "(int(sys.argv[1]),").replace("import jax,", "import sys, jax,")
    command = ("plan", "--gpu", "a100-40g", "--limit", "900MiB", "--vary", "n=32..64:x2")
    words = ("--json", "-", "--", sys.executable, write_script(source), "{n}")
    done = run_vramfit(*command, *words, code=0)
    assert json.loads(done.stdout.splitlines()[-1])["largest"] == 32
    assert "n=64: may fit" in done.stderr
