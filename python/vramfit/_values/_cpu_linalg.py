"""Replaces the calls of cuSOLVER, cuBLAS and cuSPARSE in a program by what JAX does on the CPU.

JAX lowers a factorization for CUDA to a custom call that only CUDA has. Each is replaced by a
function with the same arguments and results, in the conventions of the call (pivots from one, V
instead of its transpose), which JAX lowers for the CPU. Only `_worker.py` uses it: lowering goes
through what the user's JAX counts. Relies on JAX's internals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# How the names of the calls begin.
PREFIXES = (b"cusolver_", b"cublas_", b"cusparse_", b"cu_lu_pivots_", b"cu_cholesky_update")


def calls_linalg(code: bytes) -> bool:
    """Return whether a program calls a library for linear algebra that only CUDA has."""
    return any(prefix in code for prefix in PREFIXES)


def replace_linalg_calls(module: Any) -> None:
    """Replace the calls in a module that `_LOWERED` knows, in the module's context."""
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    calls = []

    def visit(operation: Any) -> Any:
        is_call = operation.name == "stablehlo.custom_call"
        if is_call and operation.attributes["call_target_name"].value in _LOWERED:
            calls.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    names: dict[Any, str] = {}
    for call in calls:
        target = call.attributes["call_target_name"].value
        options = _options(call)
        arguments, results = _avals(call.operands), _avals(call.results)
        key = (target, tuple(sorted(options.items())), *map(str, (*arguments, "->", *results)))
        if key not in names:
            code = _lower(_LOWERED[target], arguments, results, options)
            names[key] = mlir.merge_mlir_modules(module, target, ir.Module.parse(code))
        new = ir.Operation.create(
            "func.call",
            results=[result.type for result in call.results],
            operands=list(call.operands),
            attributes={"callee": ir.FlatSymbolRefAttr.get(names[key])},
            loc=call.location,
            ip=ir.InsertionPoint(call),
        )
        for old, result in zip(call.results, new.results, strict=True):
            old.replace_all_uses_with(result)
        call.erase()


def _options(call: Any) -> dict[str, bool]:
    """Return the switches of a call."""
    name = "mhlo.backend_config"
    if name not in call.attributes:
        return {}
    return {each.name: bool(getattr(each.attr, "value", 0)) for each in call.attributes[name]}


def _avals(values: Sequence[Any]) -> list[Any]:
    import jax

    from vramfit._values._cpu import dtype_of
    from vramfit._values._module_work import array_type

    array_types = [array_type(value.type) for value in values]
    return [jax.ShapeDtypeStruct(dims, dtype_of(kind)) for kind, dims in array_types]


def _lower(
    function: Callable[..., Sequence[Any]],
    arguments: Sequence[Any],
    results: Sequence[Any],
    options: Mapping[str, bool],
) -> bytes:
    """Return a module for the CPU that computes the results of a call."""
    import jax
    from jax._src.interpreters import mlir

    def with_types_of_call(*arrays: Any) -> Sequence[Any]:
        made = function(results, options, *arrays)
        return [
            array.astype(result.dtype).reshape(result.shape)
            for array, result in zip(made, results, strict=True)
        ]

    lowered = jax.jit(with_types_of_call, keep_unused=True).trace(*arguments).lower()
    module = lowered.compiler_ir("stablehlo")
    with module.context:
        code: bytes = mlir.module_to_bytecode(module)
    return code


def _potrf(results: Sequence[Any], options: Mapping[str, bool], a: Any) -> Sequence[Any]:
    import jax.numpy as jnp
    from jax.lax import linalg

    if options.get("lower", True):
        factor = linalg.cholesky(a, symmetrize_input=False)
    else:
        factor = _adjoint(linalg.cholesky(_adjoint(a), symmetrize_input=False))
    return factor, jnp.isnan(factor).any((-2, -1))


def _getrf(results: Sequence[Any], options: Mapping[str, bool], a: Any) -> Sequence[Any]:
    from jax.lax import linalg

    factors, pivots, _ = linalg.lu(a)
    return factors, pivots + 1, _zeros(results[2])


def _pivots_to_permutation(
    results: Sequence[Any], options: Mapping[str, bool], pivots: Any
) -> Sequence[Any]:
    from jax.lax import linalg

    return (linalg.lu_pivots_to_permutation(pivots, results[0].shape[-1]),)


def _geqrf(results: Sequence[Any], options: Mapping[str, bool], a: Any) -> Sequence[Any]:
    from jax._src.lax.linalg import geqrf

    return (*geqrf(a), *map(_zeros, results[2:]))


def _orgqr(results: Sequence[Any], options: Mapping[str, bool], a: Any, taus: Any) -> Sequence[Any]:
    from jax.lax import linalg

    return (linalg.householder_product(a, taus), *map(_zeros, results[1:]))


def _syevd(results: Sequence[Any], options: Mapping[str, bool], a: Any) -> Sequence[Any]:
    from jax.lax import linalg

    lower = options.get("lower", True)
    vectors, values = linalg.eigh(a, lower=lower, symmetrize_input=False)
    return vectors, values, _zeros(results[2])


def _gesvd(results: Sequence[Any], options: Mapping[str, bool], a: Any) -> Sequence[Any]:
    from jax.lax import linalg

    if not options["compute_uv"]:
        return a, linalg.svd(a, compute_uv=False), *map(_zeros, results[2:])
    u, values, vt = linalg.svd(a, full_matrices=options["full_matrices"])
    first, second = (vt, u) if options.get("transposed") else (u, vt)
    return a, values, first, second, _zeros(results[4])


def _gesvdj(results: Sequence[Any], options: Mapping[str, bool], a: Any) -> Sequence[Any]:
    """Return what the routines return that give V instead of its transpose."""
    from jax.lax import linalg

    if not options["compute_uv"]:
        return a, linalg.svd(a, compute_uv=False), *map(_zeros, results[2:])
    is_full = results[2].shape[-1] == a.shape[-2] and results[3].shape[-1] == a.shape[-1]
    u, values, vt = linalg.svd(a, full_matrices=is_full)
    return a, values, u, _adjoint(vt), _zeros(results[4])


def _sytrd(results: Sequence[Any], options: Mapping[str, bool], a: Any) -> Sequence[Any]:
    from jax.lax import linalg

    return *linalg.tridiagonal(a, lower=options.get("lower", True)), _zeros(results[4])


def _gtsv(results: Sequence[Any], options: Mapping[str, bool], *arrays: Any) -> Sequence[Any]:
    from jax.lax import linalg

    return (linalg.tridiagonal_solve(*arrays),)


def _cholesky_update(
    results: Sequence[Any], options: Mapping[str, bool], factor: Any, vector: Any
) -> Sequence[Any]:
    from jax.lax import linalg

    return linalg.cholesky_update(factor, vector), vector


def _syrk(
    results: Sequence[Any], options: Mapping[str, bool], a: Any, c: Any, alpha: Any, beta: Any
) -> Sequence[Any]:
    from jax import lax

    left, right = (_transposed(a), a) if options.get("transpose") else (a, _transposed(a))
    return (alpha * lax.batch_matmul(left, right, precision="highest") + beta * c,)


def _transposed(a: Any) -> Any:
    import jax.numpy as jnp

    return jnp.swapaxes(a, -1, -2)


def _adjoint(a: Any) -> Any:
    return _transposed(a).conj()


def _zeros(result: Any) -> Any:
    import jax.numpy as jnp

    return jnp.zeros(result.shape, result.dtype)


# By the name of the call: what makes its results from their types, its switches and its arguments.
_LOWERED: dict[str, Callable[..., Sequence[Any]]] = {
    "cublas_geqrf_batched_ffi": _geqrf,
    "cublas_getrf_batched_ffi": _getrf,
    "cu_cholesky_update_ffi": _cholesky_update,
    "cu_lu_pivots_to_permutation": _pivots_to_permutation,
    "cusolver_geqrf_ffi": _geqrf,
    "cusolver_gesdd_ffi": _gesvd,
    "cusolver_gesvd_ffi": _gesvd,
    "cusolver_gesvdj_ffi": _gesvdj,
    "cusolver_gesvdp_ffi": _gesvdj,
    "cusolver_getrf_ffi": _getrf,
    "cusolver_orgqr_ffi": _orgqr,
    "cusolver_potrf_ffi": _potrf,
    "cusolver_syevd_ffi": _syevd,
    "cusolver_syrk_ffi": _syrk,
    "cusolver_sytrd_ffi": _sytrd,
    "cusparse_gtsv2_ffi": _gtsv,
}
