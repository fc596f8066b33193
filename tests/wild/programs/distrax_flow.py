"""distrax: the likelihood of a normalizing flow, by automatic differentiation."""

import distrax
import jax
import jax.numpy as jnp
import optax
import plan


def log_prob(params, x):
    scale = distrax.Block(distrax.ScalarAffine(params["shift"], log_scale=params["log_scale"]), 1)
    flow = distrax.Chain([distrax.Block(distrax.Tanh(), 1), scale])
    base = distrax.MultivariateNormalDiag(jnp.zeros(256), jnp.ones(256))
    return distrax.Transformed(base, flow).log_prob(x)


tx = optax.adam(1e-3)


@jax.jit
def train_step(params, opt_state, x):
    loss, grads = jax.value_and_grad(lambda p: -jnp.mean(log_prob(p, x)))(params)
    updates, new = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), new, loss


params = {"shift": jnp.zeros(256), "log_scale": jnp.zeros(256)}
opt_state = tx.init(params)
x = jnp.full((8192, 256), 0.1)
for _ in range(4):
    params, opt_state, loss = train_step(params, opt_state, x)
plan.note(train_step, params, opt_state, x)
print(float(loss))
