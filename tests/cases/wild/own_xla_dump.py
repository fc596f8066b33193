"""A trainer that asks XLA for its own dump of one program, as MaxText does by default (`dump_hlo: false` included)."""
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_dump_to=own_dump --xla_dump_hlo_module_re=jit_train_step"
import jax, jax.numpy as jnp, optax

tx = optax.adam(1e-3)

def loss_fn(params, x):
    h = jax.nn.relu(x @ params["w1"])
    return ((h @ params["w2"] - x) ** 2).mean()

@jax.jit
def train_step(params, opt_state, x):
    g = jax.grad(loss_fn)(params, x)
    up, opt_state = tx.update(g, opt_state)
    return optax.apply_updates(params, up), opt_state

k1, k2 = jax.random.split(jax.random.key(0))
params = {"w1": jax.random.normal(k1, (1024, 4096)), "w2": jax.random.normal(k2, (4096, 1024))}
opt_state = tx.init(params)
for i in range(3):
    params, opt_state = train_step(params, opt_state, jnp.ones((512, 1024)))
