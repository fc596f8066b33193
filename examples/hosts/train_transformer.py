"""Train a transformer on many hosts: weights sharded over all GPUs, layers split within a host.

Fully sharded data parallelism over the hosts times tensor parallelism over the GPUs of a host. The
defaults are 6.6 billion parameters and 8 sequences of 2,048 tokens for each host. Start it once on
each host, where the launcher tells JAX of the others (SLURM, Open MPI, Kubernetes), or name them.
On a laptop, as two processes of one device each:

    python train_transformer.py --small --coordinator localhost:1234 --processes 2 --process 0 &
    python train_transformer.py --small --coordinator localhost:1234 --processes 2 --process 1
"""

import argparse
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def init_params(key, args):
    width, layers = args.width, args.layers
    keys = iter(jax.random.split(key, 6))

    def matrix(*shape):
        return jax.random.normal(next(keys), shape) / shape[-2] ** 0.5

    return {
        "embedding": matrix(args.vocabulary, width),
        "layers": {
            "qkv": matrix(layers, width, 3 * width),
            "out": matrix(layers, width, width),
            "up": matrix(layers, width, 4 * width),
            "down": matrix(layers, 4 * width, width),
            "scale": jnp.ones((layers, 2, width)),
        },
        "scale": jnp.ones((width,)),
    }


def spec(path, leaf):
    """Return how an array of the parameters is divided: rows over hosts, columns within one.

    `out` and `down` take what the GPUs of a host have in parts, so theirs are the other way round.
    """
    if leaf.ndim < 2 or "scale" in jax.tree_util.keystr(path):
        return P()
    rows = ("model", "data") if "out" in str(path) or "down" in str(path) else ("data", "model")
    return P(*[None] * (leaf.ndim - 2), *rows)


def normalize(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def block(heads, sharding, x, layer):
    # Without it the compiler divides activations as the weights: each GPU has those of all hosts.
    x = jax.lax.with_sharding_constraint(x, sharding)
    layer = jax.tree.map(lambda leaf: leaf.astype(x.dtype), layer)
    batch, length, width = x.shape
    qkv = normalize(x, layer["scale"][0]) @ layer["qkv"]
    q, k, v = qkv.reshape(batch, length, 3, heads, width // heads).transpose(2, 0, 1, 3, 4)
    attended = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + attended.reshape(batch, length, width) @ layer["out"]
    hidden = jax.nn.gelu(normalize(x, layer["scale"][1]) @ layer["up"])
    return x + hidden @ layer["down"], None


def loss_fn(params, tokens, heads, sharding):
    x = params["embedding"].astype(jnp.bfloat16)[tokens[:, :-1]]
    x, _ = jax.lax.scan(jax.checkpoint(partial(block, heads, sharding)), x, params["layers"])
    logits = normalize(x, params["scale"].astype(x.dtype)) @ params["embedding"].T.astype(x.dtype)
    losses = optax.softmax_cross_entropy_with_integer_labels(
        logits.astype(jnp.float32), tokens[:, 1:]
    )
    return losses.mean()


def build(args, mesh):
    """Make the weights and the state of AdamW in parts, and the step."""
    optimizer = optax.adamw(args.learning_rate)
    sharding = NamedSharding(mesh, P("data"))

    def init(key):
        params = init_params(key, args)
        return params, optimizer.init(params)

    def train_step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, args.heads, sharding)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    key = jax.random.key(args.seed)
    specs = jax.tree_util.tree_map_with_path(spec, jax.eval_shape(init, key))
    shardings = jax.tree.map(partial(NamedSharding, mesh), specs)
    if args.replicate_optimizer:
        shardings = (shardings[0], jax.tree.map(lambda _: NamedSharding(mesh, P()), shardings[1]))
    params, opt_state = jax.jit(init, out_shardings=shardings)(key)
    # Without them the compiler may choose other ones, and the second step is another program.
    returned = (*shardings, NamedSharding(mesh, P()))
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=returned)
    return params, opt_state, step


def batches(args, mesh):
    """Yield the tokens of all hosts, of which each host makes its own."""
    rng = np.random.default_rng([args.seed, jax.process_index()])
    sharding = NamedSharding(mesh, P("data"))
    while True:
        shape = (args.batch, args.length + 1)
        tokens = rng.integers(0, args.vocabulary, shape, dtype=np.int32)
        yield jax.make_array_from_process_local_data(sharding, tokens)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8, help="sequences of each host")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--print-every", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="a model for a laptop")
    parser.add_argument(
        "--replicate-optimizer", action="store_true", help="a mistake: every GPU has all of it"
    )
    parser.add_argument("--coordinator", help="host and port of process 0")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    return parser


def main():
    args = arguments().parse_args()
    if args.small:
        args.layers, args.width, args.heads = 2, 64, 4
        args.vocabulary, args.length = 256, 32
    jax.distributed.initialize(args.coordinator, args.processes, args.process)
    devices = np.array(jax.devices()).reshape(jax.process_count(), -1)
    mesh = Mesh(devices, ("data", "model"))
    params, opt_state, train_step = build(args, mesh)
    multihost_utils.sync_global_devices("built")
    for step, tokens in enumerate(islice(batches(args, mesh), args.steps), 1):
        params, opt_state, loss = train_step(params, opt_state, tokens)
        if jax.process_index() == 0 and (step % args.print_every == 0 or step == 1):
            print(f"step {step:5d}  loss {loss:.4f}  on {mesh.size} devices")


if __name__ == "__main__":
    main()
