"""The lines below the headline name the cause: ten programs whose cause is known."""

import html
import re

import pytest
from cli_dryrun import dryrun_of

PRELUDE = """
import functools
import jax, jax.numpy as jnp, numpy as np
"""
GROWING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

LOGITS = """
def loss(p, x, y):
    h = jnp.tanh(p["embed"][x])
    logits = h @ p["head"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean()
p = {"embed": jnp.ones((32000, 64)), "head": jnp.ones((64, 32000))}
x = jnp.zeros((16, 256), jnp.int32)
jax.jit(jax.grad(loss))(p, x, x)
"""
ATTENTION = """
def loss(p, x):
    q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
    scores = jnp.einsum("bqd,bkd->bqk", q, k)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), v).sum()
p = {n: jnp.ones((64, 64)) for n in "qkv"}
jax.jit(jax.grad(loss))(p, jnp.ones((16, 2048, 64)))
"""
OPTIMIZER = """
def loss(p, x):
    for w in p: x = jnp.tanh(x @ w)
    return x.astype(jnp.float32).mean()
@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(p, opt_state, x):
    g = jax.tree.map(lambda a: a.astype(jnp.float32), jax.grad(loss)(p, x))
    mu = jax.tree.map(lambda m, a: 0.9 * m + a, opt_state["mu"], g)
    nu = jax.tree.map(lambda m, a: 0.9 * m + a * a, opt_state["nu"], g)
    p = jax.tree.map(lambda w, m, n: (w - m / (1 + n)).astype(w.dtype), p, mu, nu)
    return p, {"mu": mu, "nu": nu}
p = [jnp.ones((4096, 4096), jnp.bfloat16) for _ in range(8)]
s = {k: [jnp.zeros((4096, 4096)) for _ in p] for k in ("mu", "nu")}
for _ in range(3): p, s = step(p, s, jnp.ones((8, 4096), jnp.bfloat16))
"""
DONATION = """
@jax.jit
def step(params, x):
    g = jax.grad(lambda p: sum(jnp.sum(jnp.tanh(x @ w)) for w in p))(params)
    return [w - 0.1 * d for w, d in zip(params, g)]
params = [jnp.ones((4096, 4096)) for _ in range(8)]
for _ in range(3): params = step(params, jnp.ones((8, 4096)))
"""
LEAK = """
loss = lambda w, x: (jnp.tanh(x @ w).mean(), x @ w)
@functools.partial(jax.jit, donate_argnums=0)
def step(w, x):
    g, scores = jax.grad(loss, has_aux=True)(w, x)
    return w - 0.1 * g, scores
w, kept = jnp.ones((1024, 1024)), []
for _ in range(10):
    w, scores = step(w, jnp.ones((1024, 1024)))
    kept.append(scores)
"""
FRAGMENTATION = """
arrays = [jnp.ones((64, 1024, 1024)) for _ in range(40)]
for i in range(0, 40, 2): arrays[i] = None
jnp.ones((512, 1024, 1024))
"""
DOUBLE_BUFFERING = """
def load():
    return jnp.ones((128, 1024, 1024))
step = jax.jit(lambda w, x: w + x.mean())
w, batches = jnp.zeros(()), [load() for _ in range(3)]
for x in batches: w = step(w, x)
"""
TWO_PEAKS = """
@jax.jit
def f(x):
    a = jnp.sort(jnp.broadcast_to(x, (256, 1 << 20)) * 2, axis=0)
    s = a[-1].sum()
    b = jnp.sort(jnp.broadcast_to(x[:1000] * s, (250, 1000, 1000)), axis=0)
    return b[-1].sum()
f(jnp.ones((1 << 20,)))
"""
CONSTANT = """
table = np.random.default_rng(0).random(16 << 20, dtype=np.float32)
@jax.jit
def f(x):
    return (x * jnp.asarray(table)).sum()
f(jnp.ones((16 << 20,)))
"""
SCAN = """
def loss(w, x):
    def body(x, _):
        return jnp.tanh(x @ w), None
    return jax.lax.scan(body, x, None, length=64)[0].sum()
jax.jit(jax.grad(loss))(jnp.ones((256, 256)), jnp.ones((8192, 256)))
"""

# The program, its environment, and what the first lines contain.
CASES = {
    "logits": (LOGITS, {}, ["`f32[16,256,32000]`", "program.py:8 (loss)"]),
    "attention scores": (ATTENTION, {}, ["`f32[16,2048,2048]`", "program.py:7 (loss)"]),
    "optimizer in float32": (OPTIMIZER, {}, ["optimizer state in 16 arrays", "`f32[4096,4096]`"]),
    "donation": (
        DONATION,
        {},
        ["outputs", "7 more arguments are returned updated and not donated"],
    ),
    "leak": (LEAK, {}, ["memory leak", "4.0 MiB more in every step", "program.py:12"]),
    "fragmentation": (FRAGMENTATION, GROWING, ["fragmented", "5.9 GiB are free", "948.0 MiB"]),
    "double buffering": (
        DOUBLE_BUFFERING,
        {},
        ["2 arrays that the script keeps", "program.py:6 (load)"],
    ),
    "two equal peaks": (
        TWO_PEAKS,
        {},
        ["`f32[256,1048576]`", "the peak would be about 1.9 GiB", "`f32[250,1000,1000]`"],
    ),
    "constant": (CONSTANT, {}, ["outside the pool: 64.0 MiB are constants of `jit_f`"]),
    "stack of a scan": (SCAN, {}, ["`f32[64,8192,256]`", "one slice per iteration of a loop"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_lines_name_the_cause(tmp_path, name):
    program, env, expected = CASES[name]
    said = dryrun_of(tmp_path, PRELUDE + program, gpu="t4", env=env)
    report = said.err[re.search(r"^(fits|does not fit): ", said.err, re.MULTILINE).start() :]
    # Up to the bar; sentences are wrapped.
    above = " ".join(report.split("\n\n")[0].split())
    # The headline of the page may say it.
    paragraphs = re.findall(r'<(?:h1|p) class="[^"]*">(.*?)</(?:h1|p)>', said.page)
    for part in expected:
        assert part in above, above
        assert part in html.unescape(" ".join(paragraphs))
