"""The page of the command line is what `--help` prints."""

import importlib.util
import os

from commands import ROOT

specification = importlib.util.spec_from_file_location(
    "make_cli_reference", ROOT / "scripts/make_cli_reference.py"
)
reference = importlib.util.module_from_spec(specification)
specification.loader.exec_module(reference)


def test_the_page_is_made_from_the_help():
    page = reference.write_page()
    if os.environ.get("UPDATE_DOCS"):
        reference.PAGE.write_text(page)
    assert reference.PAGE.read_text() == page, "write it with scripts/make_cli_reference.py"
