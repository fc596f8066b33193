"""jraph: a graph network over a padded batch of graphs."""

import haiku as hk
import jax
import jax.numpy as jnp
import jraph
import numpy as np
import optax
import plan

nodes, edges = 4096, 16384
random = np.random.default_rng(0)
graph = jraph.GraphsTuple(
    nodes=jnp.ones((nodes, 32)),
    edges=jnp.ones((edges, 8)),
    senders=jnp.asarray(random.integers(0, nodes, edges)),
    receivers=jnp.asarray(random.integers(0, nodes, edges)),
    n_node=jnp.array([nodes]),
    n_edge=jnp.array([edges]),
    globals=jnp.zeros((1, 4)),
)


def forward(graph):
    @jraph.concatenated_args
    def update(features):
        return hk.nets.MLP([128, 64])(features)

    network = jraph.GraphNetwork(
        update_edge_fn=update, update_node_fn=update, update_global_fn=update
    )
    return network(network(graph)).globals


net = hk.without_apply_rng(hk.transform(forward))
params = net.init(jax.random.key(0), graph)
tx = optax.adam(1e-3)
opt_state = tx.init(params)


@jax.jit
def train_step(params, opt_state, graph):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean(net.apply(p, graph) ** 2))(params)
    updates, new = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), new, loss


for _ in range(4):
    params, opt_state, loss = train_step(params, opt_state, graph)
plan.note(train_step, params, opt_state, graph)
print(float(loss))
