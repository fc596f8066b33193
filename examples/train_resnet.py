"""Train a ResNet with batch normalization on synthetic images (Flax Linen, Optax).

The defaults are ResNet-50, 256 images of 224 x 224 a step. On a laptop:

    python train_resnet.py --stages 1 1 --width 8 --image 16 --classes 4 --batch 16
"""

import argparse
from functools import partial
from itertools import islice
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


class Bottleneck(nn.Module):
    """Narrow, convolve, widen; add to what came in."""

    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x, train):
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        y = nn.relu(norm()(conv(self.width, (1, 1))(x)))
        y = nn.relu(norm()(conv(self.width, (3, 3), strides=self.stride)(y)))
        y = norm(scale_init=nn.initializers.zeros)(conv(4 * self.width, (1, 1))(y))
        if x.shape != y.shape:
            x = norm()(conv(4 * self.width, (1, 1), strides=self.stride)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """A stem, stages of bottlenecks that halve the image, dropout, a linear head."""

    stages: tuple[int, ...]
    width: int
    classes: int
    dropout: float

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(self.width, (7, 7), strides=2, use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                x = Bottleneck(self.width * 2**stage, stride)(x, train)
        x = nn.Dropout(self.dropout, deterministic=not train)(x.mean(axis=(1, 2)))
        return nn.Dense(self.classes)(x)


class TrainState(train_state.TrainState):
    batch_stats: Any
    dropout_key: jax.Array


@partial(jax.jit, donate_argnums=0)
def train_step(state, images, labels):
    key = jax.random.fold_in(state.dropout_key, state.step)

    def loss_fn(params):
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            images,
            train=True,
            mutable=["batch_stats"],
            rngs={"dropout": key},
        )
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, (logits, updates)

    (loss, (logits, updates)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, batch_stats=updates["batch_stats"])
    accuracy = (logits.argmax(axis=-1) == labels).mean()
    return state, {"loss": loss, "accuracy": accuracy}


def batches(args):
    """Yield noisy images; each class has its own stripes."""
    rng = np.random.default_rng(args.seed)
    across = np.arange(args.image) / args.image
    while True:
        labels = rng.integers(0, args.classes, args.batch).astype(np.int32)
        stripes = np.sin(2 * np.pi * across[None, :] * (labels[:, None] % 16 + 1))
        noise = rng.standard_normal((args.batch, args.image, args.image, 3), dtype=np.float32)
        yield 0.3 * noise + stripes[:, None, :, None].astype(np.float32), labels


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, nargs="+", default=[3, 4, 6, 3])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--print-every", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def build(args):
    """Make the training state: weights, running statistics, momentum, dropout key."""
    model = ResNet(tuple(args.stages), args.width, args.classes, args.dropout)
    params_key, dropout_key = jax.random.split(jax.random.key(args.seed))
    sample = jnp.zeros((1, args.image, args.image, 3))
    variables = jax.jit(partial(model.init, train=False))(params_key, sample)
    return TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        tx=optax.sgd(args.learning_rate, momentum=0.9, nesterov=True),
        batch_stats=variables["batch_stats"],
        dropout_key=dropout_key,
    )


def main():
    args = arguments().parse_args()
    state = build(args)
    for step, (images, labels) in enumerate(islice(batches(args), args.steps), 1):
        state, metrics = train_step(state, images, labels)
        if step % args.print_every == 0 or step == 1:
            print(f"step {step:5d}  loss {metrics['loss']:.4f}  accuracy {metrics['accuracy']:.2f}")


if __name__ == "__main__":
    main()
