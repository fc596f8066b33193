"""rlax: Q-learning with a target network, on a batch of transitions."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax
import plan
import rlax

net = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([512, 512, 18])(x)))
online = net.init(jax.random.key(0), jnp.ones((1, 128)))
target = jax.tree.map(jnp.copy, online)
tx = optax.adam(1e-4)
opt_state = tx.init(online)


@jax.jit
def learn(online, target, opt_state, before, action, reward, after):
    def loss_of(params):
        error = jax.vmap(rlax.q_learning)(
            net.apply(params, before),
            action,
            reward,
            jnp.full_like(reward, 0.99),
            net.apply(target, after),
        )
        return jnp.mean(rlax.l2_loss(error))

    loss, grads = jax.value_and_grad(loss_of)(online)
    updates, new = tx.update(grads, opt_state)
    return optax.apply_updates(online, updates), new, loss


batch = (jnp.ones((1024, 128)), jnp.zeros(1024, jnp.int32), jnp.ones(1024), jnp.ones((1024, 128)))
for _ in range(4):
    online, opt_state, loss = learn(online, target, opt_state, *batch)
plan.note(learn, online, target, opt_state, *batch)
print(float(loss))
