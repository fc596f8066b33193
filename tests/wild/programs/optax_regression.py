"""optax without a library of layers: a plain tree of arrays, momentum and a schedule."""

import jax
import jax.numpy as jnp
import optax
import plan

sizes = [512, 1024, 1024, 1]
keys = jax.random.split(jax.random.key(0), len(sizes))
params = [
    {"w": jax.random.normal(key, (a, b)) * a**-0.5, "b": jnp.zeros(b)}
    for key, a, b in zip(keys, sizes, sizes[1:], strict=False)
]
tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.sgd(optax.cosine_decay_schedule(1e-2, 100), momentum=0.9),
)


def predict(params, x):
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@jax.jit
def train_step(params, opt_state, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((predict(p, x) - y) ** 2))(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


opt_state = tx.init(params)
x, y = jnp.ones((2048, 512)), jnp.ones((2048, 1))
for _ in range(5):
    params, opt_state, loss = train_step(params, opt_state, x, y)
plan.note(train_step, params, opt_state, x, y)
print(float(loss))
