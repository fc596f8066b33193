"""Train on sequences that get longer, and keep an evaluation after each stage.

Every stage needs a larger block of temporaries than the one before. In a pool that grows
(`XLA_PYTHON_CLIENT_PREALLOCATE=false`) each of them gets a region of its own, regions are never
merged, and the last stage finds enough free bytes but no room. In a preallocated pool the same
run lives. On a laptop:

    python fragment.py --lengths 16 32 --width 16 --batch 8
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax


def init_params(key, args):
    shape = (args.layers, args.width, args.width)
    return {
        "past": jax.random.normal(key, shape) / args.width**0.5,
        "now": jnp.zeros((args.layers, args.width, args.width)),
    }


def encode(params, x):
    """Run layers that mix each moment with the one before."""

    def layer(x, weights):
        past = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        return x + jnp.tanh(past @ weights["past"] + x @ weights["now"]), None

    return jax.lax.scan(layer, x, params)[0]


def loss_fn(params, x):
    return jnp.mean((encode(params, x)[:, :-1] - x[:, 1:]) ** 2)


def make_step(optimizer):
    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, x):
        loss, grads = jax.value_and_grad(loss_fn)(params, x)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return train_step


@jax.jit
def evaluate(params, x):
    return encode(params, x).mean(axis=0)


def waves(rng, batch, length, width):
    """Return smooth sequences, so that the next moment can be told from the last."""
    phase = rng.uniform(0, 2 * np.pi, (batch, 1, width)).astype(np.float32)
    return np.sin(phase + 0.3 * np.arange(length, dtype=np.float32)[None, :, None])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps-per-stage", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def build(args):
    """Make the weights, the state of Adam and the step."""
    params = init_params(jax.random.key(args.seed), args)
    optimizer = optax.adam(args.learning_rate)
    return params, optimizer.init(params), make_step(optimizer)


def main():
    args = arguments().parse_args()
    params, opt_state, train_step = build(args)
    rng = np.random.default_rng(args.seed)
    evaluations = []
    for length in args.lengths:
        x = jnp.asarray(waves(rng, args.batch, length, args.width))
        for _ in range(args.steps_per_stage):
            params, opt_state, loss = train_step(params, opt_state, x)
        evaluations.append(evaluate(params, x))
        print(f"length {length:5d}  loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
