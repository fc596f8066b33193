"""A kind of owner needs evidence, and donation is advised exactly where an argument is updated.

Each program is written as its users write it. What is expected of it is told by what it does: which
arguments a gradient is taken of, which an optimizer keeps, which come back.
"""

import re
import textwrap

import pytest

PARAMETERS, MOMENTS, OTHER, INPUT = "parameters", "optimizer_state", "other_state", "batch"

HEAD = """
import functools, sys
import jax, jax.numpy as jnp, optax
N = 128
"""


def program(text):
    return HEAD + textwrap.dedent(text)


# For each program the kinds of its arguments by path, and how many of them could be donated, but
# are not.
CASES = {
    # No gradient is taken: what goes round is state, but of no optimizer.
    "recurrent network, inference": (
        """
        params = {"w": jnp.ones((N, N)), "u": jnp.ones((N, N))}
        carry = {"h": jnp.zeros((N, N)), "c": jnp.zeros((N, N))}
        @jax.jit
        def step(params, carry, x):
            h = jnp.tanh(carry["h"] @ params["w"] + x @ params["u"])
            return {"h": h, "c": carry["c"] * 0.5 + h}, h.sum()
        for _ in range(3):
            carry, y = step(params, carry, jnp.ones((N, N)))
        """,
        {
            "params['w']": PARAMETERS,
            "params['u']": PARAMETERS,
            "carry['h']": OTHER,
            "carry['c']": OTHER,
            "x": INPUT,
        },
        2,
    ),
    # The carry is read by the differentiated function, but no gradient is taken of it.
    "recurrent network, training": (
        """
        params = {"w": jnp.ones((N, N)), "u": jnp.ones((N, N))}
        carry = {"h": jnp.zeros((N, N))}
        @jax.jit
        def step(params, carry, x):
            def loss(params):
                h = jnp.tanh(carry["h"] @ params["w"] + x @ params["u"])
                return (h**2).mean(), {"h": jax.lax.stop_gradient(h)}
            slopes, new = jax.grad(loss, has_aux=True)(params)
            return jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes), new
        for _ in range(3):
            params, carry = step(params, carry, jnp.ones((N, N)))
        """,
        {"params['w']": PARAMETERS, "params['u']": PARAMETERS, "carry['h']": OTHER, "x": INPUT},
        3,
    ),
    # Forces are gradients, and a step of molecular dynamics is what SGD with momentum is.
    "molecular dynamics": (
        """
        def energy(r):
            return ((r - jnp.roll(r, 1, 0)) ** 4).sum()
        @jax.jit
        def step(positions, velocities):
            velocities = velocities - 0.01 * jax.grad(energy)(positions)
            return positions + 0.01 * velocities, velocities
        r, v = jax.random.normal(jax.random.key(0), (N * N, 3)), jnp.zeros((N * N, 3))
        for _ in range(3):
            r, v = step(r, v)
        """,
        {"positions": OTHER, "velocities": OTHER},
        2,
    ),
    "molecular dynamics without telling names": (
        """
        def energy(r):
            return (1 / (1 + ((r[:, None] - r[None]) ** 2).sum(-1))).sum()
        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def step(a, b, cell):
            b = b - 0.01 * jax.grad(lambda a: energy(a % cell))(a)
            return a + 0.01 * b, b
        a, b = jax.random.normal(jax.random.key(0), (N, 3)), jnp.zeros((N, 3))
        for _ in range(3):
            a, b = step(a, b, jnp.ones(3))
        """,
        {"a": OTHER, "b": OTHER, "cell": INPUT},
        0,
    ),
    "molecular dynamics, a state of many parts": (
        """
        from typing import NamedTuple
        class State(NamedTuple):
            position: jax.Array
            momentum: jax.Array
            force: jax.Array
            mass: jax.Array
        def energy(r):
            return (1 / (1 + ((r[:, None] - r[None]) ** 2).sum(-1))).sum()
        @functools.partial(jax.jit, donate_argnums=0)
        def step(s, box):
            p = s.momentum + 0.005 * s.force
            r = (s.position + 0.01 * p / s.mass) % box
            f = -jax.grad(energy)(r)
            return State(r, p + 0.005 * f, f, s.mass)
        r = jax.random.normal(jax.random.key(0), (N, 3))
        s = State(r, jnp.zeros((N, 3)), jnp.zeros((N, 3)), jnp.ones((N, 1)))
        for _ in range(3):
            s = step(s, jnp.ones(3))
        """,
        {f"s.{name}": OTHER for name in ("position", "momentum", "force", "mass")} | {"box": INPUT},
        0,
    ),
    "forward pass over stacked layers": (
        """
        layers = {"w": jnp.ones((6, N, N)), "b": jnp.zeros((6, N))}
        @jax.jit
        def apply(layers, x):
            layer = lambda x, p: (jnp.tanh(x @ p["w"] + p["b"]), None)
            return jax.lax.scan(layer, x, layers)[0]
        for _ in range(3):
            y = apply(layers, jnp.ones((N, N)))
        """,
        {"layers['w']": PARAMETERS, "layers['b']": PARAMETERS, "x": INPUT},
        0,
    ),
    "preparation of a batch": (
        """
        @jax.jit
        def prepare(batch):
            return {"image": (batch["image"] - 0.5) * 2, "scale": batch["scale"] * 2}
        for _ in range(3):
            y = prepare({"image": jnp.ones((N, N)), "scale": jnp.ones((N,))})
        """,
        {"batch['image']": INPUT, "batch['scale']": INPUT},
        0,
    ),
    # They are read and updated in the differentiated function; no gradient is taken of them.
    "running statistics": (
        """
        w = {"w": jnp.ones((N, N)), "scale": jnp.ones(N)}
        stats = {"mean": jnp.zeros((8, N)), "var": jnp.ones((8, N))}
        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def step(w, stats, x):
            def loss(w):
                y = (x @ w["w"]).reshape(8, -1, N)
                mean, var = y.mean(1), y.var(1)
                mean, var = 0.9 * stats["mean"] + 0.1 * mean, 0.9 * stats["var"] + 0.1 * var
                new = {"mean": mean, "var": var}
                y = (y - new["mean"][:, None]) / jnp.sqrt(new["var"][:, None]) * w["scale"]
                return (y**2).mean(), new
            slopes, new = jax.grad(loss, has_aux=True)(w)
            return jax.tree.map(lambda p, g: p - 0.1 * g, w, slopes), new
        for _ in range(3):
            w, stats = step(w, stats, jnp.ones((8 * N, N)))
        """,
        {
            "w['w']": PARAMETERS,
            "w['scale']": PARAMETERS,
            "stats['mean']": OTHER,
            "stats['var']": OTHER,
            "x": INPUT,
        },
        0,
    ),
    # Names say nothing, paths do not match those of results: the graph tells.
    "training without telling names": (
        """
        a, b = jnp.ones((N, N)), jnp.ones((2 * N, N))
        va, vb = jnp.zeros((N, N)), jnp.zeros((2 * N, N))
        @jax.jit
        def step(a, b, va, vb, q):
            ga, gb = jax.grad(lambda ab: (jnp.tanh(q @ ab[0]) @ ab[1].T).mean())((a, b))
            va, vb = 0.9 * va + ga, 0.9 * vb + gb
            return a - 0.1 * va, b - 0.1 * vb, va, vb
        for _ in range(3):
            a, b, va, vb = step(a, b, va, vb, jnp.ones((N, N)))
        """,
        {"a": PARAMETERS, "b": PARAMETERS, "va": MOMENTS, "vb": MOMENTS, "q": INPUT},
        4,
    ),
    "a gradient, applied outside of the jit": (
        """
        net = [jnp.ones((N, N)), jnp.ones((N, 2 * N))]
        optimizer = optax.adam(1e-3)
        state = optimizer.init(net)
        @jax.jit
        def loss_and_grad(net, x):
            return jax.value_and_grad(lambda net: (jnp.tanh(x @ net[0]) @ net[1]).mean())(net)
        for _ in range(3):
            loss, slopes = loss_and_grad(net, jnp.ones((32 * N, N)))
            updates, state = optimizer.update(slopes, state, net)
            net = optax.apply_updates(net, updates)
        """,
        {"net[0]": PARAMETERS, "net[1]": PARAMETERS, "x": INPUT},
        0,
    ),
    "a scan outside of a jit": (
        """
        w = {"a": jnp.ones((N, N)), "b": jnp.ones((N, N))}
        m = jax.tree.map(jnp.zeros_like, w)
        def step(carry, row):
            w, m = carry
            loss = lambda w: (jnp.tanh(row @ w["a"]) @ w["b"]).mean()
            m = jax.tree.map(lambda m, g: 0.9 * m + g, m, jax.grad(loss)(w))
            return (jax.tree.map(lambda p, m: p - 0.1 * m, w, m), m), None
        (w, m), _ = jax.lax.scan(step, (w, m), jnp.ones((3, N, N)))
        """,
        {
            "carry[0]['a']": PARAMETERS,
            "carry[0]['b']": PARAMETERS,
            "carry[1]['a']": MOMENTS,
            "carry[1]['b']": MOMENTS,
            "row": INPUT,
        },
        4,
    ),
    "an epoch in one program": (
        """
        p = [jnp.ones((N, N)) for _ in range(2)]
        optimizer = optax.adam(1e-3)
        def loss(p, x):
            for q in p:
                x = jnp.tanh(x @ q)
            return x.mean()
        @jax.jit
        def epoch(c, xs):
            def step(c, x):
                updates, s = optimizer.update(jax.grad(loss)(c[0], x), c[1], c[0])
                return (optax.apply_updates(c[0], updates), s), None
            return jax.lax.scan(step, c, xs)[0]
        c = (p, optimizer.init(p))
        for _ in range(2):
            c = epoch(c, jnp.ones((8, N, N)))
        """,
        {
            "c[0][0]": PARAMETERS,
            "c[0][1]": PARAMETERS,
            "c[1][0].mu[1]": MOMENTS,
            "c[1][0].nu[1]": MOMENTS,
            "xs": INPUT,
        },
        # The counter of Adam's steps is one of them.
        7,
    ),
    "Equinox": (
        """
        import equinox as eqx
        model = eqx.nn.MLP(N, N, 2 * N, 2, key=jax.random.key(0))
        optimizer = optax.adam(1e-3)
        state = optimizer.init(eqx.filter(model, eqx.is_array))
        @eqx.filter_jit
        def step(model, state, x, *, y):
            loss = lambda model: ((jax.vmap(model)(x) - y) ** 2).mean()
            slopes = eqx.filter_grad(loss)(model)
            updates, state = optimizer.update(slopes, state, model)
            return eqx.apply_updates(model, updates), state
        for _ in range(3):
            model, state = step(model, state, jnp.ones((N, N)), y=jnp.ones((N, N)))
        """,
        {
            "model.layers[0].weight": PARAMETERS,
            "model.layers[2].bias": PARAMETERS,
            "state[0].mu.layers[1].weight": MOMENTS,
            "state[0].nu.layers[2].bias": MOMENTS,
            "x": INPUT,
            "y": INPUT,
        },
        # Three layers with weight and bias, two moments each, and the counter.
        19,
    ),
    "Equinox, everything donated": (
        """
        import equinox as eqx
        class Model(eqx.Module):
            weight: jax.Array
            activation: object = jnp.tanh
            @eqx.filter_jit(donate="all")
            def step(self, x):
                loss = lambda model: model.activation(x @ model.weight).mean()
                return eqx.apply_updates(self, eqx.filter_grad(loss)(self))
        model = Model(jnp.ones((N, N)))
        for _ in range(3):
            model = model.step(jnp.ones((2 * N, N)))
        """,
        {"self.weight": PARAMETERS, "x": INPUT},
        0,
    ),
    "pmap": (
        """
        import flax.linen as nn
        from flax import jax_utils
        from flax.training.train_state import TrainState
        class Net(nn.Module):
            @nn.compact
            def __call__(self, x):
                x = nn.BatchNorm(use_running_average=False)(nn.Dense(N)(x))
                return nn.Dense(N)(nn.relu(x))
        class State(TrainState):
            batch_stats: dict
        net = Net()
        made = net.init(jax.random.key(0), jnp.ones((2, N)))
        state = State.create(apply_fn=net.apply, params=made["params"],
                             batch_stats=made["batch_stats"], tx=optax.sgd(0.1, momentum=0.9))
        def train_step(state, batch, rate):
            def loss(params):
                variables = {"params": params, "batch_stats": state.batch_stats}
                y, new = state.apply_fn(variables, batch["image"], mutable=["batch_stats"])
                return (y**2).mean(), new
            slopes, new = jax.grad(loss, has_aux=True)(state.params)
            slopes = jax.lax.pmean(slopes, "batch")
            return state.apply_gradients(grads=slopes, batch_stats=new["batch_stats"])
        step = jax.pmap(train_step, axis_name="batch", static_broadcasted_argnums=2)
        state = jax_utils.replicate(state)
        for _ in range(3):
            state = step(state, {"image": jnp.ones((1, N, N))}, 0.1)
        """,
        {
            "state.params['Dense_0']['kernel']": PARAMETERS,
            "state.opt_state[0].trace['Dense_1']['kernel']": MOMENTS,
            "state.batch_stats['BatchNorm_0']['mean']": OTHER,
            "state.step": OTHER,
            "batch['image']": INPUT,
        },
        # Six parameters and their traces, mean and variance, the counter.
        15,
    ),
    "Haiku": (
        """
        import haiku as hk
        def forward(x):
            return hk.Linear(N)(jax.nn.relu(hk.BatchNorm(True, True, 0.9)(hk.Linear(N)(x), True)))
        net = hk.transform_with_state(forward)
        x = jnp.ones((N, N))
        p, s = net.init(jax.random.key(0), x)
        optimizer = optax.adam(1e-3)
        o = optimizer.init(p)
        @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
        def update(p, s, o, x):
            def loss(p):
                y, new = net.apply(p, s, None, x)
                return (y**2).mean(), new
            slopes, new = jax.grad(loss, has_aux=True)(p)
            updates, o = optimizer.update(slopes, o)
            return optax.apply_updates(p, updates), new, o
        for _ in range(3):
            p, s, o = update(p, s, o, x)
        """,
        {
            "p['linear']['w']": PARAMETERS,
            "p['batch_norm']['scale']": PARAMETERS,
            "s['batch_norm/~/mean_ema']['hidden']": OTHER,
            "o[0].nu['linear_1']['w']": MOMENTS,
            "x": INPUT,
        },
        0,
    ),
    # XLA adds the gradient to the old momentum in the product that makes it.
    "momentum that is an output": (
        """
        def loss(w, x):
            return (jnp.tanh(x @ w) ** 2).mean()
        @jax.jit
        def step(w, m, x):
            m = 0.9 * m + jax.grad(loss)(w, x)
            return w - 0.01 * m, m
        w, m = jnp.ones((N, N)), jnp.zeros((N, N))
        for _ in range(3):
            w, m = step(w, m, jnp.ones((2 * N, N)))
        """,
        {"w": PARAMETERS, "m": MOMENTS, "x": INPUT},
        2,
    ),
    # The penalty's gradient is the weight itself, which is no old state of the gradient.
    "gradient with a penalty for large weights": (
        """
        @jax.jit
        def slopes(w, x):
            return jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean() + 0.5 * (w**2).sum())(w)
        w = jnp.ones((N, N))
        for _ in range(3):
            g = slopes(w, jnp.ones((2 * N, N)))
        """,
        {"w": PARAMETERS, "x": INPUT},
        0,
    ),
    "replay buffer": (
        """
        @functools.partial(jax.jit, donate_argnums=0)
        def add(memory, row, at):
            return {"rows": jax.lax.dynamic_update_slice(memory["rows"], row, (at, 0))}
        @jax.jit
        def train(params, memory, key):
            x = memory["rows"][jax.random.randint(key, (N,), 0, 8 * N)]
            slope = jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(params["w"])
            return {"w": params["w"] - 0.1 * slope}
        memory, params = {"rows": jnp.zeros((8 * N, N))}, {"w": jnp.ones((N, N))}
        for i in range(3):
            memory = add(memory, jnp.ones((1, N)), i)
            params = train(params, memory, jax.random.key(i))
        """,
        {"params['w']": PARAMETERS, "memory['rows']": OTHER, "key": INPUT},
        1,
    ),
    "replay buffer that is not donated": (
        """
        @jax.jit
        def add(memory, row, at):
            return {"rows": jax.lax.dynamic_update_slice(memory["rows"], row, (at, 0))}
        @jax.jit
        def train(params, memory, key):
            x = memory["rows"][jax.random.randint(key, (8 * N,), 0, 8 * N)]
            slope = jax.grad(lambda w: (jnp.tanh(x @ w @ w.T) ** 2).mean())(params["w"])
            return {"w": params["w"] - 0.1 * slope}
        memory, params = {"rows": jnp.zeros((8 * N, N))}, {"w": jnp.ones((N, 4 * N))}
        for i in range(3):
            memory = add(memory, jnp.ones((1, N)), i)
            params = train(params, memory, jax.random.key(i))
        """,
        {"params['w']": PARAMETERS, "memory['rows']": OTHER},
        0,
    ),
    # Data on their way are no state: what is made of them goes elsewhere.
    "data that are normalized": (
        """
        @jax.jit
        def normalize(data):
            return {"x": data["x"] / data["x"].mean()}
        @jax.jit
        def train(params, data):
            slope = jax.grad(lambda w: (jnp.tanh(data["x"] @ w) ** 2).mean())(params["w"])
            return {"w": params["w"] - 0.1 * slope}
        params = {"w": jnp.ones((N, N))}
        for _ in range(3):
            data = normalize({"x": jnp.ones((8 * N, N))})
            params = train(params, data)
        """,
        {"params['w']": PARAMETERS, "data['x']": INPUT},
        0,
    ),
    "quantized weights": (
        """
        W = {"q": jnp.ones((N, N), jnp.int8), "scale": jnp.ones((1, N))}
        @jax.jit
        def forward(W, x):
            return jnp.tanh(x @ (W["q"].astype(x.dtype) * W["scale"]))
        for _ in range(3):
            y = forward(W, jnp.ones((N, N)))
        """,
        {"W['q']": PARAMETERS, "W['scale']": PARAMETERS, "x": INPUT},
        0,
    ),
}
NOT_DONATED = re.compile(r"`[^`]+`(?: and (\d+) more arguments?)? (?:is|are) not donated")


@pytest.mark.parametrize("name", CASES)
def test_a_kind_needs_evidence(dryrun, write_script, name):
    text, expected, undonated = CASES[name]
    path = write_script(program(text), "step.py")
    run = dryrun(path)
    attribution = run.summary["attribution"]
    assert sum(entry["bytes"] for entry in attribution["entries"]) == attribution["total_bytes"]
    kinds = {entry["path"]: entry["kind"] for entry in attribution["entries"]}
    assert {path: kinds.get(path) for path in expected} == expected, kinds
    match = NOT_DONATED.search(" ".join(run.err.split()))
    assert (1 + int(match[1] or 0) if match else 0) == undonated, run.err


# Programs whose peak is where nothing is trained, the kinds that are there, and those that are not.
KINDS = {
    "forces": (
        """
        def energy(r):
            distance = ((r[:, None] - r[None]) ** 2).sum(-1) + 1
            return jnp.triu(distance**-6 - distance**-3, 1).sum()
        force = jax.jit(jax.grad(energy))
        r = jax.random.normal(jax.random.key(0), (8 * N, 3))
        for _ in range(3):
            r = r - 0.01 * force(r)
        """,
        {"temporaries"},
        {"gradients", "parameters"},
    ),
    "momenta of two models while they are evaluated": (
        """
        def loss(w, x):
            return (jnp.tanh(x @ w) ** 2).mean()
        @jax.jit
        def step(w, m, x):
            m = 0.9 * m + jax.grad(loss)(w, x)
            return w - 0.01 * m, m
        @jax.jit
        def evaluate(w, x):
            return jnp.sort(jnp.tanh(x @ w), axis=0)
        x = jnp.ones((2 * N, N))
        models = [step(jnp.ones((N, N)), jnp.zeros((N, N)), x) for _ in range(2)]
        evaluate(models[0][0], jnp.ones((32 * N, N)))
        """,
        {"parameters", "optimizer_state"},
        {"gradients"},
    ),
    "gradient of a function with jit": (
        """
        @jax.jit
        def f(params, x):
            for w in params:
                x = jnp.sin(x @ w)
            return jnp.sum(x)
        params = [jnp.ones((N, N)) for _ in range(4)]
        x = jnp.ones((16 * N, N))
        slopes = jax.grad(f)(params, x)
        """,
        {"activations", "parameters"},
        set(),
    ),
    "the same in a loop, with an update outside of jit": (
        """
        @jax.jit
        def f(ws, x):
            for w in ws:
                x = jnp.sin(x @ w)
            return jnp.sum(x)
        ws = [jnp.ones((N, N)) for _ in range(4)]
        x = jnp.ones((2 * N, N))
        for _ in range(5):
            slopes = jax.grad(lambda ws: f(ws, x))(ws)
            ws = jax.tree.map(lambda w, slope: w - 0.1 * slope, ws, slopes)
        """,
        {"activations", "batch", "gradients", "outputs", "parameters"},
        {"arrays", "other_arrays"},
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_an_array_is_to_another_program_it_stays(dryrun, write_script, name):
    text, expected, refuted = KINDS[name]
    run = dryrun(write_script(program(text), "step.py"))
    entries = run.summary["attribution"]["entries"]
    kinds = {entry["kind"] for entry in entries if entry["bytes"] > 256}
    assert kinds >= expected, entries
    assert not kinds & refuted, entries


def test_what_a_forward_pass_returns_for_the_backward_pass_are_activations(dryrun, write_script):
    text, _, _ = KINDS["gradient of a function with jit"]
    run = dryrun(write_script(program(text), "step.py"))
    entries = run.summary["attribution"]["entries"]
    saved = [entry for entry in entries if entry["kind"] == "activations"]
    # Of each layer the cosine, of each but the first what it was given: `x` is the script's own.
    assert {entry["site"].split("/")[-1].split(" ")[0] for entry in saved} == {"step.py:9"}
    assert sum(entry["bytes"] for entry in saved) == 7 * 16 * 128 * 128 * 4
    assert {entry["path"] for entry in entries if entry["kind"] == "parameters"} == {
        f"params[{number}]" for number in range(4)
    }
    text = " ".join(run.err.split())
    assert "take the gradient inside of `jax.jit`, as in `jax.jit(jax.grad(f))`: " in text


def test_what_one_layer_with_jit_hands_to_the_next_is_no_parameter(dryrun, write_script):
    text = """
        @jax.jit
        def layer(w, x):
            return jnp.sin(x @ w)
        def f(a, b, x):
            return layer(b, layer(a, x)).sum()
        x, a, b = jnp.ones((16 * N, N)), jnp.ones((N, N)), jnp.ones((N, N))
        slopes = jax.grad(f, argnums=(0, 1))(a, b, x)
        """
    run = dryrun(write_script(program(text), "step.py"))
    entries = run.summary["attribution"]["entries"]
    parameters = [entry for entry in entries if entry["kind"] == "parameters"]
    assert sum(entry["bytes"] for entry in parameters) == 2 * 128 * 128 * 4, entries
