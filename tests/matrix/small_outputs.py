"""Small outputs beside large state, linear algebra and captured arrays, on every release."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

WEIGHTS = jnp.ones((2900, 2900))  # 32.1 MiB: not computed


@functools.partial(jax.jit, donate_argnums=0)
def step(state):
    return {"weights": state["weights"] * 0.9, "step": state["step"] + 1}


state = {"weights": WEIGHTS * 2, "step": jnp.int32(0)}
for _ in range(100):
    if state["step"] >= 7:
        break
    state = step(state)
assert int(state["step"]) == 7


@jax.jit
def loop(weights, n):
    def body(carry):
        weights, doubled, rounds = carry
        return weights * 0.9, doubled * 2 + 1, rounds + 1

    return lax.while_loop(lambda carry: carry[1] < 100, body, (weights, n, 0))


assert int(loop(WEIGHTS, 1)[2]) == 6


@jax.jit
def scan(weights, n):
    def body(carry, _):
        weights, n = carry
        n = lax.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1)
        return (weights * 0.9, n), n

    return lax.scan(body, (weights, n), None, length=5)


(_, last), seen = scan(WEIGHTS, 7)
assert (int(last), seen.tolist()) == (52, [22, 11, 34, 17, 52])


@jax.jit
def algebra(weights, a):
    a = a @ a.T + 4 * jnp.eye(4)
    values, _ = jnp.linalg.eigh(a)
    results = {
        "solve": jnp.linalg.solve(a, jnp.arange(4.0)),
        "eigh": values,
        "svd": jnp.linalg.svd(a, compute_uv=False),
        "qr": jnp.abs(jnp.linalg.qr(a)[1]),
        "det": jnp.linalg.det(a),
        "fft": jnp.abs(jnp.fft.rfft(a[0])),
    }
    # The compiler of 0.6 asks cuSOLVER, which wants a GPU.
    if jax.__version_info__ >= (0, 7):
        results["cholesky"] = jnp.linalg.cholesky(a)
    return weights * 0.9, results


matrix = np.arange(16, dtype=np.float32).reshape(4, 4) / 7
_, found = algebra(WEIGHTS, jnp.asarray(matrix))
a = matrix @ matrix.T + 4 * np.eye(4, dtype=np.float32)
expected = {
    "solve": np.linalg.solve(a, np.arange(4.0)),
    "cholesky": np.linalg.cholesky(a),
    "eigh": np.linalg.eigvalsh(a),
    "svd": np.linalg.svd(a, compute_uv=False),
    "qr": np.abs(np.linalg.qr(a)[1]),
    "det": np.linalg.det(a),
    "fft": np.abs(np.fft.rfft(a[0])),
}
for name, value in found.items():
    np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=1e-4, err_msg=name)

# XLA must not fold what a function captures: it is a constant or an argument of so many bytes.
captured = jnp.asarray(np.random.default_rng(0).random((10 << 20,), np.float32))
compiled = jax.jit(lambda x: (captured * x).sum()).lower(2.0).compile()
assert "f32[10485760]{0} constant" in compiled.as_text() or (
    compiled.memory_analysis().argument_size_in_bytes >= 40 << 20
)
