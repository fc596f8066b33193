"""What real programs do, on the virtual GPU: that it runs, and what it costs where known."""

import pytest
from on_gpu import on_gpu

RUNS = {
    "linear algebra": """
        x = jnp.eye(64) * 2
        for f in (jnp.linalg.cholesky, jnp.linalg.qr, jnp.linalg.svd, jnp.linalg.eigh,
                  jnp.linalg.inv, jnp.linalg.slogdet, jax.scipy.linalg.expm, jnp.fft.fft2):
            jax.block_until_ready(f(x))
        jax.block_until_ready(jnp.linalg.solve(x, x))
    """,
    "random numbers": """
        key = jax.random.key(0)
        for f in (jax.random.normal, jax.random.uniform, jax.random.gumbel, jax.random.bits):
            f(key, (256, 256)).block_until_ready()
        jax.random.permutation(key, 1000).block_until_ready()
        jax.random.normal(jax.random.key(0, impl="rbg"), (256,)).block_until_ready()
    """,
    "control flow": """
        x = jnp.ones((256, 256))
        step = lambda i, x: jnp.tanh(x @ x) + i
        jax.jit(lambda x: jax.lax.fori_loop(0, 10, step, x))(x).block_until_ready()
        jax.jit(lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, jnp.tanh, x))(x)
        jax.jit(lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x))(x)
        layer = lambda carry, _: (jnp.tanh(carry @ x), None)
        jax.grad(lambda x: jax.lax.scan(layer, x, None, 5)[0].sum())(x)
    """,
    "convolution, sort, gather": """
        x = jnp.ones((8, 16, 32, 32)); w = jnp.ones((32, 16, 3, 3))
        jax.lax.conv(x, w, (1, 1), "SAME").block_until_ready()
        jnp.sort(jnp.ones(100_000)).block_until_ready(); jax.lax.top_k(jnp.ones(1000), 5)
        jnp.ones((100, 8))[jnp.arange(50)].block_until_ready()
    """,
    "low precision": """
        for dtype in ("bfloat16", "float16", "float8_e4m3fn", "int8"):
            x = jnp.ones((256, 256), dtype)
            jnp.matmul(x, x, preferred_element_type=jnp.float32).block_until_ready()
        assert jnp.ones((1000,), "int4").astype("int8").shape == (1000,)
    """,
    "a Pallas kernel": """
        from jax.experimental import pallas as pl
        def kernel(x, y, o): o[...] = x[...] + y[...]
        x = jnp.ones((128,))
        add = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))
        jax.jit(add)(x, x).block_until_ready()
    """,
    "export and ahead-of-time compilation": """
        from jax import export
        f = jax.jit(lambda x: jnp.sin(x) * 2)
        x = jnp.ones((64, 64))
        exported = export.export(f)(x)
        exported.call(x).block_until_ready()
        compiled = f.lower(x).compile()
        assert compiled.memory_analysis().argument_size_in_bytes == 64 * 64 * 4
        assert "HloModule" in compiled.as_text()
        compiled(x).block_until_ready()
    """,
    "serialized executables": """
        from jax.experimental import serialize_executable as s
        x = jnp.ones((64, 64))
        compiled = jax.jit(lambda x: (x @ x, x + 1)).lower(x).compile()
        again = s.deserialize_and_load(*s.serialize(compiled))
        assert [y.shape for y in again(x)] == [(64, 64)] * 2
    """,
    "the memory profile, live arrays, cleared caches": """
        import gzip, jax.profiler
        x = jnp.ones((256, 256)); y = x * 2
        assert b"buffer" in gzip.decompress(jax.profiler.device_memory_profile())
        assert len(jax.live_arrays()) == 2
        jax.clear_caches()
        (x + 1).block_until_ready()
    """,
    "asynchronous copies": """
        x = jnp.ones((512, 512))
        x.copy_to_host_async(); np.asarray(x)
        jax.device_get({"a": x, "b": [x]})
        x.delete(); assert x.is_deleted()
    """,
}


@pytest.mark.parametrize("kind", RUNS, ids=str)
def test_runs(kind):
    on_gpu(RUNS[kind])


def test_collectives_over_eight_devices():
    values = on_gpu(
        """
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        from jax.experimental.shard_map import shard_map
        mesh = Mesh(np.array(jax.devices()), ("x",))
        def body(x):
            s = jax.lax.psum(x, "x")
            g = jax.lax.all_gather(x, "x")
            r = jax.lax.psum_scatter(g.reshape(8, -1), "x")
            p = jax.lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)])
            return s + r.reshape(x.shape) + p
        f = jax.jit(shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
        x = jax.device_put(np.ones((1024, 128), "float32"), NamedSharding(mesh, P("x")))
        y = f(x)
        report(shape=list(y.shape), shards=[s.data.shape[0] for s in y.addressable_shards])
        """,
        count=8,
    )
    assert values == {"shape": [1024, 128], "shards": [128] * 8}


def test_rematerialization_saves_what_theory_says():
    values = on_gpu(
        """
        layers, rows, width = 8, 4096, 1024
        w = [jnp.ones((width, width)) for _ in range(layers)]
        x = jnp.ones((rows, width))
        def loss(w, x, layer):
            for m in w:
                x = layer(m, x)
            return x.sum()
        def temp(layer):
            f = jax.jit(jax.grad(lambda w, x: loss(w, x, layer)))
            return f.lower(w, x).compile().memory_analysis().temp_size_in_bytes
        plain = lambda m, x: jnp.tanh(jnp.tanh(x @ m) @ m)
        report(kept=temp(plain), remat=temp(jax.checkpoint(plain)),
               saved=layers * rows * width * 4)
        """
    )
    # Two activations of each layer are kept without it, and with it the layer's input alone.
    assert values["kept"] >= 2 * values["saved"] * 7 // 8
    assert values["remat"] <= values["kept"] - values["saved"] // 2


def test_constants_of_loaded_programs_lie_outside_the_pool():
    values = on_gpu(
        """
        table = np.arange(1 << 20, dtype="float32")
        f = jax.jit(lambda x: x + jnp.asarray(table))
        x = jnp.zeros(1 << 20)
        before = stats()["bytes_in_use"]
        y = f(x)
        report(added=stats()["bytes_in_use"] - before)
        """
    )
    assert values["added"] == 4 << 20, "the output alone"


def test_the_compilation_cache_is_filled_and_used(tmp_path):
    lines = """
        import logging, io
        log, logger = io.StringIO(), logging.getLogger("jax._src.compiler")
        logger.addHandler(logging.StreamHandler(log))
        logger.setLevel(logging.DEBUG)
        x = jnp.ones((256, 256))
        y = jax.jit(lambda x: (x @ x).sum())(x)
        report(hits=log.getvalue().count("Persistent compilation cache hit"),
               peak=stats()["peak_bytes_in_use"])
        """
    settings = {
        "JAX_COMPILATION_CACHE_DIR": tmp_path,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    first, second = on_gpu(lines, **settings), on_gpu(lines, **settings)
    assert first["hits"] == 0
    assert second["hits"] >= 2
    assert first["peak"] == second["peak"]
    key_on_a_gpu = """
        from jax._src import cache_key
        jax.devices()
        cache_key.custom_hook = lambda: ""
        """
    assert on_gpu(key_on_a_gpu + lines, **settings)["hits"] == 0, "a GPU must not load these"
