"""Train a deep residual network with weights and optimizer state sharded over all devices.

Each device keeps a slice of every weight and of both Adam moments, and a slice of the batch
(fully sharded data parallelism). The defaults are 3.2 billion parameters, 32,768 rows a step.
On a laptop, with eight devices that JAX makes up:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
        python train_sharded.py --layers 2 --width 64 --batch 64
"""

import argparse
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def init_params(key, args):
    up_key, down_key = jax.random.split(key)
    up_shape = (args.layers, args.width, 4 * args.width)
    down_shape = (args.layers, 4 * args.width, args.width)
    return {
        "scale": jnp.ones((args.layers, args.width)),
        "up": jax.random.normal(up_key, up_shape) / args.width**0.5,
        "down": jax.random.normal(down_key, down_shape) / (4 * args.width) ** 0.5 / args.layers,
    }


@jax.checkpoint
def block(x, layer):
    y = x * layer["scale"] * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    return x + jax.nn.relu(y @ layer["up"]) @ layer["down"], None


def loss_fn(params, inputs, targets):
    outputs, _ = jax.lax.scan(block, inputs, params)
    return jnp.mean((outputs - targets) ** 2)


def make_step(optimizer):
    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, inputs, targets):
        loss, grads = jax.value_and_grad(loss_fn)(params, inputs, targets)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return train_step


def sliced(mesh, leaf):
    """Return the sharding of a leaf: matrices along their first axis after the layer's."""
    return NamedSharding(mesh, P(None, "devices") if leaf.ndim == 3 else P())


def build(args, mesh):
    """Make sharded weights and a sharded state of Adam; no device ever holds a whole one."""
    optimizer = optax.adam(args.learning_rate)

    def init(key):
        params = init_params(key, args)
        return params, optimizer.init(params)

    key = jax.random.key(args.seed)
    shardings = jax.tree.map(partial(sliced, mesh), jax.eval_shape(init, key))
    params, opt_state = jax.jit(init, out_shardings=shardings)(key)
    return params, opt_state, make_step(optimizer)


def batches(args, mesh):
    """Yield inputs and their reversal, already spread over the devices."""
    rng = np.random.default_rng(args.seed)
    spread = NamedSharding(mesh, P("devices"))
    while True:
        inputs = rng.standard_normal((args.batch, args.width), dtype=np.float32)
        yield jax.device_put((inputs, inputs[:, ::-1].copy()), spread)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=32768)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--print-every", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main():
    args = arguments().parse_args()
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    params, opt_state, train_step = build(args, mesh)
    for step, (inputs, targets) in enumerate(islice(batches(args, mesh), args.steps), 1):
        params, opt_state, loss = train_step(params, opt_state, inputs, targets)
        if step % args.print_every == 0 or step == 1:
            print(f"step {step:5d}  loss {loss:.4f}  on {mesh.size} devices")


if __name__ == "__main__":
    main()
