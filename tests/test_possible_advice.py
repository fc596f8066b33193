"""Ways to reduce memory: none is impossible, and one that is not enough says so."""

import re

import pytest
from commands import run_vramfit

BEGIN = """
import jax, jax.numpy as jnp
GIB = (1 << 14, 1 << 14)
"""

# Programs that do not fit on a T4, whose pool has 10.9 GiB, what is said, and what is not.
PROGRAMS = {
    # What `step` returns is what it takes next.
    "state of another program": (
        """
step = jax.jit(lambda w, x: w - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))
kept = jnp.ones((3, *GIB))
params = step(jnp.ones(GIB), jnp.ones((8, 1 << 14)))
large = jax.jit(lambda x: jnp.cumsum(jnp.tile(x, (8, 1, 1)), 1))(jnp.ones(GIB))
""",
        "drop what program.py:5 (<module>) keeps: 3.0 GiB",
        "4.0 GiB",
    ),
    "old states": (
        """
step = jax.jit(lambda state: {"w": state["w"] * 0.9})
state = {"w": jnp.ones(GIB)}
states = []
for i in range(20):
    state = step(state)
    states.append(state)
""",
        "drop what program.py:8 (<module>) keeps: 9.0 GiB",
        "",
    ),
    "kept array beside a large result": (
        """
kept = jnp.ones(GIB)
large = jax.jit(lambda x: jnp.cumsum(jnp.tile(x, (15, 1, 1)), 1))(jnp.ones((1 << 14, 1 << 14)))
""",
        "keeps: 1.0 GiB; ",
        "",
    ),
    "array that is larger than the pool": (
        "x = jnp.zeros((12, *GIB))",
        "make a smaller array at program.py:3 (<module>), or a part at a time: it is 12.0 GiB",
        "return less",
    ),
    "what the backward pass computes for all that is mapped": (
        """
def energy(x):
    return jnp.sum(1 / jnp.sqrt(jnp.sum((x[:, None] - x[None, :]) ** 2, -1) + 1))
force = jax.jit(jax.vmap(lambda x, v: v - jax.grad(energy)(x)))
force(jnp.ones((256, 2048, 3)), jnp.ones((256, 2048, 3)))
""",
        "compute what `jax.vmap` maps",
        "are missing",
    ),
    "what is mapped inside of a gradient": (
        """
def laplacian(x):
    return jnp.trace(jax.hessian(lambda y: jnp.sum(jnp.sin(jnp.tanh(y * 2) * y)))(x))
@jax.jit
def train(w, xs):
    def loss(w):
        return jnp.mean(jax.vmap(lambda x: laplacian(x * w))(xs) ** 2)
    return w - 0.1 * jax.grad(loss)(w)
train(jnp.ones(256), jnp.ones((100_000, 256)))
""",
        "compute what `jax.vmap` maps",
        "",
    ),
    "rows of an argument": (
        """
rows = jax.jit(lambda x, w: jnp.sort(x @ w, 1))
rows(jnp.ones((200_000, 64)), jnp.ones((64, 1 << 14)))
""",
        "with fewer than 200000 rows of `x` at a time, if its rows do not depend on each other",
        "",
    ),
    # Weights of all rows of `data`, for each query.
    "kernel regression": (
        """
@jax.jit
def regression(data, y, query):
    k = jnp.exp(-((data[:, None] - query[None]) ** 2).sum(-1))
    return jnp.sort(k / k.sum(0), 0).T @ y
kept = jnp.ones(GIB)
regression(jnp.ones((70_000, 3)), jnp.ones(70_000), jnp.ones((90_000, 3)))
""",
        "",
        " rows of `",
    ),
    "senders and receivers of a graph": (
        """
@jax.jit
def messages(nodes, s, r, w):
    m = jnp.sort(jnp.concatenate([nodes[s], nodes[r]], 1) @ w, 1)
    return jax.ops.segment_sum(m, r, 50_000)
kept, index = jnp.ones(GIB), jnp.zeros(10_000_000, jnp.int32)
messages(jnp.ones((50_000, 128)), index, index, jnp.ones((256, 512)))
""",
        "",
        " rows of `",
    ),
    "all pairs of rows": (
        """
density = jax.jit(lambda x: jnp.sort(jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)), 0).sum(0))
density(jnp.ones((70_000, 3)))
""",
        "`jax.lax.map(..., batch_size=...)` over the rows of one side",
        "with fewer than",
    ),
    "softmax in float32 of a model in 16 bits": (
        """
@jax.jit
def step(w, x):
    def loss(w):
        q = (x @ w).reshape(16, 4096, 16, 64)
        return jnp.mean(jax.nn.dot_product_attention(q, q, q).astype(jnp.float32) ** 2)
    return w - jax.grad(loss)(w)
step(jnp.ones((1024, 1024), jnp.float16), jnp.ones((16, 4096, 1024), jnp.float16))
""",
        "rematerialize more",
        "compute in ",
    ),
    "attention, whose map is not the program's": (
        """
@jax.jit
def step(w, x):
    def loss(w):
        q = (x @ w).reshape(16, 4096, 16, 64)
        return jnp.mean(jax.nn.dot_product_attention(q, q, q) ** 2)
    return w - jax.grad(loss)(w)
step(jnp.ones((1024, 1024)), jnp.ones((16, 4096, 1024)))
""",
        "rematerialize more",
        "`jax.vmap`",
    ),
    "weights that are created in a row": (
        "weights = [jnp.zeros((1 << 13, 1 << 13)) for _ in range(60)]",
        ") creates in 16 bits",
        "drop ",
    ),
    # What `jax.hessian` holds while it computes is not for the script to drop.
    "arrays of a computation outside of jit": (
        """
x, w = jnp.ones((1024, 36000)), jnp.zeros(36000)
H = jax.hessian(lambda w: jnp.mean(jnp.log1p(jnp.exp(x @ w))))(w)
""",
        "put the computation at program.py:5 (<module>) into a function with `jax.jit`",
        "drop ",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_advised_helps(tmp_path, name):
    program, expected, refuted = PROGRAMS[name]
    path = tmp_path / "program.py"
    path.write_text(BEGIN.strip("\n") + "\n" + program)
    options = ["--full", "--remedies", "off", "--gpu", "t4"]
    said = run_vramfit("dryrun", *options, path, cwd=tmp_path).stderr
    assert "\ndoes not fit" in said
    _, _, after = said.partition("ways to reduce memory")
    advice = re.sub(r"\s+", " ", after.partition("\n\n")[0])
    assert expected in advice
    assert not refuted or refuted not in advice
