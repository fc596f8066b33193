"""A repacked file is the same file to h5py, streams well, and is there as a whole or not at all."""

import json
import os
import pathlib
import random
import resource
import signal
import sys
import tempfile

import h5py
import hdf5plugin
import numpy as np
import pytest
from commands import run_command, run_python
from hdf5_cases import CASES

# Records with references and texts of variable length are read by field, and cannot be copied.
MIXED = ("record_old_", "record_new_", "record_latest_")
COPIED = [case for case in CASES if case.refused is None and not case.name.startswith(MIXED)]
# What is no row of numbers can be copied all the same: only what cannot be read is refused.
READ_AS_BYTES = {
    "text",
    "text_fixed",
    "sequences",
    "opaque",
    "times",
    "arrays_of_text",
    "odd_float",
    "scalar",
    "null",
    "record_array",
    "record_text",
    "record_without_field",
    "soft_circle",
    "external_link_elsewhere",
    "missing",
    "group",
}


# The command line in a Python of which we decide what it is beforehand.
RUN = """
import sys
from vramfit import _native
sys.exit(_native.run_cli(sys.argv, package=".", plugin=None, python=None))
"""


def command(*words):
    return [str(word) for word in [sys.executable, "-m", "vramfit", "data", *words]]


def data(*words, **options):
    return run_command(*command(*words), **options)


def repack(*words):
    """Repack a file and return what is said about it."""
    done = data("repack", *words, "--json", code=0)
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1
    if answer["written"]:
        assert answer["new_bytes"] == pathlib.Path(answer["output"]).stat().st_size
    return answer


def assert_same_values(old, new):
    """Compare what h5py reads, to the last bit."""
    if isinstance(old, h5py.Empty):
        assert old == new
        return
    old, new = np.asarray(old), np.asarray(new)
    assert (old.shape, old.dtype) == (new.shape, new.dtype)
    if old.dtype.kind == "O":
        for one, other in zip(old.ravel(), new.ravel(), strict=True):
            assert type(one) is type(other)
            np.testing.assert_array_equal(one, other)
    else:
        assert old.tobytes() == new.tobytes()


def assert_same_attributes(old, new, but=()):
    assert [name for name in old.attrs if name not in but] == list(new.attrs)
    for name in new.attrs:
        assert old.attrs.get_id(name).get_type() == new.attrs.get_id(name).get_type(), name
        assert_same_values(old.attrs[name], new.attrs[name])


def assert_same_group(old, new, but=()):
    """Compare two groups with everything below, names in the order in which h5py gives them."""
    assert list(old) == list(new)
    assert_same_attributes(old, new, but)
    for name in old:
        link = old.get(name, getlink=True)
        other = new.get(name, getlink=True)
        assert type(link) is type(other)
        if not isinstance(link, h5py.HardLink):
            assert vars(link) == vars(other)
            continue
        one, two = old[name], new[name]
        assert type(one) is type(two)
        if isinstance(one, h5py.Group):
            if one.name != old.name and one.id != old.id:
                assert_same_group(one, two, but)
            continue
        assert_same_attributes(one, two, but)
        if isinstance(one, h5py.Datatype):
            assert one.id.equal(two.id)
            continue
        assert one.id.get_type() == two.id.get_type()
        assert (one.shape, one.dtype) == (two.shape, two.dtype)
        assert one.maxshape == two.maxshape
        if one.shape is not None:
            assert_same_values(one[()], two[()])
            if one.shape and one.dtype.kind != "O":
                assert_same_values(one.fillvalue, two.fillvalue)


def assert_same_file(old, new, but=()):
    with h5py.File(old) as one, h5py.File(new) as two:
        assert_same_group(one, two, but)


@pytest.mark.parametrize("case", COPIED, ids=lambda case: case.name)
def test_every_feature_is_copied_element_by_element(case, tmp_path):
    old, new = tmp_path / f"{case.name}.h5", tmp_path / "new.h5"
    case.make(old)
    answer = repack(old, new)
    assert_same_file(old, new)
    lost = [loss["what"] for loss in answer["omitted"]]
    expected = ["the first 1024 bytes of the file, a user block"]
    assert lost == (expected if case.name == "user_block" else [])
    repack(old, new, "--force", "--compression", "lz4", "--chunk-rows", "3", "--memory", "1MiB")
    assert_same_file(old, new)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.refused], ids=lambda case: case.name
)
def test_what_cannot_be_copied_is_refused_by_name(case, tmp_path):
    old, new = tmp_path / f"{case.name}.h5", tmp_path / "new.h5"
    case.make(old)
    done = data("repack", old, new)
    if case.name in READ_AS_BYTES:
        assert done.returncode == 0, done.stderr
        assert_same_file(old, new)
        return
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error[unsupported-feature]: `/{case.dataset}` cannot be copied: "
    )
    assert case.refused in done.stderr
    assert "\nhint: " in done.stderr
    assert not new.exists()


def write_everything(path):
    """Write a file with every kind of object, attribute and link."""
    random_numbers = np.random.default_rng(0)
    record = np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "S3", (2,))])
    with h5py.File(path, "w") as f:
        f.attrs["text"] = "grün"
        f.attrs["fixed"] = np.bytes_("abc")
        f.attrs["texts"] = np.array(["a", "", "ccc"], object)
        f.attrs["numbers"] = np.arange(12, dtype=">i2").reshape(3, 4)
        f.attrs["flag"] = True
        f.attrs["nothing"] = h5py.Empty("f4")
        f.attrs["record"] = np.array((1, 2.5, [b"x", b"yz"]), record)
        f.attrs["series"] = np.arange(5.0)
        f.attrs.create(
            "ragged", np.array([np.arange(2), np.arange(3)], object), dtype=h5py.vlen_dtype("i4")
        )
        f.attrs["complex"] = 1 + 2j
        f.attrs.create("kind", 1, dtype=h5py.enum_dtype({"cat": 0, "dog": 1}))
        train = f.create_group("train")
        train.attrs["unit"] = "m"
        x = train.create_dataset(
            "x", data=random_numbers.normal(size=(3000, 33)).astype("f4"), chunks=(1000, 2)
        )
        x.attrs["scale"] = 0.5
        train.create_dataset(
            "grows", (500, 3), "i8", chunks=(7, 3), maxshape=(None, 3), fillvalue=9
        )[:] = 4
        train.create_dataset("grows_empty", (0, 3), "f4", chunks=(7, 3), maxshape=(None, 3))
        train.create_dataset("checked", data=np.arange(5000), chunks=(99,), fletcher32=True)
        f["records"] = np.array([(at, at / 3, [b"p", b"q"]) for at in range(50)], record)
        f["scalar"] = np.float16(3)
        f["word"] = "a text"
        f["words"] = ["many", "", "texts ".join("ab" * 500)]
        f["none"] = h5py.Empty("i8")
        f["empty"] = np.zeros((4, 0), "u2")
        f.create_group("nothing/in/here")
        f["type"] = record
        f.create_dataset("of_type", data=np.zeros(7, record), dtype=f["type"])
        f["again"] = x
        f["train/self"] = train
        f["soft"] = h5py.SoftLink("/train/x")
        f["dangling"] = h5py.SoftLink("nowhere")
        f["away"] = h5py.ExternalLink("other.h5", "/y")
        ordered = f.create_group("ordered", track_order=True)
        for name in "zebra", "ape", "moose":
            ordered[name] = np.arange(3)
        f["many/attributes"] = np.arange(3)
        for number in range(70):
            f["many/attributes"].attrs[f"number {number}"] = f"{number}" * number


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "latest"])
def test_the_whole_tree_is_copied(libver, tmp_path, monkeypatch):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    original = h5py.File
    monkeypatch.setattr(
        h5py, "File", lambda path, mode="r", **o: original(path, mode, **({"libver": libver} | o))
    )
    write_everything(old)
    answer = repack(old, new)
    assert answer["omitted"] == []
    assert_same_file(old, new)
    with h5py.File(new) as f:
        assert f["train/x"].chunks is None
        assert f["train/checked"].fletcher32
        # Two names of one dataset are still that.
        assert f["again"] == f["train/x"]
        assert f["train/self"] == f["train"]


def test_a_copy_can_be_changed_and_extended_by_h5py(tmp_path):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    write_everything(old)
    repack(old, new, "--compression", "gzip")
    with h5py.File(new, "r+") as f:
        # An object lives until its last name is gone.
        del f["again"]
        f["train/grows"].resize(900, axis=0)
        f["train/grows_empty"].resize(9, axis=0)
        f["train/grows_empty"][:] = 3
        f["words"][1] = "more"
        f["ordered"]["bee"] = 1
        f.attrs["text"] = "neu"
    with h5py.File(old) as one, h5py.File(new) as two:
        assert_same_values(one["train/x"][()], two["train/x"][()])
        assert two["train/grows"][:500].tolist() == [[4] * 3] * 500
        assert two["train/grows"][500:].tolist() == [[9] * 3] * 400
        assert (two["train/grows_empty"][()] == 3).all()
        assert two["words"].asstr()[:2].tolist() == ["many", "more"]
        assert list(two["ordered"]) == ["zebra", "ape", "moose", "bee"]


def test_what_is_left_out_is_named(tmp_path):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    with h5py.File(old, "w") as f:
        f["x"] = np.zeros((3, 2))
        f["axis"] = np.arange(3)
        f["axis"].make_scale("row")
        f["x"].dims[0].attach_scale(f["axis"])
    answer = repack(old, new)
    assert [loss["what"] for loss in answer["omitted"]] == [
        "the attribute `REFERENCE_LIST` of `/axis`",
        "the attribute `DIMENSION_LIST` of `/x`",
    ]
    assert_same_file(old, new, but=("REFERENCE_LIST", "DIMENSION_LIST"))
    done = data("repack", old, new, "--force")
    assert done.stderr.startswith("omitted: the attribute `REFERENCE_LIST` of `/axis`: ")
    before = old.read_bytes()
    done = data("repack", old, "--in-place", code=2)
    assert "would be lost" in done.stderr
    assert old.read_bytes() == before


def test_some_datasets_are_copied_with_their_groups(tmp_path):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    write_everything(old)
    repack(old, new, "--datasets", "again,/ordered")
    with h5py.File(old) as one, h5py.File(new) as two:
        assert sorted(two) == ["again", "ordered"]
        assert_same_values(one["train/x"][()], two["again"][()])
        assert_same_attributes(one["again"], two["again"])
        assert_same_attributes(one, two)
        assert list(two["ordered"]) == ["zebra", "ape", "moose"]
    for path, words in [
        ("train/z", "contains no `/train/z`"),
        ("soft", "is a link to `/train/x`"),
        ("train/self/x", "is only reachable through a link"),
    ]:
        done = data("repack", old, tmp_path / "no.h5", "--datasets", path, code=2)
        assert words in done.stderr
        assert "hint: " in done.stderr


def draw_dataset(draw, rows):
    """Return values and how h5py is to store them."""
    dtype = draw.choice(["f4", ">f8", "u1", "i2", "bool", "S5", "f2", ">u4", "c8"])
    rest = tuple(draw.randint(1, 9) for _ in range(draw.randint(0, 3)))
    shape = (rows, *rest)
    numbers = np.random.default_rng(draw.randrange(1 << 30)).integers(0, 99, shape)
    options = {}
    if rows and draw.random() < 0.8:
        options["chunks"] = tuple(draw.randint(1, length) for length in shape)
        filters = [
            {},
            {"compression": "gzip"},
            {"compression": "lzf"},
            {"compression": "gzip", "shuffle": True, "fletcher32": True},
            dict(hdf5plugin.Zstd()),
            dict(hdf5plugin.LZ4()),
            dict(hdf5plugin.Bitshuffle()),
            dict(hdf5plugin.Blosc()),
        ]
        options |= draw.choice(filters)
        if draw.random() < 0.3:
            options["maxshape"] = (None, *rest)
    return numbers.astype(dtype), options


@pytest.mark.parametrize("seed", range(12))
def test_any_layout_becomes_any_other(seed, tmp_path):
    draw = random.Random(seed)
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    with h5py.File(old, "w", libver=draw.choice(["earliest", "v110"])) as f:
        lengths = [0, 1, draw.randint(2, 50), draw.randint(51, 3000)]
        for number in range(8):
            values, options = draw_dataset(draw, draw.choice(lengths))
            f.create_dataset(f"g{number % 3}/d{number}", data=values, **options)
    ways = [
        [],
        ["--compression", "none"],
        ["--compression", draw.choice(["gzip", "zstd"]), "--level", draw.randint(1, 9)],
        ["--compression", "lz4", "--shuffle", draw.choice(["always", "never"])],
        ["--chunk-rows", draw.randint(1, 100), "--threads", draw.randint(1, 4)],
        ["--chunk", draw.choice(["1KiB", "1MiB"]), "--memory", "2MiB", "--threads", 3],
    ]
    for way in ways:
        repack(old, new, "--force", *way)
        assert_same_file(old, new)


def findings(path):
    done = data("inspect", path, "--json")
    return {finding["id"] for finding in json.loads(done.stdout)["findings"]}


def test_what_streams_badly_streams_well_afterwards(tmp_path):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    values = np.random.default_rng(0).integers(0, 99, (40_000, 256)).astype("f4")
    with h5py.File(old, "w") as f:
        # As h5py cuts it by itself, and as somebody might who thinks of columns.
        f.create_dataset("own", data=values, chunks=True, compression="gzip", compression_opts=1)
        f.create_dataset("columns", data=values[:, :64], chunks=(30_001, 1))
        f.create_dataset("one", data=values[:20_001], chunks=(20_001, 256), compression="lzf")
        f.create_dataset("tiny", data=values[:601, :100], chunks=(1, 100))
        f.create_dataset("labels", data=np.arange(40_000, dtype="i4") * 7 % 10, compression="gzip")
    slow = {"large-chunks", "split-rows", "tiny-chunks", "mismatched-chunks"}
    assert findings(old) >= {"large-chunks", "split-rows", "tiny-chunks", "mismatched-chunks"}
    for way in [], ["--compression", "none"], ["--compression", "zstd"]:
        answer = repack(old, new, "--force", *way)
        assert findings(new) & slow == set()
        assert_same_file(old, new)
        steps = {step["path"]: step for step in answer["datasets"]}
        # In this memory nothing is decoded more often than borders make it.
        assert all(step["decodes"] <= 2 for step in steps.values())
        assert steps["/one"]["new"]["layout"] == ("contiguous" if "none" in way else "chunked")
        for step in steps.values():
            if step["new"]["chunk"] and step["path"] != "/labels":
                row = np.prod(step["shape"][1:]) * 4
                assert 128 << 10 <= step["new"]["chunk"][0] * row <= 1 << 20


def test_the_plan_is_reported_and_nothing_is_written(tmp_path):
    old = tmp_path / "old.h5"
    with h5py.File(old, "w") as f:
        f.create_dataset("x", data=np.zeros((1000, 50)), chunks=(1000, 1))
    before = sorted(tmp_path.iterdir())
    done = data("repack", old, tmp_path / "new.h5", "--dry-run", code=0)
    assert "from  chunks of [1 000, 1], " in done.stdout
    assert "to    contiguous, 390.6 KiB" in done.stdout
    answer = repack(old, "--dry-run", "--compression", "gzip")
    assert (answer["written"], answer["output"]) == (False, None)
    assert answer["new_bytes_are_estimated"]
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_size_that_is_planned_is_the_size(compression, tmp_path):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    with h5py.File(old, "w") as f:
        values = np.random.default_rng(0).integers(0, 99, (50_000, 30))
        f.create_dataset("x", data=values, chunks=True, compression="gzip", compression_opts=1)
    options = ["--compression", compression]
    planned = repack(old, "--dry-run", *options)["new_bytes"]
    real = repack(old, new, *options)["new_bytes"]
    assert real <= planned <= real * 1.15


def test_memory_is_bounded_and_each_chunk_read_a_few_times(tmp_path):
    def peak(rows):
        old, new = tmp_path / f"{rows}.h5", tmp_path / "new.h5"
        with h5py.File(old, "w") as f:
            x = f.create_dataset(
                "x",
                (rows, 64),
                "f4",
                chunks=(rows // 16, 1),
                compression="gzip",
                compression_opts=1,
            )
            for column in range(64):
                x[:, column] = np.arange(rows) % (column + 2)
        words = command(
            "repack", old, new, "--memory", "24MiB", "--threads", 2, "--force", "--json"
        )
        log = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        pid = os.posix_spawn(
            words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, log, 1)]
        )
        os.close(log)
        _, status, usage = os.wait4(pid, 0)
        assert status == 0
        assert_same_file(old, new)
        answer = json.loads((tmp_path / "log").read_text())
        assert answer["memory_bytes"] <= 24 << 20
        assert answer["datasets"][0]["decodes"] <= 3
        return usage.ru_maxrss

    small, large = peak(16_000), peak(320_000)
    # 82 MB of numbers in the larger one.
    assert large - small < 30 << 10


def test_in_place_replaces_the_file_and_nothing_else(tmp_path):
    path, link = tmp_path / "train.h5", tmp_path / "link.h5"
    write_everything(path)
    kept = tmp_path / "kept.h5"
    kept.write_bytes(path.read_bytes())
    path.chmod(0o640)
    link.symlink_to(path)
    for words in [(path, path), (path, link), (link, path)]:
        done = data("repack", *words, code=2)
        assert "input and output are the same file" in done.stderr
    done = data("repack", path, kept, "--in-place", code=2)
    assert "but the output file is" in done.stderr
    assert data("repack", path, "--in-place", "--datasets", "train").returncode == 2
    inode = path.stat().st_ino
    repack(link, "--in-place", "--compression", "zstd")
    assert link.is_symlink()
    assert path.stat().st_ino != inode
    assert path.stat().st_mode & 0o777 == 0o640
    assert_same_file(kept, path)
    repack(path, path, "--in-place", "--compression", "none")
    assert_same_file(kept, path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept.h5", "link.h5", "train.h5"]


def test_nothing_is_overwritten_by_accident(tmp_path):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    write_everything(old)
    new.write_text("mine")
    done = data("repack", old, new, code=2)
    assert "exists and will not be overwritten" in done.stderr
    assert new.read_text() == "mine"
    repack(old, new, "--force")
    assert_same_file(old, new)


def test_a_file_that_is_open_for_writing_is_not_read(tmp_path):
    old = tmp_path / "old.h5"
    with h5py.File(old, "w") as f:
        f["x"] = np.arange(9)
        f.flush()
        done = data("repack", old, tmp_path / "new.h5")
    assert done.returncode == 2
    assert "open for writing" in done.stderr
    assert not (tmp_path / "new.h5").exists()


def large_file(path):
    with h5py.File(path, "w") as f:
        values = np.random.default_rng(0).integers(0, 99, (60_000, 64)).astype("f4")
        f.create_dataset("x", data=values, chunks=(500, 64))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_what_is_stopped_leaves_nothing(how, tmp_path, stop_before):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    large_file(old)
    words = command("repack", old, new, "--compression", "gzip", "--level", 9)
    # Before anything is written, while rows are, and when all are but not compared yet.
    for function, number in [("pwrite64", 1), ("pwrite64", 2), ("fsync", 1)]:
        run_command(*words, env=stop_before(function, number, how), code=-how)
        assert [p.name for p in tmp_path.iterdir()] == ["old.h5"]
    run_command(*words, code=0)
    assert new.exists()


def test_a_full_disk_leaves_nothing(tmp_path):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    large_file(old)
    # As in the tests of `generate`: Python alone ignores the signal of the limit.

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))

    for words in [(old, new), (old, "--in-place")]:
        words_after_vramfit = command("repack", *words)[3:]
        done = run_python("-c", RUN, *words_after_vramfit, code=2, preexec_fn=limit)
        assert done.stderr.startswith(
            f"error[io]: cannot write `{words[1] if words[1] == new else old}`\n"
        )
        assert [p.name for p in tmp_path.iterdir()] == ["old.h5"]
    with h5py.File(old) as f:
        assert f["x"].shape == (60_000, 64)


def test_a_disk_that_is_too_small_is_reported_beforehand(tmp_path):
    old = tmp_path / "old.h5"
    with h5py.File(old, "w") as f:
        # Never written, so it takes nothing; written out it would be 512 PiB.
        f.create_dataset("x", (1 << 47, 512), "f8", chunks=(1 << 12, 512))
    done = data("repack", old, tmp_path / "new.h5", "--compression", "none", code=2)
    assert "needs 512.0 PiB" in done.stderr
    assert "but the disk has" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["old.h5"]


def test_a_file_that_was_cut_short_is_reported(tmp_path):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    large_file(old)
    whole = old.read_bytes()
    old.write_bytes(whole[: len(whole) // 2])
    done = data("repack", old, new, code=2)
    assert done.stderr.startswith("error[invalid-file]: ")
    assert "is truncated" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["old.h5"]


@pytest.fixture(name="open_folder")
def folder_of_everybody():
    """A directory that others may look into, wherever pytest keeps its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_files_that_may_not_be_read_or_written_are_reported(open_folder):
    old, new = open_folder / "old.h5", open_folder / "new.h5"
    write_everything(old)
    old.chmod(0o644)

    def as_nobody(*words, code):
        become = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        program = RUN.replace("sys.exit", become + "sys.exit")
        return run_python("-c", program, *command("repack", *words)[3:], code=code)

    for words in [(old, new), (old, "--in-place")]:
        done = as_nobody(*words, code=2)
        assert done.stderr.startswith("error[io]: cannot write `")
        assert "Permission denied" in done.stderr
    old.chmod(0o600)
    done = as_nobody(old, "/tmp/new.h5", code=2)
    assert done.stderr.startswith("error[io]: cannot read the file `")
    assert [p.name for p in open_folder.iterdir()] == ["old.h5"]


def test_places_that_take_no_file_are_reported(tmp_path):
    old = tmp_path / "old.h5"
    write_everything(old)
    for target, words in [
        (tmp_path, "it is a directory"),
        (tmp_path / "no/new.h5", "its directory does not exist"),
        (pathlib.Path("/proc/new.h5"), "error[io]: cannot write `/proc/new.h5`"),
    ]:
        done = data("repack", old, target, code=2)
        assert words in done.stderr
