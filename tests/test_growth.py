"""What grows from call to call is found with its line in programs that train nothing, too."""

import textwrap

import pytest
from cli_dryrun import dryrun_of

MIB = 1 << 20
HEAD = """
import jax, jax.numpy as jnp

@jax.jit
def predict(x):
    return jnp.tanh(x) * 2
kept = []
"""
# The lines of a program, the program whose calls are counted, their distance, and the line named.
GROWING = {
    "outputs of a jitted function": (
        """
        for i in range(8):
            kept.append(predict(jnp.full((1024, 1024), i, jnp.float32)))
        """,
        ("jit_predict", 1, 8),
    ),
    "results of eager operations": (
        """
        def fit(i):
            x = jnp.ones((1024, 1024)) * i
            return x + 1
        for i in range(8):
            kept.append(fit(i))
        """,
        ("jit_add", 1, 9),
    ),
    "the state of a loop on the device": (
        """
        def fit(seed):
            w = jax.random.normal(jax.random.key(seed), (1024, 1024))
            w, _ = jax.lax.scan(lambda w, _: (jnp.sin(w), None), w, None, length=100)
            return w
        for seed in range(6):
            kept.append(fit(seed))
        """,
        ("jit_scan", 1, 9),
    ),
    "every third result": (
        """
        x = jnp.ones((1024, 1024))
        for i in range(15):
            y = predict(x)
            if i % 3 == 0:
                kept.append(y + 1)
        """,
        ("jit_predict", 3, 11),
    ),
    "a cache of eager operations": (
        """
        import functools
        @functools.lru_cache(maxsize=None)
        def features(i):
            return jnp.sin(jnp.full((1024, 1024), float(i)))
        for i in range(8):
            features(i)
        """,
        ("jit_sin", 1, 10),
    ),
    "a cache for each call": (
        """
        import functools
        @functools.lru_cache
        def weights(i):
            return predict(jnp.full((1024, 1024), i, jnp.float32))
        for i in range(8):
            weights(i).sum()
        """,
        ("jit_predict", 1, 10),
    ),
}
STEADY = {
    "weights, and a program that uses them": """
        layers = [predict(jnp.full((1024, 1024), i, jnp.float32)) for i in range(8)]
        x = jax.jit(lambda layers, x: x + sum(x @ w for w in layers))(layers, jnp.ones((4, 1024)))
        """,
    "weights from the host, and a program that uses them": """
        import numpy as np
        layers = [jax.device_put(np.ones((1024, 1024), np.float32)) for i in range(8)]
        for _ in range(8):
            predict(layers[0])
        """,
    "arrays that are created in a row": """
        weights = [jnp.zeros((1024, 1024)) for _ in range(20)]
        """,
    "arrays of random numbers that are created in a row": """
        key = jax.random.key(0)
        for _ in range(20):
            key, own = jax.random.split(key)
            kept.append(jax.random.normal(own, (1024, 1024)))
        """,
    "a list that is cleared": """
        for i in range(20):
            kept.append(predict(jnp.full((1024, 1024), i, jnp.float32)))
            if i % 4 == 3:
                kept.clear()
        """,
    "a cache that is full": """
        cache = {}
        for i in range(20):
            y = predict(jnp.full((1024, 1024), i, jnp.float32))
            cache[i % 6] = y
        """,
    "results that are dropped": """
        for i in range(8):
            y = predict(jnp.full((1024, 1024), i, jnp.float32))
        """,
}


def run(tmp_path, lines, *options, **more):
    return dryrun_of(tmp_path, HEAD.lstrip() + textwrap.dedent(lines).lstrip(), *options, **more)


@pytest.mark.parametrize("kind", GROWING)
def test_growth_is_found_with_its_line(tmp_path, kind):
    lines, (program, distance, line) = GROWING[kind]
    done = run(tmp_path, lines, code=0)
    [leak] = [leak for leak in done.summary["growth"] if leak["bytes_per_step"] * distance >= MIB]
    assert (leak["step"], leak["every_steps"]) == (program, distance)
    assert leak["bytes_per_step"] == 4 * MIB // distance
    assert leak["site"].partition(" (")[0].endswith(f"program.py:{line}")
    calls = "call" if distance == 1 else f"{distance} calls"
    every = "in every" if distance == 1 else "every"
    text = " ".join(done.err.split())
    assert f"memory grows: 4.0 MiB more {every} {calls} of `{program}`, from program.py" in text
    assert done.summary["leaks"] == []
    assert "memory leak" not in text
    count = lines.count("range(8)") * 8 or lines.count("range(6)") * 6 or 5
    function = "features" if "eager" in kind else "weights"
    cache = f"`lru_cache`, the `functools` cache of `{function}`"
    held = cache if "cache" in kind else "`kept`"
    assert f"held by {held} of program.py: {count} arrays" in text


@pytest.mark.parametrize("kind", STEADY)
def test_what_is_kept_for_a_later_program_or_replaced_does_not_grow(tmp_path, kind):
    done = run(tmp_path, STEADY[kind], code=0)
    assert [leak for leak in done.summary["growth"] if leak["requested_bytes"] >= MIB] == []


def test_growth_is_the_cause_where_it_fills_the_gpu(tmp_path):
    lines = GROWING["outputs of a jitted function"][0].replace("range(8)", "range(100)")
    done = run(tmp_path, lines, "--limit", "200MiB", code=1)
    growth = "4.0 MiB more in every call of `jit_predict`"
    for text in (" ".join(done.err.split()), done.page):
        assert f"does not fit: {growth} from program.py:8" in text


def test_growth_is_the_cause_where_the_last_hole_is_only_nearly_large_enough(tmp_path):
    lines = """
        import functools
        @functools.lru_cache(maxsize=None)
        def features(i):
            return jnp.sin(jnp.full((1024, 1024), float(i)))
        for i in range(100):
            features(i)
        """
    text = " ".join(run(tmp_path, lines, "--limit", "200MiB", code=1).err.split())
    assert "does not fit: 4.0 MiB more in every call of `jit_sin` from program.py:10" in text
    assert "fragmented:" not in text
    assert "free but fragmented" not in text


def test_a_set_of_arrays_is_told_by_number_and_line(tmp_path):
    lines = "weights = [jnp.zeros((1024, 1024)) for _ in range(60)]\n"
    text = " ".join(run(tmp_path, lines, "--limit", "200MiB", code=1).err.split())
    assert "arrays of 4.0 MiB, created one after the other at program.py:7" in text
    assert "more in every call" not in text
