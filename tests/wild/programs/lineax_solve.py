"""lineax: a large symmetric system by conjugate gradients."""

import jax
import jax.numpy as jnp
import lineax as lx
import plan

size = 2000


@jax.jit
def solve(matrix, vector):
    operator = lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag)
    return lx.linear_solve(
        operator, vector, solver=lx.CG(1e-3, 1e-3, max_steps=20), throw=False
    ).value


matrix = jnp.eye(size) * 2 + 1e-4
vector = jnp.ones(size)
plan.note(solve, matrix, vector)
print(solve(matrix, vector).shape)
