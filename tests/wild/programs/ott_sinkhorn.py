"""ott: optimal transport between two clouds of points."""

import jax
import jax.numpy as jnp
import plan
from ott.geometry import pointcloud
from ott.problems.linear import linear_problem
from ott.solvers.linear import sinkhorn


@jax.jit
def transport(x, y):
    problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=1e-1))
    return sinkhorn.Sinkhorn(max_iterations=20)(problem).matrix


x = jax.random.normal(jax.random.key(0), (2000, 8))
y = jnp.ones((3000, 8)) + x[0]
plan.note(transport, x, y)
print(transport(x, y).shape)
