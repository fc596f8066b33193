"""The range of the peak in a dry run, and autotuning results given to it.

What it says is compared with what the real plugin says of the same program, compiled for
the same GPU without the virtual GPU.
"""

import json
import re

import pytest
from cli_dryrun import dryrun_of
from commands import run_example, run_python

GPU = "a100-40g"

STEP = """
import jax, jax.numpy as jnp

def step(weights, x):
    def loss(weights):
        h = x
        for w in weights:
            h = jax.nn.relu(h @ w)
        return (h ** 2).mean()
    slopes = jax.grad(loss)(weights)
    return [w - 0.1 * slope for w, slope in zip(weights, slopes)]
"""

LOOP = (
    STEP
    + """
step = jax.jit(step, donate_argnums=0)
weights = [jnp.ones((4096, 4096), jnp.bfloat16) for _ in range(3)]
x = jnp.ones((8192, 4096), jnp.bfloat16)
for _ in range(3):
    weights = step(weights, x)
"""
)

COMPILE = (
    STEP
    + """
import sys
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

topology = topologies.get_topology_desc(
    platform="cuda", target_config=sys.stdin.read(), topology="1x1x1", topology_name="")
here = SingleDeviceSharding(topology.devices[0])
weight = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16, sharding=here)
x = jax.ShapeDtypeStruct((8192, 4096), jnp.bfloat16, sharding=here)
lowered = jax.jit(step, donate_argnums=0).lower([weight] * 3, x)
for with_triton in (True, False):
    compiled = lowered.compile(compiler_options={"xla_gpu_enable_triton_gemm": with_triton})
    print(compiled.memory_analysis().temp_size_in_bytes)
"""
)


def dryrun(tmp_path, *options, **settings):
    """Return the exit code, the summary (or None) and standard error of a dry run of the loop."""
    said = dryrun_of(tmp_path, LOOP, *options, gpu=GPU, env=settings)
    return said.code, said.summary, said.err


def step_of(summary):
    (step,) = (program for program in summary["programs"] if program["name"] == "jit_step")
    return step


def test_both_ends_are_what_the_compiler_says_of_both_ways(tmp_path):
    code, summary, err = dryrun(tmp_path, "--autotune-range")
    assert code == 0, err
    gpus = json.loads(run_example("target_config"))
    reference = run_python(
        "-c",
        COMPILE,
        env={"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"},
        code=0,
        input=gpus[GPU]["target_config"],
    )
    by_triton, by_cublas = map(int, reference.stdout.split())
    step = step_of(summary)
    assert (step["temp_bytes"], step["variant_temp_bytes"]) == (by_triton, by_cublas)
    assert by_triton != by_cublas, "the comparison would show nothing"

    autotune_range = summary["autotune_range"]
    assert (autotune_range["programs_measured"], autotune_range["programs_not_measured"]) == (1, 0)
    default, other = autotune_range["variants"]
    assert default == {"name": "default", "peak_bytes": summary["peak_bytes"], "fits": True}
    # The step has the peak either way, and blocks are whole multiples of 256 bytes.
    assert by_triton % 256 == by_cublas % 256 == 0
    assert other["peak_bytes"] - default["peak_bytes"] == by_cublas - by_triton
    assert "peak range" in err


def elsewhere(model):
    """Describe a GPU of the same kind in a machine with another clock and another cuDNN."""
    changed = re.sub(
        r"DNN version: .*", "DNN version: 9.99.9", model.replace("clock: ", "clock: 1")
    )
    assert changed != model
    return changed


def escaped(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def test_results_recorded_on_a_gpu_are_used_whatever_its_clock_and_its_cudnn(tmp_path):
    _, plain, err = dryrun(
        tmp_path, TF_CPP_MIN_LOG_LEVEL="0", TF_CPP_VMODULE="autotuner_cache=5,autotuner_util=5"
    )
    assert plain["autotune_range"] is None
    asked = r"key = <key model='([^']*)', hlo='(.*?)', version=(\d+)>"
    keys = [key for key in re.findall(asked, err, re.DOTALL) if " dot(" in key[1]]
    assert keys, err[-4000:]
    results = tmp_path / "results.txt"
    # What a GPU would write for which cuBLAS is fastest in every product.
    entries = [
        f'results {{ device: "{elsewhere(model)}" hlo: "{escaped(hlo)}" version: {version} '
        "result { gemm { algorithm: 0 autotune_workspace_size: 33554432 } } }\n"
        for model, hlo, version in keys
    ]
    results.write_text("version: 3\n" + "".join(entries))
    code, tuned, err = dryrun(tmp_path, "--autotune-results", results)
    assert code == 0, err
    assert tuned["settings"]["autotune_results"]
    workspace = 32 << 20
    assert step_of(tuned)["temp_bytes"] >= step_of(plain)["temp_bytes"] + workspace


def test_results_without_entries_change_nothing(tmp_path):
    results = tmp_path / "results.txt"
    results.write_text("version: 3\n")
    code, summary, err = dryrun(tmp_path, "--autotune-results", results, "--autotune-range")
    assert code == 0, err
    assert step_of(summary)["compile_attempt"] == ""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (None, "io"),
        ("hello", "invalid-file"),
        ('version: 3 results { device: "CUDA: 7.5, Cores: 40" }', "invalid-file"),
    ],
)
def test_results_that_cannot_be_used_are_refused_before_anything_runs(tmp_path, text, kind):
    results = tmp_path / "results.txt"
    if text is not None:
        results.write_text(text)
    code, summary, err = dryrun(tmp_path, "--autotune-results", results)
    assert (code, summary) == (2, None)
    assert f"error[{kind}]" in err
    assert "Traceback" not in err
