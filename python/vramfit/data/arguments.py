"""The arguments of a loader: validated, and converted to options of the native loader."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vramfit.errors import InvalidArgumentError


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """Everything that decides what the native loader reads.

    Attributes:
        path: The HDF5 file.
        columns: For each column the path of its dataset, and the type to convert it to if any.
        batch_size: Rows of a batch, all processes together.
        memory: Memory budget, such as ``"256MiB"``.
        seed: Seed of the shuffle.
        shuffle: Whether rows are shuffled.
        drop_last: Whether the rows that do not fill the last batch are dropped.
        stacked_batches: Batches stacked into one; None for single batches.
        split: Which set (``"train"`` or ``"validation"``), the fraction of rows for validation, how
            these are chosen (``"spread"`` or ``"tail"``), and the seed of the choice; None for all.
        shard: The number of this process, and how many read together.
        threads: Reader threads; None for the default.
        floats: The type of all floats for which `columns` names none.
        narrow: Whether 64-bit types become 32-bit types.
        poison: Whether memory is overwritten when it comes back, for tests.
    """

    path: str | os.PathLike[str]
    columns: Sequence[tuple[str, str | None]]
    batch_size: int
    memory: str
    seed: int
    shuffle: bool
    drop_last: bool
    stacked_batches: int | None
    split: tuple[str, float, str, int] | None
    shard: tuple[int, int]
    threads: int | None
    floats: str | None
    narrow: bool
    poison: bool


def name_columns(datasets: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return the dataset of each column name."""
    if isinstance(datasets, str):
        return {datasets: datasets}
    if isinstance(datasets, Mapping):
        return dict(datasets)
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


def describe_types(dtype: Any, names: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
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


def as_integer(name: str, number: Any) -> int:
    """Return an integer of any integer type as `int`."""
    try:
        return operator.index(number)
    except TypeError:
        raise InvalidArgumentError(
            f"`{name}` is {number!r}, but must be an integer",
            hint=f"use `{name}=int(...)`" if isinstance(number, float) else None,
        ) from None


def check_counts(**numbers: int | None) -> None:
    """Check that numbers are positive integers, if given."""
    for name, number in numbers.items():
        if number is not None and not 1 <= as_integer(name, number) < 1 << 63:
            raise InvalidArgumentError(f"`{name}` is {number}, but must be at least 1")


def check_sharding(sharding: Any, names: Sequence[str], *, is_transformed: bool) -> None:
    """Check that it is a sharding, or a dictionary of one for each column."""
    if sharding is None:
        return
    from jax.sharding import Sharding

    hint = (
        "use `NamedSharding(mesh, PartitionSpec('data'))`, or one per column: "
        "`{'x': ..., 'y': ...}`"
    )
    for name, one in sharding.items() if isinstance(sharding, Mapping) else [(None, sharding)]:
        if not isinstance(one, Sharding):
            what = "`sharding`" if name is None else f"`sharding` of `{name}`"
            raise InvalidArgumentError(f"{what} is {one!r}, which is not a JAX sharding", hint=hint)
    # A transform may return other columns.
    if isinstance(sharding, Mapping) and not is_transformed and set(sharding) != set(names):
        listed = ", ".join(f"`{name}`" for name in names)
        raise InvalidArgumentError(
            f"`sharding` must have one entry for each column: {listed}", hint=hint
        )


def describe_split(
    split: tuple[str, float] | tuple[str, float, str] | None, seed: int
) -> tuple[str, float, str, int] | None:
    """Return the set, the fraction, the mode and the seed, as the native loader expects them."""
    if split is None:
        return None
    name, fraction, *mode = split
    return name, fraction, mode[0] if mode else "spread", seed


def find_shard(rank: int | None, world: int | None, sharding: object) -> tuple[int, int]:
    """Return the number of this process, and how many there are."""
    if (rank is None) != (world is None):
        raise InvalidArgumentError("`rank` and `world` must be given together")
    if rank is not None and world is not None:
        if not 0 <= rank < world:
            raise InvalidArgumentError(
                f"`rank` is {rank}, but must be at least 0 and below `world`, which is {world}"
            )
        return rank, world
    if sharding is None:
        return 0, 1
    import jax

    return jax.process_index(), jax.process_count()
