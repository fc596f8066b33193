"""`vramfit.estimate`, `vramfit.plan` and `vramfit.plan.remat`: the same figures as of a program."""

import functools
import html
import json
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import run_python, run_vramfit
from jax import export
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import vramfit

MIB = 1 << 20


def layer(x, w):
    return x + jnp.sin(jnp.sin(x @ w) @ w.T)


def loss(ws, x):
    for w in ws:
        x = layer(x, w)
    return jnp.mean(x**2)


def update(ws, x):
    value, gradients = jax.value_and_grad(loss)(ws, x)
    return [w - g for w, g in zip(ws, gradients, strict=True)], value


def shape(*dims, dtype="float32", **options):
    return jax.ShapeDtypeStruct(dims, dtype, **options)


WEIGHTS = [shape(512, 512)] * 8

PROGRAM = """
import functools, jax, jax.numpy as jnp, numpy as np

def layer(x, w):
    return x + jnp.sin(jnp.sin(x @ w) @ w.T)

def loss(ws, x):
    for w in ws:
        x = layer(x, w)
    return jnp.mean(x**2)

@functools.partial(jax.jit, donate_argnums=0)
def update(ws, x):
    value, gradients = jax.value_and_grad(loss)(ws, x)
    return [w - g for w, g in zip(ws, gradients)], value

ws = [jax.device_put(np.zeros((512, 512), np.float32)) for _ in range(8)]
x = jax.device_put(np.zeros((16384, 512), np.float32))
jax.block_until_ready(update(ws, x))
"""


@pytest.mark.fast
def test_the_figures_are_those_of_a_program(write_script):
    """Peak, fit and time; also of a function of `jax.jit`, whose donated arguments count."""
    program = write_script(PROGRAM)
    done = run_vramfit("dryrun", "--full", "--gpu", "t4", "--json", "-", "--", program)
    expected = json.loads(done.stdout.splitlines()[-1])
    step = jax.jit(update, donate_argnums=0)
    report = vramfit.estimate(step, WEIGHTS, shape(16384, 512), gpu="t4")
    assert report.fits is True
    assert report.peak_bytes == expected["peak_bytes"]
    assert report.limit_bytes == expected["capacity_bytes"]
    assert report.spare_bytes == report.limit_bytes - report.peak_bytes
    assert report.step_time.low_us > 0
    assert sum(entry.bytes for entry in report.attribution) == report.peak_bytes
    names = {entry.path for entry in report.attribution}
    assert {"ws[0]", "x"} <= names
    lines = {entry.site for entry in report.attribution if entry.owner == "activations"}
    assert any("test_estimate.py" in line and "(layer)" in line for line in lines)

    undonated = vramfit.estimate(update, WEIGHTS, shape(16384, 512), gpu="t4")
    assert undonated.peak_bytes >= report.peak_bytes
    assert vramfit.estimate(step, WEIGHTS, shape(16384, 512), gpu="t4") is report


def test_what_does_not_fit_has_a_peak():
    """Also where the arguments alone are larger than the GPU."""
    report = vramfit.estimate(lambda x: x * 2, shape(20 << 10, 1 << 20), gpu="t4")
    assert report.fits is False
    assert report.peak_bytes == 160 << 30
    assert report.spare_bytes < 0
    assert report.headline.startswith("does not fit: peak 160.0 GiB on t4, ")
    assert "does not fit" in str(report)
    assert "does not fit" in report.to_html()
    small = vramfit.estimate(lambda x: x * 2, shape(1 << 20), gpu="t4", limit="4MiB")
    assert small.fits is False
    assert small.limit_bytes == 4 * MIB


def test_no_backend_of_the_caller_is_initialized():
    code = """
    import jax, vramfit
    report = vramfit.estimate(lambda x: x + 1, jax.ShapeDtypeStruct((4,), "float32"), gpu="t4")
    assert report.fits
    from jax._src import xla_bridge
    print("backends", len(xla_bridge._backends))
    """
    done = run_python("-c", textwrap.dedent(code), env={"JAX_PLATFORMS": "cpu"})
    assert done.stdout == "backends 0\n", done.stderr


def test_arguments_of_all_kinds():
    """Keys, values, constants, keyword arguments, bfloat16, arrays that are on this CPU."""

    def step(state, key, *, mode, scale):
        noise = jax.random.normal(key, state["x"].shape, state["x"].dtype)
        assert mode == "train"
        count = jax.lax.fori_loop(0, state["count"], lambda _, n: n + 1, 0)
        return state["f"](state["x"] + noise * scale), count

    state = {"x": shape(1024, 1024, dtype=jnp.bfloat16), "count": jnp.int32(3), "f": jnp.tanh}
    report = vramfit.estimate(step, state, jax.random.key(0), gpu="t4", mode="train", scale=2.0)
    assert report.peak_bytes >= 2 * 2 * MIB
    captured = jnp.ones((256, 1024))
    report = vramfit.estimate(lambda x: x @ captured, np.ones((1024, 256), np.float32), gpu="t4")
    assert report.peak_bytes >= 6 * MIB

    @functools.partial(jax.jit, static_argnames="times")
    def repeat(x, times):
        return jnp.concatenate([x] * times)

    few = vramfit.estimate(repeat, shape(MIB), gpu="t4", times=2)
    many = vramfit.estimate(repeat, shape(MIB), gpu="t4", times=8)
    assert many.peak_bytes - few.peak_bytes == 6 * 4 * MIB


def test_shardings_say_how_many_gpus_there_are():
    mesh = AbstractMesh((4,), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    one = vramfit.estimate(lambda x: x * 2, shape(4096, 1024), gpu="t4")
    four = vramfit.estimate(lambda x: x * 2, shape(4096, 1024, sharding=rows), gpu="t4")
    assert four.to_dict()["gpu"]["count"] == 4
    assert four.peak_bytes * 4 == one.peak_bytes
    assert "4 x t4" in four.headline


def test_options_of_jax_hold_in_the_other_process():
    def sizes():
        return vramfit.estimate(lambda: jnp.zeros(MIB, float), gpu="t4").peak_bytes

    assert sizes() == 4 * MIB
    jax.config.update("jax_enable_x64", True)
    try:
        assert sizes() == 8 * MIB
    finally:
        jax.config.update("jax_enable_x64", False)


def test_errors_are_those_of_the_function():
    with pytest.raises(TypeError, match="contracting dimensions") as caught:
        vramfit.estimate(lambda x: x @ x, shape(4, 3), gpu="t4")
    assert any("test_estimate.py" in note for note in caught.value.__notes__)
    with pytest.raises(vramfit.errors.UnknownGpuError, match="h1000"):
        vramfit.estimate(lambda x: x, shape(4), gpu="h1000")
    lock = threading.Lock()
    with pytest.raises(vramfit.errors.InvalidArgumentError, match="another process"):
        vramfit.estimate(lambda x: x if lock else 0, shape(4), gpu="t4")
    (batch,) = export.symbolic_shape("batch")
    with pytest.raises(vramfit.errors.InvalidArgumentError, match="dimension `batch`"):
        vramfit.estimate(lambda x: x, shape(batch), gpu="t4")


def test_a_plan_is_found_saved_and_applied_in_code(tmp_path):
    """The decorated function has the peak of the plan to the byte, and the same numbers."""
    path = tmp_path / "plan.toml"
    rows = shape(65536, 512)
    result = vramfit.plan(update, WEIGHTS, rows, gpu="t4", budget="2000MiB", max_trials=6)
    assert result.meets_budget is True
    assert result.recommended in result.rows
    assert "fits with a plan" in str(result)
    assert "fits with a plan" in repr(result)
    assert "<pre>" in result._repr_html_()
    result.save(path)
    assert str(result).splitlines()[0] in html.unescape(result.to_html())
    assert 'command = ["vramfit.plan(update)"]' in path.read_text()

    planned_loss = vramfit.plan.remat(path)(loss)

    def planned(ws, x):
        value, gradients = jax.value_and_grad(planned_loss)(ws, x)
        return [w - g for w, g in zip(ws, gradients, strict=True)], value

    plain = vramfit.estimate(update, WEIGHTS, rows, gpu="t4")
    report = vramfit.estimate(planned, WEIGHTS, rows, gpu="t4")
    assert plain.peak_bytes == result.to_dict()["baseline"]["peak_bytes"]
    assert report.peak_bytes == result.recommended["peak_bytes"] < plain.peak_bytes

    ws = [jnp.full((512, 512), 0.01 * (i + 1)) for i in range(8)]
    x = jnp.linspace(0, 1, 16 * 512).reshape(16, 512)
    found, expected = jax.jit(planned)(ws, x), jax.jit(update)(ws, x)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    with pytest.raises(vramfit.errors.InvalidFileError, match="does not fit"):
        jax.jit(jax.grad(vramfit.plan.remat(path)(other)))(ws, x)


def other(ws, x):
    return jnp.sum(ws[0] @ ws[1]) + jnp.sum(x)


other.__qualname__ = "loss"


def test_the_largest_batch_of_a_function():
    (batch,) = export.symbolic_shape("batch")
    options = {"gpu": "t4", "limit": "1GiB"}
    vary = {"batch": range(64, 1 << 17)}
    result = vramfit.plan(update, WEIGHTS, shape(batch, 512), vary=vary, **options)
    fits = vramfit.estimate(update, WEIGHTS, shape(result.largest, 512), **options)
    too_large = vramfit.estimate(update, WEIGHTS, shape(result.largest + 1, 512), **options)
    assert (fits.fits, too_large.fits) == (True, False)
    with pytest.raises(vramfit.errors.InvalidArgumentError, match="no plan to save"):
        result.save("plan.toml")
    vary = {"batch": range(0, 10, 2)}
    with pytest.raises(vramfit.errors.InvalidArgumentError, match="cannot be searched"):
        vramfit.plan(update, WEIGHTS, shape(batch, 512), vary=vary, **options)
