"""A run of `vramfit train` as one would write it without: the oracle of `test_train_command.py`.

Only the order of rows is the loader's. The model is written with flax's own layers, and trained
with its own optimizer. Prints the loss of each step.
"""

import json
import sys

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from vramfit.data import Loader


class Model(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.RNN(nnx.GRUCell(4, 16, rngs=rngs))
        self.second = nnx.RNN(nnx.GRUCell(16, 16, rngs=rngs))
        self.head = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, inputs):
        return self.head(self.second(self.first(inputs))[:, -1])


model = Model(nnx.Rngs(0))
rule = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.003))
optimizer = nnx.Optimizer(model, rule, wrt=nnx.Param)


@nnx.jit
def step(model, optimizer, inputs, targets):
    def loss(model):
        return jnp.mean((model(inputs) - targets) ** 2)

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


loader = Loader(
    sys.argv[1],
    ["input_sequences", "targets"],
    batch_size=64,
    drop_last=True,
    split=("train", 0.1),
    memory="256MiB",
)
losses = []
for batch in loader:
    inputs = jax.device_put(batch["input_sequences"][:, -6:])
    losses.append(float(step(model, optimizer, inputs, jax.device_put(batch["targets"]))))
print(json.dumps(losses))
