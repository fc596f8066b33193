"""How evenly the loader mixes a file that is sorted by label: as well as so many blocks can be.

The expectation is not taken from the loader. It is what an ideal shuffle would do: draw blocks by
lot until none is left, so many at a time, and rows by lot from each draw.
"""

import h5py
import numpy as np
import pytest

from vramfit.data import Loader

ROWS = 60_000
LABELS = 10
WIDTH = 16
BATCH = 100
ROW_BYTES = WIDTH * 4 + 4
KIB = 1024

LAYOUTS = {
    "contiguous": ({}, {}),
    "gzip": (
        {"chunks": (100, WIDTH), "compression": "gzip", "shuffle": True},
        {"chunks": (100,), "compression": "gzip"},
    ),
    "columns": ({"chunks": (200, 4)}, {"chunks": (200,)}),
    # The index of the labels is in other chunks than the rows, and bands are common multiples.
    "unlike": ({"chunks": (50, WIDTH)}, {"chunks": (75,)}),
}
BUDGETS = [400 * KIB, 1000 * KIB, 4000 * KIB]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sorted")
    labels = np.repeat(np.arange(LABELS, dtype="i4"), ROWS // LABELS)
    paths = {}
    for name, (x, y) in LAYOUTS.items():
        paths[name] = folder / f"{name}.h5"
        with h5py.File(paths[name], "w") as f:
            rows = np.random.default_rng(0).integers(0, 99, (ROWS, WIDTH)).astype("f4")
            f.create_dataset("x", data=rows, **x)
            f.create_dataset("y", data=labels, **y)
    return paths


def entropies(counts):
    """Return the entropy of the labels of each batch, in nats, of an array of counts."""
    share = counts / counts.sum(-1, keepdims=True)
    return -np.where(share > 0, share * np.log(np.where(share > 0, share, 1)), 0).sum(-1)


def measured(loader, epochs):
    """Return the entropy of every full batch, one row an epoch."""
    table = []
    for _ in range(epochs):
        counts = [np.bincount(batch["y"], minlength=LABELS) for batch in loader]
        table.append(entropies(np.array(counts)[: ROWS // BATCH]))
    return np.array(table)


def ideal(block_rows, window_blocks, epochs):
    """Return the same for an ideal shuffle with blocks and pools of that size."""
    random = np.random.default_rng(1)
    labels = np.arange(ROWS) * LABELS // ROWS
    blocks = np.split(labels, range(block_rows, ROWS, block_rows))
    table = []
    for _ in range(epochs):
        order = random.permutation(len(blocks))
        pools = np.array_split(order, -(-len(order) // window_blocks))
        mixed = [random.permutation(np.concatenate([blocks[b] for b in pool])) for pool in pools]
        batches = np.concatenate(mixed).reshape(-1, BATCH)
        table.append(entropies(np.stack([(batches == one).sum(1) for one in range(LABELS)], -1)))
    return np.array(table)


def pools_of(loader):
    """Return rows of a block and blocks of a pool, as the state has them."""
    engine = loader.state()["order"]["engine"]
    return engine["block_rows"], engine["window_blocks"]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: f"{budget // KIB}KiB")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sorted_file_is_mixed_as_well_as_its_blocks_can_be(files, layout, budget):
    epochs = 3
    options = {"batch_size": BATCH, "memory": budget}
    with Loader(files[layout], ["x", "y"], **options) as loader:
        block_rows, window_blocks = pools_of(loader)
        found = measured(loader, epochs)
        plan = loader.plan
    expected = ideal(block_rows, window_blocks, 60)
    means = expected.mean(1)
    # Epochs are independent draws, so the mean of three is within four standard errors of theirs.
    margin = 4 * means.std() / np.sqrt(epochs)
    assert abs(found.mean() - means.mean()) < margin, (plan, found.mean(), means.mean(), margin)
    # No part of an epoch is mixed less than another: a bad tail is below the worst of 60 epochs.
    tail = ROWS // BATCH // 20
    assert found[:, -tail:].mean(1).min() > expected[:, -tail:].mean(1).min() - margin, plan
    if window_blocks < 64 and block_rows * window_blocks < ROWS:
        assert f"warning: a window holds only {window_blocks} blocks" in plan
    else:
        assert "blocks, but an even shuffle" not in plan
        # 64 blocks lose 0.07 of the 2.26 that a fair draw has.
        assert found.mean() > 2.15


def test_the_budget_that_a_warning_names_gives_an_even_mixture(files):
    # Bands are 150 rows here, of which a small pool holds few.
    options = {"batch_size": BATCH}
    with Loader(files["unlike"], ["x", "y"], memory="200kB", **options) as loader:
        assert pools_of(loader)[1] < 64
        warning = loader.plan.split("warning: ")[1].split("\n")[0]
    enough = int(warning.split("(")[1].split(" bytes")[0])
    with Loader(files["unlike"], ["x", "y"], memory=enough, **options) as loader:
        assert "blocks, but an even shuffle" not in loader.plan
        assert measured(loader, 1).mean() > 2.15


def test_nearly_every_batch_has_every_label(files):
    # None of 64 blocks has a certain label with a probability of 0.9 ** 64, or 0.12 %; a batch
    # of a hundred rows, ten of which have it on average, is without it in 0.003 % of the cases.
    with Loader(files["gzip"], ["x", "y"], batch_size=BATCH, memory=2_000_000) as loader:
        assert pools_of(loader)[1] >= 64
        pairs = [len(set(batch["y"].tolist())) for batch in loader]
    assert sum(pairs) / (LABELS * len(pairs)) > 0.995
