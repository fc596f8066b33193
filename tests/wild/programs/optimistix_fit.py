"""optimistix: a nonlinear least squares fit by Levenberg-Marquardt."""

import jax
import jax.numpy as jnp
import optimistix as optx


def residuals(coefficients, data):
    x, y = data
    return coefficients[0] * jnp.exp(-coefficients[1] * x) + coefficients[2] - y


x = jnp.linspace(0, 4, 10_000)
data = (x, 2 * jnp.exp(-1.3 * x) + 0.5)


@jax.jit
def fit(start, data):
    solver = optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6)
    return optx.least_squares(residuals, solver, start, args=data, max_steps=64, throw=False).value


print(fit(jnp.ones(3), data).shape)
