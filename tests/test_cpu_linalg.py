"""Linear algebra of programs for CUDA: computed on the CPU, as JAX computes it there."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as scipy_linalg
import numpy as np
import pytest
from cpu_programs import run_on_cpu
from jax._src.interpreters import mlir
from jax.lax import linalg
from on_gpu import on_gpu

RANDOM = np.random.default_rng(0)


def random(*shape, dtype=np.float32):
    array = RANDOM.standard_normal(shape).astype(dtype)
    return array + 1j * array[::-1] if np.issubdtype(dtype, np.complexfloating) else array


def definite(*shape, dtype=np.float32):
    array = random(*shape, shape[-1], dtype=dtype)
    return array @ np.swapaxes(array, -1, -2).conj() + 3 * np.eye(shape[-1], dtype=dtype)


SQUARE, BATCH, TALL = definite(4), definite(3, 4), random(5, 3)
COMPLEX, VECTOR = definite(4, dtype=np.complex64), random(4)

CALLS = {
    "cholesky": (jnp.linalg.cholesky, SQUARE),
    "cholesky of many": (jnp.linalg.cholesky, BATCH),
    "cholesky of complex numbers": (jnp.linalg.cholesky, COMPLEX),
    "upper cholesky": (scipy_linalg.cholesky, SQUARE),
    "cholesky that fails": (jnp.linalg.cholesky, -SQUARE),
    "cholesky update": (linalg.cholesky_update, jnp.linalg.cholesky(SQUARE).T, VECTOR),
    "solve": (jnp.linalg.solve, SQUARE, VECTOR),
    "solve of many": (jnp.linalg.solve, BATCH, random(3, 4, 2)),
    "cho_solve": (
        lambda a, b: scipy_linalg.cho_solve(scipy_linalg.cho_factor(a), b),
        SQUARE,
        VECTOR,
    ),
    "inverse": (jnp.linalg.inv, BATCH),
    "determinant": (jnp.linalg.det, SQUARE),
    "sign and logarithm of it": (jnp.linalg.slogdet, BATCH),
    "lu": (scipy_linalg.lu, random(4, 4)),
    "lu of a tall matrix": (scipy_linalg.lu, TALL),
    "eigh": (jnp.linalg.eigh, SQUARE),
    "eigh of many": (jnp.linalg.eigh, BATCH),
    "eigh of complex numbers": (jnp.linalg.eigh, COMPLEX),
    "svd": (jnp.linalg.svd, TALL),
    "svd of a wide matrix": (jnp.linalg.svd, TALL.T),
    "svd of many": (jnp.linalg.svd, BATCH),
    "svd of complex numbers": (jnp.linalg.svd, random(5, 3, dtype=np.complex64)),
    "economic svd": (lambda a: jnp.linalg.svd(a, full_matrices=False), TALL),
    "larger economic svd": (lambda a: jnp.linalg.svd(a, full_matrices=False), random(40, 34)),
    "svd by gesvd": (jnp.linalg.svd, random(40, 1030)),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), TALL),
    "rank": (jnp.linalg.matrix_rank, TALL),
    "least squares": (lambda a, b: jnp.linalg.lstsq(a, b)[0], TALL, random(5)),
    "pseudo-inverse": (jnp.linalg.pinv, TALL),
    "qr": (jnp.linalg.qr, TALL),
    "qr of many": (jnp.linalg.qr, BATCH),
    "complete qr": (lambda a: jnp.linalg.qr(a, mode="complete"), TALL),
    "exponential": (scipy_linalg.expm, SQUARE / 9),
    "triangular solve": (lambda a, b: scipy_linalg.solve_triangular(a, b), SQUARE, VECTOR),
    "tridiagonal form": (linalg.tridiagonal, SQUARE),
    "tridiagonal solve": (linalg.tridiagonal_solve, VECTOR, VECTOR + 9, VECTOR, random(4, 2)),
    "polar decomposition": (scipy_linalg.polar, SQUARE),
    "symmetric product": (lambda a: linalg.symmetric_product(a, a @ a.T), TALL),
    "derivative of a solution": (jax.grad(lambda a: jnp.linalg.solve(a, VECTOR).sum()), SQUARE),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_cuda_library_gives_what_jax_gives_on_the_cpu(name):
    function, *arguments = CALLS[name]
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",))
    code = mlir.module_to_bytecode(lowered.compiler_ir())
    expected = [np.asarray(each) for each in jax.tree.leaves(jax.jit(function)(*arguments))]
    computed = run_on_cpu(code, arguments, expected)
    for value, wanted in zip(computed, expected, strict=True):
        np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-4, atol=1e-5)


def test_newton_s_method_ends_as_it_does_on_the_cpu():
    values = on_gpu(
        """
        weights = jnp.ones((4096, 4096))  # beside which the system is small

        @jax.jit
        def newton(weights, x):
            energy = lambda x: ((x - jnp.arange(4.0)) ** 4).sum() + ((x - 1) ** 2).sum()
            change = jnp.linalg.solve(jax.hessian(energy)(x), jax.grad(energy)(x))
            return weights * 0.9, x - change, jnp.abs(change).max()

        x, rounds, change = jnp.zeros(4), 0, 1.0
        while change > 1e-5:
            weights, x, change = newton(weights, x)
            rounds += 1
        report(rounds=rounds, x=x.tolist())
        """
    )
    assert values["rounds"] == 7
    assert values["x"] == pytest.approx([0.5897545, 1.0, 1.4102455, 2.1648777])
