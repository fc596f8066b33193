"""`import vramfit` is cheap and harmless: it loads nothing heavy and changes nothing."""

import json

import pytest
from commands import run_python

import vramfit

HEAVY = ("jax", "jaxlib", "numpy", "vramfit._native")


def loaded_after(statement):
    """Run a statement in a fresh interpreter and say which heavy modules it has loaded."""
    found = f"[name for name in {HEAVY!r} if name in sys.modules]"
    code = f"{statement}\nimport json, sys\nprint(json.dumps({found}))"
    done = run_python("-c", code, code=0)
    return json.loads(done.stdout)


def test_import_loads_nothing_heavy():
    assert loaded_after("import vramfit") == []


@pytest.mark.parametrize(
    "statement",
    ["import vramfit.gpus", "import vramfit; vramfit.__version__", "import vramfit.__main__"],
)
def test_using_it_never_loads_jax(statement):
    assert not {"jax", "jaxlib", "numpy"} & set(loaded_after(statement))


def test_import_does_not_change_the_environment():
    code = "import os; before = dict(os.environ); import vramfit; assert before == dict(os.environ)"
    run_python("-c", code, code=0)


def test_every_promised_name_is_there():
    for name in vramfit.__all__:
        assert getattr(vramfit, name) is not None, name
        assert name in dir(vramfit)


def test_a_missing_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = vramfit.no_such_name
