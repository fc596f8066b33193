"""Train a GPT on synthetic text (Flax NNX, Optax).

The defaults are GPT-2 medium, sixteen sequences of 1,024 tokens a step. On a laptop:

    python train_gpt.py --layers 2 --width 64 --heads 4 --vocab 256 --sequence 32 --batch 8
"""

import argparse
import time
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class Block(nnx.Module):
    """Pre-norm attention and a two-layer perceptron."""

    def __init__(self, width, heads, dtype, *, rngs):
        def linear(inputs, outputs):
            return nnx.Linear(inputs, outputs, dtype=dtype, rngs=rngs)

        self.heads = heads
        self.norm1 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.qkv = linear(width, 3 * width)
        self.merge = linear(width, width)
        self.norm2 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.up = linear(width, 4 * width)
        self.down = linear(4 * width, width)

    def __call__(self, x):
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.reshape(split) for t in jnp.split(self.qkv(self.norm1(x)), 3, axis=-1))
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(attended.reshape(x.shape))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x))))


class GPT(nnx.Module):
    """Learned positions, a stack of blocks, and the embedding again for the output."""

    def __init__(self, args, *, rngs):
        dtype = jnp.bfloat16 if args.bf16 else jnp.float32

        @nnx.split_rngs(splits=args.layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stack(rngs):
            return Block(args.width, args.heads, dtype, rngs=rngs)

        self.remat = args.remat
        self.tokens = nnx.Embed(args.vocab, args.width, dtype=dtype, rngs=rngs)
        self.positions = nnx.Embed(args.sequence, args.width, dtype=dtype, rngs=rngs)
        self.blocks = stack(rngs)
        self.norm = nnx.LayerNorm(args.width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens):
        def layer(block, x):
            return block(x)

        if self.remat:
            layer = nnx.remat(layer)
        x = self.tokens(tokens) + self.positions(jnp.arange(tokens.shape[1]))
        x = nnx.scan(layer, in_axes=(0, nnx.Carry), out_axes=nnx.Carry)(self.blocks, x)
        return self.tokens.attend(self.norm(x))


def loss_fn(model, batch):
    logits = model(batch[:, :-1]).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()


@nnx.jit(donate_argnames=("model", "optimizer"))
def train_step(model, optimizer, batch):
    loss, gradients = nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, gradients)
    return loss


def batches(args):
    """Yield sequences in which a few tokens are common and most are rare, as in text."""
    rng = np.random.default_rng(args.seed)
    while True:
        words = rng.zipf(1.3, (args.batch, args.sequence + 1))
        yield (words % args.vocab).astype(np.int32)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--print-every", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--remat",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep only the input of each block and recompute the rest going back",
    )
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    return parser


def build(args):
    """Make the model and its optimizer: AdamW, clipped, on a cosine schedule."""
    model = GPT(args, rngs=nnx.Rngs(args.seed))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, args.learning_rate, warmup_steps=args.steps // 10 + 1, decay_steps=args.steps + 1
    )
    transform = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.1))
    return model, nnx.Optimizer(model, transform, wrt=nnx.Param)


def main():
    args = arguments().parse_args()
    model, optimizer = build(args)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    print(f"{parameters:,} parameters on {jax.devices()[0].device_kind}")

    start = time.perf_counter()
    for step, batch in enumerate(islice(batches(args), args.steps), 1):
        loss = train_step(model, optimizer, batch)
        if step % args.print_every == 0 or step == 1:
            print(f"step {step:5d}  loss {loss:.4f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
