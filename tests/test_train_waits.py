"""The loop does not wait for the device: what is read from it, and when, is counted."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import reader_threads
from jax._src.array import ArrayImpl
from training import by_hand, evaluate, load, same, start, step, write

from vramfit.train import fit
from vramfit.train.data.batch_source import open_source
from vramfit.train.loop.in_flight import _wait_schedule


@pytest.fixture
def train(tmp_path):
    return write(tmp_path / "train.h5", rows=3200)


@pytest.fixture
def reads(monkeypatch):
    """Count the arrays whose values are brought to the host, by any way there is."""
    counted = []
    value = ArrayImpl._value

    def read(array):
        counted.append(array.shape)
        return value.fget(array)

    monkeypatch.setattr(ArrayImpl, "_value", property(read))
    # On the CPU numpy looks into the memory of an array directly.
    for name in ("asarray", "array"):
        convert = getattr(np, name)

        def counting(thing, *more, convert=convert, **named):
            if isinstance(thing, jax.Array):
                counted.append(thing.shape)
            return convert(thing, *more, **named)

        monkeypatch.setattr(np, name, counting)
    return counted


def test_the_count_sees_what_a_loop_by_hand_reads(reads):
    loss = jnp.ones(())
    ways = (float, np.asarray, np.array, jax.device_get, lambda array: array.item(), bool, str)
    for read in ways:
        before = len(reads)
        read(loss + 1)
        assert len(reads) > before, read


@pytest.mark.parametrize(("log_every", "chunks"), [(10, 10), (25, 4), (1000, 1)])
def test_t3_losses_are_read_at_log_points_only(train, reads, log_every, chunks):
    loader = load(train)
    state = start()
    assert len(loader) == 100
    reads.clear()
    fit(step, state, loader, log_every=log_every, progress="none")
    # Two metrics a chunk, all steps of it together; a long one in pieces of 64 steps.
    pieces = max(chunks, -(-100 // 64))
    assert len(reads) == 2 * pieces
    assert set(reads) == {(min(log_every, 64),)}


def test_t3_a_chunk_is_read_a_chunk_later(train, reads):
    # When values are asked for, the device has had a whole chunk of steps to compute them.
    loader = load(train)
    begun, seen = [], []

    class Batches:
        def __iter__(self):
            for number, batch in enumerate(loader):
                begun.append(number)
                seen.append(len(reads))
                yield {name: part.copy() for name, part in batch.items()}

    fit(step, start(), Batches(), log_every=10, progress="none", prefetch=1)
    first = next(number for number, count in zip(begun, seen, strict=True) if count)
    # The second log point is behind step 20; one batch is on its way, and one is being made.
    assert first == 20 + 1


def test_t3_the_state_is_donated_and_a_batch_is_not(train):
    state = start()
    batches = [{name: jnp.array(part) for name, part in batch.items()} for batch in load(train)]
    result = fit(step, state, batches, progress="none")
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(batches))
    kept = start()
    assert same(fit(step, kept, batches, donate=False, progress="none").state, result.state)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(kept))


class Clock:
    """Takes the place of `time.perf_counter`: time passes where the test says so.

    Args:
        tick: Seconds that pass from one look at it to the next.
    """

    def __init__(self, monkeypatch, tick=0.0):
        self.now, self._tick = 0.0, tick
        monkeypatch.setattr(time, "perf_counter", self._look)

    def _look(self):
        self.now += self._tick
        return self.now


def test_t3_compiling_is_distinguished(train, monkeypatch):
    clock = Clock(monkeypatch, tick=2.0**-20)

    def slow_to_trace(state, batch):
        clock.now += 100
        return step(state, batch)

    result = fit(slow_to_trace, start(), load(train), epochs=2, progress="none")
    timing = result.timing
    first, second = (epoch.timing for epoch in result.epochs)
    assert 100 < timing.compile < 101
    assert 100 < first.compile < 101
    assert second.compile == 0
    assert timing.data_wait + timing.step < 1
    parts = timing.compile + timing.data_wait + timing.step + timing.eval + timing.checkpoint
    assert parts <= timing.wall
    assert timing.device_wait <= timing.step


class Slow:
    """Twelve batches that take a second each to come, without a loader.

    Args:
        clock: The clock that the seconds pass on.
        before: Is called before each batch.
    """

    def __init__(self, clock, before=lambda: None):
        self._clock, self._before = clock, before

    def __iter__(self):
        for _ in range(12):
            self._before()
            self._clock.now += 1
            yield np.ones((256, 256), np.float32)


def multiply(state, batch):
    state = jnp.tanh(state @ batch)
    return state, state[0, 0]


def test_t14_a_device_without_work_waits_for_data(monkeypatch):
    def finish_steps():
        jax.block_until_ready(jax.live_arrays())

    batches = Slow(Clock(monkeypatch), before=finish_steps)
    timing = fit(multiply, jnp.eye(256), batches, progress="none").timing
    assert timing.data_wait == 12


def test_t14_a_batch_that_comes_while_the_device_computes_was_not_waited_for(monkeypatch):
    asked = []
    is_ready = ArrayImpl.is_ready

    def is_never_ready(array):
        if array.shape != ():
            return is_ready(array)
        asked.append(array)
        return False

    # JAX says of no loss that it is there: the device computes all the time.
    monkeypatch.setattr(ArrayImpl, "is_ready", is_never_ready)
    batches = Slow(Clock(monkeypatch))
    timing = fit(multiply, jnp.eye(256), batches, prefetch=1, progress="none").timing
    # Before the first step there is nothing to compute: it has a batch, and one is on its way.
    assert timing.data_wait == 2
    assert timing.step == 10
    assert len({id(loss) for loss in asked}) == 12


def test_t3_an_evaluation_compiles_in_the_first_epoch_only(train):
    loader, validation = load(train), load(train, mask=True)
    result = fit(
        step,
        start(),
        loader,
        epochs=3,
        eval_step=evaluate,
        eval_data=validation,
        progress="none",
    )
    first, *others = (epoch.timing.compile for epoch in result.epochs)
    assert first > 0
    assert others == [0, 0]


def test_t4_what_lies_on_the_device_is_not_sent_again():
    device = jax.devices()[0]
    batch = {"x": jnp.ones((4, 2)), "y": jnp.ones(4)}

    def first_of(batch):
        return next(open_source([batch], depth=1, stacked=1, target=device, role="data").start(0))

    assert first_of(batch) is batch
    sent = first_of({**batch, "y": np.ones(4, "f4")})
    assert {part.device for part in sent.values()} == {device}


@pytest.mark.parametrize("ahead", range(1, 17))
def test_t3_no_more_steps_are_under_way_than_may_be(ahead):
    stride, most = _wait_schedule(ahead)
    under_way, marks, peak = 0, [], 0
    for number in range(1, 200):
        under_way += 1
        peak = max(peak, under_way)
        if number % stride == 0:
            marks.append(number)
            if len(marks) > most:
                under_way = number - marks.pop(0)
    # The one that was just given is begun before the program waits.
    assert ahead - 2 <= peak <= ahead + 1


def test_t4_a_batch_on_one_cpu_stays_where_the_step_can_take_it(train):
    def first_of(loader):
        return next(open_source(loader, depth=1, stacked=1, target=device, role="data").start(0))

    device = jax.devices()[0]
    plenty, little = load(train), load(train, memory="100kB")
    batch = first_of(plenty)
    assert all(type(part) is np.ndarray for part in batch.values())
    assert plenty.stats.held_bytes > 0
    # Memory of its own: the few batches that there is room for would hold up the steps.
    batch = first_of(little)
    assert all(type(part) is np.ndarray and part.base is None for part in batch.values())
    # What a transform returns may look into the loader's memory, so JAX is to know of it.
    changed = first_of(load(train, transform=lambda batch: batch))
    assert all(isinstance(part, jax.Array) for part in changed.values())


@pytest.mark.parametrize("memory", ["100kB", "64MiB"])
def test_t4_no_step_reads_memory_that_came_back_to_the_loader(train, memory):
    # It is filled with a pattern as soon as it is back; steps are far behind the program. By hand
    # each is waited for.
    loader = load(train, memory=memory, _poison=True)
    result = fit(step, start(), loader, epochs=3, progress="none")
    state, _ = by_hand(train, 3, memory=memory)
    assert same(result.state, state)


def test_t4_the_next_epoch_is_read_while_the_evaluation_runs(train, monkeypatch):
    order = []
    loader, validation = load(train), load(train, mask=True)
    for name, one in (("train", loader), ("validate", validation)):
        begin = one._start

        def noted(epoch, position, name=name, begin=begin):
            order.append((name, epoch))
            return begin(epoch, position)

        monkeypatch.setattr(one, "_start", noted)
    evaluation = {"eval_step": evaluate, "eval_data": validation}
    result = fit(step, start(), loader, epochs=3, progress="none", **evaluation)
    assert order == [
        ("train", 0),
        *(("train", 1), ("validate", 0)),
        *(("train", 2), ("validate", 0)),
        ("validate", 0),
    ]
    state, _ = by_hand(train, 3)
    assert same(result.state, state)


def test_t4_one_loader_may_be_trained_on_and_evaluated(train):
    loader, apart = load(train, mask=True), load(train, mask=True)
    both = fit(
        step, start(), loader, epochs=3, eval_step=evaluate, eval_data=loader, progress="none"
    )
    alone = fit(
        step, start(), load(train), epochs=3, eval_step=evaluate, eval_data=apart, progress="none"
    )
    assert same(both.state, alone.state)
    assert [e.validation for e in both.epochs] == [e.validation for e in alone.epochs]


def test_t4_an_epoch_that_is_not_begun_is_not_read_on(train):
    loader = load(train, threads=1, memory="100kB")
    result = fit(
        step,
        start(),
        loader,
        epochs=9,
        eval_step=lambda state, batch: {"loss": jnp.ones(())},
        eval_data=load(train, mask=True),
        stop_after=1,
        progress="none",
    )
    assert result.stop_reason == "early"
    assert reader_threads() == []
    assert sum(1 for _ in loader) == len(loader)
