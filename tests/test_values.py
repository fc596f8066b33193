"""What arrays on the virtual GPU hold: uploads, small results, and what cannot be known."""

import jax
import pytest
from on_gpu import finish, on_gpu, start


def test_uploads_read_back_as_they_were():
    values = on_gpu(
        """
        rng = np.random.default_rng(0)
        for array in [
            rng.standard_normal((300, 200)).astype("float32"),
            np.asfortranarray(rng.standard_normal((30, 20)).astype("float32")),
            rng.integers(0, 99, (5, 6, 7))[:, ::-1, ::2].astype("int32"),
            np.array(True), np.zeros((0, 3), "float32"), np.arange(9, dtype="uint8"),
        ]:
            assert (np.asarray(jax.device_put(array)) == array).all(), array.shape
        for dtype in ["bfloat16", "float16", "int4", "uint4", "float8_e4m3fn", "float4_e2m1fn",
                      "complex64"]:
            small = jnp.array([0, 1, 2, 3], dtype)
            assert np.asarray(small).astype("complex64").real.tolist() == [0, 1, 2, 3], dtype
        report(done=True)
        """
    )
    assert values["done"]


@pytest.mark.fast
def test_small_results_are_those_of_the_cpu():
    values = on_gpu(
        """
        key = jax.random.key(7)
        for _ in range(200):  # longer than any chain of unread values is kept
            key, part = jax.random.split(key)
        report(
            key=jax.random.key_data(part).tolist(),
            normal=jax.random.normal(part, (3,)).tolist(),
            nonzero=jnp.nonzero(jnp.array([0, 3, 0, 4]))[0].tolist(),
            unique=jnp.unique(jnp.array([3, 1, 3])).tolist(),
            norm=float(jnp.linalg.norm(jnp.array([3.0, 4.0]))),
        )
        """
    )
    key = jax.random.key(7)
    for _ in range(200):
        key, part = jax.random.split(key)
    assert values["key"] == jax.random.key_data(part).tolist()
    assert values["normal"] == pytest.approx(jax.random.normal(part, (3,)).tolist())
    assert (values["nonzero"], values["unique"], values["norm"]) == ([1, 3], [1, 3], 5.0)


def test_results_that_are_handed_on_are_those_of_the_cpu():
    values = on_gpu(
        """
        step = jax.jit(lambda a, b: (a + b, a - b), donate_argnums=0)
        a, b = jnp.float32(3), jnp.float32(1)
        copy = jax.device_put(a, jax.devices()[1])  # the value outlives the donated array
        a, _ = step(a, b)
        other = jax.device_put(a, jax.devices()[1])
        for _ in range(70):
            a, difference = step(a, b)
        with jax.enable_x64(True):
            wide = jax.jit(lambda x: (x + 1, x * 0.5, x.astype("complex128")))
            x = jnp.arange(3)
            for _ in range(5):
                x, half, complex_ = wide(x)
        with jax.transfer_guard("disallow"):
            a, guarded = step(a, b)
        report(
            read=[float(a), float(difference), float(b), float(copy), float(other)],
            wide=[np.asarray(x).tolist(), np.asarray(half).tolist(), str(x.dtype),
                  str(half.dtype), str(complex_.dtype), np.asarray(complex_).real.tolist()],
            guarded=float(guarded),
        )
        """,
        count=2,
    )
    assert values["read"] == [75, 72, 1, 3, 4]
    numbers = [[5, 6, 7], [2.0, 2.5, 3.0], "int64", "float64", "complex128", [4, 5, 6]]
    assert values["wide"] == numbers
    assert values["guarded"] == 73


def test_values_are_known_where_jax_platforms_leaves_the_cpu_out():
    values = on_gpu("report(sum=float(jnp.arange(5.0).sum()))", JAX_PLATFORMS="cuda")
    assert values["sum"] == 10.0


@pytest.mark.fast
@pytest.mark.parametrize(("fill", "value"), [("zeros", 0.0), ("ones", 1.0)])
def test_unknown_values_read_as_asked(fill, value):
    values = on_gpu(
        """
        large = jnp.ones((4000, 4000)) * 3
        report(first=float(large[0, 0]), again=float(large[0, 0]))
        """,
        run={"fill": fill},
    )
    assert values == {"first": value, "again": value}


def test_checks_on_unknown_arrays_agree_with_what_they_read_as():
    values = on_gpu(
        """
        large = jnp.ones((4000, 4000)) * 3
        report(
            finite=bool(jnp.all(jnp.isfinite(large))), nan=bool(jnp.any(jnp.isnan(large))),
            same=bool(jnp.all(large == large)), positive=bool(jnp.all(large > 0)),
        )
        """
    )
    assert values == {"finite": True, "nan": False, "same": True, "positive": False}


def test_host_callbacks_see_values_where_these_are_known():
    values = on_gpu(
        """
        from jax.experimental import io_callback
        seen = []

        @jax.jit
        def step(x):
            io_callback(lambda v: seen.append(float(v)), None, x.sum(), ordered=True)
            return jax.pure_callback(lambda v: v * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

        small = step(jnp.arange(4.0))
        step(jnp.ones((4000, 4000)))  # not known: 64 MB
        jax.effects_barrier()
        report(seen=seen, small=small.tolist())
        """
    )
    assert values == {"seen": [6.0, 0.0], "small": [0.0, 2.0, 4.0, 6.0]}


def test_an_error_in_a_callback_is_an_error_of_the_program():
    values = on_gpu(
        """
        from jax.experimental import io_callback
        calls = []

        def refuse(value):
            calls.append(float(value))
            if value > 2:
                raise ValueError(f"{value} is too large")
            return value

        @jax.jit
        def pure(x):
            return jax.pure_callback(refuse, jax.ShapeDtypeStruct((), x.dtype), x)

        @jax.jit
        def effect(x):
            io_callback(refuse, jax.ShapeDtypeStruct((), x.dtype), x, ordered=True)
            return x

        errors = []
        for function in (pure, effect, pure):
            try:
                function(jnp.float32(3)).block_until_ready()
                jax.effects_barrier()
            except jax.errors.JaxRuntimeError as error:
                errors.append("INTERNAL" in str(error) and "3.0 is too large" in str(error))
        in_use = jax.devices()[0].memory_stats()["bytes_in_use"]
        fine = float(pure(jnp.float32(1)))
        report(errors=errors, fine=fine, calls=calls, in_use=in_use < 2048)
        """
    )
    assert values == {"errors": [True] * 3, "fine": 1.0, "calls": [3.0] * 3 + [1.0], "in_use": True}


def test_uploads_beyond_the_cap_are_forgotten_and_small_ones_kept():
    values = on_gpu(
        """
        first = jax.device_put(np.ones(1 << 18, "float32"))   # 1 MiB
        second = jax.device_put(np.ones(1 << 18, "float32"))
        small = jax.device_put(np.ones(16, "float32"))
        report(kept=[float(np.asarray(a)[0]) for a in (first, second, small)])
        del first
        import gc; gc.collect()  # JAX leaves cycles behind when it first traces something
        third = jax.device_put(np.ones(1 << 18, "float32"))   # there is room again
        report(third=float(np.asarray(third)[0]))
        """,
        run={"upload_cap_bytes": 3 << 19},
    )
    assert values == {"kept": [1.0, 0.0, 1.0], "third": 1.0}


def test_the_users_output_is_not_disturbed():
    _, out, err, code = finish(start("print(int(jnp.arange(3).sum()))"))
    assert (out, err, code) == ("3\n", "", 0)


def test_a_loop_on_a_made_up_value_is_reported_once():
    lines = """
    total = jax.jit(lambda x: x.sum())
    large = jnp.ones((4000, 4000))
    for _ in range(20_005):
        float(total(large))
    """
    _, _, err, code = finish(start(lines))
    assert code == 0
    assert err.count("placeholder values were read") == 1
    assert "--steps N" in err


def test_a_callback_in_a_loop_of_unknown_length_gives_its_results():
    # Such a loop is computed in another process, and the function is called in this one.
    values = on_gpu(
        """
        def add_one(x):
            return np.float32(x + 1)

        @jax.jit
        def count(x):
            shape = jax.ShapeDtypeStruct((), np.float32)
            body = lambda x: jax.pure_callback(add_one, shape, x)
            return jax.lax.while_loop(lambda x: x < 10, body, x)

        report(count=float(count(0.0)))
        """
    )
    assert values["count"] == 10


def test_a_loop_of_unknown_length_over_large_data_is_computed():
    values = on_gpu(
        """
        data = jnp.asarray(np.ones((50_000, 20), np.float32))

        @jax.jit
        def find(data, x):
            body = lambda x: x + (data @ jnp.ones(20)).mean() / 20
            return jax.lax.while_loop(lambda x: x < 3, body, x)

        report(found=float(find(data, 0.0)))
        """
    )
    assert values["found"] == pytest.approx(3)
