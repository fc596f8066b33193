"""Where things come from: what a program's arguments are called, which line of the user's is run.

Asked from Rust while the user's program runs; relies on JAX's internals.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from types import FrameType
from typing import Any, NamedTuple

from vramfit._inprogram import _nnx_names
from vramfit._inprogram._frames import is_library, site_of, user_frame
from vramfit._values import _read_use

# By the name of a module: arguments that were donated although no result can take their place, with
# their bytes. JAX warns of them by shape, and leaves no mark in the module.
_unused: dict[str, list[tuple[str, int]]] = {}


class Names(NamedTuple):
    """What the arguments and results of a program are called; empty where JAX gives no names."""

    # Pytree paths.
    arguments: list[str]
    results: list[str]
    # Arguments whose donation was not used, with their bytes.
    unused_donations: list[tuple[str, int]]
    # Arguments that gradients are taken of, where this is the forward pass alone.
    differentiated: list[int]


def names(code: bytes) -> Names:
    """Return what the arguments and results of a program are called.

    Args:
        code: StableHLO as JAX gave it to the plugin.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir.dialects import hlo

    def named(attributes: Any, name: str) -> str:
        return next((one.attr.value for one in attributes if one.name == name), "")

    with mlir.make_ir_context() as context:
        module = hlo.deserialize_portable_artifact(context, code)
        main = next(one for one in module.body.operations if _name(one) == "main")
        arguments = [_location_name(one.location) for one in main.regions[0].blocks[0].arguments]
        results = [named(each, "jax.result_info") for each in main.attributes["res_attrs"]]
        unused = _unused.get(_name(module.operation), [])
    differentiated: list[int] = []
    if arguments and not (any(arguments) and any(results)):
        arguments, results, differentiated = _names_of_passes(arguments, results)
    return Names(arguments, _nnx_names.result_names(results), unused, differentiated)


# Functions of JAX that bind the forward and the backward pass of a function with `jax.jit`: for the
# forward pass with the variables for the number of results, and for what the function is given.
_FORWARD = {
    "_pjit_linearize": ("num_primals_out", "primals_in"),
    "_pjit_partial_eval": ("num_out_primals", "known_inputs"),  # up to JAX 0.6
}
_BACKWARD = {"_pjit_transpose", "_pjit_transpose_fancy"}
# The function of JAX that a function with `jax.jit` comes through when it is called.
_CALL = "cache_miss"


def _names_of_passes(
    arguments: list[str], results: list[str]
) -> tuple[list[str], list[str], list[int]]:
    """Return the names of one pass of a function with ``jax.jit`` that is differentiated.

    JAX gives them none, since each is a program of its own. The forward pass has the arguments of
    the function, and after the function's results those that the backward pass reads, which the
    analysis knows by ``residuals[...]``. The results of the backward pass are ``cotangents[...]``.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name not in {*_FORWARD, *_BACKWARD, _CALL}:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == _CALL:
        return arguments, results, []
    if frame.f_code.co_name in _BACKWARD:
        return arguments, [f"cotangents[{number}]" for number in range(len(results))], []
    count, given = (frame.f_locals.get(name) for name in _FORWARD[frame.f_code.co_name])
    differentiated: list[int] = []
    if isinstance(count, int) and count < len(results):
        kept = range(len(results) - count)
        results = [*results[:count], *(f"residuals[{number}]" for number in kept)]
    # A release that keeps the names elsewhere goes without.
    with contextlib.suppress(Exception):
        # Those of tangents come after those of the function.
        names = frame.f_locals["jaxpr"].jaxpr.debug_info.arg_names[: len(arguments)]
        if len(names) == len(arguments) and not any(arguments):
            arguments = [str(name or "") for name in names]
        if given is not None and len(given) == len(arguments):
            of = {id(each) for each in _differentiated_arrays(frame)}
            differentiated = [at for at, each in enumerate(given) if id(each) in of]
    return arguments, results, differentiated


def _differentiated_arrays(frame: FrameType | None) -> list[Any]:
    """Return what the innermost ``jax.vjp`` around a call is given, as does ``jax.grad``.

    The other arguments of a function with ``jax.jit`` may have a tangent, too: of layers that have
    one each, what one layer hands to the next.
    """
    import jax

    while frame is not None:
        code = frame.f_code
        if code.co_name in ("vjp", "_vjp") and code.co_filename.endswith("/jax/_src/api.py"):
            arrays: list[Any] = jax.tree.leaves(frame.f_locals["primals"])
            return arrays
        frame = frame.f_back
    return []


def record_donations() -> None:
    """Let JAX's lowering tell which donated arguments it has found no result for."""
    from jax._src import source_info_util
    from jax._src.interpreters import mlir

    # What stands between JAX and JAX here is no line of the user's.
    source_info_util.register_exclusion(__file__)
    lower = mlir.lower_jaxpr_to_module

    @functools.wraps(lower)
    def recording(*arguments: Any, **settings: Any) -> Any:
        lowered = lower(*arguments, **settings)
        # A release that lowers in another way goes without.
        with contextlib.suppress(Exception):
            _unused[_name(lowered.module.operation)] = _unused_donations(lowered.module, settings)
        return lowered

    mlir.lower_jaxpr_to_module = recording


def _unused_donations(module: Any, settings: dict[str, Any]) -> list[tuple[str, int]]:
    donated = settings["donated_args"]
    if not any(donated) or settings.get("num_partitions", 1) > 1:
        # With several partitions it is XLA that finds results for arguments.
        return []
    main = next(one for one in module.body.operations if _name(one) == "main")
    marks: Any = [[]] * len(donated)
    # Not there when no argument has a mark; the attributes of MLIR have no `get`.
    if "arg_attrs" in main.attributes and len(main.attributes["arg_attrs"]) == len(donated):
        marks = main.attributes["arg_attrs"]
    names = settings.get("arg_names") or [""] * len(donated)
    told = zip(donated, marks, names, settings["in_avals"], strict=True)
    used = {"tf.aliasing_output", "jax.buffer_donor"}
    return [
        (name or f"argument {number}", aval.size * aval.dtype.itemsize)
        for number, (is_donated, attributes, name, aval) in enumerate(told)
        if is_donated and not used & {one.name for one in attributes}
    ]


def _name(operation: Any) -> str:
    return str(operation.attributes["sym_name"].value) if "sym_name" in operation.attributes else ""


def _location_name(location: Any) -> str:
    """Return the name in a location such as ``loc("state['params']")``."""
    text = str(location)
    if not text.startswith('loc("'):
        return ""
    quoted = text[len('loc("') : text.rindex('"')]
    # A place in a file is no name.
    return "" if '":' in text else _unescape(quoted)


def _unescape(quoted: str) -> str:
    """Return a text that MLIR has quoted: a backslash twice, other bytes by two hex digits."""

    def plain(escape: re.Match[bytes]) -> bytes:
        code = escape[1]
        return code if code == b"\\" else bytes.fromhex(code.decode())

    text = re.sub(rb"\\(\\|[0-9A-Fa-f]{2})", plain, quoted.encode())
    return text.decode(errors="replace")


# Functions of JAX that read an array because a shape depends on it: the number of elements that are
# not zero, a boolean mask, the length of a result, a dimension given as an array.
_SHAPING = {
    "_expand_bool_indices",
    "_rewriting_take",
    "_unique",
    "arange",
    "bincount",
    "canonicalize_dim",
    "canonicalize_shape",
    "concrete_dim_or_error",
    "delete",
    "expand_bool_indices",
    "nonzero",
    "pad",
    "repeat",
    "rewriting_take",
    "setdiff1d",
    "tile",
    "unique",
}


# How a read is used; the numbers are `ReadUse` of the trace.
_VALUE, _SHAPE, _DECISION, _CONSTANT = range(4)
# The function of JAX's that makes a program of what was traced, and constants of what it captured.
_LOWERING = "lower_jaxpr_to_module"
# Functions of JAX's begin so that call the function that they trace.
_TRACING = "trace_to_jaxpr"


def site() -> str | None:
    """Return the innermost line of the user's own code, as ``file:line (function)``."""
    frame = user_frame()
    return None if frame is None else site_of(frame.f_code, frame.f_lineno)


def read_site() -> tuple[str, int, str]:
    """Return the user's line that reads a value, what for, and the expression that reads it.

    The use is a value, a shape that JAX makes of it, a decision on what runs, or a constant of a
    program whose function has captured it, or reads it while it is traced. Without a line of the
    user's, the line and the expression are empty.
    """
    use = _VALUE
    method = ""
    # Never this function's own frame: a frame that is held by a variable of its own is a cycle, and
    # would keep every array of every caller alive until the garbage collector comes by.
    frame: FrameType | None = sys._getframe(1)
    try:
        while frame is not None and is_library(frame.f_code.co_filename):
            method = frame.f_code.co_name
            if method in _SHAPING and "/jax/_src/" in frame.f_code.co_filename:
                use = _SHAPE
            elif method == _LOWERING:
                use = _CONSTANT
            frame = frame.f_back
        if frame is None:
            return "", use, ""
        if use == _CONSTANT:
            return site_of(frame.f_code, frame.f_lineno), use, ""
        decides, expression = _read_use.use_of(frame, method)
        if decides and use == _VALUE:
            use = _DECISION
        elif use == _VALUE and _is_traced(frame):
            use = _CONSTANT
        return site_of(frame.f_code, frame.f_lineno), use, expression
    finally:
        del frame


def _is_traced(frame: FrameType | None) -> bool:
    """Return whether the function of a frame is called to be traced."""
    while frame is not None:
        code = frame.f_code
        if code.co_name.startswith(_TRACING) and "/jax/_src/" in code.co_filename:
            return True
        frame = frame.f_back
    return False
