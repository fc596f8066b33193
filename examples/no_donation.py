"""Train a perceptron with Adam, with and without giving the old state back.

Without `donate_argnums` the old weights and moments are still there while the new ones are
written, so the step holds the whole training state twice. The defaults are 1.6 billion
parameters. On a laptop:

    python no_donation.py --layers 2 --width 64 --batch 64
    python no_donation.py --layers 2 --width 64 --batch 64 --donate
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax


def init_params(key, args):
    shape = (args.layers, args.width, args.width)
    return {
        "weights": jax.random.normal(key, shape) / args.width**0.5,
        "biases": jnp.zeros((args.layers, args.width)),
    }


def loss_fn(params, inputs, targets):
    def layer(x, parameters):
        return x + jnp.tanh(x @ parameters["weights"] + parameters["biases"]), None

    outputs, _ = jax.lax.scan(layer, inputs, params)
    return jnp.mean((outputs - targets) ** 2)


def make_step(optimizer, donate):
    def train_step(params, opt_state, inputs, targets):
        loss, grads = jax.value_and_grad(loss_fn)(params, inputs, targets)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return jax.jit(train_step, donate_argnums=(0, 1) if donate else ())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--print-every", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--donate", action="store_true", help="let the step reuse the old state")
    return parser


def build(args):
    """Make the weights, the state of Adam and the step."""
    optimizer = optax.adam(args.learning_rate)

    @jax.jit
    def init(key):
        params = init_params(key, args)
        return params, optimizer.init(params)

    params, opt_state = init(jax.random.key(args.seed))
    return params, opt_state, make_step(optimizer, args.donate)


def main():
    args = arguments().parse_args()
    params, opt_state, train_step = build(args)
    rng = np.random.default_rng(args.seed)
    for step in range(1, args.steps + 1):
        inputs = rng.standard_normal((args.batch, args.width), dtype=np.float32)
        params, opt_state, loss = train_step(params, opt_state, inputs, 2 * inputs)
        if step % args.print_every == 0 or step == 1:
            print(f"step {step:5d}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
