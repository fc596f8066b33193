"""jaxopt: logistic regression by gradient descent with its own loop."""

import jax.numpy as jnp
import jaxopt

data = (jnp.ones((20_000, 200)), jnp.zeros(20_000, jnp.int32))
solver = jaxopt.GradientDescent(jaxopt.objective.multiclass_logreg, maxiter=5)
result = solver.run(jnp.zeros((200, 10)), data=data)
print(result.params.shape)
