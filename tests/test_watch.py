"""`vramfit.watch` tells what a block does to the memory of JAX's devices, and what it cannot."""

import pytest
from commands import run_python
from on_gpu import environment, on_gpu

MIB = 1 << 20

STEP = """
import vramfit
def init(): return [jnp.ones((512, 512)) for _ in range(3)]
w = init()
@jax.jit
def step(w): return [x @ x for x in w]
def describe(seen):
    return {"devices": [d._asdict() for d in seen.devices],
            "arrays": [a._asdict() for a in seen.arrays], "text": str(seen)}
"""


def watch_after_step(lines, **settings):
    """Run lines after those of `STEP` on the virtual GPU, and return what they report."""
    return on_gpu(STEP + lines, **settings)


def test_s20_before_after_and_a_new_peak_are_those_of_the_allocator():
    values = watch_after_step("""
before = stats()
with vramfit.watch() as seen:
    w2 = step(w)
report(**describe(seen), before=before, after=stats())
""")
    [device] = values["devices"]
    assert device["counted"]
    assert device["before"] == values["before"]["bytes_in_use"] == 3 * MIB
    assert device["after"] == values["after"]["bytes_in_use"] == 6 * MIB
    assert device["peak"] == values["after"]["peak_bytes_in_use"] >= 6 * MIB
    assert device["limit"] == values["after"]["bytes_limit"]
    assert values["text"].startswith("cuda:0: in use 3.0 MiB → 6.0 MiB (+3.0 MiB), peak ")


def test_s20_a_peak_that_is_not_new_is_reported_as_a_range():
    values = watch_after_step("""
w2 = step(w)
del w2
highest = stats()["peak_bytes_in_use"]
with vramfit.watch() as seen:
    small = jnp.ones((256, 256))
report(**describe(seen), highest=highest, least=seen.devices[0].peak_at_least)
""")
    [device] = values["devices"]
    assert device["peak"] is None
    assert device["peak_at_most"] == values["highest"]
    assert values["least"] == device["after"] == 3 * MIB + MIB // 4
    assert "peak at least 3.2 MiB and at most the " in values["text"]


def test_s20_arrays_are_reported_with_shape_type_line_and_whether_they_are_new():
    values = watch_after_step("""
with vramfit.watch() as seen:
    w2 = jnp.zeros((1024, 1024), jnp.bfloat16)
    w3 = jnp.zeros((512, 512))
    del w[0]
report(**describe(seen))
""")
    # These lines are given to Python as an argument, and lie in no file.
    rows = [(row["shape"], row["dtype"], row["bytes"]) for row in values["arrays"]]
    assert rows == [([512, 512], "float32", 3 * MIB), ([1024, 1024], "bfloat16", 2 * MIB)]
    assert [(row["arrays"], row["new"]) for row in values["arrays"]] == [(3, 1), (1, 1)]
    assert "3 × float32[512,512] on cuda:0, 1 new" in values["text"]


def test_s20_the_line_that_made_an_array_is_named(tmp_path, write_script):
    write_script(
        "import jax.numpy as jnp\n\ndef init(size):\n    return jnp.ones((size, size))\n",
        "model.py",
    )
    values = on_gpu(f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import model, vramfit
with vramfit.watch() as seen:
    w = [model.init(512), model.init(512)]
report(line=seen.arrays[0].line, count=seen.arrays[0].arrays, kinds=len(seen.arrays))
""")
    assert values["line"].endswith("model.py:4 (init)")
    assert (values["count"], values["kinds"]) == (2, 1)


def test_s20_what_is_freed_in_the_block_goes_down():
    values = watch_after_step("""
with vramfit.watch() as seen:
    del w
report(**describe(seen))
""")
    assert values["devices"][0]["after"] == 0
    assert values["arrays"] == []
    assert "(−3.0 MiB)" in values["text"]


def test_s20_several_devices_count_each_their_part():
    values = watch_after_step(
        """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
half = NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x"))
with vramfit.watch() as seen:
    x = jax.device_put(np.ones((2048, 512), np.float32), half)
report(**describe(seen))
""",
        count=2,
    )
    assert [device["after"] - device["before"] for device in values["devices"]] == [2 * MIB] * 2
    new = [row for row in values["arrays"] if row["new"]]
    assert [(row["shape"], row["bytes"]) for row in new] == [([1024, 512], 2 * MIB)] * 2


def test_s20_a_decorated_function_is_watched_at_each_call():
    values = watch_after_step("""
seen = []
@vramfit.watch(report=seen.append, top=1)
def train(w): return step(w)
other = jnp.ones(8)
kept = [train(w), train(w)]
report(after=[s.devices[0].after for s in seen], text=str(seen[1]))
""")
    assert values["after"] == [6 * MIB + 256, 9 * MIB + 256]
    assert values["text"].splitlines()[-1].endswith("32 B  1 more")


def test_s20_a_block_that_runs_out_of_memory_is_reported_and_raises():
    values = watch_after_step("""
try:
    with vramfit.watch() as seen:
        kept = jnp.ones(1 << 40, jnp.uint8)
except Exception as error:
    report(**describe(seen), error=str(error))
""")
    assert "RESOURCE_EXHAUSTED" in values["error"]
    # What was refused is not counted; the number that it was to be filled with may be.
    assert 3 * MIB <= values["devices"][0]["after"] <= 3 * MIB + 256


def test_s20_the_cpu_counts_arrays_only_and_says_so():
    values = watch_after_step(
        """
with vramfit.watch() as seen:
    w2 = step(w)
report(**describe(seen))
""",
        JAX_PLATFORMS="cpu",
    )
    [device] = values["devices"]
    assert not device["counted"]
    assert (device["before"], device["after"]) == (3 * MIB, 6 * MIB)
    assert device["peak"] is device["peak_at_most"] is None
    assert "counts neither temporaries nor a peak" in values["text"]


@pytest.mark.parametrize(
    "statement", ["import vramfit._functions._watch", "import vramfit; vramfit.watch"]
)
def test_s20_it_loads_jax_only_when_it_watches(statement):
    code = f"{statement}\nimport sys\nassert not {{'jax', 'numpy'}} & set(sys.modules)"
    run_python("-c", code, env=environment(), code=0)
