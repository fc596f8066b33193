"""diffrax: a neural differential equation, trained through the solver."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

field = eqx.nn.MLP(4, 4, 64, 2, activation=jax.nn.softplus, key=jax.random.key(0))
times = jnp.linspace(0, 1, 20)
tx = optax.adam(1e-3)
moments = tx.init(eqx.filter(field, eqx.is_inexact_array))


def solve(field, start):
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: field(y)),
        diffrax.Tsit5(),
        t0=0.0,
        t1=1.0,
        dt0=0.05,
        y0=start,
        saveat=diffrax.SaveAt(ts=times),
    )
    return solution.ys


@eqx.filter_jit
def make_step(field, moments, starts):
    def loss_of(field):
        return jnp.mean(jax.vmap(solve, in_axes=(None, 0))(field, starts) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_of)(field)
    updates, moments = tx.update(grads, moments)
    return eqx.apply_updates(field, updates), moments, loss


starts = jnp.ones((256, 4))
for _ in range(3):
    field, moments, loss = make_step(field, moments, starts)
print(float(loss))
