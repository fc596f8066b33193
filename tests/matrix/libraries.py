"""Programs that end in cuFFT, cuSOLVER and cuDNN compile, and hold what their shapes say.

Compared are the plan's arguments and results, and what stays in use after a call. Scratch that a
library takes while it runs is in neither.
"""

import jax
import jax.numpy as jnp

device = jax.devices()[0]
in_use = lambda: device.memory_stats()["bytes_in_use"]  # noqa: E731

POINTER = 8


def whole_units(sizes):
    """Return what buffers of these sizes take in a pool, where each takes whole units of 256 B."""
    return sum(-(-size // 256) * 256 for size in sizes)


def check(function, arguments, results):
    """Compile and run a function; `results` are the bytes of what it returns."""
    compiled = jax.jit(function).lower(*arguments).compile()
    planned = compiled.memory_analysis()
    assert planned.argument_size_in_bytes == sum(one.nbytes for one in arguments), planned
    # Several results come with a table of pointers to them, which is freed after the call.
    table = POINTER * len(results) if len(results) > 1 else 0
    assert planned.output_size_in_bytes == sum(results) + table, (planned, results)
    before = in_use()
    kept = compiled(*arguments)
    assert in_use() - before == whole_units(results), (in_use() - before, results)
    assert [one.nbytes for one in jax.tree.leaves(kept)] == list(results)
    assert device.memory_stats()["peak_bytes_in_use"] >= in_use()
    return compiled


# Of 4096 real numbers, 2049 complex ones of 8 bytes are kept.
signal = jnp.ones((64, 4096))
fourier = check(jnp.fft.rfft, [signal], [64 * 2049 * 8])
assert " fft(" in fourier.as_text(), "XLA's instruction for cuFFT"
back = check(jnp.fft.ifft, [jnp.ones((64, 4096), jnp.complex64)], [64 * 4096 * 8])
assert " fft(" in back.as_text()

# 256 eigenvalues, and as many vectors of 256.
symmetric = jnp.eye(256)
solver = check(lambda a: tuple(jnp.linalg.eigh(a)), [symmetric], [256 * 4, 256 * 256 * 4])
assert "cusolver" in solver.as_text(), "a custom call of cuSOLVER"

# NHWC, a window of 3 x 3, from 16 to 32 channels, as large as before.
images, window = jnp.ones((8, 32, 32, 16)), jnp.ones((3, 3, 16, 32))


def convolve(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


convolution = check(convolve, [images, window], [8 * 32 * 32 * 32 * 4])
assert "__cudnn$conv" in convolution.as_text(), "a custom call of cuDNN"
gradients = jax.grad(lambda x, w: convolve(x, w).sum(), argnums=(0, 1))
check(gradients, [images, window], [images.nbytes, window.nbytes])
