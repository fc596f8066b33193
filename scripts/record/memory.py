"""Records where XLA puts the values of small programs, for the tests of `core/program/memory`.

    JAX_PLATFORMS=cpu JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 \\
        python scripts/record/memory.py fixtures/memory [NAME ...]

The plugin itself is asked, without vramfit and without a GPU. Each program gives two files: the
module and buffer assignment that XLA dumps after its last pass (`.hlo.pb`), and XLA's own figures
(`memory_analysis`) with the pytree paths of arguments and outputs as JAX wrote them into its
module (`.json`). Run it once for each release of JAX; before 0.9 with
XLA_FLAGS=--xla_gpu_autotune_level=0.
"""

import functools
import json
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from programs import memory_sizes, two_gpus

# What the repository takes for one file.
MAX_BYTES = 200 << 10
WIDTH = 128


def mlp_loss(params, x):
    for layer in params:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return jnp.mean(x**2)


def sgd(loss):
    """Return a step of plain gradient descent."""

    def step(params, *batch):
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return step


def adam_step(state, x):
    value, gradients = jax.value_and_grad(mlp_loss)(state["params"], x)
    count = state["opt_state"]["count"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["opt_state"]["mu"], gradients)
    square = jax.tree.map(
        lambda v, g: 0.999 * v + 0.001 * g * g, state["opt_state"]["nu"], gradients
    )
    params = jax.tree.map(
        lambda p, m, v: p - 0.1 * m / (jnp.sqrt(v) + 1e-8), state["params"], mean, square
    )
    return {"params": params, "opt_state": {"mu": mean, "nu": square, "count": count}}, value


def mixed_loss(params, x):
    return mlp_loss(jax.tree.map(lambda p: p.astype(jnp.bfloat16), params), x).astype(jnp.float32)


def scan_loss(layers, x, body):
    return jnp.mean(jax.lax.scan(body, x, layers)[0] ** 2)


def layer_body(x, layer):
    return jnp.tanh(jnp.tanh(x @ layer["w"]) * 2 + layer["b"]), None


def offload_body(x, layer):
    x = checkpoint_name(jnp.tanh(x @ layer["w"] + layer["b"]), "saved")
    return x, None


def nested_loss(layers, x):
    def outer(x, _):
        return jax.lax.scan(layer_body, x, layers)[0], jnp.sum(x)

    return jnp.mean(jax.lax.scan(outer, x, None, length=3)[0] ** 2)


def accumulated_step(params, batches):
    def body(total, batch):
        value, gradients = jax.value_and_grad(mlp_loss)(params, batch)
        return jax.tree.map(jnp.add, total, gradients), value

    total, values = jax.lax.scan(body, jax.tree.map(jnp.zeros_like, params), batches)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, total), values.mean()


def while_loop(x):
    def more(state):
        return (state[0] < 100) & (jnp.sum(state[1]) < 1e6)

    return jax.lax.while_loop(more, lambda s: (s[0] + 1, jnp.sin(s[1] @ x)), (0, x))


def branches(flag, x):
    y = x @ x
    return jax.lax.cond(
        flag, lambda v: jnp.sort(v @ v, axis=0) + y, lambda v: jnp.cumsum(v, axis=0) * y, x
    )


def conv_loss(params, statistics, images):
    x = jax.lax.conv_general_dilated(
        images, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    x = (x - mean) * jax.lax.rsqrt(variance + 1e-5) * params["scale"]
    moved = {"mean": 0.9 * statistics["mean"] + 0.1 * mean}
    return jnp.mean(jax.nn.relu(x) ** 2), moved


def conv_step(params, batch_stats, images):
    (value, moved), gradients = jax.value_and_grad(conv_loss, has_aux=True)(
        params, batch_stats, images
    )
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), moved, value


def attention_loss(params, x):
    q, k, v = (x @ params[name] for name in ("query", "key", "value"))
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / WIDTH**0.5)
    return jnp.mean((weights @ v @ params["out"]) ** 2)


def lstm_loss(params, sequence):
    def cell(state, x):
        hidden, memory = state
        gates = x @ params["input"] + hidden @ params["hidden"] + params["bias"]
        enter, forget, update, leave = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(enter) * jnp.tanh(update)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(memory)
        return (hidden, memory), hidden

    zero = jnp.zeros(sequence.shape[1:])
    return jnp.mean(jax.lax.scan(cell, (zero, zero), sequence)[1] ** 2)


def programs(devices):
    """Yield name and lowered program of each case."""
    one = SingleDeviceSharding(devices[0])

    def array(*shape, dtype=jnp.float32, sharding=one):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def lower(function, *arguments, donate=(), out=one):
        return jax.jit(function, donate_argnums=donate, out_shardings=out).lower(*arguments)

    square, batch = array(WIDTH, WIDTH), array(512, WIDTH)
    layers = [{"w": square, "b": array(WIDTH)} for _ in range(3)]
    stack = {"w": array(4, WIDTH, WIDTH), "b": array(4, WIDTH)}
    again = jax.checkpoint(layer_body)
    yield "mlp_step", lambda: lower(sgd(mlp_loss), layers, batch, donate=0)
    yield "mlp_step_kept", lambda: lower(sgd(mlp_loss), layers, batch)
    state = {
        "params": layers,
        "opt_state": {"mu": layers, "nu": layers, "count": array(dtype=jnp.int32)},
    }
    yield "adam", lambda: lower(adam_step, state, batch, donate=0)
    half = array(512, WIDTH, dtype=jnp.bfloat16)
    yield "mixed_precision", lambda: lower(sgd(mixed_loss), layers, half, donate=0)
    scan = functools.partial(scan_loss, body=layer_body)
    yield "scan", lambda: lower(sgd(scan), stack, batch, donate=0)
    checkpointed = functools.partial(scan_loss, body=again)
    yield "scan_checkpoint", lambda: lower(sgd(checkpointed), stack, batch, donate=0)

    def offloaded():
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["saved"],
            offload_src="device",
            offload_dst="pinned_host",
        )
        body = jax.checkpoint(offload_body, policy=policy)
        return lower(sgd(functools.partial(scan_loss, body=body)), stack, batch, donate=0)

    yield "host_offload", offloaded
    yield "nested_scan", lambda: lower(sgd(nested_loss), stack, batch, donate=0)
    batches = array(4, 512, WIDTH)
    yield "gradient_accumulation", lambda: lower(accumulated_step, layers, batches, donate=0)
    yield "while_loop", lambda: lower(while_loop, square)
    yield "cond", lambda: lower(branches, array(dtype=jnp.bool_), square)
    images = array(8, 32, 32, 16)
    conv = {"kernel": array(3, 3, 16, 32), "scale": array(32)}
    yield "conv_batchnorm", lambda: lower(conv_step, conv, {"mean": array(32)}, images, donate=0)
    heads = dict.fromkeys(("query", "key", "value", "out"), square)
    yield "attention", lambda: lower(sgd(attention_loss), heads, array(4, 256, WIDTH), donate=0)
    lstm = {
        "input": array(WIDTH, 4 * WIDTH),
        "hidden": array(WIDTH, 4 * WIDTH),
        "bias": array(4 * WIDTH),
    }
    yield "lstm", lambda: lower(sgd(lstm_loss), lstm, array(16, 64, WIDTH), donate=0)
    yield "cholesky", lambda: lower(lambda x: jnp.linalg.cholesky(x @ x.T) * 2, square)
    yield "sort", lambda: lower(lambda x: jnp.argsort(jnp.sin(x), axis=0), batch)

    def draw(key):
        first, second = jax.random.split(key)
        drawn = jax.random.normal(first, (256, WIDTH))
        return drawn @ jax.random.uniform(second, (WIDTH, WIDTH))

    yield "random", lambda: lower(draw, array(2, dtype=jnp.uint32))
    yield (
        "multi_output",
        lambda: lower(lambda x: {"sum": x.sum(), "parts": (x + 1, x.T @ x), "same": x}, batch),
    )
    yield "no_temporaries", lambda: lower(lambda x: x * 2 + 1, batch)
    mesh = Mesh(np.array(devices), ("d",))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("d",), ()))
    spread = jax.tree.map(lambda a: array(*a.shape, sharding=whole), layers)
    split = array(512, WIDTH, sharding=rows)
    yield "sharded_step", lambda: lower(sgd(mlp_loss), spread, split, donate=0, out=None)


def names(lowered):
    """Return the pytree paths of arguments and outputs that JAX wrote into its module."""
    main = next(
        one
        for one in lowered.compiler_ir("stablehlo").body.operations
        if one.attributes["sym_name"].value == "main"
    )
    arguments = [str(one.location) for one in main.regions[0].blocks[0].arguments]
    results = [
        next(entry.attr.value for entry in one if entry.name == "jax.result_info")
        for one in main.attributes["res_attrs"]
    ]
    unquoted = [one.removeprefix('loc("').partition('"')[0] for one in arguments]
    return {"arguments": unquoted, "outputs": results}


def record(folder, stem, lowered):
    """Compile a program and write its two files."""
    with tempfile.TemporaryDirectory() as dumped:
        options = {"xla_dump_to": dumped, "xla_dump_hlo_as_proto": True}
        compiled = lowered.compile(compiler_options=options)
        (module,) = Path(dumped).glob("*gpu_after_optimizations.hlo.pb")
        hlo = module.read_bytes()
    sizes = memory_sizes(compiled)
    if len(hlo) > MAX_BYTES:
        sys.exit(f"{stem} has {len(hlo)} bytes; make the program smaller")
    (folder / f"{stem}.hlo.pb").write_bytes(hlo)
    (folder / f"{stem}.json").write_text(json.dumps(sizes | names(lowered), indent=1) + "\n")
    print(stem, len(hlo), sizes["temp_size_in_bytes"], flush=True)


def main():
    """Write the files, of all programs or of those that are named."""
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    # Stacks shall name this file by its place in the repository.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/(?=scripts/)")
    folder.mkdir(parents=True, exist_ok=True)
    for name, lower in programs(two_gpus()):
        if wanted and name not in wanted:
            continue
        try:
            lowered = lower()
        except ValueError:
            # Before 0.9, devices without hardware have no memories.
            print(name, "needs a newer release")
            continue
        record(folder, f"jax{jax.__version__}-{name}", lowered)


if __name__ == "__main__":
    main()
