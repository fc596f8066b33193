"""Record small HDF5 files, one for each feature, and what h5py reads of them.

    .venv/bin/python scripts/record/hdf5.py

Writes `fixtures/hdf5/`: the files of `tests/hdf5_cases.py` that are small enough, the little-endian
bytes of what must be read (`.bin`), and `cases.json`, which says what is to be read or how it is
refused. Files that a case makes beside its own are kept, too.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from hdf5_cases import CASES  # noqa: E402
from test_hdf5 import expected  # noqa: E402

LARGEST = 20 << 10


def main():
    """Write the folder anew."""
    folder = ROOT / "fixtures" / "hdf5"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cases = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / f"{case.name}.h5"
            case.make(path)
            made = list(Path(scratch).iterdir())
            if any(file.stat().st_size > LARGEST for file in made):
                print(f"{case.name}: too large to keep, made afresh by the tests in Python only")
                continue
            entry = {"name": case.name, "dataset": case.dataset, "field": case.field}
            if case.refused is None:
                values = expected(path, case)
                little = values.astype(values.dtype.newbyteorder("<"))
                (folder / f"{case.name}.bin").write_bytes(little.tobytes())
                dtype = case.dtype or np.dtype(values.dtype).newbyteorder("=").name
                entry |= {"shape": values.shape, "dtype": dtype}
            else:
                entry |= {"refused": case.refused, "kind": case.kind}
            for file in made:
                shutil.copyfile(file, folder / file.name)
        cases.append(entry)
    versions = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}, "
    versions += f"hdf5plugin {hdf5plugin.version}"
    (folder / "cases.json").write_text(
        json.dumps({"recorded_with": versions, "cases": cases}, indent=1) + "\n"
    )
    print(f"{len(cases)} cases with {versions}")


if __name__ == "__main__":
    main()
