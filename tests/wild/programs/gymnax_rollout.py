"""gymnax: a policy gradient over a rollout inside one program, as PureJaxRL does it."""

import gymnax
import jax
import jax.numpy as jnp
import optax
import plan

env, env_params = gymnax.make("CartPole-v1")
tx = optax.adam(1e-3)


def policy(params, observation):
    return jnp.tanh(observation @ params["in"]) @ params["out"]


def rollout(params, key):
    reset, run = jax.random.split(key)
    observation, state = env.reset(reset, env_params)

    def body(carry, key):
        observation, state = carry
        choose, move = jax.random.split(key)
        logits = policy(params, observation)
        action = jax.random.categorical(choose, logits)
        after, state, reward, *_ = env.step(move, state, action, env_params)
        return (after, state), (observation, action, reward)

    _, taken = jax.lax.scan(body, (observation, state), jax.random.split(run, 128))
    return taken


@jax.jit
def update(params, opt_state, key):
    observations, actions, rewards = jax.vmap(rollout, in_axes=(None, 0))(
        params, jax.random.split(key, 512)
    )

    def loss_of(params):
        chosen = jax.nn.log_softmax(policy(params, observations))
        chosen = jnp.take_along_axis(chosen, actions[..., None], axis=-1)[..., 0]
        return -jnp.mean(chosen * rewards)

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, new = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), new, loss


params = {"in": jnp.ones((4, 64)) * 0.1, "out": jnp.zeros((64, 2))}
opt_state = tx.init(params)
key = jax.random.key(0)
for _ in range(3):
    params, opt_state, loss = update(params, opt_state, key)
plan.note(update, params, opt_state, key)
print(float(loss))
