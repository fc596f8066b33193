"""Files of many layouts whose values say where they are, and what loaders make of them."""

import h5py
import numpy as np

STORAGES = {
    "contiguous": {},
    "gzip": {"chunks": True, "compression": "gzip"},
    "small chunks": {"chunks": (7, 3), "compression": "lzf"},
}


def write_series(path, lengths, storage=None, extra=0):
    """Write groups `data/demo_<n>` whose values say which group and row they are.

    `obs` has `extra` rows more than `action`.
    """
    with h5py.File(path, "w") as f:
        for number, length in enumerate(lengths):
            group = f.create_group(f"data/demo_{number}")
            for name, rows, width in (("obs", length + extra, 3), ("action", length, 2)):
                values = number * 1000 + np.arange(rows)[:, None] + np.arange(width) / 10
                options = dict(storage or {}) if rows else {}
                if isinstance(options.get("chunks"), tuple):
                    options["chunks"] = (options["chunks"][0], min(options["chunks"][1], width))
                options |= {"maxshape": (None, width)} if options.get("chunks") else {}
                group.create_dataset(name, data=values.astype("f4"), **options)
    return path


def read_series(path, name):
    """Return the rows of each group, by h5py, in the order of their numbers."""
    with h5py.File(path) as f:
        groups = sorted(f["data"], key=lambda group: int(group.split("_")[1]))
        return [f["data"][group][name][()] for group in groups]


def define_windows(series, length, stride, pad, shift=0, lengths=None):
    """Return the windows of each group by their definition, and which rows are real."""
    windows, masks = [], []
    for number, rows in enumerate(series):
        count = lengths[number] if lengths else len(rows)
        for start in range(0, count, stride):
            numbers = start + shift + np.arange(length)
            real = (numbers >= 0) & (numbers < len(rows))
            if pad == "none" and not real.all():
                continue
            window = rows[np.clip(numbers, 0, len(rows) - 1)]
            windows.append(np.where(real[:, None], window, 0) if pad == "zeros" else window)
            masks.append(real)
    return np.array(windows), np.array(masks)


def collect(loader, epoch=0):
    """Return all samples of an epoch, in the order in which they came."""
    batches = [{name: part.copy() for name, part in batch.items()} for batch in loader.epoch(epoch)]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def read_resumed(make, batches):
    """Read some batches, and the rest with another loader that has the state of the first."""
    loader, resumed = make(), make()
    iterator = iter(loader)
    seen = [next(iterator) for _ in range(batches)]
    resumed.restore(loader.state())
    return [*seen, *resumed]


def as_set(array):
    """Return the samples of an array in an order of their own."""
    rows = array.reshape(len(array), -1)
    return array[np.lexsort(rows.T[::-1])]


COLUMNS = {"obs": "data/*/obs", "action": "data/*/action"}


def write_ragged(path, lengths, storage=None, start=0):
    """Write documents one after the other, their offsets, and a label of each."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    with h5py.File(path, "w") as f:
        tokens = start + np.arange(offsets[-1])
        maxshape = {"maxshape": (None,)} if storage else {}
        f.create_dataset("tokens", data=tokens, **(storage or {}), **maxshape)
        f["offsets"] = offsets
        f["lengths"] = np.array(lengths)
        f["ends"] = offsets[1:]
        f["label"] = start + np.arange(len(lengths))
    return path


def write_shards(folder, sizes, **options):
    """Write files whose rows are numbered through all of them."""
    folder.mkdir(exist_ok=True)
    start = 0
    for number, size in enumerate(sizes):
        with h5py.File(folder / f"shard_{number}.h5", "w") as f:
            rows = start + np.arange(size)
            maxshape = {"maxshape": (None, 5)} if options else {}
            f.create_dataset("x", data=rows[:, None] + np.arange(5) / 10, **options, **maxshape)
            f["y"] = rows
        start += size
    return start


def write_bytes(path, numbers, **options):
    """Write elements of every kind of text and bytes, each of which says its number."""
    with h5py.File(path, "w") as f:
        image = f.create_dataset("image", len(numbers), h5py.vlen_dtype("uint8"), **options)
        caption = f.create_dataset("caption", len(numbers), h5py.string_dtype(), **options)
        for place, number in enumerate(numbers):
            image[place] = np.frombuffer(encode(number), "uint8")
            caption[place] = f"bild {number} ä" * (number % 4)
        f["fixed"] = np.array([f"n{number}".encode() for number in numbers], "S9")
        f["opaque"] = np.array([number.to_bytes(4, "little") + b"\0" for number in numbers], "V5")
        f["number"] = np.array(numbers)
    return path


def encode(number):
    return bytes([number % 251]) * (number * 37 % 5000)
