"""Columns of text and bytes: encoded images, captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vramfit.data.checks import check_columns
from vramfit.errors import InvalidArgumentError


class Decoder:
    """Decodes the elements of columns that are text or bytes.

    Args:
        functions: For each column a function of the bytes of one element, or None to leave them.
        columns: The columns of the loader.
    """

    def __init__(
        self, functions: Mapping[str, Callable[[bytes], Any] | None] | None, columns: Sequence[str]
    ) -> None:
        self._functions = {} if functions is None else functions
        hint = 'use `decode={"image": decode_jpeg}`, or `{"caption": None}` for bytes as they are'
        if not isinstance(self._functions, Mapping):
            raise InvalidArgumentError(
                f"`decode` is {functions!r}, but must be a dictionary", hint=hint
            )
        check_columns("decode", self._functions, columns)
        for name, function in self._functions.items():
            if function is not None and not callable(function):
                raise InvalidArgumentError(
                    f"`decode` of `{name}` is {function!r}, which is not a function", hint=hint
                )

    @property
    def columns(self) -> list[str]:
        """The columns that are text or bytes."""
        return list(self._functions)

    @property
    def undecoded(self) -> list[str]:
        """The columns whose elements stay bytes."""
        return [name for name, function in self._functions.items() if function is None]

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Decode a batch."""
        import numpy as np

        for name, function in self._functions.items():
            if function is None:
                continue
            elements = batch[name]
            decoded = [np.asarray(function(element)) for element in elements.ravel()]
            try:
                stacked = np.stack(decoded)
            except ValueError:
                shapes = sorted({part.shape for part in decoded})
                raise InvalidArgumentError(
                    f"`decode` of `{name}` returned arrays of different shapes: {shapes}",
                    hint="resize or pad them in the function",
                ) from None
            batch[name] = stacked.reshape(elements.shape + stacked.shape[1:])
        return batch


BYTES = ("text", "opaque bytes", "bytes")
"""Types of columns whose elements are bytes: of one length, padded with zeros or not, or of any."""


def as_bytes(part: Any, kind: str, lead: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Return elements as an array of `bytes`.

    Args:
        part: A list of them, or memory with elements of one length.
        kind: The type of the column.
        lead: The shape of the array.
        shape: The shape of an element in memory.
    """
    import numpy as np

    array = np.empty(lead, object)
    if isinstance(part, list):
        elements = part[: array.size]
    else:
        [size] = shape
        # NumPy's strings end with the last byte that is not zero; its voids have all bytes.
        code = "S" if kind == "text" else "V"
        elements = np.ndarray(lead, f"{code}{size}", part).ravel().tolist()
    for place, element in enumerate(elements):
        array.flat[place] = element
    return array
