"""Train a mixture of experts with top-2 routing and a fixed capacity (plain JAX, Optax).

Tokens come from several sources, each with its own rule, so that experts pay off. The defaults
are 64 experts of 1,024 x 4,096 and 32,768 tokens a step. On a laptop:

    python train_moe.py --experts 4 --width 16 --hidden 32 --tokens 256 --steps 200
"""

import argparse
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import optax


def init_params(key, args):
    router_key, up_key, down_key = jax.random.split(key, 3)
    up_shape = (args.experts, args.width, args.hidden)
    down_shape = (args.experts, args.hidden, args.width)
    return {
        "router": jax.random.normal(router_key, (args.width, args.experts)) / args.width**0.5,
        "up": jax.random.normal(up_key, up_shape) / args.width**0.5,
        "down": jax.random.normal(down_key, down_shape) / args.hidden**0.5,
    }


def route(probabilities, capacity):
    """Give each token to its two best experts, first come first served.

    Returns:
        For every token and choice: the expert, the place in its queue, and the weight, which is
        zero for a token that came after `capacity` others.
    """
    weight, expert = jax.lax.top_k(probabilities, 2)
    weight = weight / weight.sum(axis=-1, keepdims=True)
    chosen = jax.nn.one_hot(expert.T.reshape(-1), probabilities.shape[-1], dtype=jnp.int32)
    place = ((jnp.cumsum(chosen, axis=0) - 1) * chosen).sum(axis=-1).reshape(2, -1).T
    return expert, place, jnp.where(place < capacity, weight, 0.0)


def moe(params, tokens, capacity):
    probabilities = jax.nn.softmax(tokens @ params["router"])
    expert, place, weight = route(probabilities, capacity)
    experts, width = probabilities.shape[-1], tokens.shape[-1]

    # Places beyond the capacity fall out of bounds, and `drop` leaves them behind.
    queues = jnp.zeros((experts, capacity, width))
    queues = queues.at[expert, place].set(tokens[:, None, :], mode="drop")
    hidden = jax.nn.gelu(jnp.einsum("ecw,ewh->ech", queues, params["up"]))
    out = jnp.einsum("ech,ehw->ecw", hidden, params["down"])
    mixed = (weight[..., None] * out.at[expert, place].get(mode="fill", fill_value=0.0)).sum(axis=1)

    # Switch Transformer's balance loss: share of tokens times mean probability, per expert.
    share = jax.nn.one_hot(expert[:, 0], experts).mean(axis=0)
    return mixed, experts * jnp.sum(share * probabilities.mean(axis=0))


def make_step(optimizer, capacity):
    def loss_fn(params, tokens, targets):
        out, balance = moe(params, tokens, capacity)
        error = jnp.mean((out - targets) ** 2)
        return error + 0.01 * balance, error

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, tokens, targets):
        (_, error), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, tokens, targets)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, error

    return train_step


def batches(args):
    """Yield tokens of several sources; each source rotates and scales in its own way."""
    rng = np.random.default_rng(args.seed)
    sources = min(args.experts, 8)
    centers = 3 * rng.standard_normal((sources, args.width), dtype=np.float32)
    signs = rng.choice(np.array([-1.0, 1.0], np.float32), (sources, args.width))
    while True:
        source = rng.integers(0, sources, args.tokens)
        tokens = rng.standard_normal((args.tokens, args.width), dtype=np.float32)
        yield tokens + centers[source], tokens * signs[source]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--capacity-factor", type=float, default=1.25)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--print-every", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def build(args):
    """Make the weights, the state of AdamW and the step."""
    params = init_params(jax.random.key(args.seed), args)
    optimizer = optax.adamw(args.learning_rate)
    capacity = int(args.capacity_factor * 2 * args.tokens / args.experts)
    return params, optimizer.init(params), make_step(optimizer, capacity)


def main():
    args = arguments().parse_args()
    params, opt_state, train_step = build(args)
    for step, (tokens, targets) in enumerate(islice(batches(args), args.steps), 1):
        params, opt_state, error = train_step(params, opt_state, tokens, targets)
        if step % args.print_every == 0 or step == 1:
            print(f"step {step:5d}  loss {error:.4f}")


if __name__ == "__main__":
    main()
