"""Train a mixture of experts on many hosts: each GPU has its experts, tokens travel to them.

Expert parallelism: a GPU routes its own tokens, sends each to the GPU of its expert (`all_to_all`
over all devices) and gets the results back. On a laptop, as two processes of one device each:

    python train_experts.py --small --coordinator localhost:1234 --processes 2 --process 0 &
    python train_experts.py --small --coordinator localhost:1234 --processes 2 --process 1
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import shard_map
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def make_layer(mesh, experts, capacity):
    """Return the layer; every argument is the part of one GPU."""

    @partial(
        shard_map,
        mesh=mesh,
        in_specs=({"router": P(), "up": P("gpus"), "down": P("gpus")}, P("gpus")),
        out_specs=P("gpus"),
        check_vma=False,
    )
    def layer(params, tokens):
        expert = jnp.argmax(tokens @ params["router"], axis=-1)
        chosen = jax.nn.one_hot(expert, experts, dtype=jnp.int32)
        place = jnp.sum((jnp.cumsum(chosen, axis=0) - 1) * chosen, axis=-1)
        queues = jnp.zeros((experts, capacity, tokens.shape[-1]), tokens.dtype)
        queues = queues.at[expert, place].set(tokens, mode="drop")
        # One part of the queues for each GPU goes out, one from each comes in.
        queues = jax.lax.all_to_all(queues, "gpus", split_axis=0, concat_axis=1, tiled=True)
        hidden = jax.nn.gelu(jnp.einsum("ecw,ewh->ech", queues, params["up"]))
        out = jnp.einsum("ech,ehw->ecw", hidden, params["down"])
        out = jax.lax.all_to_all(out, "gpus", split_axis=1, concat_axis=0, tiled=True)
        return out.at[expert, place].get(mode="fill", fill_value=0.0)

    return layer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experts", type=int, default=2, help="of each GPU")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--tokens", type=int, default=16384, help="of each GPU")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a model for a laptop")
    parser.add_argument("--coordinator", help="host and port of process 0")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    return parser


def main():
    args = arguments().parse_args()
    if args.small:
        args.width, args.hidden, args.tokens = 16, 32, 64
    jax.distributed.initialize(args.coordinator, args.processes, args.process)
    mesh = Mesh(np.array(jax.devices()), ("gpus",))
    experts = args.experts * mesh.size
    layer = make_layer(mesh, experts, capacity=max(1, 2 * args.tokens // experts))
    optimizer = optax.adam(1e-3)

    def init(key):
        router_key, up_key, down_key = jax.random.split(key, 3)
        params = {
            "router": jax.random.normal(router_key, (args.width, experts)),
            "up": jax.random.normal(up_key, (experts, args.width, args.hidden)),
            "down": jax.random.normal(down_key, (experts, args.hidden, args.width)),
        }
        return params, optimizer.init(params)

    def take_step(params, opt_state, tokens):
        def loss(params):
            return jnp.mean((layer(params, tokens) - tokens) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    def sharding(leaf):
        return NamedSharding(mesh, P("gpus") if leaf.ndim == 3 else P())

    key = jax.random.key(0)
    shardings = jax.tree.map(sharding, jax.eval_shape(init, key))
    params, opt_state = jax.jit(init, out_shardings=shardings)(key)
    returned = (*shardings, NamedSharding(mesh, P()))
    train_step = jax.jit(take_step, donate_argnums=(0, 1), out_shardings=returned)

    rng = np.random.default_rng(jax.process_index())
    shape = (args.tokens * jax.local_device_count(), args.width)
    for step in range(1, args.steps + 1):
        own = rng.standard_normal(shape, dtype=np.float32)
        spread = NamedSharding(mesh, P("gpus"))
        tokens = jax.make_array_from_process_local_data(spread, own)
        params, opt_state, value = train_step(params, opt_state, tokens)
        if jax.process_index() == 0:
            print(f"step {step:5d}  loss {value:.4f}  {experts} experts on {mesh.size} GPUs")


if __name__ == "__main__":
    main()
