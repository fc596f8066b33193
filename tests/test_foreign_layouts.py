"""Windows, episodes and ragged samples of files that other packages carry, as h5py's slices.

`make foreign` fetches the files and runs this. Which samples a file could have is found in it:
where one dataset says where the rows of another begin or end, which groups have datasets of the
same name, and which axes there are.
"""

import itertools
from collections import Counter, defaultdict

import hdf5plugin  # noqa: F401, filters for h5py
import numpy as np
import pytest
from data_files import collect
from test_foreign import FILES, FOLDER, datasets, open_with_h5py

from vramfit import errors
from vramfit.data import Groups, Loader, Ragged, Rows, Windows

pytestmark = pytest.mark.foreign

MAX_BYTES = 4 << 20
# Of a file with more datasets, as many are read in each way, evenly spread.
MAX_DATASETS = 12

# Datasets of all files together, and packages that have them, shown at the end.
SEEN = Counter()
PACKAGES = defaultdict(set)


def find_arrays(file):
    """Return the datasets of numbers that are neither empty nor large, by path."""
    found = {}
    for name, dataset in datasets(file).items():
        try:
            is_number = dataset.dtype.kind in "iuf" and dataset.dtype.itemsize in (1, 2, 4, 8)
            is_array = dataset.shape and 0 not in dataset.shape and dataset.nbytes <= MAX_BYTES
            if is_number and is_array:
                found[name] = dataset[()]
        except (OSError, TypeError, ValueError):
            # What h5py cannot read is no reference.
            continue
    step = max(1, len(found) // (20 * MAX_DATASETS))
    return dict(list(found.items())[::step])


def some(found):
    """Return a few of many, evenly spread."""
    found = list(found)
    return found[:: max(1, len(found) // MAX_DATASETS)]


def is_plain_name(name):
    """Whether a path says nothing else than where a dataset is."""
    return not set("*?[]") & set(name)


def windows(values, length, stride=1):
    """Return windows of the first axis."""
    starts = range(0, len(values) - length + 1, stride)
    return np.array([values[start : start + length] for start in starts])


def find_bounds(arrays):
    """Yield how samples of a dataset are bounded: an argument, and the paths of both datasets."""
    for name, bounds in arrays.items():
        if bounds.ndim != 1 or bounds.dtype.kind not in "iu":
            continue
        steps = np.diff(bounds.astype(object))
        if (steps < 0).any() or bounds[0] < 0 or bounds[-1] == 0:
            continue
        parent = name.rpartition("/")[0]
        for other, values in arrays.items():
            if other == name or other.rpartition("/")[0] != parent or len(values) != bounds[-1]:
                continue
            if bounds[0] == 0 and len(bounds) > 1:
                yield "offsets", name, other
            # As in NWB, where a column and its index have such names.
            elif name == f"{other}_index":
                yield "ends", name, other


def find_patterns(file, arrays):
    """Return patterns of datasets that all members of a group have, with the values of each."""
    patterns = set()
    for name in arrays:
        parts = name.split("/")
        for place in range(len(parts) - 1):
            patterns.add(("/".join(parts[:place]), "/".join(parts[place + 1 :])))
    found = {}
    for parent, rest in sorted(patterns):
        members = [f"{parent}/{member}/{rest}".strip("/") for member in file[parent or "/"]]
        # A dataset that has several names is listed under one of them.
        values = [file[path][()] for path in members if path in arrays]
        if (
            1 < len(values) == len(members)
            and len({(it.dtype, it.shape[1:]) for it in values}) == 1
        ):
            found[f"{parent}/*/{rest}".strip("/")] = values
    return found


def layouts(file, arrays):
    """Yield kinds of samples: what it is called, arguments of the loader, and what it reads."""
    for name in some(name for name, values in arrays.items() if len(values) >= 3):
        values = arrays[name]
        yield "windows", name, Windows(3, stride=2), windows(values, 3, 2)
    for name in some(name for name, values in arrays.items() if values.ndim >= 2):
        values = arrays[name]
        last = np.moveaxis(values, -1, 0)
        yield "rows of the last axis", name, Rows(axis=-1), last
        if len(last) >= 2:
            yield "windows of the last axis", name, Windows(2, axis=-1), windows(last, 2)
        if values.shape[1] >= 2 and len(values) <= 100:
            trajectories = np.concatenate([windows(one, 2) for one in values])
            yield "windows of trajectories", name, Windows(2, axis=1), trajectories
    for kind, bounds, name in some(find_bounds(arrays)):
        values, offsets = arrays[name], arrays[bounds]
        offsets = offsets if kind == "offsets" else np.concatenate([[0], offsets])
        pairs = list(itertools.pairwise(offsets))
        length = max(end - start for start, end in pairs)
        if len(pairs) * int(length) * values[:1].nbytes > MAX_BYTES:
            continue
        padded = np.zeros((len(pairs), length, *values.shape[1:]), values.dtype)
        for row, (start, end) in enumerate(pairs):
            padded[row, : end - start] = values[start:end]
        yield f"ragged samples by {kind}", name, Ragged(**{kind: bounds}), padded
        if length >= 2:
            pieces = [windows(values[start:end], 2) for start, end in pairs if end - start >= 2]
            within = Windows(2, within=Ragged(**{kind: bounds}))
            yield f"windows within {kind}", name, within, np.concatenate(pieces)
    for pattern, groups in some(find_patterns(file, arrays).items()):
        if len(groups) * max(map(len, groups)) * groups[0][:1].nbytes > MAX_BYTES:
            continue
        rows = sorted(values.tobytes() for values in groups)
        yield "groups", pattern, Groups(), rows


def is_same(found, want):
    """Whether arrays are equal, with NaN at the same places."""
    return found.shape == want.shape and np.array_equal(
        found, want, equal_nan=want.dtype.kind == "f"
    )


def compare(path, name, samples, want):
    """Read samples, and return what came of it."""
    loader = Loader(path, {"v": name}, samples=samples, batch_size=64, shuffle=False, x64=True)
    found = collect(loader)
    if not isinstance(samples, Groups):
        return "equal" if is_same(found["v"], want) else "other values"
    # The order of groups is that of their names, by our rules.
    real = found["mask"] if "mask" in found else np.ones(found["v"].shape[:2], bool)
    rows = [one[keep].tobytes() for one, keep in zip(found["v"], real, strict=True)]
    return "equal" if sorted(rows) == want else "other values"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_samples_are_those_of_h5py(path):
    file = open_with_h5py(path)
    if file is None:
        return
    with file:
        arrays = {name: it for name, it in find_arrays(file).items() if is_plain_name(name)}
        found = list(layouts(file, arrays))
    failures = []
    for kind, name, samples, want in found:
        try:
            outcome = compare(path, name, samples, want)
        except errors.UnsupportedFeatureError as error:
            outcome = "unsupported: " + error.message.partition(": ")[2][:60]
        except errors.VramfitError as error:
            outcome = f"{type(error).__name__}: {error.message[:200]}"
        SEEN[kind, outcome.partition(": ")[0]] += 1
        if outcome == "equal":
            PACKAGES[kind].add(path.relative_to(FOLDER).parts[0])
        elif not outcome.startswith("unsupported"):
            failures.append(f"{kind} of {name} {samples}: {outcome}")
    assert not failures, "\n".join(failures[:20])


def test_every_layout_was_found_in_several_packages():
    assert FILES, "run `make foreign`, which fetches them"
    print()
    for (kind, outcome), count in sorted(SEEN.items()):
        print(f"{count:>8,}  {kind}: {outcome}, in files of {len(PACKAGES[kind])} packages")
    for kind, packages in (
        ("windows", 15),
        ("rows of the last axis", 15),
        ("windows of trajectories", 10),
        ("groups", 10),
        ("ragged samples by offsets", 10),
        ("ragged samples by ends", 1),
        ("windows within offsets", 8),
    ):
        assert len(PACKAGES[kind]) >= packages, (kind, sorted(PACKAGES[kind]))
