"""Memory budgets: what is refused, and whether the budget that the error names is enough."""

import re

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramfit.data import Groups, Loader, Ragged, Windows
from vramfit.errors import InvalidArgumentError

ROWS = 600


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("budget") / "f.h5"
    values = np.random.default_rng(0).normal(size=(ROWS, 20))
    with h5py.File(path, "w") as f:
        f["plain"] = values
        f.create_dataset("chunked", data=values, chunks=(64, 20), compression="gzip")
        f.create_dataset("small", data=values, chunks=(1, 5))
        f.create_dataset("weights", data=np.ones(ROWS), chunks=(ROWS,), compression="gzip")
        f["ends"] = np.arange(0, ROWS + 1, 50)
        for number in range(40):
            f[f"g/{number}/x"] = values[: 1 + number]
    return path


def enough(error):
    """Return the budget that an error names."""
    assert "memory budget" in error.message, error
    return int(re.search(r"\((\d+) bytes\)", error.hint)[1])


SAMPLES = [
    ("plain", {}),
    ("chunked", {}),
    ("small", {}),
    (["plain", "chunked", "small"], {}),
    ("chunked", {"samples": Windows(length=30, stride=7)}),
    ("chunked", {"samples": Ragged("ends", length=50)}),
    ("g/*/x", {}),
    ("g/*/x", {"samples": Windows(length=3, pad="zeros")}),
    ("g/*/x", {"samples": Groups(length=40)}),
]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    what=st.sampled_from(SAMPLES),
    options=st.fixed_dictionaries(
        {"batch_size": st.sampled_from([1, 8, 100, 5000])},
        optional={
            "shuffle": st.booleans(),
            "threads": st.integers(1, 8),
            "stacked_batches": st.integers(1, 3),
            "last_batch": st.just("pad"),
            "dtype": st.just("float32"),
            "transform": st.just(lambda batch: batch),
            "weights": st.just("weights"),
        },
    ),
    memory=st.integers(2000, 200_000),
)
def test_the_budget_that_an_error_names_is_enough(path, what, options, memory):
    datasets, more = what
    options = {**more, **options}
    if "samples" in more or "g/*/x" in datasets or not options.get("shuffle", True):
        options.pop("weights", None)
    if "weights" in options:
        options["shuffle"] = True
    try:
        Loader(path, datasets, memory=memory, **options).close()
    except InvalidArgumentError as error:
        memory = enough(error)
    with Loader(path, datasets, memory=memory, **options) as loader:
        assert sum(1 for _ in loader) == len(loader)
    # A state of a run with more memory, whose windows are larger.
    with Loader(path, datasets, memory="256MiB", **options) as loader:
        next(iter(loader))
        state = loader.state()
    with Loader(path, datasets, memory=memory, **options) as loader:
        try:
            loader.restore(state)
            return
        except InvalidArgumentError as error:
            memory = enough(error)
    with Loader(path, datasets, memory=memory, **options) as loader:
        next(iter(loader.restore(state)))


def test_a_batch_is_no_larger_than_an_epoch(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.arange(2.0 * 1000).reshape(2, 1000)
    small = {"memory": "64KiB", "shuffle": False}
    with Loader(tmp_path / "f.h5", "x", batch_size=10_000, **small) as loader:
        assert (len(loader), loader.batch_size) == (1, 10_000)
        assert loader.batch_bytes == 2 * 1000 * 4
        for epoch in range(2):
            (batch,) = loader.epoch(epoch)
            assert batch["x"].tolist() == np.arange(2000.0).reshape(2, 1000).tolist()
    with pytest.raises(InvalidArgumentError, match="two batches of"):
        Loader(tmp_path / "f.h5", "x", batch_size=10_000, last_batch="pad", **small)


def test_reading_weights_needs_no_budget_of_its_own(path):
    with Loader(path, "plain", batch_size=4, memory=160_000, weights="weights") as loader:
        assert sum(1 for _ in loader) == ROWS // 4


@pytest.mark.parametrize("pad", ["none", "zeros", "repeat"])
@pytest.mark.parametrize("length", [10**6, 10**9, 2**33, 2**40])
def test_windows_longer_than_memory_are_refused_at_once(path, length, pad):
    """The work does not grow with the length: the last of these would take an hour otherwise."""
    samples = Windows(length=length, pad=pad)
    with pytest.raises(InvalidArgumentError, match=r"memory budget|no sample has all") as caught:
        Loader(path, "plain", batch_size=4, samples=samples, memory="1MiB")
    assert pad == "none" or enough(caught.value) > length
