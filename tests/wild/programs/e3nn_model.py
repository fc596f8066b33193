"""e3nn-jax: an equivariant layer; its normalization constants are averages over samples."""

import e3nn_jax as e3nn
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import plan


class Layer(nn.Module):
    @nn.compact
    def __call__(self, positions):
        x = e3nn.spherical_harmonics("0e + 1o + 2e", e3nn.IrrepsArray("1o", positions), True)
        x = e3nn.flax.Linear("16x0e + 8x1o")(x)
        x = e3nn.scalar_activation(x, [jax.nn.gelu, None])
        return e3nn.flax.Linear("1x0e")(x).array


net = Layer()
positions = jnp.ones((4096, 3))
params = net.init(jax.random.key(0), positions)
tx = optax.adam(1e-3)
opt_state = tx.init(params)


@jax.jit
def train_step(params, opt_state, positions):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean(net.apply(p, positions) ** 2))(params)
    updates, new = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), new, loss


for _ in range(3):
    params, opt_state, loss = train_step(params, opt_state, positions)
plan.note(train_step, params, opt_state, positions)
print(float(loss))
