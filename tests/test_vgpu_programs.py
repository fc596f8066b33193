"""Programs of unusual form run on the virtual GPU as on a card."""

import pytest


@pytest.mark.parametrize("devices", [1, 8])
def test_a_program_without_outputs_runs(on_virtual_gpu, devices):
    script = """
import jax
assert jax.jit(lambda x: None)(3.0) is None
print(jax.jit(lambda x: ())(jax.numpy.ones(3)))
"""
    assert on_virtual_gpu(script, devices=devices) == ["()"]
