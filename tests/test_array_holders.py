"""The variables that hold arrays when memory runs out are named, each array once."""

import json

import pytest
from cli_dryrun import dryrun_of
from commands import run_python

# Each makes a program hold three arrays of 4 MiB, and is followed by what is said of them.
HELD = {
    "a list": ("history = [array() for _ in range(3)]", "`history` of {file}"),
    "a list of tuples": (
        "history = [(0.5, {'logits': array()}) for _ in range(3)]",
        "`history` of {file}",
    ),
    "an attribute": (
        "class Model:\n    pass\nmodel = Model()\nmodel.cache = {i: array() for i in range(3)}",
        "`model.cache` of {file}",
    ),
    "slots": (
        "class Model:\n    __slots__ = ('keys',)\nmodel = Model()\n"
        "model.keys = [array() for _ in range(3)]",
        "`model.keys` of {file}",
    ),
    "a class": (
        "class Pool:\n    free = [array() for _ in range(3)]",
        "`Pool.free` of {file}",
    ),
    "a named tuple": (
        "import collections\nState = collections.namedtuple('State', 'mu nu')\n"
        "state = State([array(), array(), array()], None)",
        "`state.mu` of {file}",
    ),
    "a closure": (
        "def make():\n    kept = [array() for _ in range(3)]\n"
        "    def step():\n        return kept\n"
        "    return step\nstep = make()",
        "`kept`, captured by `make.step`",
    ),
    "a default argument": (
        "def step(log=[array(), array(), array()]):\n    return log",
        "`default argument` of `step`",
    ),
    "a cache of functools": (
        "import functools\n@functools.lru_cache\ndef load(index):\n    return array()\n"
        "loaded = None\nfor i in range(3):\n    load(i)",
        "`lru_cache`, the `functools` cache of `load` of {file}",
    ),
    "a partial": (
        "import functools\napply = functools.partial(print, array(), array(), x=array())",
        "`apply` of {file}",
    ),
    "a bound method": (
        "class Model:\n    def __init__(self):\n        self.w = [array() for _ in range(3)]\n"
        "    def call(self):\n        pass\ncall = Model().call",
        "`call.w` of {file}",
    ),
    "a kept exception": (
        "def fail():\n    work = [array() for _ in range(3)]\n    raise ValueError\n"
        "try:\n    fail()\nexcept ValueError as error:\n    kept = error",
        "`work` of `fail`, kept by the traceback of `kept` of {file}",
    ),
    "a generator": (
        "def batches():\n    ahead = [array() for _ in range(3)]\n    yield 0\n"
        "feed = batches()\nnext(feed)",
        "`ahead` of the generator `feed` of {file}",
    ),
    "a thread": (
        "import threading\nready, end = threading.Event(), threading.Event()\n"
        "def work():\n    store = {i: array() for i in range(3)}\n    ready.set()\n    end.wait()\n"
        "threading.Thread(target=work, daemon=True).start()\nready.wait()",
        "`store` of `work` ({file}:13)",
    ),
    "a module": ("import held", "`store` of the module `held`"),
    "two variables": (
        "class Model:\n    pass\nmodel = Model()\nmodel.far = [array() for _ in range(3)]\n"
        "near = model.far",
        "`near` of {file}",
    ),
}
ARRAY = """\
import jax
import jax.numpy as jnp


def array():
    return jnp.ones((1024, 1024))
"""
FIND = """
import json

from vramfit._inprogram._array_holders import find_array_holders

print(json.dumps(find_array_holders(None)))
"""


def holders(folder, program):
    file = folder / "train.py"
    file.write_text(f"{ARRAY}\n{program}\n{FIND}")
    return json.loads(run_python(file, code=0, env={"JAX_PLATFORMS": "cpu"}).stdout)


@pytest.mark.parametrize("kind", HELD)
def test_what_holds_arrays_is_named_as_in_the_program(tmp_path, kind):
    program, expected = HELD[kind]
    (tmp_path / "held.py").write_text(
        "import jax.numpy as jnp\nstore = [jnp.ones((1024, 1024)) for _ in range(3)]\n"
    )
    [held] = holders(tmp_path, program)
    assert held == [expected.format(file="train.py"), 3, 12 << 20]


def test_no_code_of_the_program_is_run(tmp_path):
    program = """
def fail(*_):
    raise SystemExit("called")
class Lazy:
    __class__ = property(fail)
    __getattribute__ = __getattr__ = __eq__ = __hash__ = fail
    __iter__ = __len__ = __bool__ = fail
class LazyDict(dict):
    values = items = __iter__ = __getitem__ = __len__ = fail
class LazyList(list):
    __iter__ = __getitem__ = __len__ = fail
class LazyModule(type(jax)):
    __getattribute__ = fail
import sys
sys.modules["lazy"] = LazyModule("lazy")
lazy, kept = Lazy(), LazyDict(a=LazyList([array(), array(), array()]))
"""
    assert holders(tmp_path, program) == [["`kept` of train.py", 3, 12 << 20]]


def test_memory_that_several_arrays_share_is_counted_once(tmp_path):
    program = "full = array()\nshards = [full.addressable_data(0) for _ in range(3)]"
    found = holders(tmp_path, program)
    assert sum(size for _, _, size in found) == 4 << 20


def test_on_several_devices_it_is_the_bytes_of_one(tmp_path):
    program = (
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "mesh = jax.make_mesh((4,), ('x',))\n"
        "copies = jax.device_put(array(), NamedSharding(mesh, P()))\n"
        "parts = jax.device_put(array(), NamedSharding(mesh, P('x')))\n"
    )
    program = f"jax.config.update('jax_num_cpu_devices', 4)\n{program}"
    found = holders(tmp_path, program)
    assert found == [["`copies` of train.py", 1, 4 << 20], ["`parts` of train.py", 1, 1 << 20]]


# What a function of JAX's has been given is not what holds it.
EAGER = """
import jax.numpy as jnp


class Run:
    pass


run = Run()
run.state = Run()
run.state.trajectory = jnp.ones((6, 1 << 28))
total = (run.state.trajectory**2).sum()
"""


def test_functions_of_jax_hold_nothing(tmp_path):
    run = dryrun_of(tmp_path, EAGER, gpu="t4", code=1)
    [held] = run.summary["array_holders"]
    assert held["name"] == "`run.state.trajectory` of program.py"
    assert held["bytes"] == 6 << 30


LEAK = """
import jax
import jax.numpy as jnp


@jax.jit
def step(w, x):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    return w - 0.1 * gradient, loss, x @ w


class Trainer:
    def __init__(self):
        self.history = []
        self.w = jnp.ones((4096, 4096))

    def fit(self, x):
        for _ in range(400):
            self.w, loss, predictions = step(self.w, x)
            self.history.append((loss, predictions))


Trainer().fit(jnp.ones((4096, 4096)))
"""


def test_what_holds_a_leak_is_named_where_it_fits(tmp_path):
    # Data of another size than the parameters, which wait for no update.
    leak = LEAK.replace("fit(jnp.ones((4096,", "fit(jnp.ones((1024,")
    run = dryrun_of(tmp_path, leak, "--steps", 6, gpu="h100-80g", code=0)
    # The last results may or may not be in the list when the run is ended.
    assert "held by `self.history` of `Trainer.fit` (program.py:1" in " ".join(run.err.split())
    # The function has ended, and with it what it held.
    lines = leak.replace("range(400)", "range(6)")
    ended = dryrun_of(tmp_path, lines, gpu="h100-80g", code=0)
    assert ended.summary["array_holders"] == []
    assert "held by" not in ended.err


def test_a_dry_run_that_runs_out_of_memory_names_what_holds_it(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(LEAK)
    run = dryrun_of(tmp_path, program, gpu="t4", code=1)
    [first, *_] = run.summary["array_holders"]
    assert first["name"] == "`self.history` of `Trainer.fit` (train.py:19)"
    in_use = run.summary["oom"]["in_use_bytes"]
    assert 0.9 * in_use < first["bytes"] <= in_use
    sentence = "held by `self.history` of `Trainer.fit` (train.py:19): 338 arrays, 10.6 GiB"
    assert sentence in " ".join(run.err.split())
