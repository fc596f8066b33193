"""Programs of unusual form run on the virtual GPU as on a GPU."""

import pytest


@pytest.mark.parametrize("devices", [1, 8])
def test_a_program_without_outputs_runs(on_virtual_gpu, devices):
    script = """
import jax
assert jax.jit(lambda x: None)(3.0) is None
print(jax.jit(lambda x: ())(jax.numpy.ones(3)))
"""
    assert on_virtual_gpu(script, devices=devices) == ["()"]


def test_the_cost_of_a_program_is_reported(on_virtual_gpu):
    script = """
import jax
import jax.numpy as jnp
x, y = jnp.ones((512, 1024)), jnp.ones((1024, 256))
cost = jax.jit(jnp.matmul).lower(x, y).compile().cost_analysis()
print(int(cost["flops"]))
print(int(cost["bytes accessed"]))
"""
    operations, moved = map(int, on_virtual_gpu(script))
    product = 2 * 512 * 1024 * 256
    # The compiler may split the product and sum the parts.
    assert product <= operations < 1.01 * product
    assert moved >= 4 * (512 * 1024 + 1024 * 256 + 512 * 256)
