"""Many files and groups as one order of samples, and whether they are still the same."""

import json
import os
import re
import textwrap
import zlib

import h5py
import numpy as np
import pytest
from commands import run_python, run_vramfit
from data_files import COLUMNS, collect, read_resumed, write_series, write_shards

from vramfit.data import HDF5Source, Loader, Ragged
from vramfit.errors import (
    FileChangedError,
    InvalidArgumentError,
    InvalidFileError,
    UnsupportedFeatureError,
    VramfitError,
)


@pytest.mark.parametrize("options", [{}, {"chunks": (6, 5), "compression": "gzip"}])
def test_t1_many_files_are_one_order(tmp_path, options):
    folder = tmp_path / "shards"
    total = write_shards(folder, [40, 1, 77, 13, 8, 20, 33, 60, 5, 9, 100, 2], **options)
    for path in (folder, str(folder / "*.h5"), [*map(str, sorted(folder.iterdir()))]):
        loader = Loader(path, ["x", "y"], batch_size=16, memory="512KiB")
        epochs = [collect(loader, epoch) for epoch in range(2)]
        for epoch in epochs:
            assert sorted(epoch["y"].tolist()) == list(range(total))
            assert np.allclose(epoch["x"], epoch["y"][:, None] + np.arange(5) / 10)
        assert epochs[0]["y"].tolist() != epochs[1]["y"].tolist()
    in_order = collect(Loader(folder, "y", shuffle=False, batch_size=16))
    assert in_order["y"].tolist() == list(range(total)), "shard_2 comes before shard_10"


def test_more_files_than_may_be_open(tmp_path):
    folder = tmp_path / "shards"
    total = write_shards(folder, [3] * 150)
    code = f"""
        import resource
        import numpy as np
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        from vramfit.data import Loader
        loader = Loader({str(folder)!r}, "y", batch_size=9, memory="1MiB")
        print(sorted(np.concatenate([b["y"] for b in loader]).tolist()) == list(range({total})))
    """
    import subprocess
    import sys
    import textwrap

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


def test_loaders_share_the_limit_of_open_files(tmp_path):
    for number in range(6):
        write_shards(tmp_path / str(number), [3] * 40)
    code = f"""
        import os, resource
        import numpy as np
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        from vramfit.data import HDF5Source, Loader

        def count():
            return len(os.listdir("/proc/self/fd"))

        folders = [os.path.join({str(tmp_path)!r}, str(number)) for number in range(6)]
        before = count()
        source = HDF5Source(folders[5], "y")
        loaders = [Loader(folder, "y", batch_size=9, memory="1MiB") for folder in folders[:5]]
        for epoch in range(2):
            read = [[] for _ in loaders]
            for batches in zip(*(loader.epoch(epoch) for loader in loaders)):
                for rows, batch in zip(read, batches):
                    rows.extend(batch["y"].tolist())
            assert all(sorted(rows) == list(range(120)) for rows in read)
            assert source.read_rows(range(120))["y"].tolist() == list(range(120))
        # What the program has open itself is not known, and counts as well.
        held = [open(os.devnull) for _ in range(55 - count())]
        assert len(list(loaders[0])) == 14
        del held
        if (child := os.fork()) == 0:
            found = [b["y"].copy() for b in Loader(folders[0], "y", batch_size=9, memory="1MiB")]
            assert source.read_rows([7])["y"] == [7]
            os._exit(sorted(np.concatenate(found).tolist()) != list(range(120)))
        assert os.waitpid(child, 0)[1] == 0
        for loader in loaders:
            loader.close()
        del loaders, loader, source, batches, batch
        assert count() <= before, (before, count())
    """
    run_python("-c", textwrap.dedent(code), code=0)


def test_a_file_that_is_unlike_the_others_is_named(tmp_path):
    folder = tmp_path / "shards"
    write_shards(folder, [5, 5])
    with h5py.File(folder / "shard_7.h5", "w") as f:
        f["x"], f["y"] = np.zeros((5, 4)), np.arange(5)
    with pytest.raises(InvalidArgumentError, match=r"shard_7.h5.*shape \[4\].*shape \[5\]"):
        Loader(folder, ["x", "y"], batch_size=2)
    with h5py.File(folder / "shard_7.h5", "w") as f:
        f["x"], f["y"] = np.zeros((5, 5), "f4"), np.arange(5)
    with pytest.raises(InvalidArgumentError, match=r"shard_7.h5. is float32.*float64"):
        Loader(folder, ["x", "y"], batch_size=2)
    assert Loader(folder, ["x", "y"], batch_size=2, dtype="float32").rows == 15
    with h5py.File(folder / "shard_7.h5", "w") as f:
        f["y"] = np.arange(5)
    with pytest.raises(InvalidArgumentError, match=r"shard_7.h5` contains no `x`"):
        Loader(folder, ["x", "y"], batch_size=2)
    (folder / "shard_7.h5").unlink()
    loader = Loader(folder, ["x", "y"], batch_size=2)
    with h5py.File(folder / "shard_1.h5", "a") as f:
        f["x"][0] = 7
    with pytest.raises(FileChangedError, match=r"shard_1\.h5"):
        collect(loader)
    with pytest.raises(VramfitError, match=r"missing\.h5"):
        Loader([folder / "shard_0.h5", folder / "missing.h5"], "y", batch_size=2)
    with pytest.raises(InvalidArgumentError, match="no file matches"):
        Loader(str(folder / "none_*.h5"), "y", batch_size=2)


def test_groups_that_cannot_be_read_are_errors(tmp_path):
    for name in ("e1", "e2"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as f:
            f["g/x"] = np.arange(5)
            f["off"] = np.array([0, 3, 5])
    with h5py.File(tmp_path / "w.h5", "w") as f:
        f["d/a"] = h5py.ExternalLink("e1.h5", "/g")
        f["d/b"] = h5py.ExternalLink("e2.h5", "/g")
        f["d/c"] = h5py.SoftLink("/nowhere")
        f["off"] = h5py.ExternalLink("e1.h5", "/off")
        f["x"] = np.arange(5)
    assert Loader(tmp_path / "w.h5", "d/*/x", batch_size=1).rows == 10
    ragged = {"samples": Ragged("off"), "batch_size": 1}
    loader = Loader(tmp_path / "w.h5", "x", **ragged)
    next(iter(loader))
    with h5py.File(tmp_path / "e1.h5", "a") as f:
        f["off"][:] = [0, 1, 5]
    with pytest.raises(FileChangedError):
        Loader(tmp_path / "w.h5", "x", **ragged).restore(loader.state())
    (tmp_path / "e2.h5").rename(tmp_path / "gone.h5")
    with pytest.raises(VramfitError, match=r"e2\.h5"):
        Loader(tmp_path / "w.h5", "d/*/x", batch_size=1)


def test_a_state_is_of_these_files_in_this_order(tmp_path):
    names = ("a.h5", "b.h5")
    for number, name in enumerate(names):
        with h5py.File(tmp_path / name, "w", track_times=False) as f:
            f["x"] = np.arange(20) + 100 * number
            f["y"] = np.arange(20)
        os.utime(tmp_path / name, (10**9, 10**9))
    paths = [tmp_path / name for name in names]
    state = Loader(paths, "x", batch_size=3).state()
    Loader(paths, "x", batch_size=3).restore(state)
    one = Loader(paths[0], "x", batch_size=3).state()
    for other in (paths[::-1], paths[0]):
        with pytest.raises((FileChangedError, InvalidArgumentError)):
            Loader(other, "x", batch_size=3).restore(state)
    for path, dataset in ((paths[1], "x"), (paths[0], "y")):
        with pytest.raises(FileChangedError):
            Loader(path, dataset, batch_size=3).restore(one)
    with pytest.raises(InvalidArgumentError, match="given twice"):
        Loader([paths[0], tmp_path / "." / "a.h5"], "x", batch_size=3)


def test_a_last_chunk_without_padding_is_shuffled_and_resumed(tmp_path):
    values = np.arange(1000, 1470, dtype="i4").reshape(235, 2)
    with h5py.File(tmp_path / "f.h5", "w") as f:
        x = f.create_dataset("x", (235, 2), "i4", chunks=(8, 2), compression="gzip")
        x[:232] = values[:232]
        x.id.write_direct_chunk((232, 0), zlib.compress(values[232:].tobytes()))
    seen = read_resumed(lambda: Loader(tmp_path / "f.h5", "x", batch_size=16), 5)
    seen = np.concatenate([batch["x"] for batch in seen])
    assert seen.tolist() != values.tolist()
    assert sorted(seen.tolist()) == values.tolist()
    with h5py.File(tmp_path / "f.h5", "a") as f:
        f["x"].id.write_direct_chunk((232, 0), zlib.compress(values[232:234].tobytes()))
    with pytest.raises(VramfitError, match=r"chunk 29 of dataset `x`: it decodes to 16 bytes"):
        collect(Loader(tmp_path / "f.h5", "x", batch_size=16))


def test_the_budget_that_an_error_names_is_enough(tmp_path):
    path = write_series(tmp_path / "f.h5", [20] * 200)
    with pytest.raises(InvalidArgumentError, match="memory budget") as error:
        Loader(path, COLUMNS, batch_size=8, memory="20KiB")
    enough = int(error.value.hint.split("(")[1].split()[0])
    assert Loader(path, COLUMNS, batch_size=8, memory=enough).rows == 4000


def test_more_external_files_than_may_be_open(tmp_path):
    with h5py.File(tmp_path / "all.h5", "w") as f:
        for number in range(200):
            f[f"d/{number}"] = h5py.ExternalLink(f"e{number}.h5", "/")
            with h5py.File(tmp_path / f"e{number}.h5", "w") as other:
                other["x"] = [number]
    code = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        from vramfit.data import Loader
        loader = Loader({str(tmp_path / "all.h5")!r}, "d/*/x", batch_size=9, memory="1MiB")
        print(sorted(int(x) for b in loader for x in b["d/*/x"]) == list(range(200)))
    """
    run_python("-c", textwrap.dedent(code), code=0)


@pytest.mark.parametrize("address", ["s3://b/k.h5", "https://x.org/a.h5", "gs://b/x.nc"])
def test_addresses_are_refused_by_all_with_what_to_do(tmp_path, address):
    """Also where a path is one file, and not a pattern or a list."""
    hint = f'fsspec.open_local("simplecache::{address}"'
    scheme = address.split(":")[0]
    for read in (lambda: Loader(address, "x", batch_size=1), lambda: HDF5Source(address, "x")):
        with pytest.raises(UnsupportedFeatureError, match=f"not by {scheme}") as caught:
            read()
        assert hint in caught.value.hint
    (tmp_path / "m.toml").write_text(
        f'[data]\npath = "{address}"\ninputs = "x"\ntargets = "y"\n'
        '[model]\nkind = "mlp"\n[training]\ndirectory = "run"\n'
    )
    for words in (
        ("data", "inspect", address),
        ("data", "stats", address),
        ("train", "--init", "new.toml", "--data", address),
        ("train", "m.toml"),
    ):
        done = run_vramfit(*words, cwd=tmp_path, code=2)
        assert f"not by {scheme}" in done.stderr, words
        assert hint in done.stderr, words


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (np.zeros(3, np.longdouble), "write them as float64"),
        (np.zeros(3, complex), None),
        (h5py.Empty("f4"), "choose another dataset"),
    ],
    ids=["80 bits", "complex", "empty"],
)
def test_hints_fit_what_they_are_about(tmp_path, value, hint):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["null"], f["other"] = value, np.zeros(3)
    with pytest.raises(VramfitError) as caught:
        Loader(tmp_path / "f.h5", "null", batch_size=1)
    assert hint is None or hint in caught.value.hint
    assert "did you mean `null`" not in str(caught.value)


@pytest.mark.parametrize("count", [3, 40])
def test_a_state_says_which_file_has_changed(tmp_path, count):
    write_shards(tmp_path / "shards", [10] * count)
    paths = [tmp_path / "shards" / f"shard_{number}.h5" for number in range(count)]
    options = {"datasets": "x", "batch_size": 3}
    state = Loader(paths, **options).state()
    assert len(json.dumps(state)) < 1000
    changed = count - 2
    with h5py.File(paths[changed], "a") as f:
        f["x"][0] = 7
    with pytest.raises(FileChangedError, match="are not the files that this run") as caught:
        Loader(paths, **options).restore(state)
    message = caught.value.message
    assert "their values differ" in message
    named = re.findall(r"shard_(\d+)", message.partition("the first that differs")[2])
    # A run of files where there are too many for the state to tell them apart.
    assert int(named[0]) <= changed <= int(named[-1])
    assert len(named) == (1 if count == 3 else 2)
    with h5py.File(paths[0], "w") as f:
        f["x"] = np.zeros((10, 5))
    with pytest.raises(FileChangedError, match=r"the first that differs is .*shard_0"):
        Loader(paths, **options).restore(state)
    with pytest.raises(FileChangedError, match=f"there were {count} files, and there are 2 now"):
        Loader(paths[:2], **options).restore(state)
    with pytest.raises(FileChangedError, match=f"is not .*there were {count} files.* is 1 now"):
        Loader(paths[1], **options).restore(state)
    one = Loader(paths[1], **options).state()
    with pytest.raises(FileChangedError, match=r"are not .*the state is of one file, or of an"):
        Loader(paths[1:3], **options).restore(one)
    with pytest.raises(InvalidFileError, match="no such epoch"):
        Loader(paths[1], **options).restore({**one, "epoch": 2**64 - 1})
