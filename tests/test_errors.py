"""The exceptions say what the command line says, and are of the kind Python's own would be."""

import pickle

import pytest

from vramfit import errors
from vramfit.errors import VramfitError


@pytest.mark.fast
@pytest.mark.parametrize("kind", VramfitError.__subclasses__(), ids=lambda kind: kind.id)
def test_text_holds_message_cause_and_hint(kind):
    error = kind("no such thing", cause="it is gone", hint="look elsewhere")
    assert str(error) == "no such thing\n  cause: it is gone\nhint: look elsewhere"
    assert (error.message, error.cause, error.hint) == (
        "no such thing",
        "it is gone",
        "look elsewhere",
    )
    assert str(kind("bare")) == "bare"


@pytest.mark.fast
@pytest.mark.parametrize("kind", VramfitError.__subclasses__(), ids=lambda kind: kind.id)
def test_errors_survive_pickling(kind):
    error = pickle.loads(pickle.dumps(kind("m", cause="c", hint="h")))
    assert type(error) is kind
    assert (error.message, error.cause, error.hint) == ("m", "c", "h")


@pytest.mark.fast
def test_ids_are_unique():
    assert len(errors.BY_ID) == len(VramfitError.__subclasses__())


@pytest.mark.fast
def test_standard_classes_catch_ours():
    from vramfit import gpus

    with pytest.raises(KeyError):
        gpus.find("voodoo2")
    with pytest.raises(OSError, match="there is no file"):
        gpus.find("no-such-gpu.toml")
