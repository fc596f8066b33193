"""`vramfit.data.Loader`: every row once, resumed bit for bit, in memory that never changes."""

import json
import os
import re
import shutil
import signal
import sys
import textwrap
from itertools import chain

import h5py
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from commands import start_command
from conftest import reader_threads

from vramfit.data import Loader
from vramfit.errors import FileChangedError, InvalidArgumentError, IoError, UnsupportedFeatureError

ROWS = 1003

LAYOUTS = {
    "contiguous": ({}, {}),
    "gzip": ({"chunks": (16, 6), "compression": "gzip", "shuffle": True}, {"chunks": (16,)}),
    "columns": ({"chunks": (50, 2), "compression": "lzf"}, {"chunks": (30,)}),
    "coprime": ({"chunks": (7, 6)}, {"chunks": (11,), "compression": "gzip"}),
    "mixed": ({"chunks": (64, 3)}, {}),
}


def write(path, layout="gzip", rows=ROWS):
    """Write a file whose rows say which they are."""
    x, y = LAYOUTS[layout]
    number = np.arange(rows)
    with h5py.File(path, "w") as f:
        values = (number[:, None] * 10 + np.arange(6)).astype("f8")
        f.create_dataset("x", data=values, **x)
        f.create_dataset("y", data=number, **y)
    return path


@pytest.fixture
def train(tmp_path):
    return write(tmp_path / "train.h5")


def load(path, **options):
    return Loader(path, ["x", "y"], **{"batch_size": 32, "memory": "1MiB", "mask": True, **options})


def real_rows(batch):
    """Return the rows of a batch that are real, and check that `x` has the same."""
    rows = np.array(batch["y"])
    assert np.array_equal(batch["x"], rows[..., None] * 10 + np.arange(6))
    return rows[np.array(batch["mask"])].tolist()


@pytest.mark.fast
@pytest.mark.parametrize("shuffle", [True, False], ids=["shuffled", "in order"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_t1_every_row_comes_once_an_epoch(tmp_path, layout, shuffle):
    with load(write(tmp_path / "f.h5", layout), shuffle=shuffle) as loader:
        epochs = [[real_rows(batch) for batch in loader] for _ in range(2)]
        assert [len(epoch) for epoch in epochs] == [len(loader)] * 2
    first, second = (list(chain.from_iterable(epoch)) for epoch in epochs)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert (first == second) is not shuffle
    assert (first == list(range(ROWS))) is not shuffle


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_t4_processes_together_read_the_order_of_one(train, world):
    alone = [real_rows(batch) for batch in load(train)]
    shares = [load(train, rank=rank, world=world) for rank in range(world)]
    together = [[*chain(*map(real_rows, parts))] for parts in zip(*shares, strict=True)]
    assert together == alone


@pytest.mark.fast
@pytest.mark.parametrize("stop", [0, 1, 17, 31])
@pytest.mark.parametrize("layout", ["contiguous", "gzip", "coprime"])
def test_t1_a_run_resumes_bit_for_bit(tmp_path, layout, stop):
    path = write(tmp_path / "f.h5", layout)
    whole = [batch["x"].tobytes() for batch in load(path).epoch(3)]
    loader = load(path)
    batches = loader.epoch(3)
    for _ in range(stop):
        next(batches)
    state = json.dumps(loader.state())
    assert len(state) <= 1024
    other = load(path, threads=1, memory="2MiB").restore(state)
    assert [batch["x"].tobytes() for batch in other] == whole[stop:]
    # The next loop is the next epoch.
    assert other.position == (4, 0)


def test_stacks_are_batches_one_behind_the_other(train):
    alone = [batch["x"].copy() for batch in load(train)]
    loader = load(train, stacked_batches=5, memory="4MiB")
    stacks = [{name: part.copy() for name, part in stack.items()} for stack in loader]
    assert stacks[0]["x"].shape == (5, 32, 6)
    assert stacks[0]["mask"].shape == (5, 32)
    assert np.array_equal(np.concatenate([s["x"] for s in stacks])[: len(alone)], np.stack(alone))
    assert not stacks[-1]["mask"][-1].any()


def test_what_does_not_fill_a_batch_is_dropped_on_request(train):
    with load(train, drop_last=True) as loader:
        batches = [real_rows(batch) for batch in loader]
    assert [len(batch) for batch in batches] == [32] * (ROWS // 32)


def test_the_two_sets_share_no_row(train):
    sets = [
        {row for batch in load(train, split=(name, 0.1)) for row in real_rows(batch)}
        for name in ("train", "validation")
    ]
    assert len(sets[1]) == round(ROWS * 0.1)
    assert sets[0] | sets[1] == set(range(ROWS))
    assert not sets[0] & sets[1]


def test_types_are_those_of_jax_and_reported(train):
    loader = load(train)
    batch = next(iter(loader))
    assert batch["x"].dtype == np.float32
    assert batch["y"].dtype == np.int32
    assert "`x` from float64 to float32, `y` from int64 to int32" in loader.plan
    wide = next(iter(load(train, x64=True)))
    assert wide["x"].dtype == np.float64
    half = next(iter(load(train, dtype="bfloat16")))
    assert half["x"].dtype == ml_dtypes.bfloat16
    assert half["y"].dtype == np.int32
    one = next(iter(load(train, dtype={"y": "float32"})))
    assert one["y"].dtype == np.float32


@pytest.mark.parametrize("make", [jax.device_put, jnp.asarray, jnp.from_dlpack])
def test_t1_arrays_of_jax_never_change(train, make):
    # Memory that comes back to the loader is filled with a pattern, so that whoever still looks
    # into it would see that, or a later batch.
    loader = load(train, threads=2, _poison=True)
    expected = [batch["x"].copy() for batch in load(train)]
    held = []
    for number, batch in enumerate(loader):
        held.append((number, make(batch["x"])))
        del batch
        held = held[-2:]
        for then, array in held:
            assert np.array_equal(array, expected[then]), (number, then)
    loader.close()
    del loader
    for then, array in held:
        assert np.array_equal(array, expected[then])


def test_memory_that_jax_is_done_with_comes_back_without_a_call_of_jax(train):
    # JAX puts it on a list that its next call goes through; while the program waits for a batch
    # there is none. Before the garbage collector was asked, this waited for ever.
    loader = load(train, memory="100kB")
    batches = iter(loader)
    held = [jax.device_put(next(batches)["x"]) for _ in range(loader.buffer_count)]
    held.clear()
    assert sum(len(real_rows(batch)) for batch in batches) > 0


def test_reader_threads_give_way_to_the_program(train):
    # There is no room for all batches, so the thread waits, and it set this before it did anything.
    loader = load(train, threads=1, memory="100kB")
    batches = iter(loader)
    next(batches)
    assert [os.sched_getscheduler(thread) for thread in reader_threads()] == [os.SCHED_BATCH]
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    loader.close()
    assert reader_threads() == []


def test_arrays_are_aligned_writable_and_without_a_copy(train):
    loader = load(train)
    for batch in loader:
        x = batch["x"]
        assert x.ctypes.data % 64 == 0
        assert x.flags.writeable
        assert not x.flags.owndata
    # Behind the last batch no thread makes any more.
    assert loader.stats.held_bytes > 0
    del batch, x
    assert loader.stats.held_bytes == 0


def test_t4_batches_are_on_the_device_ahead_of_the_program(train):
    loader = load(train)
    ahead = loader.to_device(depth=2)
    alone = [real_rows(batch) for batch in load(train)]
    seen = []
    for batch in ahead:
        assert isinstance(batch["x"], jax.Array)
        seen.append(real_rows(batch))
        if len(seen) == 7:
            break
    assert loader.stats.batches > 7, "others were on their way"
    # The state is where the program is, and another loop goes on from there.
    state = ahead.state()
    assert state["position"] == 7 * 32
    assert seen + [real_rows(batch) for batch in ahead] == alone
    again = load(train).to_device().restore(state)
    assert [real_rows(batch) for batch in again] == alone[7:]


def test_small_batches_on_the_cpu_are_copies_that_may_all_be_kept(train):
    loader = load(train, memory="100kB", _poison=True)
    ahead = loader.to_device()
    assert ahead.copies
    assert len(loader) > loader.buffer_count
    held = list(ahead)
    assert loader.stats.held_bytes == 0
    expected = [real_rows(batch) for batch in load(train, memory="100kB")]
    assert [real_rows(batch) for batch in held] == expected


def test_large_batches_and_those_of_a_transform_are_not_copied(train):
    large = load(train, stacked_batches=100, memory="256MiB", batch_size=512).to_device()
    assert not large.copies
    stack = next(iter(large))
    assert large._loader.stats.held_bytes >= stack["x"].nbytes >= 1 << 20
    own = load(train, transform=lambda batch: batch["x"]).to_device()
    assert not own.copies


def test_t4_memory_that_is_too_small_for_what_is_on_its_way_is_refused(train):
    with pytest.raises(InvalidArgumentError, match="a depth of 20000 needs 20002 batches"):
        load(train).to_device(depth=20_000)


def test_a_column_of_another_name(train):
    batch = next(iter(Loader(train, {"label": "y"}, batch_size=8, memory="1MiB")))
    assert list(batch) == ["label"]


def test_a_transform_sees_every_batch(train):
    loader = load(train, transform=lambda batch: batch["y"] + 1)
    assert sum(len(part) for part in loader) >= ROWS


def test_the_plan_says_what_was_decided(train):
    plan = load(train, memory="100kB", threads=2).plan
    assert plan.startswith("engine: chunk windows: rows are stored in chunks")
    assert "reader thread" in plan
    assert "of a budget of 97.7 KiB" in plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"datasets": ["X1"]}, "did you mean `x`"),
        ({"datasets": ["x", "scalar"]}, "it is a scalar"),
        ({"datasets": ["x", "short"]}, "`x` has 1003, but `short` has 5"),
        ({"datasets": ["x", "x"]}, "was given twice"),
        ({"datasets": []}, "no dataset was given"),
        ({"batch_size": 0}, "`batch_size` is 0"),
        ({"batch_size": 5000, "drop_last": True, "memory": "64MiB"}, "exceeds the 1003 rows"),
        ({"memory": "1kB"}, "increase it to at least"),
        ({"memory": "much"}, "not an amount of memory"),
        ({"rank": 1}, "must be given together"),
        ({"rank": 3, "world": 3}, "`rank` is 3, but must be at least 0 and below `world`"),
        ({"rank": 0, "world": 3}, "use a batch size of 33"),
        ({"dtype": "float7"}, "unknown type `float7`"),
        ({"dtype": {"z": "float32"}}, "`dtype` has a type for `z`"),
        ({"split": ("holdout", 0.1)}, "unknown split `holdout`"),
        ({"split": ("test", 0.1)}, "the split has no test set"),
        ({"split": ("train", 10)}, "not between 0 and 1"),
        ({"seed": -1}, "`seed` is -1"),
        ({"threads": 0}, "`threads` is 0"),
    ],
    ids=str,
)
def test_what_cannot_be_met_is_refused_in_words(train, arguments, message):
    with h5py.File(train, "a") as f:
        f["scalar"] = 1.0
        f["short"] = np.zeros(5)
    with pytest.raises(InvalidArgumentError) as error:
        Loader(train, **{"datasets": ["x", "y"], "batch_size": 32, **arguments})
    assert message in str(error.value)


def test_text_and_missing_files_are_refused(train):
    with h5py.File(train, "a") as f:
        f["names"] = ["one"] * ROWS
    with pytest.raises(UnsupportedFeatureError, match="names"):
        Loader(train, "names", batch_size=8)
    with pytest.raises(IoError, match="there is no file"):
        Loader(train.with_name("none.h5"), "x", batch_size=8)


def test_a_file_that_is_changed_meanwhile_is_an_error(train):
    loader = load(train, memory="100kB")
    batches = iter(loader)
    next(batches)
    state = loader.state()
    os.truncate(train, train.stat().st_size // 2)
    with pytest.raises(FileChangedError, match="changed while it was being read"):
        list(map(real_rows, chain(batches, loader)))
    write(train, "contiguous")
    with pytest.raises(FileChangedError, match="is not the file that this run started with"):
        load(train).restore(state)


def test_a_copy_continues_and_one_with_other_values_does_not(train, tmp_path):
    loader = load(train)
    next(iter(loader))
    state = loader.state()
    there = [batch["y"].tolist() for batch in loader.restore(state)]
    copy = tmp_path / "copy.h5"
    shutil.copyfile(train, copy)
    os.utime(train, ns=(0, 0))
    for path in (copy, train):
        assert [batch["y"].tolist() for batch in load(path).restore(state)] == there
    with copy.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    with pytest.raises(FileChangedError, match="its values differ"):
        load(copy).restore(state)
    del state["file"]["contents"]  # as states of old
    with pytest.raises(FileChangedError, match="its contents cannot be compared"):
        load(train).restore(state)


def test_a_read_only_file_in_a_read_only_directory_is_read(tmp_path):
    directory = tmp_path / "closed"
    directory.mkdir()
    path = write(directory / "f.h5")
    path.chmod(0o444)
    directory.chmod(0o555)
    try:
        assert sum(len(real_rows(batch)) for batch in load(path)) == ROWS
    finally:
        directory.chmod(0o755)


def test_a_second_iterator_invalidates_the_first(train):
    loader = load(train)
    first = iter(loader)
    next(first)
    next(loader.epoch(5))
    with pytest.raises(InvalidArgumentError, match="a later one was started"):
        next(first)


def run(code, *arguments, env=None):
    """Run a program beside this one."""
    return start_command(sys.executable, "-c", textwrap.dedent(code), *arguments, env=env)


def test_t4_each_device_of_a_mesh_gets_its_rows(train):
    code = """
        import sys
        import jax, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from vramfit.data import Loader
        mesh = Mesh(np.array(jax.devices()), ("data",))
        sharding = NamedSharding(mesh, PartitionSpec("data"))
        options = dict(batch_size=32, memory="1MiB")
        alone = Loader(sys.argv[1], "y", last_batch="pad", **options)
        alone = [batch["y"].copy() for batch in alone]
        loader = Loader(sys.argv[1], "y", sharding=sharding, **options)
        for batch, expected in zip(loader.to_device(), alone, strict=True):
            parts = sorted(batch["y"].addressable_shards, key=lambda shard: shard.index[0].start)
            assert [part.data.shape for part in parts] == [(16,), (16,)]
            assert np.array_equal(np.concatenate([part.data for part in parts]), expected)
        print(len(alone))
    """
    env = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    child = run(code, train, env=env)
    out, err = child.communicate(timeout=120)
    assert out == "32\n", err


def test_ctrl_c_ends_waiting(train):
    # The program keeps all batches, and another thread might drop one: the loader waits for that.
    code = """
        import gc, sys, threading, time
        from vramfit.data import Loader
        # While it waits for a batch to be dropped, the loader calls the garbage collector. What
        # takes note of that is no Python code, in which an exception of Ctrl-C would be lost.
        gc.disable()
        calls = {}
        def announce():
            while "stop" not in calls:
                time.sleep(0.01)
            print("waiting", flush=True)
            threading.Event().wait()
        threading.Thread(target=announce, daemon=True).start()
        loader = Loader(sys.argv[1], ["x"], batch_size=8, memory="100kB")
        kept = []
        gc.callbacks.append(calls.__setitem__)
        try:
            for batch in loader:
                kept.append(batch)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    child = run(code, train)
    assert child.stdout.readline() == "waiting\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert (out, child.returncode) == ("interrupted\n", 0), err


def small_batches(tmp_path):
    """Make a file of 136 batches of 37 rows of 180 bytes, 0.9 MiB in all."""
    path = tmp_path / "small.h5"
    with h5py.File(path, "w") as file:
        values = np.arange(136 * 37 * 45, dtype="f4").reshape(-1, 45)
        file.create_dataset("x", data=values, chunks=(100, 45), compression="gzip")
    return path, values


def test_all_batches_of_an_epoch_can_be_kept_where_the_memory_has_room(tmp_path):
    path, values = small_batches(tmp_path)
    with Loader(path, "x", batch_size=37, shuffle=False) as loader:
        assert len(loader) == 136 > loader.buffer_count
        kept = list(loader)
        assert np.array_equal(np.concatenate([batch["x"] for batch in kept]), values)
        assert len({batch["x"].ctypes.data for batch in kept}) == 136
        # Another epoch, while those of the first are there.
        again = list(loader)
    assert np.array_equal(np.concatenate([batch["x"] for batch in kept]), values)
    assert np.array_equal(np.concatenate([batch["x"] for batch in again]), values)


def test_all_arrays_of_jax_can_be_kept_where_the_memory_has_room(tmp_path):
    path, values = small_batches(tmp_path)
    with Loader(path, "x", batch_size=37, shuffle=False) as loader:
        kept = [jax.device_put(batch["x"]) for batch in loader]
    assert np.array_equal(np.concatenate(kept), values)


def keep_all(path, memory, before=""):
    """Keep all batches of an epoch, in a program without other threads.

    Where that fails, the last number is how often the loader had the garbage collector called.
    """
    code = f"""
        import gc, sys
        from vramfit.data import Loader
        {before}
        loader = Loader(sys.argv[1], "x", batch_size=37, memory={memory!r})
        gc.disable()
        phases = []
        gc.callbacks.append(lambda phase, info: phases.append(phase))
        try:
            kept = list(loader)
            print(len(kept))
        except ValueError as error:
            calls = phases.count("start")
            print(loader._native.max_batches, error.message, "|", error.hint, "|", calls)
        assert loader.stats.buffer_bytes <= loader._native.max_batches * (37 * 180 + 128)
    """
    child = run(code, path)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    return out.strip()


def test_the_budget_that_an_error_names_is_enough_for_a_plain_loop(tmp_path):
    """Two batches: one that the program has, and one that waits for its next window."""
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((20_000, 500), "f4")
    # Where JAX runs, it is given time to drop arrays.
    code = """
        import re, sys
        from vramfit.data import Loader

        def load(memory):
            return Loader(sys.argv[1], "x", batch_size=64, memory=memory, split=("train", 0.1))

        try:
            load("1KiB")
        except ValueError as error:
            smallest = int(re.search(r"\\((\\d+) bytes", error.hint)[1])
        for _ in range(4):
            loader = load(smallest)
            assert loader.max_batches == 2
            assert sum(len(batch["x"]) for batch in loader) == 18_000
    """
    child = run(code, path)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 0, err


@pytest.mark.parametrize("before", ["", "import jax; x = jax.numpy.ones(3)"], ids=["alone", "jax"])
def test_a_program_that_keeps_more_than_the_memory_has_room_for_is_reported(tmp_path, before):
    path, _ = small_batches(tmp_path)
    out = keep_all(path, "500kB", before)
    message, hint, calls = out.split(" | ")
    most, _, message = message.partition(" ")
    assert 5 < int(most) < 136
    assert f"holds all {most} batches (" in message
    assert "that a memory budget of 488.3 KiB allows" in message
    # It looks twice, and does not wait. For what JAX may still hold it waits 1 ms, 2 ms and so on,
    # then 100 ms each time: 50 times are less than 5 s, and there are fewer on a slow machine.
    assert 2 <= int(calls) <= (50 if before else 2)
    # What it says would do does.
    enough = hint.split('memory="')[1].split('"')[0]
    assert keep_all(path, enough, before) == "136"


def test_waiting_for_another_thread_takes_no_time_of_the_processor(tmp_path):
    path, _ = small_batches(tmp_path)
    # The loader calls the garbage collector before each wait; all but a few are of 100 ms.
    code = """
        import gc, resource, sys, threading, time
        from pathlib import Path
        from vramfit.data import Loader
        loader = Loader(sys.argv[1], "x", batch_size=37, memory="500kB")
        gc.disable()
        kept, waits = [], []
        def look(phase, info):
            if phase == "start":
                waits.append(resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw)
        gc.callbacks.append(look)
        def is_asleep(thread):
            return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "S"
        def drop():
            while len(waits) < 30:
                time.sleep(0.01)
            for thread in Path("/proc/self/task").iterdir():
                if (thread / "comm").read_text().startswith("vramfit-read"):
                    while not is_asleep(thread):
                        time.sleep(0.01)
            kept.clear()
        thread = threading.Thread(target=drop)
        thread.start()
        for batch in loader:
            kept.append(batch)
            if not thread.is_alive():
                break
        print(*waits)
    """
    child = run(code, path)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    # How often the program's thread had gone to sleep. A wait that is over before it can, on a busy
    # machine, is without.
    slept = [int(number) for number in out.split()]
    assert slept[-1] - slept[0] >= len(slept) // 2


def test_a_forked_copy_says_that_it_has_no_threads(train):
    code = """
        import os, sys
        from vramfit.data import Loader
        loader = Loader(sys.argv[1], ["x"], batch_size=8, memory="1MB")
        batches = iter(loader)
        next(batches)
        if os.fork() == 0:
            try:
                next(batches)
            except ValueError as error:
                print(error, flush=True)
            del batches, loader
            os._exit(3)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        print(len(list(map(len, batches))))
    """
    child = run(code, train)
    out, err = child.communicate(timeout=120)
    assert "was created before `fork()`" in out, err
    assert out.splitlines()[-2:] == ["3", "125"], (out, err)


def test_importing_it_loads_neither_numpy_nor_jax():
    code = "import sys, vramfit.data; print({'jax', 'numpy'} & set(sys.modules))"
    assert run(code).communicate()[0] == "set()\n"


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda path: Loader(path, "x", batch_size=8, shuffle="no"), "`shuffle` is 'no'"),
        (lambda path: Loader(path, "x", batch_size=8, mask=3), "`mask` is 3"),
        (lambda path: Loader(path, "x", batch_size=8).epoch(-1), "`epoch` is -1"),
        (lambda path: Loader(path, "x", batch_size=8).epoch(1.5), "`epoch` is 1.5"),
        (lambda path: Loader(path, "x", batch_size=8).batches_from(0, -1), "`position` is -1"),
        (lambda path: Loader(path, "x", batch_size=8).file_rows(0, -5, 2), "`start` is -5"),
        (lambda path: Loader(path, "x", batch_size=8).restore(None), "`state` is None"),
    ],
)
def test_arguments_of_another_kind_are_named(train, call, named):
    with pytest.raises(InvalidArgumentError, match=re.escape(named)):
        call(train)
