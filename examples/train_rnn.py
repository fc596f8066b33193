"""Train a gated recurrent network to remember, in plain JAX.

A sequence of symbols is shown, then blanks; the network must say at the end which symbol came
first. The defaults are two layers of 2,048 units over 512 steps of time. On a laptop:

    python train_rnn.py --layers 1 --width 64 --length 8 --symbols 4 --batch 64 --steps 200
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


def init_layer(key, inputs, width):
    input_key, hidden_key = jax.random.split(key)
    return {
        "input": jax.random.normal(input_key, (inputs, 3 * width)) / inputs**0.5,
        "hidden": jax.random.normal(hidden_key, (width, 3 * width)) / width**0.5,
        "bias": jnp.zeros(3 * width),
    }


def init_params(key, args):
    embed_key, head_key, *layer_keys = jax.random.split(key, 2 + args.layers)
    return {
        "embed": jax.random.normal(embed_key, (args.symbols, args.width)),
        "layers": [init_layer(k, args.width, args.width) for k in layer_keys],
        "head": jax.random.normal(head_key, (args.width, args.symbols)) / args.width**0.5,
    }


def gru(layer, sequence):
    """Run one layer over `sequence` (time, batch, width) and return all its states."""

    def cell(hidden, projected):
        reset_in, update_in, new_in = jnp.split(projected, 3, axis=-1)
        reset_h, update_h, new_h = jnp.split(hidden @ layer["hidden"], 3, axis=-1)
        reset = jax.nn.sigmoid(reset_in + reset_h)
        update = jax.nn.sigmoid(update_in + update_h)
        new = jnp.tanh(new_in + reset * new_h)
        hidden = update * hidden + (1 - update) * new
        return hidden, hidden

    start = jnp.zeros(sequence.shape[1:])
    return jax.lax.scan(cell, start, sequence @ layer["input"] + layer["bias"])[1]


def loss_fn(params, symbols):
    x = params["embed"][symbols]
    for layer in params["layers"]:
        x = gru(layer, x)
    log_probabilities = jax.nn.log_softmax(x[-1] @ params["head"])
    return -jnp.take_along_axis(log_probabilities, symbols[0][:, None], axis=-1).mean()


def init_adam(params):
    zeros = partial(jax.tree.map, jnp.zeros_like)
    return {"mean": zeros(params), "square": zeros(params), "count": jnp.zeros((), jnp.int32)}


def adam(grads, state, learning_rate):
    count = state["count"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, state["square"], grads)
    scale = learning_rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    updates = jax.tree.map(lambda m, s: -scale * m / (jnp.sqrt(s) + 1e-8), mean, square)
    return updates, {"mean": mean, "square": square, "count": count}


@partial(jax.jit, donate_argnums=(0, 1), static_argnames="learning_rate")
def train_step(params, opt_state, symbols, *, learning_rate):
    loss, grads = jax.value_and_grad(loss_fn)(params, symbols)
    updates, opt_state = adam(grads, opt_state, learning_rate)
    return jax.tree.map(jnp.add, params, updates), opt_state, loss


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--symbols", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--print-every", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main():
    args = arguments().parse_args()
    params = init_params(jax.random.key(args.seed), args)
    opt_state = init_adam(params)
    rng = np.random.default_rng(args.seed)
    for step in range(1, args.steps + 1):
        # Symbol 0 is the blank; only the first moment shows another one.
        symbols = np.zeros((args.length, args.batch), np.int32)
        symbols[0] = rng.integers(1, args.symbols, args.batch)
        params, opt_state, loss = train_step(
            params, opt_state, symbols, learning_rate=args.learning_rate
        )
        if step % args.print_every == 0 or step == 1:
            print(f"step {step:5d}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
