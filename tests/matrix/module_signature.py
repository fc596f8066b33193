"""The signature of a module is read while the module exists; 300 times, or freed memory may do."""

import pathlib
import sys

import jax
import jax.numpy as jnp
from jax import export

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from vramfit._values._module_signature import read_signature

exported = export.export(jax.jit(lambda x: (x > 0, x * 2)), platforms=["cuda"])(jnp.ones((4, 8)))
for _ in range(300):
    parameters, outputs = read_signature(exported.mlir_module_serialized)
assert parameters == [("", "f32", [4, 8])], parameters
assert outputs == [("", "pred", [4, 8]), ("", "f32", [4, 8])], outputs
