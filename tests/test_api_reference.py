"""The page of the Python interface is what the docstrings say, and has every public name."""

import ast
import importlib.util
import os

import pytest
from commands import ROOT

specification = importlib.util.spec_from_file_location(
    "make_api_reference", ROOT / "scripts/make_api_reference.py"
)
reference = importlib.util.module_from_spec(specification)
specification.loader.exec_module(reference)


@pytest.mark.fast
def test_the_page_is_made_from_the_docstrings():
    page = reference.write_page()
    if os.environ.get("UPDATE_DOCS"):
        reference.PAGE.write_text(page)
    assert reference.PAGE.read_text() == page, "write it with scripts/make_api_reference.py"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("module", "names"), [(module, names) for module, _, names in reference.MODULES]
)
def test_every_public_name_is_on_the_page(module, names):
    path = ROOT / "python" / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    [public] = [
        ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    # Values, which the docstrings of their modules describe.
    assert set(public) - {"__version__", "applied"} <= set(names)
