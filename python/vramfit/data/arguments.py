"""The arguments of a loader: validated, and converted to options of the native loader."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vramfit._native import BatchLoader
from vramfit.data.checks import as_integer, check_choice, check_path
from vramfit.data.samples import ColumnArgument
from vramfit.data.selection import SplitArgument
from vramfit.errors import InvalidArgumentError

MASK = "mask"
"""The column that is false for padding."""


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """Everything that decides what the native loader reads.

    Attributes:
        files: The HDF5 files, directories and patterns.
        columns: For each column the path of its dataset, the type to convert it to if any, the rows
            that it is shifted by, the rows of a window if it has a number of its own, whether it
            has one row for each ragged sample, the means and deviations to normalize it with, and
            whether its elements are text or bytes.
        samples: What a sample is, as JSON.
        trim: Whether the datasets of a group may have different numbers of rows.
        mask: Whether there are columns that say which rows of a sample are real.
        batch_size: Samples of a batch, all processes together.
        memory: Memory budget, such as ``"256MiB"``.
        seed: Seed of the shuffle.
        shuffle: Whether samples are shuffled.
        drop_last: Whether the samples that do not fill the last batch are dropped.
        is_partial: Whether the last batch may have fewer samples.
        stacked_batches: Batches stacked into one; None for single batches.
        selected_samples: Which samples are read, as pairs of 64-bit numbers, and how many there
            must be if that is known; None for all.
        selected_groups: The names of the groups that are read; None for all.
        split: Which set, the fractions for validation and tests, or the fold and how many there
            are, how these are chosen (``"spread"`` or ``"tail"``), whether by group, and the seed
            of the choice; None for all.
        weights: A 64-bit float for each sample, to draw samples by; None if each comes once.
        shard: The number of this process, and how many read together.
        threads: Reader threads; None for the default.
        floats: The type of all floats for which `columns` names none.
        narrow: Whether 64-bit types become 32-bit types.
        unpack: Whether values packed by the conventions of netCDF are unpacked.
        allow_unclosed: Whether files that were not closed are read.
        index: The file that keeps what is known of the files; None without one.
        poison: Whether memory is overwritten when it comes back, for tests.
    """

    files: Sequence[str]
    columns: Sequence[ColumnArgument]
    samples: str
    trim: bool = False
    mask: bool = False
    batch_size: int = 1
    memory: str
    seed: int = 0
    shuffle: bool = False
    drop_last: bool = False
    is_partial: bool = False
    stacked_batches: int | None = None
    selected_samples: tuple[bytes, int | None] | None = None
    selected_groups: Sequence[str] | None = None
    split: SplitArgument | None = None
    weights: bytes | None = None
    shard: tuple[int, int] = (0, 1)
    threads: int | None = None
    floats: str | None = None
    narrow: bool = False
    unpack: bool = False
    allow_unclosed: bool = False
    index: str | None = None
    poison: bool = False


def name_columns(datasets: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return the dataset of each column name."""
    if isinstance(datasets, str):
        check_path("datasets", datasets)
        return {datasets: datasets}
    if isinstance(datasets, Mapping):
        for name, dataset in datasets.items():
            check_path(f"datasets[{name!r}]", dataset)
        return dict(datasets)
    if not isinstance(datasets, list | tuple) or not all(isinstance(it, str) for it in datasets):
        raise InvalidArgumentError(
            f"`datasets` is {datasets!r}, but must be paths of datasets",
            hint='use `["x", "y"]`, or a dictionary from column names: `{"inputs": "x"}`',
        )
    for place, dataset in enumerate(datasets):
        check_path(f"datasets[{place}]", dataset)
    repeated = [name for name in datasets if list(datasets).count(name) > 1]
    if repeated:
        raise InvalidArgumentError(
            f"dataset `{repeated[0]}` was given twice",
            hint="list it once; a `transform` can add its rows under a second name",
        )
    return {name: name for name in datasets}


def name_type(kind: Any) -> str:
    """Return the name of a type: of ``"float32"``, ``numpy.float32`` or ``jax.numpy.bfloat16``."""
    if isinstance(kind, str):
        return kind
    import numpy as np

    try:
        return str(np.dtype(kind).name)
    except TypeError:
        raise InvalidArgumentError(
            f"`dtype` is {kind!r}, which is not a type",
            hint='use a type such as `dtype="float32"`, or one per column: `{"x": "float32"}`',
        ) from None


def describe_types(dtype: Any, names: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """Return the types of columns by name, and the type of all floats, if given."""
    if dtype is None:
        return {}, None
    if not isinstance(dtype, Mapping):
        return {}, name_type(dtype)
    unknown = [name for name in dtype if name not in names]
    if unknown:
        there = ", ".join(f"`{name}`" for name in names)
        raise InvalidArgumentError(
            f"`dtype` has a type for `{unknown[0]}`, which is not a column",
            hint=f"the columns are {there}",
        )
    return {name: name_type(kind) for name, kind in dtype.items()}, None


def find_dtype(kind: str) -> Any:
    """Return the NumPy type with a name; bfloat16 comes from ml_dtypes, which JAX installs."""
    import numpy as np

    if kind == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(kind)


def check_seeds(**seeds: int) -> None:
    """Check that seeds are unsigned 64-bit numbers."""
    for name, number in seeds.items():
        if not 0 <= as_integer(name, number) < 1 << 64:
            raise InvalidArgumentError(f"`{name}` is {number}, but must be between 0 and 2^64 - 1")


def check_names(names: Sequence[str]) -> None:
    """Check that no two columns have the same name."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InvalidArgumentError(
                f"a dataset is named `{name}`, like a column that the loader adds",
                hint=f"rename the column: `{{'own_{name}': '{name}'}}`",
            )


def choose_last_batch(
    last_batch: str | None,
    *,
    drop_last: bool,
    is_masked: bool,
    is_stacked: bool,
    is_divided: bool,
) -> str:
    """Return what happens to samples that do not fill a batch: partial, pad or drop."""
    if last_batch is None:
        if drop_last:
            return "drop"
        return "pad" if is_masked or is_stacked or is_divided else "partial"
    check_choice("last_batch", last_batch, ("partial", "pad", "drop"))
    if drop_last and last_batch != "drop":
        raise InvalidArgumentError(f"`drop_last` contradicts `last_batch={last_batch!r}`")
    if last_batch == "partial" and (is_stacked or is_divided):
        what = "stacks of batches" if is_stacked else "batches of several devices or processes"
        raise InvalidArgumentError(
            f"{what} have one shape, so the last one cannot be partial",
            hint='use `last_batch="pad"` or `last_batch="drop"`',
        )
    return last_batch


def complete_sharding(
    sharding: Any,
    names: Sequence[str],
    *,
    is_asked_for: bool,
    is_stacked: bool,
    is_transformed: bool,
) -> Any:
    """Return a sharding, or a dictionary of one for each column.

    A mask that was not asked for is divided among devices as the samples of the first column.
    """
    if sharding is None:
        return None
    from jax.sharding import NamedSharding, PartitionSpec, Sharding

    hint = (
        "use `NamedSharding(mesh, PartitionSpec('data'))`, or one per column: "
        "`{'x': ..., 'y': ...}`"
    )
    for name, one in sharding.items() if isinstance(sharding, Mapping) else [(None, sharding)]:
        if not isinstance(one, Sharding):
            what = "`sharding`" if name is None else f"`sharding` of `{name}`"
            raise InvalidArgumentError(f"{what} is {one!r}, which is not a JAX sharding", hint=hint)
    if not isinstance(sharding, Mapping) or set(sharding) == set(names):
        return sharding
    missing = set(names) - set(sharding)
    if is_transformed and MASK not in missing:
        # A transform may return other columns.
        return sharding
    first = next(iter(sharding.values()), None)
    if (
        not is_asked_for
        and (missing == {MASK} or is_transformed)
        and isinstance(first, NamedSharding)
    ):
        axes = first.spec[: 2 if is_stacked else 1]
        return {**sharding, MASK: NamedSharding(first.mesh, PartitionSpec(*axes))}
    if is_transformed:
        return sharding
    listed = ", ".join(f"`{name}`" for name in names)
    raise InvalidArgumentError(
        f"`sharding` must have one entry for each column: {listed}", hint=hint
    )


def open_native(options: LoaderOptions) -> BatchLoader:
    """Open the native loader; a value of a wrong type is an error that names its argument."""
    try:
        return BatchLoader(options)
    except (TypeError, OverflowError) as error:
        argument = str(error).rpartition(".")[2].rstrip("'")
        value = getattr(options, argument, None)
        argument = {"files": "path", "floats": "dtype"}.get(argument, argument)
        raise InvalidArgumentError(
            f"`{argument}` is {value!r}, which the loader does not accept",
            cause=str(error.__cause__ or error),
        ) from None


def as_memory(memory: Any) -> str:
    """Return a memory budget as text: a number is one of bytes."""
    if isinstance(memory, str):
        return memory
    try:
        return f"{operator.index(memory)}B"
    except TypeError:
        raise InvalidArgumentError(
            f"`memory` is {memory!r}, but must be an amount of memory",
            hint='use `memory="256MiB"`, or a number of bytes',
        ) from None


def find_shard(rank: int | None, world: int | None, sharding: object) -> tuple[int, int]:
    """Return the number of this process, and how many there are."""
    if (rank is None) != (world is None):
        raise InvalidArgumentError("`rank` and `world` must be given together")
    if rank is not None and world is not None:
        rank, world = as_integer("rank", rank), as_integer("world", world)
        if not 0 <= rank < world:
            raise InvalidArgumentError(
                f"`rank` is {rank}, but must be at least 0 and below `world`, which is {world}"
            )
        return rank, world
    if sharding is None:
        return 0, 1
    import jax

    return jax.process_index(), jax.process_count()
