"""What holds for samples of every layout: resume with other batches and processes, wildcards."""

import itertools
import json
import random
import re

import h5py
import numpy as np
import pytest
from data_files import COLUMNS, STORAGES, collect, encode, write_ragged, write_series, write_shards
from hypothesis import given, settings
from hypothesis import strategies as st

from vramfit.data import Groups, Loader, Ragged, Rows, Windows
from vramfit.errors import VramfitError


def write_files(folder, storage):
    """Write files with samples of every layout, and return arguments of loaders for them."""
    rng = np.random.default_rng(0)
    options = STORAGES[storage]
    write_shards(folder / "shards", [41, 30, 1, 53], **options)
    lengths = rng.integers(0, 30, 40).tolist()
    ragged = write_ragged(folder / "ragged.h5", lengths, {"chunks": (9,)} if options else {})
    series = write_series(folder / "series.h5", rng.integers(1, 40, 25).tolist(), options)
    with h5py.File(folder / "axes.h5", "w") as f:
        values = np.arange(7 * 90 * 2.0).reshape(7, 90, 2)
        f.create_dataset("first", data=values, chunks=(1, 20, 2) if options else None)
        f.create_dataset("last", data=values.reshape(14, 90), chunks=(5, 16) if options else None)
    with h5py.File(folder / "texts.h5", "w") as f:
        texts = f.create_dataset("text", 60, h5py.vlen_dtype("uint8"))
        for row in range(60):
            texts[row] = np.frombuffer(encode(row), "uint8")
    return {
        "files": {"path": folder / "shards", "datasets": "x"},
        "some rows": {"path": folder / "shards", "datasets": "x", "rows": range(3, 120, 2)},
        "weights": {"path": folder / "shards", "datasets": "x", "weights": np.arange(125) % 3},
        "windows": {"path": series, "datasets": COLUMNS, "samples": Windows(5, pad="zeros")},
        "shifted": {"path": series, "datasets": COLUMNS, "shift": {"next": ("obs", 1)}},
        "episodes": {"path": series, "datasets": COLUMNS, "samples": Groups()},
        "ragged": {"path": ragged, "datasets": "tokens", "samples": Ragged(ends="ends")},
        "packed": {
            "path": ragged,
            "datasets": "tokens",
            "samples": Ragged("offsets", length=7, pack=True),
        },
        "windows within": {
            "path": ragged,
            "datasets": "tokens",
            "samples": Windows(3, within=Ragged(lengths="lengths")),
        },
        "trajectories": {
            "path": folder / "axes.h5",
            "datasets": "first",
            "samples": Windows(11, stride=3, axis=1),
        },
        "last axis": {"path": folder / "axes.h5", "datasets": "last", "samples": Rows(axis=-1)},
        "windows of the last axis": {
            "path": folder / "axes.h5",
            "datasets": "last",
            "samples": Windows(4, axis=-1),
        },
        "texts": {"path": folder / "texts.h5", "datasets": "text", "decode": {"text": None}},
    }


LAYOUTS = [
    *("files", "some rows", "weights", "windows", "shifted", "episodes", "ragged", "packed"),
    *("windows within", "trajectories", "last axis", "windows of the last axis", "texts"),
]


def read(batches):
    """Return the samples of each batch, without those that only fill it."""
    found = []
    for batch in batches:
        masks = [name for name in batch if name.endswith("mask")]
        values = [name for name in batch if name not in masks]
        # Samples without rows look the same, and are left out everywhere.
        real = np.any([batch[name].reshape(len(batch[name]), -1).any(1) for name in masks], axis=0)
        found.append([[batch[name][row].copy() for name in values] for row in np.flatnonzero(real)])
    return found


def read_text(batches):
    """Return the texts of each batch, without those that only fill it."""
    return [[[text] for text in batch["text"][batch["mask"]]] for batch in batches]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_resumes_at_a_random_place_with_other_batches_and_processes(
    tmp_path, layout, storage
):
    arguments = write_files(tmp_path, storage)[layout]
    rng = random.Random(f"{layout} {storage}")
    samples = read_text if layout == "texts" else read

    def load(batch_size, **options):
        options = {**arguments, "memory": "4MiB", "seed": 5, **options}
        return Loader(batch_size=batch_size, mask=True, last_batch="pad", **options)

    whole = list(itertools.chain(*samples(load(4).epoch(1))))
    for _ in range(3):
        loader = load(4)
        batches = loader.epoch(1)
        stop = rng.randrange(1, len(loader))
        found = list(itertools.chain(*samples(itertools.islice(batches, stop))))
        state = json.dumps(loader.state())
        assert len(state) <= 1024
        world = rng.choice([1, 2, 3])
        size = world * rng.choice([1, 3, 5])
        others = [load(size, rank=rank, world=world).restore(state) for rank in range(world)]
        for parts in zip(*map(samples, others), strict=True):
            found += itertools.chain(*parts)
        assert len(found) == len(whole)
        for one, other in zip(found, whole, strict=True):
            assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


NAMES = st.sampled_from(["a", "b1", "b2", "b10", "demo_3", "demo_12", "x y", "ä"])
TREES = st.recursive(
    st.integers(0, 20),
    lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=4),
    max_leaves=25,
)


def by_value(name):
    """Return what names are sorted by: numbers by value."""
    parts = re.split(r"(\d+)", name)
    return [(part, 0) if place % 2 == 0 else ("", int(part)) for place, part in enumerate(parts)]


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, TREES, min_size=1, max_size=5), st.data())
def test_wildcards_stand_for_the_members_of_nested_groups(tmp_path_factory, tree, data):
    path = tmp_path_factory.mktemp("tree") / "f.h5"
    leaves, groups = {}, {()}

    def write(group, inner, place):
        for name, it in inner.items():
            here = (*place, name)
            if isinstance(it, dict):
                groups.add(here)
                write(group.create_group(name), it, here)
            else:
                leaves[here] = 100 * len(leaves) + np.arange(it)
                group[name] = leaves[here]

    with h5py.File(path, "w") as f:
        write(f, tree, ())
    if not leaves:
        return
    leaf = data.draw(st.sampled_from(sorted(leaves)))
    stars = [data.draw(st.sampled_from(["", "*", "prefix"])) for _ in leaf]
    pattern = [
        {"": name, "*": "*", "prefix": f"{name[0]}*"}[star]
        for name, star in zip(leaf, stars, strict=True)
    ]
    # What a wildcard stands for is a group where names follow, and a dataset at the end.
    chosen, places = [], [()]
    for depth, part in enumerate(pattern):
        known = leaves if depth == len(pattern) - 1 else groups
        following = []
        for place in places:
            members = {
                it[depth] for it in {*leaves, *groups} if it[:depth] == place and len(it) > depth
            }
            names = sorted(members, key=by_value) if "*" in part else [part]
            names = [name for name in names if "*" not in part or name.startswith(part[:-1])]
            if "*" in part:
                names = [name for name in names if (*place, name) in known]
            following += [(*place, name) for name in names]
        places = following
    chosen = places
    missing = [place for place in chosen if place not in leaves]
    rows = [leaves.get(place, ()) for place in chosen]
    if missing or not sum(map(len, rows)):
        with pytest.raises(VramfitError):
            Loader(path, {"v": "/".join(pattern)}, batch_size=4)
        return
    loader = Loader(path, {"v": "/".join(pattern)}, batch_size=4, shuffle=False)
    assert collect(loader)["v"].tolist() == np.concatenate(rows).tolist()
