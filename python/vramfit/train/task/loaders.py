"""The loaders that a configuration describes: training and validation data, both streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramfit.data import Loader

Batch = dict[str, Any]


def find_split(config: Mapping[str, Any], part: str) -> tuple[str, float] | None:
    """Return the split of the data file for `train` or `validation`; None where it is not split.

    Args:
        config: A whole configuration.
        part: The name of the set.
    """
    own = config["data"]
    is_split = own["validation_path"] is None and own["validation_fraction"] > 0
    return (part, own["validation_fraction"]) if is_split else None


def open_loaders(
    config: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[Loader, Loader | None]:
    """Return the loaders of training and validation data; no validation without its data.

    Args:
        config: A whole configuration.
        data: What is known of the data: shapes, types, classes.
    """
    from vramfit.data import Loader
    from vramfit.train.devices import batch_sharding

    own = config["data"]
    stacked = config["training"]["steps_per_dispatch"]
    columns = {"inputs": own["inputs"], "targets": own["targets"]}
    if own["inputs"] == own["targets"]:
        del columns["targets"]
    device = config["training"]["device"]
    validation_path = own["validation_path"]

    def open_loader(
        path: str, part: str, *, stacked_batches: int | None = None, **options: Any
    ) -> Loader:
        return Loader(
            path,
            columns,
            batch_size=own["batch_size"],
            seed=own["seed"],
            memory=own["memory"],
            dtype={name: data[name]["batch_dtype"] for name in columns},
            transform=sequence_transform(
                own["sequence_length"],
                # Sequences are [rows, steps, ...], and in a stack [batches, rows, steps, ...].
                axis=2 if stacked_batches else 1,
                has_targets="targets" in columns,
                predicts_next=data["predicts_next"],
            ),
            split=find_split(config, part),
            stacked_batches=stacked_batches,
            **options,
        )

    train = open_loader(
        own["path"],
        "train",
        shuffle=own["shuffle"],
        drop_last=True,
        stacked_batches=stacked if stacked > 1 else None,
        sharding=batch_sharding(device, stacked=stacked > 1),
    )
    if find_split(config, "validation") is None and validation_path is None:
        return train, None
    validation = open_loader(
        validation_path or own["path"],
        "validation",
        shuffle=False,
        mask=True,
        sharding=batch_sharding(device),
    )
    return train, validation


def sequence_transform(
    length: int | None, *, axis: int, has_targets: bool, predicts_next: bool
) -> Callable[[Batch], Batch] | None:
    """Return what makes inputs and targets of a batch of the loader; None if it has them already.

    Args:
        length: How many of the last steps are kept; None for all.
        axis: The axis of the steps.
        has_targets: Whether targets are a dataset of their own.
        predicts_next: Whether the target of each step is the next step.
    """
    if length is None and has_targets:
        return None

    def steps(values: Any, first: int | None, end: int | None = None) -> Any:
        return values[(slice(None),) * axis + (slice(first, end),)]

    def transform(batch: Batch) -> Batch:
        inputs = batch["inputs"]
        targets = batch["targets"] if has_targets else inputs
        if predicts_next:
            inputs, targets = steps(inputs, None, -1), steps(targets, 1)
        if length is not None:
            inputs = steps(inputs, -length)
            targets = steps(targets, -length) if predicts_next else targets
        return {**batch, "inputs": inputs, "targets": targets}

    return transform
