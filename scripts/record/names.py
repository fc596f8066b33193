"""Record the names that each release of JAX can be set by.

Reads the sources of every release in a clone of JAX's repository, without running them: the
options that JAX defines (`config.bool_state("jax_…")` and its kin, which look up a variable of the
same name in upper case; `config.bool_flag("jax_…")` and its kin, which look up none) and the
variables that its code asks for. One line a name, with tabs: name, kind, first release, last
release, where they are not the first and the last that were read. The kinds:

- `bool`, `int`, `float`: looked up in the environment and read as that;
- `text`: looked up in the environment;
- `option`: an option of `jax.config` only; a variable of that name does nothing.

Newer releases are written for Python 3.12. Of a release that the clone does not have, the folder
`jax` of its wheel can be committed over the last one that it has, and tagged; the C++ sources are
then those of before, and what only JAX's own tests read must not be taken to have ended.

Usage: python3.12 scripts/record/names.py path/to/jax > crates/vramfit-advice/src/lint/names/jax.tsv
"""

import ast
import re
import subprocess
import sys

# Up to 0.4.30 they were called `define_bool_state` and so on.
STATES = re.compile(
    r"^(define_)?(bool|int|float|string|enum|optional_\w+|enum_class|\w+_or_object)_state$"
)
TYPED = {"bool_state", "int_state", "float_state", "bool_env", "int_env"}
FLAGS = re.compile(r"^((bool|int|float|string|enum)_flag|DEFINE_\w+|define_\w+)$")
RANK = ["option", "text", "float", "int", "bool"]
ASKED = re.compile(r"^(getenv|bool_env|int_env|get|setdefault|pop)$")
NAME = re.compile(r"^[A-Z][A-Z0-9]*_[A-Z0-9_]+$")
RELEASE = re.compile(r"^jax-v(\d+)\.(\d+)\.(\d+)$")
# What a file that asks for a setting holds, for `git grep`.
ASKS = r"environ|getenv|_env\(|_state\(|_flag\(|DEFINE_|define_"
IN_C = re.compile(r'getenv\("([A-Z0-9_]+)"\)')
# What JAX's own build and test scripts ask for says nothing about a program that uses JAX.
LEFT_OUT = re.compile(
    r"(^|/)(setup|version|plugin_setup|test_util|jtu|build_\w+)\.py$|/(tests?|tools)/"
)
# The XLA_* names were read by code outside this repository before 0.6.0: they are in
# `crates/vramfit-model/src/settings/table.toml`, with their releases.
OURS = ("JAX", "PJRT", "MOSAIC_GPU")


def main(repository):
    releases = sorted(
        (tuple(map(int, match.groups())), tag)
        for tag in git(repository, "tag").split()
        if (match := RELEASE.match(tag)) and tuple(map(int, match.groups())) >= (0, 4, 26)
    )
    seen = {}
    for version, tag in releases:
        for name, kind in names(repository, tag):
            seen.setdefault((name, kind), []).append(version)
    first, last = releases[0][0], releases[-1][0]
    print(f"# {show(first)} to {show(last)}")
    for (name, kind), versions in sorted(seen.items()):
        since = "" if versions[0] == first else show(versions[0])
        until = "" if versions[-1] == last else show(versions[-1])
        print(name, kind, since, until, sep="\t")


def names(repository, tag):
    found = set()
    listing = git(repository, "grep", "-lE", ASKS, tag, "--", "jax", "jaxlib", "jax_plugins")
    for path in listing.replace(f"{tag}:", "").splitlines():
        if LEFT_OUT.search(path):
            continue
        if path.endswith(".py"):
            found |= in_python(git(repository, "show", f"{tag}:{path}"))
        elif path.endswith((".cc", ".h")):
            text = git(repository, "show", f"{tag}:{path}")
            found |= {(name, "text") for name in IN_C.findall(text)}
    # A name that is found in two places has the kind that says most.
    kinds = dict(sorted(found, key=lambda pair: RANK.index(pair[1])))
    return {(name, kind) for name, kind in kinds.items() if name.startswith(OURS)}


def in_python(text):
    tree = ast.parse(text)
    # Names kept in a constant: `_PORT = "JAX_PORT"` and later `os.environ[_PORT]`.
    constants = {
        node.targets[0].id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }

    def text_of(node):
        value = constants.get(node.id) if isinstance(node, ast.Name) else None
        value = node.value if isinstance(node, ast.Constant) else value
        return value if isinstance(value, str) else ""

    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and "environ" in ast.unparse(node.value):
            if isinstance(node.ctx, ast.Load):
                found.add((text_of(node.slice), "text"))
        elif isinstance(node, ast.Compare) and "environ" in ast.unparse(node.comparators[0]):
            found.add((text_of(node.left), "text"))
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            word = called.rsplit(".", 1)[-1]
            named = [k.value for k in node.keywords if k.arg == "name"]
            first = text_of((node.args + named + [ast.Constant("")])[0])
            bare = word.removeprefix("define_")
            kind = bare.split("_")[0] if bare in TYPED else "text"
            if STATES.match(word):
                found.add((first.upper(), kind))
            elif FLAGS.match(word):
                found.add((first.upper(), "option"))
            elif ASKED.match(word) and "env" in called:
                found.add((first, kind))
    return {(name, kind) for name, kind in found if NAME.match(name)}


def git(repository, *arguments):
    command = ["git", "-C", repository, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def show(version):
    return ".".join(map(str, version))


if __name__ == "__main__":
    main(sys.argv[1])
