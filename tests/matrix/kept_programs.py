"""Compiled programs can be stored: by JAX's compilation cache, and by the program itself."""

import pathlib
import pickle
import tempfile

import jax
import jax.numpy as jnp
from jax import monitoring
from jax.experimental import serialize_executable

seen = []
monitoring.register_event_listener(lambda name, **_: seen.append(name))

folder = tempfile.TemporaryDirectory()
jax.config.update("jax_compilation_cache_dir", folder.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def program(x):
    return jnp.sin(x) @ x


x = jnp.ones((64, 64))
first = jax.jit(program)(x)
stored = [path.name for path in pathlib.Path(folder.name).iterdir()]
assert any(name.startswith("jit_program") for name in stored), stored
jax.clear_caches()
hits = seen.count("/jax/compilation_cache/cache_hits")
second = jax.jit(program)(x)
assert seen.count("/jax/compilation_cache/cache_hits") > hits, set(seen)
assert float(first[0, 0]) == float(second[0, 0]) != 0

compiled = jax.jit(lambda x: (x + 1, x.sum())).lower(x).compile()
payload, in_tree, out_tree = pickle.loads(pickle.dumps(serialize_executable.serialize(compiled)))
loaded = serialize_executable.deserialize_and_load(payload, in_tree, out_tree)
ones, total = loaded(x)
assert float(total) == 64 * 64, total
assert ones.shape == x.shape
assert loaded.memory_analysis().argument_size_in_bytes == 64 * 64 * 4
