"""Arguments that a library has flattened have their paths, so that each has its owner."""

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
}
NOT_DONATED = re.compile(r"`[^`]+`(?: and (\d+) more)? (?:is|are) not donated")


@pytest.mark.parametrize("name", CASES)
def test_leaves_have_the_paths_that_the_user_knows(dryrun, tmp_path, name):
    text, expected, undonated = CASES[name]
    path = tmp_path / "step.py"
    path.write_text(program(text))
    run = dryrun(path)
    held = run.answer["holdings"]
    assert sum(part["bytes"] for part in held["parts"]) == held["total_bytes"]
    kinds = {part["path"]: part["kind"] for part in held["parts"]}
    assert {path: kinds.get(path) for path in expected} == expected, kinds
    told = NOT_DONATED.search(" ".join(run.err.split()))
    assert (1 + int(told[1] or 0) if told else 0) == undonated, run.err
