"""Train a classifier and, by mistake, keep every step's scores on the device.

The scores are meant for a plot after the run. Each is a device array, so memory grows by the
same amount every step until nothing is left. `--on-host` is the cure: fetch what is kept. On a
laptop:

    python leak.py --features 16 --width 32 --classes 4 --batch 64 --steps 100
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax


def init_params(key, args):
    hidden_key, head_key = jax.random.split(key)
    return {
        "hidden": jax.random.normal(hidden_key, (args.features, args.width)) / args.features**0.5,
        "head": jax.random.normal(head_key, (args.width, args.classes)) / args.width**0.5,
    }


def loss_fn(params, features, labels):
    scores = jax.nn.relu(features @ params["hidden"]) @ params["head"]
    loss = optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()
    return loss, scores


def make_step(optimizer):
    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, features, labels):
        (loss, scores), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, features, labels)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss, scores

    return train_step


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=10000)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--print-every", type=int, default=50)
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on-host", action="store_true", help="fetch the scores that are kept")
    return parser


def build(args):
    """Make the weights, the momentum and the step."""
    params = init_params(jax.random.key(args.seed), args)
    optimizer = optax.sgd(args.learning_rate, momentum=0.9)
    return params, optimizer.init(params), make_step(optimizer)


def main():
    args = arguments().parse_args()
    params, opt_state, train_step = build(args)
    rng = np.random.default_rng(args.seed)
    centers = rng.standard_normal((args.classes, args.features), dtype=np.float32)
    # One fixed batch: what matters here is what the loop keeps, not what it reads.
    labels = jnp.asarray(rng.integers(0, args.classes, args.batch).astype(np.int32))
    features = jnp.asarray(centers)[labels]

    history = []
    for step in range(1, args.steps + 1):
        params, opt_state, loss, scores = train_step(params, opt_state, features, labels)
        history.append(jax.device_get(scores) if args.on_host else scores)
        if step % args.print_every == 0 or step == 1:
            print(f"step {step:5d}  loss {loss:.4f}  kept {len(history)}", flush=True)


if __name__ == "__main__":
    main()
