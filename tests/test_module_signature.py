"""What a program takes and returns, as its module declares it."""

import jax
import jax.numpy as jnp
import pytest
from jax import export

from vramfit._values._module_signature import read_signature

MODULE = b"""
module @jit_f {
  func.func private @other(%arg0: tensor<f64>) -> tensor<f64> { return %arg0 : tensor<f64> }
  func.func public @main(
      %arg0: tensor<2x3xbf16> {mhlo.memory_kind = "pinned_host", mhlo.sharding = "{replicated}"},
      %arg1: tensor<ui8>,
      %arg2: tensor<7xi4> {mhlo.memory_kind = "device"},
      %arg3: tensor<5xcomplex<f32>>)
      -> (tensor<2x3xbf16>, tensor<7xi4> {mhlo.memory_kind = "pinned_host"}) {
    return %arg0, %arg2 : tensor<2x3xbf16>, tensor<7xi4>
  }
}
"""


def test_memory_kinds_are_those_of_the_main_function():
    parameters, outputs = read_signature(MODULE)
    assert parameters == [
        ("pinned_host", "bf16", [2, 3]),
        ("", "u8", []),
        ("device", "s4", [7]),
        ("", "c64", [5]),
    ]
    assert outputs == [("", "bf16", [2, 3]), ("pinned_host", "s4", [7])]


def test_a_portable_artifact_is_read():
    function = jax.jit(lambda x, y: (x > 0, y.astype(jnp.float8_e4m3fn)))
    shapes = jax.ShapeDtypeStruct((4,), jnp.int32), jax.ShapeDtypeStruct((), jnp.float16)
    exported = export.export(function, platforms=["cuda"])(*shapes)
    parameters, outputs = read_signature(exported.mlir_module_serialized)
    assert parameters == [("", "s32", [4]), ("", "f16", [])]
    assert outputs == [("", "pred", [4]), ("", "f8e4m3fn", [])]


def test_what_is_no_module_is_refused():
    with pytest.raises(Exception, match="parse"):
        read_signature(b"no module")
