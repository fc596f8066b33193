"""Which variables of a program hold its arrays when it ends.

From the frames that the error went through and from the modules of the program, containers are
followed breadth first: an array belongs to the variable with the shortest path to it.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import gc
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, NamedTuple

from vramfit._inprogram._frames import file_name, is_library, is_ours

# Objects that are looked at; a program with more of them on the host has some arrays not found.
MAX_OBJECTS = 300_000
_JAX_FOLDERS = ("/jax/", "/jaxlib/")
# Shards that are looked at where no memory is lacking: each of them takes some microseconds.
MAX_SHARDS_AT_END = 4096
# Variables that are named.
MAX_HOLDERS = 20

_LEAVES = {str, bytes, bytearray, int, float, bool, type(None), CodeType, BuiltinFunctionType}
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_CACHE_TYPE = type(functools.lru_cache(len))


class Holder(NamedTuple):
    """A variable, the arrays that it leads to, and their bytes on one device."""

    name: str
    arrays: int
    bytes: int


class _Step(NamedTuple):
    """An object on the way from a variable to arrays."""

    value: Any
    path: str
    # What is said of `path`: where the variable is.
    place: str
    # False behind the first index: a container is named, not each of its elements.
    extends: bool

    @property
    def name(self) -> str:
        return f"`{self.path}`{self.place}"

    def to(self, value: Any, suffix: str = "") -> _Step:
        path = f"{self.path}{suffix}" if self.extends else self.path
        return self._replace(value=value, path=path)

    def into(self, values: Iterable[Any]) -> Iterator[_Step]:
        return (self._replace(value=value, extends=False) for value in values)


# What the exit handler of `find_at_exit` has found.
_found_at_exit: list[Holder] = []
# What was found when the steps of a dry run were done, in functions that have ended since.
_found_at_last_step: list[Holder] = []


def find_at_exit(_jax: ModuleType) -> None:
    """Look for the variables when the program ends, while JAX still has its arrays.

    Called when JAX has been imported, and so has registered its exit handlers, which run after it.
    """
    atexit.register(lambda: _found_at_exit.extend(holders_when_out_of_memory()))


def found_at_exit() -> list[Holder]:
    """Return what was found when the program ended."""
    return _found_at_exit


def holders_when_out_of_memory() -> list[Holder]:
    """Return what `find_array_holders` does if a program ends for lack of memory, else nothing."""
    with contextlib.suppress(Exception):
        from jax._src.xla_bridge import backends_are_initialized

        from vramfit._inprogram._uncaught_error import last_error

        error = last_error()
        is_out_of_memory = any("RESOURCE_EXHAUSTED" in str(one) for one in _chain(error))
        # To ask for arrays would initialize the backends.
        if is_out_of_memory and backends_are_initialized():
            return find_array_holders(error)
    return []


def find_at_last_step() -> None:
    """Look for the variables when the steps of a dry run are done, before its functions end."""
    _found_at_last_step.extend(holders_at_end())


def holders_at_end() -> list[Holder]:
    """Return what `find_array_holders` does if arrays are there, and few enough."""
    if _found_at_last_step:
        return _found_at_last_step
    with contextlib.suppress(Exception):
        import jax
        from jax._src.xla_bridge import backends_are_initialized

        if backends_are_initialized():
            shards = sum(len(array.sharding.device_set) for array in jax.live_arrays())
            if 0 < shards <= MAX_SHARDS_AT_END:
                return find_array_holders(None)
    return []


def find_array_holders(error: BaseException | None) -> list[Holder]:
    """Return the variables that hold arrays on the fullest device, those with most bytes first.

    Args:
        error: The error that ends the program; variables of its frames are searched as well.
    """
    search = _Search(_live_arrays())
    search.follow(_own_variables(error))
    search.follow(_library_variables(error))
    return search.holders()


class _Search:
    """Follows containers to arrays, whose bytes are given by the array's identity."""

    def __init__(self, arrays: dict[int, int]) -> None:
        self._arrays = arrays
        self._sizes: dict[str, list[int]] = {}
        self._seen: set[int] = set()
        self._left = MAX_OBJECTS

    def follow(self, roots: Iterable[_Step]) -> None:
        """Add the arrays that variables lead to, each under the name of the nearest."""
        queue = collections.deque(roots)
        while queue and self._left > 0:
            self._left -= 1
            step = queue.popleft()
            value = step.value
            if type(value) in _LEAVES or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            if (size := self._arrays.get(id(value))) is not None:
                self._sizes.setdefault(step.name, []).append(size)
            else:
                queue.extend(itertools.islice(_children(step), self._left))

    def holders(self) -> list[Holder]:
        """Return the variables with their arrays, those with most bytes first."""
        found = [Holder(name, len(sizes), sum(sizes)) for name, sizes in self._sizes.items()]
        found.sort(key=lambda holder: -holder.bytes)
        return [holder for holder in found if holder.bytes][:MAX_HOLDERS]


def _live_arrays() -> dict[int, int]:
    """Return the bytes of each array on the device that holds most, by the array's identity.

    Arrays that share memory are counted once: the others need 0 bytes.
    """
    import jax

    from vramfit import _native

    sizes: dict[Any, dict[int, int]] = collections.defaultdict(dict)
    seen: set[tuple[Any, int]] = set()
    arrays = [array for array in jax.live_arrays() if not array.is_deleted()]
    for array in arrays:
        # An array that a failed program left has no address. To ask for one is not to read.
        with contextlib.suppress(Exception), _native.UnrecordedReads():
            for shard in array.addressable_shards:
                data = shard.data
                block = (shard.device, data.unsafe_buffer_pointer())
                size = 0 if block in seen else math.prod(data.shape) * data.dtype.itemsize
                seen.add(block)
                sizes[shard.device][id(array)] = size
    if not sizes:
        return {}
    fullest = max(sizes.values(), key=lambda arrays: sum(arrays.values()))
    return {id(array): fullest.get(id(array), 0) for array in arrays}


def _own_variables(error: BaseException | None) -> Iterator[_Step]:
    """Yield the variables of the program: of functions, the innermost first, and of modules."""
    for frame in itertools.chain(_functions(error), _functions_of_threads()):
        if not is_library(frame.f_code.co_filename):
            yield from _variables(frame.f_locals, _in_function(frame))
    for name, module in list(sys.modules.items()):
        if (file := _source_of(module)) is not None:
            place = f" of {file}" if name == "__main__" else f" of the module `{name}`"
            yield from _variables(_stored(module), place)


def _library_variables(error: BaseException | None) -> Iterator[_Step]:
    """Yield the variables of libraries that call JAX, not those of JAX: it passes on arguments."""
    for frame in _functions(error):
        file = frame.f_code.co_filename
        if is_library(file) and not is_ours(file) and not any(it in file for it in _JAX_FOLDERS):
            yield from _variables(frame.f_locals, _in_function(frame))


def _functions(error: BaseException | None) -> Iterator[FrameType]:
    """Yield the frames of functions that an error went through, the innermost first."""
    for one in _chain(error):
        for frame in [*_frames(one)][::-1]:
            if frame.f_code.co_name != "<module>":
                yield frame


def _functions_of_threads() -> Iterator[FrameType]:
    """Yield the frames of functions that threads execute, the innermost first."""
    frame: FrameType | None
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_name != "<module>":
                yield frame
            frame = frame.f_back


def _source_of(module: ModuleType | None) -> str | None:
    """Return the file name of a module that is the program's own."""
    if module is sys.modules.get("__main__"):
        # When the program has ended, Python has removed `__file__`.
        loader = getattr(module, "__loader__", None)
        file = getattr(module, "__file__", None) or getattr(loader, "path", None)
        return os.path.basename(file) if file else "the main program"
    # To ask a module that is loaded lazily would load it.
    file = _stored(module).get("__file__")
    return None if type(file) is not str or is_library(file) else os.path.basename(file)


def _stored(value: Any) -> dict[str, Any]:
    """Return the attributes of an object as they are stored, without calling any code of it."""
    with contextlib.suppress(AttributeError):
        stored = object.__getattribute__(value, "__dict__")
        return dict(stored)
    return {}


def _variables(variables: dict[str, Any], place: str) -> Iterator[_Step]:
    # A notebook has every result a second time, as `_` and `_12`.
    for name, value in sorted(variables.items(), key=lambda item: item[0].startswith("_")):
        if not issubclass(type(value), ModuleType):
            yield _Step(value, name, place, extends=True)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames that an error went through, the outermost first."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _in_function(frame: FrameType) -> str:
    code = frame.f_code
    file = os.path.basename(file_name(code.co_filename))
    return f" of `{_qualified_name(code)}` ({file}:{frame.f_lineno})"


def _qualified_name(code: CodeType) -> str:
    return code.co_qualname.replace(".<locals>", "")


def _children(step: _Step) -> Iterator[_Step]:
    """Yield what an object refers to, without calling any code of it."""
    value, kind = step.value, type(step.value)
    iterate = next((each.__iter__ for each in _SEQUENCES if issubclass(kind, each)), None)
    if issubclass(kind, dict):
        yield from step.into(dict.values(value))
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        fields = zip(kind._fields, tuple.__iter__(value), strict=False)
        yield from (step.to(item, f".{name}") for name, item in fields)
    elif iterate is not None:
        yield from step.into(iterate(value))
    elif kind is FunctionType:
        yield from _captured(value)
    elif kind is MethodType:
        yield from (step.to(value.__self__), step.to(value.__func__))
    elif kind is functools.partial:
        yield from step.into((value.func, *value.args, *value.keywords.values()))
    elif kind is _CACHE_TYPE:
        function = _stored(value).get("__wrapped__")
        place = f", the `functools` cache of {step.name}"
        results = (item for item in gc.get_referents(value) if item is not function)
        yield from (_Step(item, "lru_cache", place, extends=False) for item in results)
        yield step.to(function)
    elif issubclass(kind, BaseException):
        kept = f", kept by the traceback of {step.name}"
        for frame in _frames(value):
            yield from _variables(frame.f_locals, f" of `{_qualified_name(frame.f_code)}`{kept}")
    elif kind is GeneratorType:
        if value.gi_frame is not None:
            kept = f" of the generator {step.name}"
            yield from _variables(value.gi_frame.f_locals, kept)
    elif issubclass(kind, ModuleType):
        return
    elif not issubclass(kind, type):
        yield from (step.to(item, f".{name}") for name, item in _attributes(value))
    elif _source_of(sys.modules.get(value.__module__)) is not None:
        yield from (step.to(item, f".{name}") for name, item in _stored(value).items())


def _captured(function: FunctionType) -> Iterator[_Step]:
    """Yield what a function has captured, and its default arguments."""
    place = f", captured by `{_qualified_name(function.__code__)}`"
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in cells:
        try:
            yield _Step(cell.cell_contents, name, place, extends=True)
        except ValueError:  # not assigned yet
            continue
    place = f" of `{_qualified_name(function.__code__)}`"
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from (_Step(value, "default argument", place, extends=False) for value in defaults)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, those in slots as well."""
    yield from _stored(value).items()
    for base in type(value).__mro__:
        for name, slot in base.__dict__.items():
            if type(slot) is MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # not assigned
                    yield name, slot.__get__(value)
