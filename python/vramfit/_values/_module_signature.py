"""What a program's arguments and results are: element types, dimensions, kinds of memory.

Asked from Rust while the user's program is compiled, for plugins whose deviceless compile does not
read the memory kinds of the module; relies on JAX's internals.
"""

from __future__ import annotations

import contextlib
from typing import Any

# Kind of memory (empty where none is given), XLA's name of the element type, dimensions.
Value = tuple[str, str, list[int]]

_ELEMENTS = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


def read_signature(code: bytes) -> tuple[list[Value], list[Value]]:
    """Return what the main function of a module takes and returns.

    Args:
        code: The program as JAX gave it to the plugin: a portable artifact of StableHLO, or MLIR.

    Raises:
        ValueError: If the module cannot be read, or takes or returns something that is no array.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    with mlir.make_ir_context() as context:
        # Held by name: an operation does not keep its module alive.
        module = _module(code, context)
        main = find_main(module)
        kinds = ir.FunctionType(main.attributes["function_type"].value)
        return (
            _values(main, "arg_attrs", kinds.inputs),
            _values(main, "res_attrs", kinds.results),
        )


def _module(code: bytes, context: Any) -> Any:
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo

    # JAX writes a portable artifact unless the program has operations of other dialects.
    with contextlib.suppress(Exception):
        return hlo.deserialize_portable_artifact(context, code)
    return ir.Module.parse(code, context)


def find_main(module: Any) -> Any:
    """Return the main function of a module.

    Raises:
        ValueError: If it has none.
    """
    for operation in module.body.operations:
        attributes = operation.attributes
        if "sym_name" in attributes and attributes["sym_name"].value == "main":
            return operation
    raise ValueError("the module has no function `main`")


def attributes_of(operation: Any) -> dict[str, Any]:
    """Return the attributes of an operation by name."""
    # Iterating gives names in one release of JAX and pairs in another.
    found = [operation.attributes[place] for place in range(len(operation.attributes))]
    return {each.name: each.attr for each in found}


def _values(main: Any, attributes: str, types: Any) -> list[Value]:
    marks: Any = [[]] * len(types)
    # Not there when nothing has a mark.
    if attributes in main.attributes:
        marks = main.attributes[attributes]
    return [(_memory_kind(mark), *_shape(kind)) for mark, kind in zip(marks, types, strict=True)]


def _memory_kind(attributes: Any) -> str:
    kinds = (one.attr.value for one in attributes if one.name == "mhlo.memory_kind")
    return next(kinds, "")


def _shape(kind: Any) -> tuple[str, list[int]]:
    from jax._src.lib.mlir import ir

    if str(kind) == "!stablehlo.token":
        return "token", []
    tensor = ir.RankedTensorType(kind)
    if not tensor.has_static_shape:
        raise ValueError(f"{kind} has no fixed shape")
    name = str(tensor.element_type)
    if name.startswith("i") and name != "i1":
        name = "s" + name[1:]
    elif name.startswith("ui"):
        name = "u" + name[2:]
    return _ELEMENTS.get(name, name.lower()), list(tensor.shape)
