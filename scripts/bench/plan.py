"""How long do `vramfit.estimate` and `vramfit.plan` of a GPT with 124 million parameters take?

The rival of a plan is what it replaces: one dry run after another, each started by hand. Goals on
two cores that do nothing else: 5 s for an estimate, 0.3 s for the same one again in a session, 32
runs and 90 s for a plan.
"""

import functools
import os
import re
import tempfile

import jax
import jax.numpy as jnp
from measuring import print_load, time_call

import vramfit

LAYERS, WIDTH, HEADS, VOCABULARY, SEQUENCE, BATCH = 12, 768, 12, 50_304, 1024, 8
GPU = "h100-80g"
BUDGET = "12GiB"


def normalize(x, gain):
    centered = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return (centered * scale * gain).astype(jnp.bfloat16)


def block(x, p):
    def product(x, name):
        return x @ p[name].astype(jnp.bfloat16)

    qkv = jnp.split(product(normalize(x, p["norm1"]), "qkv"), 3, -1)
    q, k, v = (each.reshape(*x.shape[:2], HEADS, -1) for each in qkv)
    attention = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
    x = x + product(attention, "merge")
    return x + product(jax.nn.gelu(product(normalize(x, p["norm2"]), "up")), "down")


def loss(params, tokens):
    x = (params["embed"][tokens] + params["position"]).astype(jnp.bfloat16)
    x, _ = jax.lax.scan(lambda x, p: (block(x, p), None), x, params["blocks"])
    logits = (x @ params["embed"].T.astype(jnp.bfloat16)).astype(jnp.float32)
    targets = jnp.roll(tokens, -1, 1)[..., None]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets, -1).mean()


@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(params, moments, tokens):
    value, grads = jax.value_and_grad(loss)(params, tokens)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
    return jax.tree.map(lambda p, m: p - 1e-3 * m, params, moments), moments, value


def arguments():
    def shape(*dims, dtype="float32"):
        return jax.ShapeDtypeStruct(dims, dtype)

    params = {
        "embed": shape(VOCABULARY, WIDTH),
        "position": shape(SEQUENCE, WIDTH),
        "blocks": {
            "qkv": shape(LAYERS, WIDTH, 3 * WIDTH),
            "merge": shape(LAYERS, WIDTH, WIDTH),
            "up": shape(LAYERS, WIDTH, 4 * WIDTH),
            "down": shape(LAYERS, 4 * WIDTH, WIDTH),
            "norm1": shape(LAYERS, WIDTH),
            "norm2": shape(LAYERS, WIDTH),
        },
    }
    return params, params, shape(BATCH, SEQUENCE, dtype="int32")


def main():
    """Print times and ratios."""
    print_load("before")
    args = arguments()
    count = sum(leaf.size for leaf in jax.tree.leaves(args[0]))
    print(f"program           a step of a GPT, {count / 1e6:.0f} million parameters, on {GPU}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        estimate = functools.partial(vramfit.estimate, step, *args, gpu=GPU)
        cold, report = time_call(estimate)
        again, _ = time_call(estimate)
        print(f"estimate          {cold:.2f} s: {report.headline}")
        print(f"again             {again:.3f} s  (same session)")
        plan = functools.partial(vramfit.plan, step, *args, gpu=GPU, budget=BUDGET)
        first, result = time_call(plan)
        repeated, _ = time_call(plan)
        trials = result.to_dict()["trials"]
        print(f"plan              {first:.1f} s, {trials} runs: {str(result).splitlines()[0]}")
        print(f"ratio             {first / (trials * cold):.2f}  (to as many estimates, in turn)")
        print(f"plan again        {repeated:.1f} s  (compiled programs are kept)")
        print(f"ratio             {repeated / first:.2f}")
        kept = [row for row in str(result).splitlines() if re.match(r"[> ] +[\d.]+ [GM]iB", row)]
        print("\n".join(kept))
    print_load("after")


if __name__ == "__main__":
    main()
