"""penzai: a model that is a tree, trained by optax."""

import jax
import jax.numpy as jnp
import optax
from penzai import pz

model = pz.nn.Sequential(
    [
        pz.nn.Linear.from_config("first", jax.random.key(0), {"features": 128}, {"hidden": 512}),
        pz.nn.Elementwise(jax.nn.relu),
        pz.nn.Linear.from_config("second", jax.random.key(1), {"hidden": 512}, {"features": 16}),
    ]
)
model, variables = pz.unbind_params(model, freeze=True)
params = {variable.label: variable.value for variable in variables}
tx = optax.adam(1e-3)
opt_state = tx.init(params)
x = pz.nx.wrap(jnp.ones((1024, 128)), "batch", "features")


@jax.jit
def train_step(params, opt_state, x):
    def loss_of(params):
        bound = [pz.ParameterValue(value=value, label=label) for label, value in params.items()]
        return jnp.mean(pz.bind_variables(model, bound)(x).unwrap("batch", "features") ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, new = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), new, loss


for _ in range(3):
    params, opt_state, loss = train_step(params, opt_state, x)
print(float(loss))
