"""haiku: a language model of characters, an LSTM unrolled over time."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax
import plan


def forward(tokens):
    core = hk.LSTM(256)
    inputs = hk.Embed(96, 64)(tokens)
    outputs, _ = hk.dynamic_unroll(
        core, inputs, core.initial_state(tokens.shape[0]), time_major=False
    )
    return hk.BatchApply(hk.Linear(96))(outputs)


net = hk.without_apply_rng(hk.transform(forward))
tokens = jnp.zeros((32, 129), jnp.int32)
params = net.init(jax.random.key(0), tokens[:, :-1])
tx = optax.adam(1e-3)
opt_state = tx.init(params)


@jax.jit
def update(params, opt_state, tokens):
    def loss_of(params):
        logits = net.apply(params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, new = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), new, loss


for _ in range(4):
    params, opt_state, loss = update(params, opt_state, tokens)
plan.note(update, params, opt_state, tokens)
print(float(loss))
