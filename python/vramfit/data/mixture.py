"""Batches of several loaders, in proportions that are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from vramfit.data.arguments import check_seeds
from vramfit.data.checks import as_integer, check_counts
from vramfit.data.loader import Loader
from vramfit.errors import InvalidArgumentError

_SCHEMA = 1


class Mixture:
    """Batches of several loaders, as often as weights say, in an order that can be resumed.

    Which loader a batch comes from is drawn for each batch, from the seed and the number of the
    batch. A loader that has come to the end of its epoch goes on with the next one. A ``for`` loop
    is one epoch, or the rest of one: `batches` batches.

    Args:
        loaders: The loaders, by name.
        weights: The weight of each, by name; equal weights by default. A weight of 0.7 beside 0.3
            means seven of ten batches.
        batches: Batches of an epoch; by default as many as all loaders together have.
        seed: Seed of the choice.
    """

    def __init__(
        self,
        loaders: Mapping[str, Loader],
        weights: Mapping[str, float] | None = None,
        *,
        batches: int | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(loaders, Mapping) or not loaders:
            raise InvalidArgumentError(
                f"`loaders` is {loaders!r}, but must be a dictionary of loaders",
                hint='use `Mixture({"robot": robot, "human": human}, {"robot": 3, "human": 1})`',
            )
        check_counts(batches=batches)
        self._loaders = dict(loaders)
        self._names = list(self._loaders)
        self._weights = _read_weights(weights, self._names)
        self._batches = batches or sum(len(loader) for loader in self._loaders.values())
        self._seed = as_integer("seed", seed)
        check_seeds(seed=seed)
        if len({id(loader) for loader in self._loaders.values()}) < len(self._loaders):
            raise InvalidArgumentError(
                "one loader was given twice", hint="create a loader for each name"
            )
        self._next_batch = 0
        self._iterators: dict[str, Iterator[Any]] = {}

    def __len__(self) -> int:
        """Return how many batches an epoch has."""
        return self._batches

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the epoch, after the last batch that was handed out."""
        end = self._next_batch - self._next_batch % self._batches + self._batches
        while self._next_batch < end:
            batch = self._read(self._choose(self._next_batch))
            self._next_batch += 1
            yield batch
            # Otherwise this frame keeps the batch alive while the next one is made.
            del batch

    def choices(self, start: int, end: int) -> list[str]:
        """Return the names of the loaders that batches `start` to `end` come from."""
        return [self._choose(number) for number in range(start, end)]

    def _choose(self, number: int) -> str:
        import numpy as np

        drawn = np.random.default_rng([self._seed, number]).random()
        place = int(np.searchsorted(self._weights, drawn, side="right"))
        return self._names[min(place, len(self._names) - 1)]

    def _read(self, name: str) -> Any:
        while True:
            if name not in self._iterators:
                self._iterators[name] = iter(self._loaders[name])
            # After an error, the loader begins with the batch that failed.
            batches = self._iterators.pop(name)
            for batch in batches:
                self._iterators[name] = batches
                return batch

    def state(self) -> dict[str, Any]:
        """Return what to save to resume after the last batch: less than 1 KB for each loader."""
        return {
            "schema": _SCHEMA,
            "batch": self._next_batch,
            "seed": self._seed,
            "weights": self._weights,
            "batches": self._batches,
            "loaders": [[name, loader.state()] for name, loader in self._loaders.items()],
        }

    def restore(self, state: Mapping[str, Any] | str, *, force: bool = False) -> Self:
        """Resume from a state, as :meth:`Loader.restore`.

        Raises:
            FileChangedError: The contents of a file differ from those of the state.
            InvalidArgumentError: The mixture has other loaders, weights or another seed.
        """
        try:
            found = json.loads(state) if isinstance(state, str) else state
            schema, names = found["schema"], [name for name, _ in found["loaders"]]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArgumentError(
                "this is not the state of a mixture", cause=str(error)
            ) from None
        if schema != _SCHEMA:
            raise InvalidArgumentError(
                f"the state has format version {schema}, and this vramfit reads version {_SCHEMA}"
            )
        own = {"seed": self._seed, "weights": self._weights, "batches": self._batches}
        for name, value in own.items():
            if found[name] != value:
                raise InvalidArgumentError(
                    f"the state was saved with another `{name}`: {found[name]}, and not {value}",
                    hint="create the mixture with the arguments of the run to resume",
                )
        if names != self._names:
            raise InvalidArgumentError(
                f"the state is of the loaders {names}, and not {self._names}",
                hint="create the mixture with the loaders of the run to resume, in the same order",
            )
        for (_, one), loader in zip(found["loaders"], self._loaders.values(), strict=True):
            loader.restore(one, force=force)
        self._iterators.clear()
        self._next_batch = found["batch"]
        return self

    def close(self) -> None:
        """Stop reading. Batches that were handed out stay as they are."""
        self._iterators.clear()
        for loader in self._loaders.values():
            loader.close()

    def __repr__(self) -> str:
        return f"<vramfit.data.Mixture of {', '.join(self._names)}, {len(self)} batches>"


def _read_weights(weights: Any, names: Sequence[str]) -> list[float]:
    """Return the sum of the shares of each loader and those before it."""
    given = dict.fromkeys(names, 1.0) if weights is None else weights
    if not isinstance(given, Mapping) or set(given) != set(names):
        listed = ", ".join(f"`{name}`" for name in names)
        raise InvalidArgumentError(
            f"`weights` is {weights!r}, but must have a number for each loader",
            hint=f"the loaders are {listed}",
        )
    try:
        numbers = [float(given[name]) for name in names]
    except (TypeError, ValueError):
        numbers = [-1.0]
    total = sum(numbers)
    if min(numbers) < 0 or not 0 < total < float("inf"):
        raise InvalidArgumentError(
            f"`weights` is {weights!r}, but must be numbers of 0 or more, not all 0"
        )
    return [sum(numbers[: place + 1]) / total for place in range(len(numbers))]
