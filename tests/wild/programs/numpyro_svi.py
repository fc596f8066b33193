"""numpyro: stochastic variational inference, step by step."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import plan
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal


def model(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([1000]).to_event(1))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)


x, y = jnp.ones((20_000, 1000)), jnp.ones(20_000)
svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO())
state = svi.init(jax.random.key(0), x, y)
update = jax.jit(svi.update)
for _ in range(4):
    state, loss = update(state, x, y)
plan.note(update, state, x, y)
print(float(loss))
