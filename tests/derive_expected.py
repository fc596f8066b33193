"""Say what an example must need, from XLA's own words and without vramfit.

    python tests/derive_expected.py no_donation --limit 63707283456 -- --layers 4 --width 512

The step of the example is lowered from shapes alone and compiled for a GPU that is not there,
by the CUDA plugin's own ahead-of-time route; no array is made and no vramfit code is loaded. Two
accounts of the result are read and must agree: `memory_analysis()` and the buffer assignment
that XLA writes when asked to dump. The second also says in which order an execution allocates,
which is what `reference_bfc.py` needs to replay it.

The budget is `--limit`, the pool's limit, as a live client would hand it to the compiler. An
ahead-of-time compile takes 80 % of the target's memory instead, so that is scaled to match.

Every name in `EXAMPLES` is a function from the parsed command line to the programs worth
deriving; they print as JSON, one entry a program.
"""

import argparse
import dataclasses
import importlib
import json
import re
import sys
import tempfile
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from commands import ROOT
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

TARGET = ROOT / "tests" / "h100_sxm.target.txtpb"

# One line an allocation: its number, its size, and what it is.
ALLOCATION = re.compile(r"^allocation (\d+): size (\d+), (.*):$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Allocation:
    """One buffer allocation of a compiled program, as XLA's assignment lists it."""

    kind: str  # parameter, output, tuple, temporary, constant or thread-local
    size: int
    aliased: bool = False  # a parameter whose memory an output takes over


def classify(size, words):
    """Tell what an allocation is from the words XLA prints behind its size."""
    live_out = "maybe-live-out" in words
    if "parameter" in words:
        return Allocation("parameter", size, live_out)
    for kind in ("constant", "thread-local"):
        if kind in words:
            return Allocation(kind, size)
    if live_out:
        return Allocation("tuple" if "output shape is |(" in words else "output", size)
    return Allocation("temporary", size)


def compile_and_dump(lowered):
    """Return the compiled program, its buffer assignment in words, and whether Triton was off.

    A dry run must leave out Triton's matrix products where their default tiling cannot compile,
    because without a GPU nothing can be tuned. So must this.
    """
    for triton in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            options = {
                "xla_dump_to": folder,
                "xla_dump_hlo_as_text": True,
                "xla_gpu_enable_triton_gemm": triton,
            }
            try:
                compiled = lowered.compile(compiler_options=options)
            except jax.errors.JaxRuntimeError as error:
                if not triton or "Couldn't find output tile sizes" not in str(error):
                    raise
                continue
            (dump,) = Path(folder).glob("*after_optimizations-buffer-assignment.txt")
            return compiled, dump.read_text().split("\n\n")[0], triton
    raise AssertionError("the second attempt returns or raises")


def compile_and_read(name, lowered):
    """Compile `lowered` and return its sizes and allocations, both ways agreeing."""
    compiled, text, triton = compile_and_dump(lowered)
    allocations = [classify(int(size), words) for _, size, words in ALLOCATION.findall(text)]
    analysis = getattr(compiled, "compiled", compiled).memory_analysis()

    def total(*kinds):
        return sum(a.size for a in allocations if a.kind in kinds)

    aliased = sum(a.size for a in allocations if a.aliased)
    sizes = {
        "argument_bytes": total("parameter"),
        "output_bytes": total("output", "tuple") + aliased,
        "alias_bytes": aliased,
        "temp_bytes": total("temporary"),
    }
    for key, ours in sizes.items():
        theirs = getattr(analysis, key.replace("_bytes", "_size_in_bytes"))
        if ours != theirs:
            raise SystemExit(f"{name}: {key} is {ours} in the assignment, {theirs} in the analysis")
    return {
        "name": name,
        **sizes,
        "constant_bytes": total("constant"),
        "triton": triton,
        "allocations": [dataclasses.asdict(a) for a in allocations],
    }


def is_array(leaf):
    """Tell whether `leaf` is an array or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray | jax.ShapeDtypeStruct)


def placed(tree, sharding):
    """Return `tree` with every array replaced by its shape, on a device that is not there."""

    def place(leaf):
        if not is_array(leaf):
            return leaf
        where = sharding(leaf) if callable(sharding) else sharding
        weak = getattr(leaf, "weak_type", False)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where, weak_type=weak)

    return jax.tree.map(place, tree)


def train_gpt(module, args, device):
    from flax import nnx

    graph, state = nnx.split(nnx.eval_shape(lambda: module.build(args)))
    model, optimizer = nnx.merge(graph, placed(state, device))
    batch = placed(next(module.batches(args)), device)
    yield "jit_train_step", module.train_step.lower(model, optimizer, batch)


def train_resnet(module, args, device):
    state = placed(eqx.filter_eval_shape(module.build, args), device)
    images, labels = placed(next(module.batches(args)), device)
    yield "jit_train_step", module.train_step.lower(state, images, labels)


def train_vit(module, args, device):
    model, train_step, opt_state = eqx.filter_eval_shape(module.build, args)
    model, opt_state, batch = placed((model, opt_state, next(module.batches(args))), device)
    # Equinox 0.13 lowers from real arrays only; a shape would be taken for a constant.
    eqx._jit.is_array = is_array
    yield "jit_train_step", train_step.lower(batch, model, opt_state).lowered


def train_rnn(module, args, device):
    params = jax.eval_shape(lambda: module.init_params(jax.random.key(args.seed), args))
    opt_state = jax.eval_shape(module.init_adam, params)
    symbols = np.zeros((args.length, args.batch), np.int32)
    state = placed((params, opt_state, symbols), device)
    yield "jit_train_step", module.train_step.lower(*state, learning_rate=args.learning_rate)


def train_moe(module, args, device):
    params, opt_state, train_step = eqx.filter_eval_shape(module.build, args)
    batch = next(module.batches(args))
    yield "jit_train_step", train_step.lower(*placed((params, opt_state, *batch), device))


def train_sharded(module, args, device):
    mesh = Mesh(np.array(DEVICES), ("devices",))

    def build():
        params = module.init_params(jax.random.key(args.seed), args)
        return params, module.optax.adam(args.learning_rate).init(params)

    def spread(leaf):
        return module.sliced(mesh, leaf)

    params, opt_state = placed(jax.eval_shape(build), spread)
    rows = np.zeros((args.batch, args.width), np.float32)
    batch = placed((rows, rows), NamedSharding(mesh, P("devices")))
    train_step = module.make_step(module.optax.adam(args.learning_rate))
    yield "jit_train_step", train_step.lower(params, opt_state, *batch)


def infer_svi(module, args, device):
    """Find the scan that SVI runs in its trace, and compile what JAX would for it."""
    *data, _ = module.synthetic(args)
    svi = module.SVI(
        module.model,
        module.AutoNormal(module.model),
        module.numpyro.optim.Adam(args.learning_rate),
        module.Trace_ELBO(),
    )

    def run(features, group, outcome):
        key = jax.random.key(args.seed)
        more = (features, group, args.groups, outcome)
        return svi.run(key, args.steps, *more, progress_bar=False).losses

    equations = jax.make_jaxpr(run)(*data).eqns
    (scan,) = [e for e in equations if e.primitive.name == "scan"]

    def loop(*values):
        return scan.primitive.bind(*values, **scan.params)

    values = placed([jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in scan.invars], device)
    yield "jit_scan", jax.jit(loop).lower(*values)


def no_donation(module, args, device):
    params, opt_state, train_step = eqx.filter_eval_shape(module.build, args)
    rows = np.zeros((args.batch, args.width), np.float32)
    yield "jit_train_step", train_step.lower(*placed((params, opt_state, rows, rows), device))


def leak(module, args, device):
    params, opt_state, train_step = eqx.filter_eval_shape(module.build, args)
    features = np.zeros((args.batch, args.features), np.float32)
    labels = np.zeros(args.batch, np.int32)
    state = placed((params, opt_state, features, labels), device)
    yield "jit_train_step", train_step.lower(*state)


def fragment(module, args, device):
    params, opt_state, train_step = eqx.filter_eval_shape(module.build, args)
    params, opt_state = placed((params, opt_state), device)
    for length in args.lengths:
        shape = (args.batch, length, args.width)
        x = jax.ShapeDtypeStruct(shape, np.float32, sharding=device)
        yield f"jit_train_step/{length}", train_step.lower(params, opt_state, x)
        yield f"jit_evaluate/{length}", module.evaluate.lower(params, x)


EXAMPLES = {
    function.__name__: function
    for function in (
        train_gpt,
        train_resnet,
        train_vit,
        train_rnn,
        train_moe,
        train_sharded,
        infer_svi,
        no_donation,
        leak,
        fragment,
    )
}


def devices(limit, count):
    """Return `count` devices of a target whose budget is `limit` bytes."""
    target = TARGET.read_text()
    # Upwards, because XLA multiplies by 80 and divides by 100 in whole numbers.
    memory = -(-limit * 100 // 80)
    target = re.sub(r"device_memory_size: \d+", f"device_memory_size: {memory}", target)
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=target, topology=f"1x1x{count}"
    )
    return topology.devices


DEVICES = []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("--limit", type=int, required=True, help="bytes the pool may take")
    parser.add_argument("--devices", type=int, default=1)
    split = sys.argv.index("--")
    own, arguments = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]

    sys.path.insert(0, str(ROOT / "examples"))
    module = importlib.import_module(own.example)
    DEVICES.extend(devices(own.limit, own.devices))
    args = module.arguments().parse_args(arguments)
    lowered = EXAMPLES[own.example](module, args, SingleDeviceSharding(DEVICES[0]))
    json.dump([compile_and_read(*program) for program in lowered], sys.stdout, indent=1)


if __name__ == "__main__":
    main()
