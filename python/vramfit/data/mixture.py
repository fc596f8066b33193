"""Batches of several loaders, in proportions that are kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from vramfit.data.arguments import check_seeds
from vramfit.data.checks import ReadLock, as_integer, check_optional_counts
from vramfit.data.loader import Batches, Loader, ended_iterator_error
from vramfit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from vramfit.data.device import DeviceBatches

_SCHEMA = 1


class MixturePosition(NamedTuple):
    """A position in a mixture.

    Attributes:
        epoch: The epoch of the mixture.
        batch: Its batches that were handed out.
        loaders: For each loader its epoch, and the samples of it that were handed out.
    """

    epoch: int
    batch: int
    loaders: tuple[tuple[int, int], ...]


class Mixture:
    """Batches of several loaders, as often as weights say, in an order that can be resumed.

    Which loader a batch comes from is drawn for each batch, from the seed and the number of the
    batch. A loader that has come to the end of its epoch goes on with the next one. A ``for`` loop
    is one epoch, or the rest of one: `batches` batches.

    Args:
        loaders: The loaders, by name.
        weights: The weight of each, by name; equal weights by default. A weight of 0.7 beside 0.3
            means seven of ten batches.
        batches: Batches of an epoch; by default as many as all loaders together have. To resume
            with loaders of another batch size, give the number of the run to resume.
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
        check_optional_counts(batches=batches)
        self._loaders = dict(loaders)
        self._names = list(self._loaders)
        self._weights = _read_weights(weights, self._names)
        for name, loader in loaders.items():
            if not isinstance(loader, Loader):
                raise InvalidArgumentError(
                    f"`loaders[{name!r}]` is {loader!r}, which is not a loader",
                    hint="use a `vramfit.data.Loader`; a mixture of mixtures is one with the "
                    "products of their weights",
                )
        self._batches = batches or sum(len(loader) for loader in self._loaders.values())
        self._seed = as_integer("seed", seed)
        check_seeds(seed=seed)
        if len({id(loader) for loader in self._loaders.values()}) < len(self._loaders):
            raise InvalidArgumentError(
                "one loader was given twice", hint="create a loader for each name"
            )
        # Until it is first iterated over, it begins where the loaders are.
        self._position: MixturePosition | None = None
        self._epoch_start: MixturePosition | None = None
        # The loaders that are being read, and what identifies that.
        self._running: dict[int, int] = {}
        self._generation = 0
        self._lock = ReadLock()

    def __len__(self) -> int:
        """Return how many batches an epoch has."""
        return self._batches

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the epoch, after the last batch that was handed out."""
        return Batches(self, self._start(*self.position))

    def to_device(self, depth: int = 2, *, map_on_device: Any = None) -> DeviceBatches:
        """Return this mixture with its batches on the device, as :meth:`Loader.to_device`."""
        from vramfit.data.device import DeviceBatches

        return DeviceBatches(self, depth, map_on_device=map_on_device)

    @property
    def position(self) -> MixturePosition:
        """The position after the last batch that was handed out."""
        if self._position is not None:
            return self._position
        return MixturePosition(0, 0, tuple(it.position for it in self._loaders.values()))

    @property
    def loaders(self) -> dict[str, Loader]:
        """The loaders, by name."""
        return dict(self._loaders)

    @property
    def seed(self) -> int:
        """Seed of the choice."""
        return self._seed

    @property
    def generation(self) -> int:
        """A number that changes when an iterator over the mixture is invalidated by another."""
        return self._generation

    @property
    def sharding(self) -> Any:
        """The sharding of the batches of all loaders."""
        first, *others = (loader.sharding for loader in self._loaders.values())
        if any(other != first for other in others):
            raise InvalidArgumentError(
                "the loaders of a mixture have different shardings, so its batches have none",
                hint="create all loaders with the same `sharding`",
            )
        return first

    @property
    def max_batches(self) -> int:
        """Batches that may be in use at a time, whichever loader they are of."""
        return min(loader.max_batches for loader in self._loaders.values())

    @property
    def buffer_count(self) -> int:
        """Batches that have memory at a time, unless the program keeps more."""
        return min(loader.buffer_count for loader in self._loaders.values())

    @property
    def batch_bytes(self) -> int:
        """Bytes of the largest batch in this process."""
        return max(loader.batch_bytes for loader in self._loaders.values())

    @property
    def transform_threads(self) -> int:
        """The number of threads that transform batches of one loader, at most."""
        return max(loader.transform_threads for loader in self._loaders.values())

    @property
    def has_transform(self) -> bool:
        """Whether batches of a loader are decoded or transformed."""
        return any(loader.has_transform for loader in self._loaders.values())

    @property
    def drop_last(self) -> bool:
        """Whether no batch of any loader is padded or smaller."""
        return all(loader.drop_last for loader in self._loaders.values())

    @property
    def restore_note(self) -> str | None:
        """What the last :meth:`restore` noticed about the files, or None."""
        notes = [it.restore_note for it in self._loaders.values() if it.restore_note]
        return "; ".join(notes) or None

    def _start(
        self, epoch: int, batch: int, loaders: tuple[tuple[int, int], ...] | None = None
    ) -> int:
        """Start at a position, or at the beginning of an epoch, and return the generation."""
        if loaders is None:
            loaders = self._find_epoch(epoch)
        self._generation += 1
        self._running.clear()
        self._position = MixturePosition(epoch, batch, loaders)
        if batch == 0:
            self._epoch_start = self._position
        self._epoch = epoch
        return self._generation

    def _find_epoch(self, epoch: int) -> tuple[tuple[int, int], ...]:
        """Return where the loaders are at the beginning of an epoch."""
        for known in (self._position, self._epoch_start):
            if known is not None and known[:2] == (epoch, 0):
                return known.loaders
        counts = Counter(self.choices(0, epoch * self._batches))
        return tuple(
            (counts[name] // len(it), counts[name] % len(it) * it.samples_per_batch)
            for name, it in self._loaders.items()
        )

    def _next(
        self, generation: int, *, same_shape: bool = False
    ) -> tuple[Any, MixturePosition] | None:
        """Return the next batch and the position after it, or None at the end of the epoch."""
        with self._lock:
            if generation != self._generation:
                raise ended_iterator_error()
            epoch, batch, loaders = self.position
            if epoch != self._epoch:
                return None
            place = self._choose(epoch * self._batches + batch)
            found, after = self._read(place, loaders[place], same_shape=same_shape)
            is_last = batch + 1 == self._batches
            self._position = MixturePosition(
                epoch + is_last,
                0 if is_last else batch + 1,
                (*loaders[:place], after, *loaders[place + 1 :]),
            )
            return found, self._position

    def choices(self, start: int, end: int) -> list[str]:
        """Return the names of the loaders that batches `start` to `end` come from."""
        return [self._names[self._choose(number)] for number in range(start, end)]

    def _choose(self, number: int) -> int:
        import numpy as np

        drawn = np.random.default_rng([self._seed, number]).random()
        place = int(np.searchsorted(self._weights, drawn, side="right"))
        return min(place, len(self._names) - 1)

    def _read(self, place: int, position: tuple[int, int], *, same_shape: bool) -> Any:
        loader = self._loaders[self._names[place]]
        while True:
            # After an error, the loader begins with the batch that failed.
            running = self._running.pop(place, None)
            if running is None:
                running = loader._start(*position)
            if (found := loader._next(running, same_shape=same_shape)) is not None:
                self._running[place] = running
                return found

    def state(self) -> dict[str, Any]:
        """Return what to save to resume after the last batch: less than 1 KB for each loader."""
        return self._state()

    def _state(self, position: MixturePosition | None = None) -> dict[str, Any]:
        """Return the state behind the last batch, or at another position."""
        epoch, batch, loaders = position or self.position
        return {
            "schema": _SCHEMA,
            "batch": epoch * self._batches + batch,
            "seed": self._seed,
            "weights": self._weights,
            "batches": self._batches,
            "loaders": [
                [name, loader._state(at)]
                for (name, loader), at in zip(self._loaders.items(), loaders, strict=True)
            ],
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
        self._running.clear()
        self._generation += 1
        at = tuple(loader.position for loader in self._loaders.values())
        epoch, batch = divmod(found["batch"], self._batches)
        self._position = MixturePosition(epoch, batch, at)
        return self

    def close(self) -> None:
        """Stop reading. Batches that were handed out stay as they are."""
        self._running.clear()
        self._generation += 1
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
