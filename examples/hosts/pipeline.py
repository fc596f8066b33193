"""Train a deep network as a pipeline: each stage on GPUs of its own, micro-batches in a row.

`shard_map` over an axis of stages; activations go to the next stage with `ppermute`. The stages
are the hosts, and the GPUs of a host divide the batch. The first stage also has the embedding, the
last one the output layer: they are programs of their own, on the GPUs of that host only. On a
laptop, as two processes of one device each:

    python pipeline.py --small --coordinator localhost:1234 --processes 2 --process 0 &
    python pipeline.py --small --coordinator localhost:1234 --processes 2 --process 1
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import shard_map
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def run_stage(layers, x):
    def layer(x, weight):
        return x + jax.nn.gelu(x @ weight), None

    return jax.lax.scan(jax.checkpoint(layer), x, layers)[0]


def make_forward(mesh, stages):
    """Return the pipeline: micro-batches go in at stage 0 and come out of the last one."""

    @partial(
        shard_map,
        mesh=mesh,
        in_specs=(P("stages"), P(None, "data")),
        out_specs=P("stages", None, "data"),
        check_vma=False,
    )
    def forward(layers, microbatches):
        layers = layers[0]
        stage = jax.lax.axis_index("stages")
        count = microbatches.shape[0]

        def tick(carried, number):
            fed = microbatches[jnp.clip(number, 0, count - 1)]
            x = run_stage(layers, jnp.where(stage == 0, fed, carried))
            onward = [(one, (one + 1) % stages) for one in range(stages)]
            return jax.lax.ppermute(x, "stages", onward), x

        ticks = jnp.arange(count + stages - 1)
        _, outputs = jax.lax.scan(tick, jnp.zeros_like(microbatches[0]), ticks)
        return outputs[None, stages - 1 :]

    return forward


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8, help="of each stage")
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--rows", type=int, default=4096, help="of a micro-batch")
    parser.add_argument("--classes", type=int, default=65536)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a model for a laptop")
    parser.add_argument("--coordinator", help="host and port of process 0")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    return parser


def main():
    args = arguments().parse_args()
    if args.small:
        args.layers, args.width, args.rows, args.classes = 2, 32, 16, 64
    jax.distributed.initialize(args.coordinator, args.processes, args.process)
    stages, own = jax.process_count(), jax.process_index()
    devices = np.array(jax.devices()).reshape(stages, -1)
    mesh = Mesh(devices, ("stages", "data"))
    forward = make_forward(mesh, stages)

    shape = (stages, args.layers, args.width, args.width)
    sharding = NamedSharding(mesh, P("stages"))
    layers = jax.jit(lambda: jnp.full(shape, 1e-3), out_shardings=sharding)()

    @partial(jax.jit, donate_argnums=0)
    def train_step(layers, microbatches):
        def loss(layers):
            return jnp.mean(forward(layers, microbatches)[-1] ** 2)

        return layers - 1e-3 * jax.grad(loss)(layers)

    # What only the last stage has: a layer of outputs on its own GPUs.
    head_mesh = Mesh(devices[-1], ("data",))
    if own == stages - 1:
        head_sharding = NamedSharding(head_mesh, P(None, "data"))
        head = jax.jit(lambda: jnp.zeros((args.width, args.classes)), out_shardings=head_sharding)()

    fed = NamedSharding(mesh, P(None, "data"))
    microbatches = np.ones((args.microbatches, args.rows, args.width), np.float32)
    for _ in range(args.steps):
        inputs = jax.make_array_from_callback(
            microbatches.shape, fed, lambda index: microbatches[index]
        )
        layers = train_step(layers, inputs)
        if own == stages - 1:
            head = jax.jit(lambda head: head * 0.99, donate_argnums=0)(head)
    jax.block_until_ready(layers)
    print(f"host {own}: {args.steps} steps")


if __name__ == "__main__":
    main()
