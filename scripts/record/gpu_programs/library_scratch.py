"""Memory that library routines take beside the temporaries: one routine of a library for each case.

    python library_scratch.py          # all cases, one after the other
    python library_scratch.py NAME     # one, whose statistics say what its routine took
    python library_scratch.py --list   # the names of all cases

For each case a line `SCRATCH {…}` with XLA's plan, the workspaces that are arrays of bytes in the
optimized program, and the statistics of the allocator before and after it has run once. A peak
stays, so only the first case of a process shows what its routine took while it ran.
"""

import functools
import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
CASES = {}
ATTENTION = [
    # Data type, batch, sequence, heads, heads of keys and values, size of a head.
    ("bfloat16", 4, 1024, 16, 16, 64, True),
    ("bfloat16", 4, 1024, 16, 16, 64, False),
    ("float16", 4, 1024, 16, 16, 64, True),
    ("bfloat16", 2, 4096, 16, 16, 128, True),
    ("bfloat16", 2, 4096, 16, 4, 128, True),
    ("bfloat16", 1, 16384, 8, 8, 128, True),
    ("bfloat16", 8, 1000, 12, 12, 64, True),
    ("bfloat16", 8, 512, 12, 12, 32, False),
    ("bfloat16", 64, 128, 8, 8, 64, False),
]
CONVOLUTIONS = [
    # Data type, shape of the input, of the kernel, strides, groups.
    ("float32", (64, 224, 224, 3), (7, 7, 3, 64), (2, 2), 1),
    ("bfloat16", (64, 224, 224, 3), (7, 7, 3, 64), (2, 2), 1),
    ("float32", (64, 56, 56, 64), (3, 3, 64, 64), (1, 1), 1),
    ("bfloat16", (64, 56, 56, 64), (3, 3, 64, 64), (1, 1), 1),
    ("bfloat16", (64, 14, 14, 1024), (1, 1, 1024, 256), (1, 1), 1),
    ("bfloat16", (32, 28, 28, 256), (3, 3, 1, 256), (1, 1), 256),
    ("float32", (4, 32, 64, 64, 16), (3, 3, 3, 16, 32), (1, 1, 1), 1),
    ("bfloat16", (16, 4096, 256), (9, 256, 256), (1,), 1),
]


def case(name, *shapes, dtype="float32"):
    """Register a function as a case, whose arguments are random arrays of these shapes."""

    def register(function):
        def named(*arguments):
            return function(*arguments)

        named.__name__ = name
        CASES[name] = (named, shapes, dtype)
        return function

    return register


def attention(is_causal, q, k, v):
    attend = functools.partial(
        jax.nn.dot_product_attention, is_causal=is_causal, implementation="cudnn"
    )
    seen, backward = jax.vjp(attend, q, k, v)
    return seen, backward(seen)


def convolution(strides, groups, x, kernel):
    sides = ["NWC", "WIO", "NWC"] if len(strides) == 1 else None
    sides = sides or (
        ["NHWC", "HWIO", "NHWC"] if len(strides) == 2 else ["NDHWC", "DHWIO", "NDHWC"]
    )
    convolve = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=strides,
        padding="SAME",
        dimension_numbers=tuple(sides),
        feature_group_count=groups,
    )
    out, backward = jax.vjp(convolve, x, kernel)
    return out, backward(out)


for kind, batch, sequence, heads, kv, size, causal in ATTENTION:
    shapes = ((batch, sequence, heads, size), *[(batch, sequence, kv, size)] * 2)
    words = "causal" if causal else "full"
    name = f"attention_{kind}_{batch}x{sequence}x{heads}of{kv}x{size}_{words}"
    case(name, *shapes, dtype=kind)(functools.partial(attention, causal))
for kind, of_input, of_kernel, strides, groups in CONVOLUTIONS:
    name = f"convolution_{kind}_{'x'.join(map(str, of_input))}_{'x'.join(map(str, of_kernel))}"
    case(name, of_input, of_kernel, dtype=kind)(functools.partial(convolution, strides, groups))
for kind in ("float32", "float64"):
    for shape in ((1 << 22,), (64, 65536), (4096, 1024), (1_000_003,), (16, 10_007), (3 << 20,)):
        case(f"rfft_{kind}_{'x'.join(map(str, shape))}", shape, dtype=kind)(jnp.fft.rfft)
    for shape in ((1 << 22,), (1_000_003,), (64, 4099)):
        case(f"fft_{kind}_{'x'.join(map(str, shape))}", shape, dtype=kind)(jnp.fft.fft)
    for shape in ((256, 256, 128), (127, 131, 137)):
        case(f"fftn_{kind}_{'x'.join(map(str, shape))}", shape, dtype=kind)(jnp.fft.fftn)
        case(f"rfftn_{kind}_{'x'.join(map(str, shape))}", shape, dtype=kind)(jnp.fft.rfftn)
    case(f"fft2_{kind}_8x1024x1024", (8, 1024, 1024), dtype=kind)(jnp.fft.fft2)
    case(f"irfft_{kind}_2097153", (2_097_153,), dtype=kind)(jnp.fft.irfft)


def positive(a):
    return a @ jnp.swapaxes(a, -1, -2) + a.shape[-1] * jnp.eye(a.shape[-1], dtype=a.dtype)


for kind in ("float32", "float64", "complex64"):
    for shape in ((2048, 2048), (64, 256, 256), (512, 24, 24)):
        size = "x".join(map(str, shape))
        case(f"eigh_{kind}_{size}", shape, dtype=kind)(jnp.linalg.eigh)
        case(f"lu_{kind}_{size}", shape, dtype=kind)(jax.lax.linalg.lu)
        case(f"qr_{kind}_{size}", shape, dtype=kind)(jnp.linalg.qr)
        case(f"cholesky_{kind}_{size}", shape, dtype=kind)(
            lambda a: jnp.linalg.cholesky(positive(a))
        )
        case(f"svd_{kind}_{size}", shape, dtype=kind)(jnp.linalg.svd)
    case(f"qr_{kind}_16384x256", (16384, 256), dtype=kind)(jnp.linalg.qr)
    case(f"qr_full_{kind}_4096x256", (4096, 256), dtype=kind)(
        functools.partial(jnp.linalg.qr, mode="complete")
    )
    case(f"svd_{kind}_4096x512", (4096, 512), dtype=kind)(
        functools.partial(jnp.linalg.svd, full_matrices=False)
    )
    case(f"svd_{kind}_512x4096", (512, 4096), dtype=kind)(
        functools.partial(jnp.linalg.svd, full_matrices=False)
    )
    case(f"svdvals_{kind}_2048x2048", (2048, 2048), dtype=kind)(
        functools.partial(jnp.linalg.svd, compute_uv=False)
    )
    for algorithm in jax.lax.linalg.SvdAlgorithm:
        # Divide and conquer is for AMD's GPUs.
        if algorithm.name not in ("QR", "JACOBI", "POLAR"):
            continue
        case(f"svd_{algorithm.name.lower()}_{kind}_1024x512", (1024, 512), dtype=kind)(
            functools.partial(jax.lax.linalg.svd, full_matrices=False, algorithm=algorithm)
        )
case("eigh_float32_8192x8192", (8192, 8192))(jnp.linalg.eigh)
case("tridiagonal_float32_65536", *[(65536,)] * 3, (65536, 4))(jax.lax.linalg.tridiagonal_solve)
case("sort_float32_16777216", (1 << 24,))(jnp.sort)
case("sort_float64_16777216", (1 << 24,), dtype="float64")(jnp.sort)
case("sort_bfloat16_16777216", (1 << 24,), dtype="bfloat16")(jnp.sort)
case("sort_float32_256x65536", (256, 65536))(jnp.sort)
case("sort_float32_65536x256", (65536, 256))(jnp.sort)
case("sort_columns_float32_65536x256", (65536, 256))(functools.partial(jnp.sort, axis=0))
case("sort_float32_16x2048x2048", (16, 2048, 2048))(jnp.sort)
case("argsort_float32_16777216", (1 << 24,))(jnp.argsort)
case("argsort_float32_256x65536", (256, 65536))(jnp.argsort)
case("top_k_float32_1024x32768", (1024, 32768))(lambda x: jax.lax.top_k(x, 64))
case("unique_float32_1048576", (1 << 20,))(functools.partial(jnp.unique, size=1 << 20))
case("permutation_float32_4194304", (1 << 22,))(
    lambda x: jax.random.permutation(jax.random.key(0), x)
)


def read_workspaces(text):
    """Return the arrays of bytes that custom calls of an optimized program have as results."""
    found = []
    for line in text.splitlines():
        if target := re.search(r'custom_call_target="([^"]+)"', line):
            results = line.split(" custom-call(")[0]
            found += [[target[1], int(size)] for size in re.findall(r"\bu8\[(\d+)\]", results)]
            if "u8[" not in results:
                found.append([target[1], 0])
    return found


def read_allocator():
    statistics = jax.devices()[0].memory_stats()
    names = ("bytes_in_use", "peak_bytes_in_use", "num_allocs")
    return {name: int(statistics[name]) for name in names}


def measure(name):
    """Compile and run a case, and print what it took."""
    function, shapes, dtype = CASES[name]
    generator = np.random.default_rng(0)
    arguments = [
        jax.device_put(generator.standard_normal(shape).astype(jnp.dtype(dtype)))
        for shape in shapes
    ]
    jax.block_until_ready(arguments)
    made = read_allocator()
    compiled = jax.jit(function).lower(*arguments).compile()
    sizes = compiled.memory_analysis()
    ready = read_allocator()
    results = jax.block_until_ready(compiled(*arguments))
    record = {
        "case": name,
        "planned": {key: int(getattr(sizes, f"{key}_size_in_bytes")) for key in ("output", "temp")},
        "workspaces": read_workspaces(compiled.as_text()),
        "made": made,
        "compiled": ready,
        "executed": read_allocator(),
        "result_bytes": [int(array.nbytes) for array in jax.tree.leaves(results)],
    }
    print("SCRATCH", json.dumps(record), flush=True)


if sys.argv[1:] == ["--list"]:
    print(*CASES, sep="\n")
    sys.exit()
for name in sys.argv[1:] or CASES:
    try:
        measure(name)
    except Exception as error:  # a release may not have a routine
        print("SCRATCH", json.dumps({"case": name, "error": f"{error}"[:300]}), flush=True)
