"""The columns of batches: arrays of the memory that the native loader fills, and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vramfit.data.arguments import MASK, check_names, find_dtype
from vramfit.data.buckets import Buckets
from vramfit.data.decode import BYTES, as_bytes
from vramfit.data.samples import ColumnPlan

if TYPE_CHECKING:
    import numpy as np

    Batch = dict[str, np.ndarray[Any, Any]]


class BatchColumns:
    """Makes batches of what the native loader hands out.

    Args:
        plans: The columns of datasets.
        native: The type and shape of a sample of each of them.
        derived: What the native columns behind them say, which column they are about, and their
            type and shape.
        lead: The axes before those of a sample.
        is_masked: Whether there is a mask for whole samples, unless there is one for their rows.
        buckets: Lengths that batches are cut to.
    """

    def __init__(
        self,
        plans: Sequence[ColumnPlan],
        native: Sequence[tuple[str, Sequence[int]]],
        derived: Sequence[tuple[str, int, str, Sequence[int]]],
        *,
        lead: tuple[int, ...],
        is_masked: bool,
        buckets: Sequence[int],
    ) -> None:
        self._lead = lead
        self._columns = [
            (plan.name, kind, tuple(shape))
            for plan, (kind, shape) in zip(plans, native, strict=True)
        ]
        # Masks of rows by name, with the columns that they are about.
        masks: dict[str, list[str]] = {}
        self._parts: list[str] = []
        is_one = sum(kind == MASK for kind, *_ in derived) == 1
        for what, column, kind, shape in derived:
            own = plans[column].name
            name = what if what != MASK or is_one else f"{own}_{MASK}"
            self._columns.append((name, kind, tuple(shape)))
            if what != MASK:
                self._parts.append(name)
            elif is_one:
                masks[name] = [plan.name for plan in plans if not plan.per_sample]
            else:
                masks[name] = [own]
        self._row_masks = list(masks)
        self._has_mask = is_masked and not masks
        self._buckets = Buckets(buckets, masks)
        check_names(self.names)
        self._arrays = [
            (name, kind if kind in BYTES else find_dtype(kind), shape)
            for name, kind, shape in self._columns
        ]
        # Most batches are full and have nothing but arrays, and there may be a hundred thousand a
        # second.
        self._full = [(name, (*lead, *shape), dtype) for name, dtype, shape in self._arrays]
        is_bytes = any(isinstance(dtype, str) for _, dtype, _ in self._arrays)
        self._is_plain = not (self._has_mask or masks or self._parts or is_bytes)

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [name for name, *_ in self._columns] + [MASK] * self._has_mask

    @property
    def buckets(self) -> Buckets:
        """The lengths that batches are cut to."""
        return self._buckets

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch (or a stack of them), without what elements refer to."""
        samples = math.prod(self._lead)
        return sum(
            (1 if isinstance(dtype, str) else dtype.itemsize) * samples * math.prod(shape)
            for _, dtype, shape in self._arrays
        )

    def make_batch(self, memory: Sequence[Any], valid: Sequence[int], *, is_partial: bool) -> Batch:
        """Return the batch in the memory of each column.

        Args:
            memory: The memory of each column, or a list of bytes.
            valid: How many samples of each stacked batch are real.
            is_partial: Whether the samples that are not real are left out.
        """
        import numpy as np

        if self._is_plain and (not is_partial or valid[0] == self._lead[0]):
            return {
                name: np.ndarray(shape, dtype, part)
                for (name, shape, dtype), part in zip(self._full, memory, strict=True)
            }
        lead = (valid[0],) if is_partial else self._lead
        batch: Batch = {
            name: as_bytes(part, dtype, lead, shape)
            if isinstance(dtype, str)
            else np.ndarray((*lead, *shape), dtype, part)
            for (name, dtype, shape), part in zip(self._arrays, memory, strict=True)
        }
        if not self._has_mask and not self._row_masks and not self._parts:
            return batch
        real = np.arange(lead[-1])[None, :] < np.asarray(valid)[:, None]
        real = real if len(lead) == 2 else real[0]
        if self._has_mask:
            batch[MASK] = real
        if not real.all():
            for name in (*self._row_masks, *self._parts):
                batch[name] = batch[name] * real[..., None]
        return self._buckets.cut(batch)

    def __repr__(self) -> str:
        return ", ".join(f"{name}: {kind}{list(shape)}" for name, kind, shape in self._columns)
