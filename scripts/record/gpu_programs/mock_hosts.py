"""Makes a program one of several hosts with one GPU each, of which only this one exists."""

import sys

import jax
import numpy as np
from jax.sharding import Mesh


def initialize_hosts():
    """Return the mesh of all hosts.

    With an argument such as `1x8x1` (slices, hosts, GPUs of a host), JAX mocks the other hosts and
    the collective operations with them, on a real GPU as well. Without, it is told of them.
    """
    if len(sys.argv) > 1:
        # There is no environment variable for it.
        jax.config.update("jax_mock_gpu_topology", sys.argv[1])
    else:
        jax.distributed.initialize()
    return Mesh(np.array(jax.devices()), ("hosts",))
