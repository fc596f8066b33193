"""equinox: filter_jit around a step of an MLP."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

model = eqx.nn.MLP(64, 10, 512, 3, key=jax.random.key(0))
tx = optax.adam(1e-3)
moments = tx.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_jit
def make_step(model, moments, x, y):
    def loss_of(model):
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_of)(model)
    updates, moments = tx.update(grads, moments, model)
    return eqx.apply_updates(model, updates), moments, loss


x, y = jnp.ones((4096, 64)), jnp.ones((4096, 10))
for _ in range(5):
    model, moments, loss = make_step(model, moments, x, y)
print(float(loss))
