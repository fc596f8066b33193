"""Donated arguments that were made from host memory are reused, as on a GPU.

An H200 with JAX 0.11.2 did so; jax-ml/jax#18617 reported copies.
"""

import sys

import pytest
from commands import clean_environment, run_command

GIB = 1 << 30
PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
shape = (1 << 28,)
state = jax.device_put(np.ones(shape, np.float32)) if sys.argv[1] == "host" else jnp.ones(shape)
step = jax.jit(lambda state: state * 2, donate_argnums=0)
for _ in range(2):
    state = step(state)
print(jax.devices()[0].memory_stats()["peak_bytes_in_use"])
"""


@pytest.mark.parametrize("made_on", ["host", "gpu"])
def test_the_virtual_gpu_reuses_what_it_is_donated(dryrun, write_script, made_on):
    done = dryrun(write_script(PROGRAM, "program.py"), made_on, gpu="t4")
    assert GIB <= int(done.out) < GIB + 4096


@pytest.mark.gpu
@pytest.mark.parametrize("made_on", ["host", "gpu"])
def test_a_gpu_reuses_what_it_is_donated(write_script, made_on):
    script = write_script(PROGRAM, "program.py")
    done = run_command(sys.executable, script, made_on, env=clean_environment(), code=0)
    assert int(done.stdout) < 1.5 * GIB
