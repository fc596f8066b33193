"""flax.linen: a convolutional network on images, trained by Adam."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plan
from flax.training.train_state import TrainState


class Net(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = images
        for width in (32, 64):
            x = nn.relu(nn.Conv(width, (3, 3))(x))
            x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        x = nn.relu(nn.Dense(256)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


@jax.jit
def train_step(state, images, labels):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), loss


images = np.zeros((256, 28, 28, 1), np.float32)
labels = np.zeros(256, np.int32)
net = Net()
params = net.init(jax.random.key(0), jnp.ones((1, 28, 28, 1)))["params"]
state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3))
del params
for _ in range(5):
    state, loss = train_step(state, images, labels)
plan.note(train_step, state, images, labels)
print("loss", float(loss))
