"""scico: total variation denoising by ADMM's cheaper relative, PGM."""

import jax
import jax.numpy as jnp
from scico import functional, linop, loss
from scico.optimize import PGM

noisy = jax.random.normal(jax.random.key(0), (256, 256))
identity = linop.Identity(noisy.shape)
solver = PGM(
    f=loss.SquaredL2Loss(y=noisy, A=identity),
    g=0.1 * functional.L1Norm(),
    L0=1.0,
    x0=jnp.zeros_like(noisy),
    maxiter=5,
)
print(solver.solve().shape)
