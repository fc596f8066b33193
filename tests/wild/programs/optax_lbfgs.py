"""optax.lbfgs with its line search, in a Python loop."""

import jax
import jax.numpy as jnp
import optax
import plan

target = jnp.linspace(-1, 1, 50_000)


def loss_of(x):
    return jnp.sum((x - target) ** 2 + 0.1 * (x - target) ** 4)


solver = optax.lbfgs(memory_size=10)
value_and_grad = optax.value_and_grad_from_state(loss_of)


@jax.jit
def update(x, state):
    value, grad = value_and_grad(x, state=state)
    updates, state = solver.update(grad, state, x, value=value, grad=grad, value_fn=loss_of)
    return optax.apply_updates(x, updates), state


x = jnp.zeros_like(target)
state = solver.init(x)
for _ in range(4):
    x, state = update(x, state)
plan.note(update, x, state)
x.block_until_ready()
