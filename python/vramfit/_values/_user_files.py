"""Files that a program writes and reads again, by the calls that do so in its source.

A file is told by how it is named: by the texts in it, such as `"metrics.json"`, else by variables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from vramfit._values._user_source import SCOPES, Source, called_name, is_module, variable_name

# Those that write into a file, if they have one.
WRITERS = {
    "dump", "print", "save", "save_file", "savetxt", "savez", "savez_compressed", "to_csv",
    "to_json", "to_pickle", "tofile", "write", "write_bytes", "write_text", "writelines",
    "writerow", "writerows",
}  # fmt: skip
# What the names of functions contain that read files.
_READING = ("fromfile", "fromtxt", "getvalue", "load", "memmap", "open", "read", "restore")
# Texts in the arguments of such functions that name no file.
_MODES = {"r", "rb", "rt", "r+", "rb+", "w", "wb", "wt", "w+", "wb+", "a", "ab", "at", "x", "utf-8"}


# A call, with its scope and the loops that it is in.
_Place = tuple[ast.Call, ast.AST, set[ast.AST]]


def readings_of(
    call: ast.Call, value: ast.AST | None, source: Source, sources: Sequence[Source]
) -> Iterator[tuple[ast.Call, Source]]:
    """Yield the calls that may read later what a call writes into a file, with their sources.

    Args:
        call: One of `WRITERS`.
        value: Which of its arguments it writes, if that is known.
        source: Where it stands.
        sources: Where it is looked for the others.
    """
    if called_name(call) == "print":
        places: list[ast.AST] = [each for each in call.keywords if each.arg == "file"]
    else:
        places = [*call.args, *call.keywords, _receiver(call, source)]
    written = _path_of([each for each in places if each is not value], source)
    for other in sources:
        names = [name for name in other.calls if any(word in name for word in _READING)]
        for reading in (each for name in names for each in other.calls[name]):
            if reading is call or _is_written(reading):
                continue
            parts = [*reading.args, *reading.keywords, _receiver(reading, other)]
            is_same = _is_same_path(written, _path_of(parts, other))
            if is_same and _may_follow((reading, other), (call, source), sources):
                yield reading, other


def _may_follow(
    later: tuple[ast.Call, Source], earlier: tuple[ast.Call, Source], sources: Sequence[Source]
) -> bool:
    """Return whether a call may run after another one.

    By their lines where they are in one function, or their functions are called in one.
    """
    pairs = [(one, two) for one in _places(*later, sources) for two in _places(*earlier, sources)]
    together = [(one, two) for one, two in pairs if one[1] is two[1]]
    return not together or any(
        one[0].lineno > two[0].lineno or one[2] & two[2] for one, two in together
    )


def _places(call: ast.Call, source: Source, sources: Sequence[Source]) -> list[_Place]:
    """Return where a call runs: itself, and the calls of the function that it is in."""
    calls = [(call, source)]
    if name := getattr(source.scope_of(call), "name", ""):
        calls += [(each, other) for other in sources for each in other.calls.get(name, ())]
    return [(each, other.scope_of(each), _loops_around(each, other)) for each, other in calls]


def _receiver(call: ast.Call, source: Source) -> ast.AST:
    """Return the object whose method a call is; an empty text where it is none."""
    function = call.func
    if isinstance(function, ast.Attribute) and not is_module(function.value, source):
        return function.value
    return ast.Constant("")


def _is_written(reading: ast.Call) -> bool:
    """Return whether a call opens a file to write into it."""
    texts = [each.value for each in ast.walk(reading) if isinstance(each, ast.Constant)]
    modes = _MODES & {text for text in texts if isinstance(text, str)}
    return called_name(reading) == "open" and any(mode[0] in "wax" for mode in modes)


def _path_of(parts: list[ast.AST], source: Source) -> tuple[set[str], set[str]]:
    """Return the texts and the variables that expressions name a file by."""
    texts: set[str] = set()
    names: set[str] = set()
    left = [each for part in parts for each in ast.walk(part)]
    functions = {each.func for each in left if isinstance(each, ast.Call)}
    while left:
        node = left.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts |= {node.value} - _MODES - {""}
        name = variable_name(node)
        if not name or name in names or node in functions or is_module(node, source):
            continue
        names.add(name)
        made = [each for value in _made_of(node, source) for each in ast.walk(value)]
        functions |= {each.func for each in made if isinstance(each, ast.Call)}
        left += made
    return texts, names


def _made_of(variable: ast.AST, source: Source) -> list[ast.expr]:
    """Return what a variable may have been assigned: in its function, the last before."""
    values = source.assigned.get(variable_name(variable), [])
    scope, line = source.scope_of(variable), getattr(variable, "lineno", 0)
    here = [each for each in values if source.scope_of(each) is scope and each.lineno <= line]
    return here[-1:] or values


def _is_same_path(one: tuple[set[str], set[str]], other: tuple[set[str], set[str]]) -> bool:
    """Return whether two expressions may name the same file."""
    if one[0] and other[0]:
        return bool(one[0] & other[0])
    return bool(one[1] & other[1])


def _loops_around(node: ast.AST, source: Source) -> set[ast.AST]:
    """Return the loops of its function that a node is in."""
    loops: set[ast.AST] = set()
    while not isinstance(node, SCOPES):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            loops.add(node)
        node = source.parents[node]
    return loops
