"""haiku: ResNet18 with running means, trained by SGD with momentum."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax
import plan


def forward(images, is_training):
    return hk.nets.ResNet18(100)(images, is_training)


net = hk.transform_with_state(forward)
images = jnp.ones((16, 64, 64, 3))
labels = jnp.zeros(16, jnp.int32)
params, state = net.init(jax.random.key(0), images, True)
tx = optax.sgd(0.1, momentum=0.9)
opt_state = tx.init(params)


@jax.jit
def train_step(params, state, opt_state, images, labels):
    def loss_of(params):
        logits, new = net.apply(params, state, None, images, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

    (loss, new), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    updates, new_opt = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), new, new_opt, loss


for _ in range(3):
    params, state, opt_state, loss = train_step(params, state, opt_state, images, labels)
plan.note(train_step, params, state, opt_state, images, labels)
print(float(loss))
