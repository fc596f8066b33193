"""Train a vision transformer on synthetic images (Equinox, Optax).

The defaults are ViT-B/16, 128 images of 224 x 224 a step. On a laptop:

    python train_vit.py --layers 2 --width 32 --heads 4 --image 16 --patch 4 --classes 4 --batch 16
"""

import argparse
from itertools import islice

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Block(eqx.Module):
    """Pre-norm attention and a two-layer perceptron."""

    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, width, heads, *, key):
        attention_key, mlp_key = jax.random.split(key)
        self.norm1 = eqx.nn.LayerNorm(width)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=attention_key)
        self.norm2 = eqx.nn.LayerNorm(width)
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=mlp_key)

    def __call__(self, x):
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))


class ViT(eqx.Module):
    """Patches in, class scores out; one image at a time."""

    embed: eqx.nn.Conv2d
    positions: jax.Array
    blocks: list[Block]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, args, *, key):
        embed_key, positions_key, head_key, *block_keys = jax.random.split(key, 3 + args.layers)
        patches = (args.image // args.patch) ** 2
        self.embed = eqx.nn.Conv2d(3, args.width, args.patch, args.patch, key=embed_key)
        self.positions = 0.02 * jax.random.normal(positions_key, (patches, args.width))
        self.blocks = [Block(args.width, args.heads, key=k) for k in block_keys]
        self.norm = eqx.nn.LayerNorm(args.width)
        self.head = eqx.nn.Linear(args.width, args.classes, key=head_key)

    def __call__(self, image):
        x = self.embed(image)
        x = x.reshape(x.shape[0], -1).T + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(axis=0)))


@eqx.filter_value_and_grad
def loss_fn(model, images, labels):
    logits = jax.vmap(model)(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def make_step(optimizer):
    # Images and labels come first because only what follows is donated.
    @eqx.filter_jit(donate="all-except-first")
    def train_step(batch, model, opt_state):
        loss, grads = loss_fn(model, *batch)
        updates, opt_state = optimizer.update(grads, opt_state, eqx.filter(model, eqx.is_array))
        return loss, eqx.apply_updates(model, updates), opt_state

    return train_step


def batches(args):
    """Yield noisy images; each class has its own stripes."""
    rng = np.random.default_rng(args.seed)
    across = np.arange(args.image) / args.image
    while True:
        labels = rng.integers(0, args.classes, args.batch).astype(np.int32)
        stripes = np.sin(2 * np.pi * across[None, :] * (labels[:, None] % 16 + 1))
        noise = rng.standard_normal((args.batch, 3, args.image, args.image), dtype=np.float32)
        yield 0.3 * noise + stripes[:, None, None, :].astype(np.float32), labels


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--patch", type=int, default=16)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--print-every", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def build(args):
    """Make the model, the step and the state of AdamW."""
    model = ViT(args, key=jax.random.key(args.seed))
    optimizer = optax.adamw(args.learning_rate, weight_decay=0.05)
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    return model, make_step(optimizer), opt_state


def main():
    args = arguments().parse_args()
    model, train_step, opt_state = build(args)
    for step, (images, labels) in enumerate(islice(batches(args), args.steps), 1):
        batch = jnp.asarray(images), jnp.asarray(labels)
        loss, model, opt_state = train_step(batch, model, opt_state)
        if step % args.print_every == 0 or step == 1:
            print(f"step {step:5d}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
