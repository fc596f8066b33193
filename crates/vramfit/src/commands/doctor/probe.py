# Run by `vramfit doctor` in a process of its own: tries what a JAX program does, step by step.
#
# Each step is told when it begins and when it ends, one line of JSON each, on what was standard
# output when we began. All else that is printed, by JAX or by C, goes to standard error: the log.
# Argument: `train` adds a few steps of training. A missing private function is never a failure.
import json
import os
import sys
import time

# With `-c` the current directory comes first; a file of the user's called jax.py must not run.
sys.path[:] = [place for place in sys.path if place]

TOLD = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)

TRANSFER_BYTES = 64 << 20
TIMES = 3
TRAINING_STEPS = 20

logged = []


def tell(step, state, **values):
    TOLD.write(json.dumps({"step": step, "state": state, **values}) + "\n")
    TOLD.flush()


def error_text(error):
    return f"{type(error).__name__}: {error}"


def listen():
    """Keep what JAX logs: it is where the reason is when the CPU is used without a word."""
    import logging
    import warnings

    class Keeper(logging.Handler):
        def emit(self, record):
            text = record.getMessage()
            if "'tpu'" in text or "'rocm'" in text:
                return  # which platforms are not there is no news
            if record.exc_info and record.exc_info[1] is not None:
                text += "\n" + error_text(record.exc_info[1])
                cause = record.exc_info[1].__cause__
                text += f"\n{error_text(cause)}" if cause is not None else ""
            logged.append(text)

    logger = logging.getLogger("jax._src.xla_bridge")
    logger.setLevel(logging.INFO)
    logging.getLogger("jax").addHandler(Keeper())
    usual = warnings.showwarning

    def keep(message, category, *rest, **more):
        if issubclass(category, RuntimeWarning):
            logged.append(f"{category.__name__}: {message}")
        usual(message, category, *rest, **more)

    warnings.showwarning = keep


def try_import():
    began = time.perf_counter()
    import jax

    return {
        "version": jax.__version__,
        "file": jax.__file__,
        "seconds": time.perf_counter() - began,
    }


def try_backend():
    import jax

    began = time.perf_counter()
    devices = jax.local_devices()
    seconds = time.perf_counter() - began
    return {
        "platform": jax.default_backend(),
        "devices": [{"name": str(d), "kind": str(d.device_kind)} for d in devices],
        "platform_version": str(getattr(devices[0].client, "platform_version", "")),
        "is_virtual": "vramfit._inprogram._plugin" in sys.modules and devices[0].platform == "gpu",
        "seconds": seconds,
        "logged": logged,
    }


def try_pool():
    import jax
    import numpy as np

    try:
        from jaxlib import xla_client

        options = dict(xla_client.generate_pjrt_gpu_plugin_options())
    except Exception:
        options = None
    # From NumPy, so that nothing is compiled before there is an array.
    ones = np.ones((16,), np.float32)
    arrays = [jax.device_put(ones, device) for device in jax.local_devices()]
    jax.block_until_ready([array + array for array in arrays])
    pools = []
    for device in jax.local_devices():
        stats = device.memory_stats() or {}
        known = ("bytes_limit", "pool_bytes", "bytes_in_use")
        pools.append({"device": str(device), **{name: stats.get(name) for name in known}})
    if options is not None:
        wanted = ("memory_fraction", "memory_fraction_policy", "preallocate", "allocator")
        options = {name: options[name] for name in wanted if name in options}
    return {"options": options, "pools": pools}


def where(array):
    devices = sorted(array.devices(), key=str)
    return {
        "platforms": sorted({device.platform for device in devices}),
        "devices": [str(device) for device in devices],
    }


def try_computation():
    """Multiply whole numbers so small that every precision that a GPU has holds them exactly."""
    import jax.numpy as jnp
    import numpy as np

    side = 256
    rows = np.arange(side * side, dtype=np.int64).reshape(side, side)
    a, b = rows % 7 - 3, rows % 5 - 2
    result = jnp.asarray(a, jnp.float32) @ jnp.asarray(b, jnp.float32) + 1
    expected = a @ b + 1
    got = np.asarray(result)
    return {"right": bool((got == expected).all()), "compared": side * side, **where(result)}


def try_jit():
    import jax
    import jax.numpy as jnp

    counts = {"traced": 0, "compiled": 0}

    def note(name, *_, **__):
        if name.endswith("backend_compile_duration"):
            counts["compiled"] += 1

    jax.monitoring.register_event_duration_secs_listener(note)

    @jax.jit
    def function(x):
        counts["traced"] += 1
        return jnp.tanh(x @ x).sum()

    x = jax.block_until_ready(jnp.ones((128, 128), jnp.float32))
    calls = []
    for _ in range(2):
        counts.update(traced=0, compiled=0)
        began = time.perf_counter()
        jax.block_until_ready(function(x))
        calls.append((counts["traced"], counts["compiled"], time.perf_counter() - began))
    return {
        "disabled": bool(jax.config.jax_disable_jit),
        "traced": [call[0] for call in calls],
        "compiled": [call[1] for call in calls],
        "seconds": [call[2] for call in calls],
    }


def try_transfers():
    import jax
    import numpy as np

    device = jax.local_devices()[0]
    there, back, right = [], [], True
    for turn in range(TIMES):
        # New bytes each time: a copy that was kept from the time before would pass for a transfer.
        data = np.arange(TRANSFER_BYTES // 4, dtype=np.uint32) * np.uint32(2654435761 + turn)
        began = time.perf_counter()
        array = jax.block_until_ready(jax.device_put(data, device))
        there.append(time.perf_counter() - began)
        began = time.perf_counter()
        returned = np.asarray(array)
        back.append(time.perf_counter() - began)
        right = right and bool((returned == data).all())
        del array, returned
    return {
        "bytes": TRANSFER_BYTES,
        "to_device_seconds": min(there),
        "to_host_seconds": min(back),
        "times": TIMES,
        "right": right,
    }


def try_training():
    """Fit a small network to a smooth function: gradient, update, and a loss that must fall."""
    import jax
    import jax.numpy as jnp

    x = jnp.linspace(-2, 2, 256, dtype=jnp.float32).reshape(256, 1)
    y = jnp.sin(2 * x)
    first, second = jax.random.split(jax.random.key(0))
    weights = {
        "in": jax.random.normal(first, (1, 64), jnp.float32),
        "out": jax.random.normal(second, (64, 1), jnp.float32) / 8,
    }

    def loss(weights):
        return jnp.mean((jnp.tanh(x @ weights["in"]) @ weights["out"] - y) ** 2)

    @jax.jit
    def train_step(weights):
        value, gradient = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradient), value

    before = float(jax.jit(loss)(weights))
    weights, _ = jax.block_until_ready(train_step(weights))
    began = time.perf_counter()
    for _ in range(TRAINING_STEPS - 1):
        weights, _ = train_step(weights)
    jax.block_until_ready(weights)
    seconds = (time.perf_counter() - began) / (TRAINING_STEPS - 1)
    after = float(jax.jit(loss)(weights))
    return {
        "steps": TRAINING_STEPS,
        "first_loss": before if before == before else None,
        "last_loss": after if after == after else None,
        "platforms": where(weights["in"])["platforms"],
        "step_seconds": seconds,
    }


def attempt(step, function):
    tell(step, "begin")
    logged.clear()
    try:
        values = function()
    except Exception as error:
        tell(step, "failed", error=error_text(error), logged=logged)
        return False
    tell(step, "done", **values)
    return True


def hold():
    """Wait while our memory is looked at from outside; the other end of our input ends it."""
    tell("hold", "begin")
    tell("hold", "done", pid=os.getpid())
    sys.stdin.buffer.readline()


def main():
    listen()
    if not (attempt("import", try_import) and attempt("backend", try_backend)):
        return
    if not attempt("pool", try_pool):
        return
    attempt("computation", try_computation)
    attempt("jit", try_jit)
    attempt("transfers", try_transfers)
    hold()
    if "train" in sys.argv[1:]:
        attempt("training", try_training)


main()
