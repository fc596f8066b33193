"""Train a model of Llama's shape, its state divided over every GPU of every host (FSDP).

AdamW in float32, computed in bfloat16, one sequence for each GPU, each layer of the scan
rematerialized. `--size` is 8b (default), 70b or 405b; `--small` is for a laptop. With
`--distributed` it is one of several hosts, of which the launcher tells JAX. Three mistakes that
cost most memory at this size can be switched on:

    --replicate-optimizer   the moments are made without a sharding
    --last-axis             only last dimensions are divided: 1,024 columns not among 2,048 GPUs
    --unconstrained         nothing says that the batch stays divided between the layers

`--attention cudnn` computes attention without its scores in memory.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

SIZES = {  # layers, width, hidden width, heads, heads of keys and values, vocabulary
    "small": (2, 256, 512, 8, 2, 512),
    "8b": (32, 4096, 14336, 32, 8, 128256),
    "70b": (80, 8192, 28672, 64, 8, 128256),
    "405b": (126, 16384, 53248, 128, 8, 128256),
}


def shapes_of(size):
    layers, width, hidden, heads, shared, vocabulary = SIZES[size]
    keys = width // heads * shared
    return {
        "embedding": (vocabulary, width),
        "head": (width, vocabulary),
        "scale": (width,),
        "layers": {
            "query": (layers, width, width),
            "key": (layers, width, keys),
            "value": (layers, width, keys),
            "out": (layers, width, width),
            "gate": (layers, width, hidden),
            "up": (layers, width, hidden),
            "down": (layers, hidden, width),
            "scale": (layers, 2, width),
        },
    }


def divide(mesh, only_last, shape):
    """Return the sharding of an array: its longest dimension that the GPUs can divide evenly."""
    dimensions = range(len(shape))[-1:] if only_last else range(len(shape))
    divisible = [at for at in dimensions if shape[at] % mesh.size == 0]
    longest = max(divisible, key=lambda at: shape[at], default=None)
    spec = ["fsdp" if at == longest else None for at in range(len(shape))]
    return NamedSharding(mesh, PartitionSpec(*spec))


def normalize(x, scale):
    variance = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(variance + 1e-5).astype(x.dtype) * scale


def block(args, mesh, x, layer):
    _, width, _, heads, shared, _ = SIZES[args.size]
    if not args.unconstrained:
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("fsdp")))
    layer = jax.tree.map(lambda w: w.astype(x.dtype), layer)
    h = normalize(x, layer["scale"][0])
    query = (h @ layer["query"]).reshape(*h.shape[:2], heads, width // heads)
    key = (h @ layer["key"]).reshape(*h.shape[:2], shared, width // heads)
    value = (h @ layer["value"]).reshape(*h.shape[:2], shared, width // heads)
    attention = functools.partial(jax.nn.dot_product_attention, implementation=args.attention)
    x = x + attention(query, key, value, is_causal=True).reshape(x.shape) @ layer["out"]
    h = normalize(x, layer["scale"][1])
    return x + (jax.nn.silu(h @ layer["gate"]) * (h @ layer["up"])) @ layer["down"], None


def loss(args, mesh, params, tokens):
    x = params["embedding"].astype(jnp.bfloat16)[tokens[:, :-1]]
    body = jax.checkpoint(functools.partial(block, args, mesh))
    x, _ = jax.lax.scan(body, x, params["layers"])
    x = normalize(x, params["scale"].astype(x.dtype))
    logits = (x @ params["head"].astype(x.dtype)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--small", action="store_const", const="small", dest="size")
    parser.add_argument("--length", type=int, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--distributed", action="store_true", help="one of several hosts")
    parser.add_argument("--attention", choices=["xla", "cudnn"])
    parser.add_argument("--replicate-optimizer", action="store_true")
    parser.add_argument("--last-axis", action="store_true")
    parser.add_argument("--unconstrained", action="store_true")
    args = parser.parse_args()
    if args.distributed:
        jax.distributed.initialize()

    mesh = jax.make_mesh((jax.device_count(),), ("fsdp",), axis_types=(AxisType.Auto,))
    sharding_of = functools.partial(divide, mesh, args.last_axis)
    is_shape = lambda leaf: isinstance(leaf, tuple)  # noqa: E731
    shapes = shapes_of(args.size)
    shardings = jax.tree.map(sharding_of, shapes, is_leaf=is_shape)
    optimizer = optax.adamw(3e-4)

    @functools.partial(jax.jit, out_shardings=shardings)
    def init_params(key):
        leaves, tree = jax.tree.flatten(shapes, is_leaf=is_shape)
        keys = jax.random.split(key, len(leaves))
        return jax.tree.unflatten(
            tree, [jax.random.normal(*each) * 0.02 for each in zip(keys, leaves, strict=True)]
        )

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, state, tokens):
        value, grads = jax.value_and_grad(functools.partial(loss, args, mesh))(params, tokens)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    params = init_params(jax.random.key(0))
    like = jax.eval_shape(optimizer.init, params)
    divided = jax.tree.map(lambda leaf: sharding_of(leaf.shape), like)
    init_state = jax.jit(
        optimizer.init, out_shardings=None if args.replicate_optimizer else divided
    )
    state = init_state(params)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    print(f"{count:,} parameters on {mesh.size} devices")

    length = args.length or {"small": 64, "8b": 4096}.get(args.size, 8192)
    rng = np.random.default_rng(0)
    vocabulary = SIZES[args.size][-1]
    batch = NamedSharding(mesh, PartitionSpec("fsdp"))
    for _ in range(args.steps):
        data = rng.integers(vocabulary, size=(jax.local_device_count(), length + 1), dtype=np.int32)
        tokens = jax.make_array_from_process_local_data(batch, data)
        params, state, value = train_step(params, state, tokens)
    print("loss", value)


if __name__ == "__main__":
    main()
