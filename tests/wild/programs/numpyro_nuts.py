"""numpyro: a Bayesian regression sampled by NUTS."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS


def model(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)


x = jnp.asarray(np.random.default_rng(0).normal(size=(100, 4)))
sampler = MCMC(NUTS(model), num_warmup=10, num_samples=10, progress_bar=False)
sampler.run(jax.random.key(0), x, jnp.ones(100))
print({name: value.shape for name, value in sampler.get_samples().items()})
