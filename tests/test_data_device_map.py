"""Functions of batches on the device, whose keys a resumed run repeats."""

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training import load, same, start, step

from vramfit.data import Loader, Mixture
from vramfit.errors import InvalidArgumentError
from vramfit.train import fit


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["x"] = np.arange(400, dtype="f4").reshape(100, 4)
    return tmp_path / "f.h5"


def add_noise(batch, key):
    return {"x": batch["x"] + jax.random.normal(key, batch["x"].shape), "clean": batch["x"]}


def read(batches):
    return [jax.tree.map(np.array, batch) for batch in batches]


def test_a_resumed_run_draws_the_same_numbers(path):
    def make(seed=2**63 + 5):
        return Loader(path, "x", batch_size=8, seed=seed).to_device(map_on_device=add_noise)

    whole = make()
    epochs = [read(whole), read(whole)]
    assert all(isinstance(batch["x"], jax.Array) for batch in make())
    noise = [batch["x"] - batch["clean"] for epoch in epochs for batch in epoch]
    assert len({part.tobytes() for part in noise}) == len(noise) == 26
    for stop in (0, 5, 13, 18):
        batches, first = make(), []
        for _ in range(2):
            for batch in batches:
                first.append(jax.tree.map(np.array, batch))
                if len(first) == stop:
                    break
            if len(first) >= stop:
                break
        resumed = make().restore(batches.state())
        rest = [*read(resumed), *(read(resumed) if stop < 13 else [])]
        if stop == 0:
            continue
        assert same([*first, *rest], [*epochs[0], *epochs[1]])
    assert not same(read(make(seed=5)), epochs[0])


def test_the_function_is_compiled_once_and_may_have_no_key(path):
    traced = []

    def scale(batch):
        traced.append(1)
        return {"x": batch["x"] * 2}

    loader = Loader(path, "x", batch_size=10)
    got = read(loader.to_device(map_on_device=scale))
    assert len(traced) == 1
    assert same(got, [{"x": batch["x"] * 2} for batch in Loader(path, "x", batch_size=10)])
    jitted = Loader(path, "x", batch_size=10).to_device(map_on_device=jax.jit(add_noise))
    assert len(read(jitted)) == 10
    with pytest.raises(InvalidArgumentError, match="must be a function"):
        loader.to_device(map_on_device=3)


def test_batches_of_a_mixture_are_mapped(path):
    def make():
        loaders = {name: Loader(path, "x", batch_size=8) for name in "ab"}
        return Mixture(loaders, batches=12, seed=1).to_device(map_on_device=add_noise)

    whole = read(make())
    batches = make()
    iterator = iter(batches)
    first = read(next(iterator) for _ in range(5))
    assert same([*first, *read(make().restore(batches.state()))], whole)


def test_fit_maps_batches_and_resumes(train, tmp_path):
    def shift(batch, key):
        return {**batch, "x": batch["x"] + jax.random.normal(key, batch["x"].shape)}

    def data():
        return load(train).to_device(map_on_device=shift)

    whole = fit(step, start(), data(), steps=40, progress="none")
    assert not same(whole.state, fit(step, start(), load(train), steps=40, progress="none").state)
    for steps in (17, 40):
        options = {"directory": tmp_path / "run", "progress": "none"}
        result = fit(step, start(), data(), steps=steps, **options)
    assert result.resumed_at == 17
    assert same(result.state, whole.state)
    by_hand = start()
    for batch in [*data().epoch(0), *data().epoch(1)][:40]:
        by_hand, _ = jax.jit(step)(by_hand, batch)
    assert all(
        jnp.allclose(one, other)
        for one, other in zip(jax.tree.leaves(by_hand), jax.tree.leaves(whole.state), strict=True)
    )
