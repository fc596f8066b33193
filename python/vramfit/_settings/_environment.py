"""Environment variables as text: what Rust can take of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def text_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out variables that are not valid text: nothing that JAX reads is one of them."""
    return {name: value for name, value in environment.items() if is_text(name + value)}


def is_text(value: str) -> bool:
    """Return whether a string can be encoded: the bytes of others did not decode as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
