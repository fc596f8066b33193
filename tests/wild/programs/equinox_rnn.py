"""equinox: a recurrent cell in a scan; the carry is no optimizer's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import plan


class Rnn(eqx.Module):
    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __call__(self, sequence):
        def body(carry, value):
            return self.cell(value, carry), None

        carry, _ = jax.lax.scan(body, jnp.zeros(self.cell.hidden_size), sequence)
        return self.out(carry)


first, second = jax.random.split(jax.random.key(0))
model = Rnn(eqx.nn.GRUCell(32, 256, key=first), eqx.nn.Linear(256, 1, key=second))
forward = jax.jit(lambda model, batch: jax.vmap(model)(batch))
batch = jnp.ones((128, 100, 32))
for _ in range(3):
    result = forward(model, batch)
plan.note(forward, model, batch)
print(result.shape)
