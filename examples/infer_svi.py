"""Infer a hierarchical logistic regression by SVI, or by NUTS (NumPyro).

The defaults are two million rows of 256 features in 1,000 groups. On a laptop:

    python infer_svi.py --rows 2000 --features 4 --groups 5 --steps 500
    python infer_svi.py --rows 500 --features 4 --groups 5 --mcmc --samples 100
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal


def model(features, group, groups, outcome=None):
    """Let each group have its own intercept, drawn around a common one."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([features.shape[1]]).to_event(1))
    center = numpyro.sample("center", dist.Normal(0, 1))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    with numpyro.plate("groups", groups):
        intercept = numpyro.sample("intercept", dist.Normal(center, spread))
    logits = features @ weights + intercept[group]
    with numpyro.plate("rows", features.shape[0]):
        numpyro.sample("outcome", dist.Bernoulli(logits=logits), obs=outcome)


def synthetic(args):
    """Return features, groups and outcomes drawn from the model, and the true weights."""
    rng = np.random.default_rng(args.seed)
    features = rng.standard_normal((args.rows, args.features), dtype=np.float32)
    group = rng.integers(0, args.groups, args.rows).astype(np.int32)
    weights = rng.standard_normal(args.features).astype(np.float32)
    logits = features @ weights + rng.standard_normal(args.groups)[group]
    outcome = (rng.random(args.rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return features, group, outcome, weights


def run_svi(args, features, group, outcome):
    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(args.learning_rate), Trace_ELBO())
    result = svi.run(
        jax.random.key(args.seed),
        args.steps,
        features,
        group,
        args.groups,
        outcome,
        progress_bar=False,
    )
    for step in range(0, args.steps, max(1, args.steps // 10)):
        print(f"step {step + 1:5d}  loss {result.losses[step] / args.rows:.4f}")
    return guide.median(result.params)["weights"]


def run_mcmc(args, features, group, outcome):
    mcmc = MCMC(NUTS(model), num_warmup=args.samples, num_samples=args.samples, progress_bar=False)
    mcmc.run(jax.random.key(args.seed), features, group, args.groups, outcome)
    return mcmc.get_samples()["weights"].mean(axis=0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--mcmc", action="store_true", help="sample with NUTS instead of SVI")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main():
    args = arguments().parse_args()
    *data, truth = synthetic(args)
    features, group, outcome = (jnp.asarray(array) for array in data)
    infer = run_mcmc if args.mcmc else run_svi
    weights = infer(args, features, group, outcome)
    print(f"mean error of the weights {np.abs(np.asarray(weights) - truth).mean():.3f}")


if __name__ == "__main__":
    main()
