"""Write `docs/reference/python-api.md` from the docstrings of the public Python interface.

    python scripts/make_api_reference.py

Sources are parsed, not imported, so neither JAX nor the extension module is needed. A test compares
the page with the sources.
"""

import ast
import inspect
import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs/reference/python-api.md"

# Import path, what it is for, and the public names in the order of the page.
MODULES = [
    (
        "vramfit",
        "What a function needs, plans that make it fit, reports of dry runs, memory of a block of "
        "code.",
        [
            "estimate",
            "plan",
            "plan.remat",
            "PlanResult",
            "dryrun_report",
            "DryrunReport",
            "report.AttributionEntry",
            "report.StepTime",
            "watch",
            "VramfitError",
            "VramfitWarning",
        ],
    ),
    ("vramfit.gpus", "The catalog of `vramfit gpus`. Sizes in bytes.", ["all", "find", "Gpu"]),
    (
        "vramfit.jax_memory_fix",
        "Settings from inside a program; importing it applies the defaults "
        "([guide](../guides/jax-memory-fix.md)).",
        [
            "apply_jax_memory_fix",
            "AppliedSettings",
            "verify_gpu_usage",
            "force_memory_allocation",
            "allocate_memory_incremental",
            "clear_memory_registry",
        ],
    ),
    (
        "vramfit.data",
        "Batches from HDF5 files ([guide](../guides/data-loader.md)).",
        [
            "Loader",
            "Rows",
            "Windows",
            "Groups",
            "Ragged",
            "KFold",
            "Mixture",
            "Stats",
            "compute_statistics",
            "ColumnStatistics",
            "HDF5Source",
            "HDF5IterDataset",
        ],
    ),
    (
        "vramfit.train",
        "Training loop and checkpoints ([guide](../guides/training.md)).",
        [
            "fit",
            "FitOptions",
            "Checkpoints",
            "Result",
            "Epoch",
            "Timing",
            "TrainingRun",
            "RunStart",
            "LogPoint",
            "Evaluation",
            "EpochEnd",
            "CheckpointSaved",
            "RunEnd",
            "Accumulator",
            "ConfusionMatrix",
            "confusion_counts",
            "RocAuc",
            "score_histogram",
            "Baseline",
            "load",
            "TrainedModel",
            "load_state",
        ],
    ),
    (
        "vramfit.train.callbacks",
        "Callbacks of the package ([guide](../guides/training-callbacks.md)).",
        ["TensorBoard"],
    ),
]

INTRODUCTION = """\
# Python API

All public functions and classes, from their docstrings. `import vramfit` loads neither JAX nor
NumPy. Errors are subclasses of `vramfit.VramfitError`, listed [at the end](#vramfiterrors).
[Estimates and reports in Python](../guides/estimates.md) has examples for notebooks.
"""

ERRORS = """\
## `vramfit.errors`

The classes of errors: `except vramfit.errors.InsufficientMemoryError`. Each is a
`vramfit.VramfitError`, and of a standard class of Python where there is one for the case.
"""

# What a section of a docstring is called on the page.
SECTIONS = {"Args": "Arguments", "Returns": "Returns", "Yields": "Yields", "Raises": "Raises"}


# `vramfit.plan` is an object that can be called; this is where its parts are defined.
DEFINITIONS = {
    "plan": ("vramfit._plan._search", "__call__"),
    "plan.remat": ("vramfit._plan._remat", "remat"),
}


def find_definition(module, name):
    """Return the syntax tree of a public `name`, which `module` may import from another."""
    path = ROOT / "python" / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    # The extension module is described by its stub.
    tree = ast.parse((path if path.exists() else path.with_suffix(".pyi")).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return find_definition(node.module, name)
        # Names that load on first use: `{"watch": "vramfit._functions._watch"}`.
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    return find_definition(ast.literal_eval(value), name)
    raise LookupError(f"{module} has no {name}")


def format_signature(name, node):
    """Return `name(arguments) -> result`, one argument on a line where it is long."""
    parts = [""]
    for piece in ast.unparse(node.args).split(", "):
        # A comma outside of brackets divides two arguments.
        is_inside = sum(parts[-1].count(sign) for sign in "[(") > sum(map(parts[-1].count, "])"))
        if is_inside:
            parts[-1] += f", {piece}"
        else:
            parts.append(piece)
    parts = [
        re.sub(r"(: .+?)=", r"\1 = ", part)
        for part in parts
        if part not in ("", "self", "cls") and not part.startswith("_")
    ]
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    short = f"{name}({', '.join(parts)}){result}"
    if len(short) <= 96:
        return short
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def format_docstring(text):
    """Return a docstring in Google's style as Markdown."""
    text = inspect.cleandoc(text)
    text = re.sub(r":(?:func|class|meth|attr|mod):`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    out, section = [], None
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Returns|Yields|Raises|Example|Examples|Attributes):", line)
        if heading:
            section = heading[1]
            # Examples are in the guides, where they are executed.
            if section in SECTIONS:
                out += [f"*{SECTIONS[section]}*", ""]
        elif section in ("Example", "Examples"):
            continue
        elif section in ("Args", "Raises", "Attributes"):
            entry = re.fullmatch(r"    (\*{0,2}[\w.]+(?:, \*{0,2}\w+)*): (.*)", line)
            if entry:
                out.append(f"- `{entry[1]}`: {entry[2]}")
            else:
                out.append(f"  {line.strip()}" if line.strip() else "")
        else:
            out.append(line.removeprefix("    ") if section else line)
    return "\n".join(out).strip()


def describe(name, node):
    """Return the part of the page about one function or class."""
    out = [f"### `{name}`", ""]
    docstring = format_docstring(ast.get_docstring(node) or "")
    if isinstance(node, ast.FunctionDef):
        return [*out, "```python", format_signature(name, node), "```", "", docstring, ""]
    methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
    for method in methods:
        if method.name == "__init__" and not all(
            a.arg.startswith("native") for a in method.args.args[1:] or [method.args.args[0]]
        ):
            method.returns = None
            out += ["```python", format_signature(name, method), "```", ""]
    out += [docstring, ""]
    fields, functions = [], []
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            value = f" = {ast.unparse(field.value)}" if field.value else ""
            text = format_docstring(ast.literal_eval(after.value)).replace("\n", "\n  ")
            kind = ast.unparse(field.annotation)
            fields.append(f"- `{ast.unparse(field.target)}: {kind}{value}`: {text}")
    for method in methods:
        if method.name.startswith("_"):
            continue
        decorators = [ast.unparse(d) for d in method.decorator_list]
        text = format_docstring(ast.get_docstring(method) or "")
        if any(d.endswith("property") for d in decorators):
            kind = f": {ast.unparse(method.returns)}" if method.returns else ""
            fields.append(f"- `{method.name}{kind}`: {text}".replace("\n", "\n  ").rstrip(": "))
        elif not any("setter" in d for d in decorators):
            signature = format_signature(f"{name}.{method.name}", method)
            functions += ["", "```python", signature, "```", "", text]
    return [*out, *fields, *functions, ""]


def describe_errors():
    """Return the part of the page about the classes of errors."""
    out = [ERRORS, "| Class | Also a | Id | Meaning |", "|---|---|---|---|"]
    tree = ast.parse((ROOT / "python" / "vramfit" / "errors.py").read_text())
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        base, *others = map(ast.unparse, node.bases)
        if base != "VramfitError":
            continue
        id_ = next(
            ast.literal_eval(line.value)
            for line in node.body
            if isinstance(line, ast.Assign) and ast.unparse(line.targets) == "id"
        )
        also = ", ".join(f"`{other}`" for other in others)
        row = (f"`{node.name}`", also, f"[`{id_}`](errors.md#{id_})", ast.get_docstring(node))
        out.append(f"| {' | '.join(row)} |")
    return out


def write_page():
    """Return the whole page."""
    out = [INTRODUCTION]
    for module, purpose, names in MODULES:
        out += [f"## `{module}`", "", purpose, ""]
        for name in names:
            *below, last = name.split(".")
            place = DEFINITIONS.get(name, (".".join([module, *below]), last))
            out += describe(name if name in DEFINITIONS else last, find_definition(*place))
    out += describe_errors()
    page = "\n".join(out)
    return re.sub(r"\n{3,}", "\n\n", textwrap.dedent(page)).strip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(write_page())
