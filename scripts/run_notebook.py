"""Execute a notebook's cells in this process and compare what they print with what it shows.

    vramfit dryrun --gpu t4 -- python scripts/run_notebook.py examples/jax_memory_demo.ipynb
    vramfit dryrun --gpu t4 -- python scripts/run_notebook.py examples/jax_memory_demo.ipynb --write

Cells are plain Python, so no kernel is needed: each is executed as IPython would, in one namespace,
with the value of a last expression shown. Exit code 1 when an output differs, 0 otherwise; with
`--write` the outputs are put into the file.
"""

import argparse
import ast
import contextlib
import difflib
import io
import json
import linecache
import sys
from pathlib import Path


def execute(source, number, names):
    """Execute a cell; return its outputs as the notebook's format has them."""
    file = f"cell [{number}]"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, file, "exec"), names)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), file, "eval"), names)
    outputs = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        outputs.append(
            {
                "data": {"text/plain": repr(value).splitlines(keepends=True)},
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


def text_of(outputs):
    """Return the lines that outputs show."""
    lines = []
    for output in outputs:
        lines += output["text"] if "text" in output else output["data"]["text/plain"]
    return [line.rstrip("\n") for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--write", action="store_true", help="put the outputs into the file")
    args = parser.parse_args()
    notebook = json.loads(args.notebook.read_text())
    main_module = sys.modules["__main__"]
    # What a kernel has: the namespace of `__main__`, and the inputs so far.
    inputs = main_module.In = [""]
    differs = False
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        inputs.append(source)
        number = len(inputs) - 1
        outputs = execute(source, number, vars(main_module))
        if not args.write and outputs != cell["outputs"]:
            differs = True
            was, now = text_of(cell["outputs"]), text_of(outputs)
            print(f"cell [{number}] shows something else:", file=sys.stderr)
            print("\n".join(difflib.unified_diff(was, now, lineterm="")), file=sys.stderr)
        cell["outputs"], cell["execution_count"] = outputs, number
    if args.write:
        args.notebook.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
