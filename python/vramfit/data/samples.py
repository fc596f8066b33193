"""What a sample is: a row, a window of rows, a group of rows, or rows between two offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vramfit.data.checks import (
    as_integer,
    check_choice,
    check_columns,
    check_counts,
    check_optional_counts,
    check_path,
)
from vramfit.errors import InvalidArgumentError


@dataclass(frozen=True)
class Rows:
    """A sample is a row of each dataset.

    Attributes:
        trim: Whether the datasets of a group may have different numbers of rows. A sample then
            begins at each row that all of them have; a shift may reach rows that only some have.
        axis: The axis that samples are on: 0, or -1 for the last one, as in files of MATLAB, where
            the shape of a dataset is (features, samples) or (height, width, channels, samples). A
            sample then has the other axes: (features,), (height, width, channels). A dictionary
            has the axis of each column that is not on axis 0: ``{"labels": -1}`` for labels of
            shape (1, samples). Datasets of one axis have it on both.

    Raises:
        InvalidArgumentError: `axis` is neither 0 nor -1.
    """

    trim: bool = False
    axis: int | Mapping[str, int] = 0

    def __post_init__(self) -> None:
        what = "samples are read from the first or the last axis"
        _check_axis("Rows", self.axis, (0, -1), what)

    def _lengths(self) -> Mapping[str, int]:
        return {}

    def _to_json(self) -> str:
        return json.dumps({"kind": "rows"})


@dataclass(frozen=True)
class Windows:
    """A sample is several consecutive rows, on an axis of their own.

    Windows do not cross from one group to the next: a group is what a wildcard in the path of a
    dataset stands for, or the whole file without a wildcard.

    Attributes:
        length: Rows of a window, or a dictionary with the number for each column.
        stride: Rows from the start of one window to the start of the next.
        pad: What a window has where its group has no rows. ``"none"``: windows lie in their group.
            ``"zeros"`` or ``"repeat"`` (the nearest row): every row, or every one at a multiple of
            the stride, begins a window.
        within: What windows do not cross: a ``"group"``, a ``"file"``, or nothing with ``"all"``;
            or the samples of a :class:`Ragged`, such as episodes that follow each other in one
            dataset: ``Windows(16, within=Ragged(ends="episode_ends"))``.
        trim: Whether the datasets of a group may have different numbers of rows. A window then
            begins at each row that all of them have, and is as long as its column allows. Only with
            ``within="group"``.
        axis: The axis that rows are on: 0; -1 for the last one, as in recordings of several
            channels: (channels, time), of which a window is (length, channels); or 1 where each
            place of axis 0 is a series of its own, as in files of trajectories: (trajectories,
            time, ...). Windows then do not cross from one place to the next, and have the axes
            behind axis 1. A dictionary has the axis of each column that is not on axis 0:
            ``{"eeg": -1}``.

    Raises:
        InvalidArgumentError: An attribute is not one of these.
    """

    length: int | Mapping[str, int]
    stride: int = 1
    pad: Literal["none", "zeros", "repeat"] = "none"
    within: Literal["group", "file", "all"] | Ragged = "group"
    trim: bool = False
    axis: int | Mapping[str, int] = 0

    def __post_init__(self) -> None:
        lengths = list(self.length.values()) if isinstance(self.length, Mapping) else [self.length]
        if not lengths or None in lengths:
            raise InvalidArgumentError(
                f"`length` of `Windows` is {self.length!r}, but must be a number of rows",
                hint="use `Windows(length=16)`, or a number for each column",
            )
        for length in lengths:
            check_counts(length=length)
        check_counts(stride=self.stride)
        check_choice("pad", self.pad, ("none", "zeros", "repeat"))
        if isinstance(self.within, Ragged):
            self._check_bounded(self.within)
        else:
            check_choice("within", self.within, ("group", "file", "all"))
        choices = (0, -1) if isinstance(self.axis, Mapping) else (0, 1, -1)
        _check_axis(
            "Windows",
            self.axis,
            choices,
            "windows are read along the first axis, the last one, or the second where each place "
            "of the first is a series of every column",
        )
        if self.axis == 1 and self.within != "group":
            raise InvalidArgumentError(
                f"`within` of `Windows` is {self.within!r}, but windows along axis 1 do not cross "
                "from one place of axis 0 to the next",
                hint="leave `within` out",
            )

    def _check_bounded(self, within: Ragged) -> None:
        if within != Ragged(within.offsets, within.lengths, within.ends):
            raise InvalidArgumentError(
                f"`within` of `Windows` is {within!r}, but only its bounds are used",
                hint='name the dataset alone: `within=Ragged("offsets")`',
            )
        if self.trim:
            raise InvalidArgumentError(
                "`trim` of `Windows` is for datasets of groups, and not for samples of a `Ragged`",
                hint="leave `trim` out",
            )

    def _lengths(self) -> Mapping[str, int]:
        return self.length if isinstance(self.length, Mapping) else {}

    def _to_json(self) -> str:
        length = 1 if isinstance(self.length, Mapping) else as_integer("length", self.length)
        return json.dumps(
            {
                "kind": "windows",
                "length": length,
                "stride": as_integer("stride", self.stride),
                "padding": self.pad,
                **_describe_within(self.within),
                # Not said of the first axis, as in states of before there was another.
                **({"axis": 1} if self.axis == 1 else {}),
            }
        )


@dataclass(frozen=True)
class Groups:
    """A sample is all rows of a group, such as an episode, on an axis of their own.

    Attributes:
        length: Rows of a sample. The default is those of the longest group, for each column.
        pad: What follows the rows of a shorter group: ``"zeros"`` or ``"repeat"`` (its last row).
        truncate: Whether rows beyond `length` are left out. Otherwise a longer group is an error.
        buckets: Lengths to which batches are cut: a batch has as many rows as the smallest of them
            that holds its longest sample. A compiled step is compiled once for each.
    """

    length: int | None = None
    pad: Literal["zeros", "repeat"] = "zeros"
    truncate: bool = False
    buckets: Sequence[int] = ()
    trim: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        check_optional_counts(length=self.length)
        check_choice("pad", self.pad, ("zeros", "repeat"))
        object.__setattr__(self, "buckets", _sort_buckets(self.buckets))

    def _lengths(self) -> Mapping[str, int]:
        return {}

    def _to_json(self) -> str:
        return json.dumps(
            {
                "kind": "groups",
                "length": _as_length(self.length),
                "padding": self.pad,
                "truncate": bool(self.truncate),
            }
        )


@dataclass(frozen=True)
class Ragged:
    """A sample is the rows between two offsets, such as a document of a token stream.

    The rows of sample ``i`` are ``offsets[i]`` to ``offsets[i + 1]`` of each dataset, as in the
    ``indptr`` of a CSR matrix. They come on an axis of their own, followed by zeros.

    Attributes:
        offsets: The dataset of the offsets, one more than there are samples.
        lengths: Instead of that, the dataset of the number of rows of each sample.
        ends: Instead of that, the dataset of where each sample ends, such as the ``episode_ends``
            of a replay buffer or the index of a column of NWB.
        length: Rows of a sample. The default is those of the longest sample.
        truncate: Whether rows beyond `length` are left out. Otherwise a longer sample is an error.
        pack: Whether samples follow each other without gaps in sequences of `length` rows. Two
            columns are added: ``segment_ids`` numbers the samples of a sequence from 1 (0 is
            padding), and ``positions`` the rows of each of them in that sequence from 0.
        per_sample: Columns with one row for each sample, such as labels.
        buckets: Lengths to which batches are cut, as for :class:`Groups`.
    """

    offsets: str | None = None
    lengths: str | None = None
    ends: str | None = None
    length: int | None = None
    truncate: bool = False
    pack: bool = False
    per_sample: Sequence[str] = ()
    buckets: Sequence[int] = ()
    trim: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        given = self._bounds()
        if len(given) != 1:
            raise InvalidArgumentError(
                "`Ragged` needs one of `offsets`, `lengths` and `ends`",
                hint='name the dataset: `Ragged("indptr")` or `Ragged(lengths="n_atoms")`',
            )
        for name, path in given.items():
            check_path(name, path)
        check_optional_counts(length=self.length)
        listed = (self.per_sample,) if isinstance(self.per_sample, str) else self.per_sample
        if not isinstance(listed, list | tuple) or not all(isinstance(it, str) for it in listed):
            raise InvalidArgumentError(
                f"`per_sample` is {self.per_sample!r}, but must be names of columns",
                hint='use `per_sample=["label"]`',
            )
        object.__setattr__(self, "per_sample", tuple(listed))
        object.__setattr__(self, "buckets", _sort_buckets(self.buckets))
        if self.pack and self.buckets:
            raise InvalidArgumentError(
                "packed samples have one length", hint="use either `pack` or `buckets`"
            )

    def _lengths(self) -> Mapping[str, int]:
        return {}

    def _bounds(self) -> dict[str, str]:
        """Return the path of the dataset of the bounds, by what it has."""
        bounds = {"offsets": self.offsets, "lengths": self.lengths, "ends": self.ends}
        return {name: path for name, path in bounds.items() if path is not None}

    def _to_json(self) -> str:
        return json.dumps(
            {
                "kind": "ragged",
                "bounds": self._bounds(),
                "length": _as_length(self.length),
                "truncate": bool(self.truncate),
                "pack": bool(self.pack),
            }
        )


def _describe_within(within: str | Ragged) -> dict[str, Any]:
    if isinstance(within, Ragged):
        return {"within": "group", "bounds": within._bounds()}
    return {"within": within}


def _check_axis(
    samples: str, axis: int | Mapping[str, int], choices: Sequence[int], what: str
) -> None:
    """Check that rows are read from an axis.

    Args:
        samples: The name of the class.
        axis: Its attribute.
        choices: What it may be.
        what: Which axes these are.
    """
    for one in axis.values() if isinstance(axis, Mapping) else [axis]:
        if isinstance(one, bool) or one not in choices:
            *others, last = map(str, choices)
            raise InvalidArgumentError(
                f"`axis` of `{samples}` is {one!r}, but must be {', '.join(others)} or {last}",
                hint=f"{what}; for another one, copy the dataset with `numpy.moveaxis`",
            )


def _axis_of(samples: Samples, column: str) -> int:
    """Return the axis that the rows of a column are on."""
    axis = getattr(samples, "axis", 0)
    return axis.get(column, 0) if isinstance(axis, Mapping) else axis


def _sort_buckets(buckets: Any) -> tuple[int, ...]:
    if not isinstance(buckets, list | tuple):
        raise InvalidArgumentError(
            f"`buckets` is {buckets!r}, but must be numbers of rows", hint="use `buckets=[64, 256]`"
        )
    for length in buckets:
        check_counts(bucket=length)
    return tuple(sorted({as_integer("bucket", length) for length in buckets}))


def _as_length(length: int | None) -> int | None:
    return None if length is None else as_integer("length", length)


Samples = Rows | Windows | Groups | Ragged


ColumnArgument = tuple[
    str, str | None, int, int | None, bool, tuple[list[float], list[float]] | None, bool, bool
]
"""A column as the native loader expects it: the attributes of :class:`ColumnPlan` but its name, and
between them the arguments of :meth:`ColumnPlan.to_native`."""


@dataclass(frozen=True)
class ColumnPlan:
    """The dataset of a column, and which of its rows a sample has.

    Attributes:
        name: The name of the column.
        dataset: The path of its dataset.
        shift: Rows from where a sample is to the first one that it has of this column.
        length: Rows of a window, if the column has a number of its own.
        per_sample: Whether it has one row for each ragged sample.
        is_last_axis: Whether its rows are on the last axis.
    """

    name: str
    dataset: str
    shift: int = 0
    length: int | None = None
    per_sample: bool = False
    is_last_axis: bool = False

    def to_native(
        self,
        kind: str | None = None,
        scale: tuple[list[float], list[float]] | None = None,
        *,
        is_bytes: bool = False,
    ) -> ColumnArgument:
        """Return the column as the native loader expects it.

        Args:
            kind: The type to convert it to, if any.
            scale: Means and standard deviations to normalize it with, if any.
            is_bytes: Whether its elements are text or bytes.
        """
        rows = self.shift, self.length, self.per_sample
        return self.dataset, kind, *rows, scale, is_bytes, self.is_last_axis


def plan_columns(
    names: Mapping[str, str], samples: Any, shift: Mapping[str, tuple[str, int] | int] | None
) -> list[ColumnPlan]:
    """Return the columns: those of datasets, and those that are shifted from them."""
    if not isinstance(samples, Samples):
        raise InvalidArgumentError(
            f"`samples` is {samples!r}, which does not describe a sample",
            hint='use `Rows()`, `Windows(length=16)`, `Groups()` or `Ragged("offsets")` of '
            "`vramfit.data`",
        )
    shifted = _read_shift(shift, names)
    all_names = [*names, *(name for name in shifted if name not in names)]
    lengths = samples._lengths()
    per_sample = samples.per_sample if isinstance(samples, Ragged) else ()
    axes = getattr(samples, "axis", 0)
    for what, mentioned in (
        (f"{type(samples).__name__}(axis=...)", axes if isinstance(axes, Mapping) else ()),
        ("Windows(length=...)", lengths),
        ("Ragged(per_sample=...)", per_sample),
    ):
        check_columns(what, mentioned, all_names)
    if lengths and (missing := [name for name in all_names if name not in lengths]):
        raise InvalidArgumentError(
            f"`Windows(length=...)` has no length for `{missing[0]}`",
            hint="give one for every column, or one number for all",
        )
    columns = []
    for name in all_names:
        source, rows = shifted.get(name, (name, 0))
        length = lengths.get(name)
        columns.append(
            ColumnPlan(
                name,
                names[source],
                shift=rows,
                length=None if length is None else as_integer("length", length),
                per_sample=name in per_sample,
                is_last_axis=_axis_of(samples, name) == -1,
            )
        )
    return columns


def _read_shift(shift: Any, names: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    if shift is None:
        return {}
    hint = 'use `shift={"next_obs": ("obs", 1)}`: the column `obs`, one row later'
    if not isinstance(shift, Mapping):
        raise InvalidArgumentError(f"`shift` is {shift!r}, but must be a dictionary", hint=hint)
    shifted = {}
    for name, entry in shift.items():
        source, rows = (
            entry if isinstance(entry, tuple | list) and len(entry) == 2 else (name, entry)
        )
        if not isinstance(source, str) or source not in names:
            there = ", ".join(f"`{known}`" for known in names)
            raise InvalidArgumentError(
                f"`shift` of `{name}` refers to {source!r}, which is not a column",
                hint=f"the columns are {there}",
            )
        if name in names and source != name:
            raise InvalidArgumentError(
                f"`shift` makes a column `{name}` of `{source}`, but `{name}` is a column already",
                hint=hint,
            )
        shifted[name] = (source, as_integer(f"shift of {name}", rows))
    return shifted
