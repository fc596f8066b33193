"""Reads of values that were not computed: none leaves uncounted, and which decide what runs."""

import re

import pytest
from cli_dryrun import dryrun_of

SETUP = """
import copy, io, logging, math, operator, pathlib, pickle, tempfile
import jax, jax.numpy as jnp, numpy as np

large = jnp.ones((8192, 8192)) * 2
place = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
cpu = jax.devices("cpu")[0]
folder = pathlib.Path(tempfile.mkdtemp())

def number(): return (large * large).sum()
def whole(): return (large * large).astype(jnp.int32).sum()
def row(): return (large @ large)[0, :4]
"""

# Every way by which a value leaves an array. Each is read once, for the first time.
WAYS_OUT = {
    "float": "float(number())",
    "int": "int(whole())",
    "bool": "bool(number())",
    "complex": "complex(number())",
    "index": "operator.index(whole())",
    "item": "number().item()",
    "tolist": "row().tolist()",
    "if": "1 if number() > 0 else 2",
    "asarray": "np.asarray(row())",
    "array": "np.array(row())",
    "dunder array": "row().__array__()",
    "ufunc": "np.add(row(), 1)",
    "numpy save": "np.save(io.BytesIO(), row())",
    "device_get": "jax.device_get({'a': row()})",
    "print": "print(row(), file=io.StringIO())",
    "repr": "repr(row())",
    "format": "f'{number():.3f}'",
    "percent format": "'%.3f' % number()",
    "list index": "[1, 2, 3][whole()]",
    "range": "range(whole())",
    "iteration": "[float(x) for x in row()]",
    "contains": "1.0 in row()",
    "max": "max(number(), 3.0)",
    "sorted": "sorted([number(), 1.0])",
    "any": "any(row() > 0)",
    "math": "math.isnan(number())",
    "pickle": "pickle.dumps(row())",
    "live arrays": "[np.asarray(one) for one in [row(), *jax.live_arrays()] if one.shape == (4,)]",
    "copy_to_host_async": "row().copy_to_host_async()",
    "to the CPU backend": "jax.device_put(row(), cpu).block_until_ready()",
    "a program there": "float(jax.jit(lambda x: x.sum())(jax.device_put(row(), cpu)))",
    "dlpack": "np.from_dlpack(jax.device_put(row(), cpu))",
    "pinned host memory": "np.asarray(jax.device_put(row(), place))",
    "shard": "np.asarray(row().addressable_data(0))",
    "allclose": "bool(jnp.allclose(row(), 0))",
    "numpy index": "np.arange(5)[row().astype(int)]",
}

# What reads nothing: the values stay on the device.
NOT_OUT = {
    "deepcopy": "copy.deepcopy(row())",
    "numpy function": "np.sum(row())",
    "round": "round(number())",
    "element": "row()[1]",
}


def reads_by_line(tmp_path, script):
    """Return what was read, by line of the script, and the whole summary."""
    summary = dryrun_of(tmp_path, script, code=0).summary
    by_line = {int(row["site"].split(":")[-1].split()[0]): row for row in summary["unknown_reads"]}
    return by_line, summary


def test_a_value_that_was_not_computed_leaves_by_no_way_uncounted(tmp_path):
    lines = [*SETUP.splitlines(), *WAYS_OUT.values(), *NOT_OUT.values()]
    reads, _ = reads_by_line(tmp_path, "\n".join(lines) + "\n")
    first = len(SETUP.splitlines()) + 1
    uncounted = [name for at, name in enumerate(WAYS_OUT) if first + at not in reads]
    assert uncounted == []
    first += len(WAYS_OUT)
    assert not [name for at, name in enumerate(NOT_OUT) if first + at in reads]


# Functions that show or store what they read: nothing else depends on it.
SHOWN = """
def printed():
    print(float(number()))

def formatted():
    text = f"{float(number()):.3f}"
    return text

def collected():
    losses = []
    for _ in range(2):
        losses.append(float(number()))
    print(np.mean(losses))

def logged():
    logging.info("loss %f", float(number()))

def in_a_dictionary():
    metrics = {"loss": float(number())}
    print(metrics)

def returned_and_printed():
    def evaluate():
        return float(number())

    print(evaluate())

def counted():
    tokens = []
    while len(tokens) < 2:
        tokens.append(int(whole()))

def only_its_shape():
    array = np.asarray(row())
    if array.shape == (4,):
        print(array.dtype)

def passed_to_a_function_that_returns_it():
    def advance(position):
        return position

    advance(int(whole()))

def passed_to_a_function_that_prints_it():
    def show(step, loss):
        if step % 10 == 0:
            print(loss)

    show(3, float(number()))

def collected_by_an_object():
    class History:
        def __init__(self):
            self.losses, self.every = [], 2

        def add(self, step, loss):
            if step % self.every == 0:
                self.losses.append(loss)

    history = History()
    history.add(1, float(number()))
    print(history.losses)

def yielded_beside_a_counter():
    def training():
        for step in range(2):
            yield step, float(number())

    for step, loss in training():
        if step > 0:
            print(loss)

def returned_beside_a_counter():
    def evaluate():
        return float(number()), 3

    loss, count = evaluate()
    if count > 3:
        print(loss)

def argument_of_a_compiled_function():
    @jax.jit
    def scaled(x, factor):
        return jnp.where(factor > 1, x, x * factor)

    scaled(jnp.ones(3), float(number()))

def text_in_a_list():
    rows = [f"{float(number()):.2f}", str(float(number())), "{:.3f}".format(float(number()))]
    print(", ".join(rows))

def in_a_file_of_results():
    import json

    line = json.dumps({"loss": float(number())})
    io.StringIO().write(line)

def logarithm_that_is_shown():
    print(math.log(float(number()) + 1))

def length_of_a_list():
    losses = [float(number())]
    if len(losses) > 3:
        pass

def lambda_that_shows():
    show = lambda value: print(value)
    show(float(number()))

def method_of_a_writer():
    from types import SimpleNamespace

    writer = SimpleNamespace(add_text=lambda value: None, close=lambda: None)
    if writer is not None:
        writer.add_text(float(number()))
    writer.close()

def beside_the_counter_of_an_object():
    import dataclasses

    @dataclasses.dataclass
    class Progress:
        loss: float = 0.0
        epoch: int = 0

    progress = Progress()
    while progress.epoch < 2:
        progress = dataclasses.replace(progress, loss=float(number()), epoch=progress.epoch + 1)
    print(progress.loss)

def stored_where_nobody_reads(folder):
    import json

    settings = folder / "settings.json"
    settings.write_text('{"average": true}')
    if json.loads(settings.read_text())["average"]:
        (folder / "results.json").write_text(json.dumps({"loss": float(number())}))

def stored_after_it_was_looked_for(folder):
    file = folder / "checkpoint"
    state = {"step": 0}
    if file.exists():
        with file.open("rb") as opened:
            state = pickle.load(opened)
    while state["step"] < 2:
        state["step"] += 1
    with file.open("wb") as opened:
        pickle.dump(state | {"loss": number()}, opened)

def given_to_a_logger_that_asks_whether_it_is_there():
    class Logger:
        def log(self, step, loss=None):
            if loss is not None:
                print(step, loss)

    Logger().log(3, float(number()))

def shown_by_a_library():
    import pprint
    import statistics
    import textwrap

    losses = [float(number())]
    pprint.pprint({"mean": statistics.mean(losses)})
    print(textwrap.indent(str(losses), " "))
"""

# Functions in which what they read decides what runs, or how large it is.
DECIDING = """
def branch():
    if number() > 1:
        pass

def loop():
    while int(whole()) < 0:
        pass

def variable():
    loss = float(number())
    if loss < -1:
        return

def best_so_far():
    best = 0.0
    for _ in range(2):
        accuracy = float(number())
        best = max(best, accuracy)
        if best > 3:
            break

def returned_to_a_test():
    def evaluate():
        return float(number())

    if evaluate() > 3:
        pass

def returned_by_a_variable():
    def evaluate():
        accuracy = float(number()) / 3
        return accuracy

    result = evaluate()
    assert result >= 0

def end_of_slice():
    return np.ones(9)[: int(whole())]

def rounds():
    for _ in range(int(whole())):
        pass

def size_of_an_array():
    return jnp.zeros((int(whole()), 2))

def attribute():
    class Cache:
        pass

    Cache.position = int(whole())
    if Cache.position > 3:
        pass

def end_of_text():
    tokens = []
    for _ in range(2):
        token = int(whole())
        tokens.append(token)
        if token == 2:
            break

def item():
    if number().item() < 0:
        pass

def mask():
    done = np.asarray(row() > 3)
    if done.all():
        pass

def conditional_expression():
    return 1 if number() > 0 else 2

def comprehension():
    return [y for y in range(2) if number() > y]

def finite():
    loss = float(number())
    if math.isnan(loss):
        raise SystemExit

def matched():
    match int(whole()):
        case 0:
            pass

def walrus():
    if (loss := float(number())) > 3:
        print(loss)

def short_circuit():
    return number() > 0 and 3

def negated():
    return not number()

def stored_truth():
    is_good = bool(number() > 0)
    if is_good:
        pass

def method_of_a_trainer():
    class Trainer:
        def step(self):
            self.loss = float(number())

        def is_done(self):
            return self.loss < 1

    trainer = Trainer()
    trainer.step()
    if trainer.is_done():
        pass

def passed_to_a_function():
    def report(step, loss=None):
        if loss < 1:
            return

    report(3, loss=float(number()))

def returned_by_a_function_that_it_is_passed_to():
    def halved(value):
        return value / 2

    if halved(float(number())) > 3:
        pass

def passed_to_a_property():
    class Meter:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def update(self, value, count=1):
            self.total += value * count
            self.count += count

        @property
        def average(self):
            return self.total / self.count

    class Stopper:
        best = 1e9

        def step(self, value):
            self.should_stop = value > self.best

    meter, stopper = Meter(), Stopper()
    meter.update(float(number()))
    stopper.step(meter.average)
    if stopper.should_stop:
        pass

def kept_in_a_window():
    class Window:
        def __init__(self):
            self.values = []

        def push(self, value):
            self.values.append(value)

        def largest(self):
            return max(self.values)

    window = Window()
    window.push(float(number()))
    while window.largest() > 3:
        break

def yielded():
    def training():
        for step in range(2):
            yield step, float(number())

    for step, loss in training():
        if loss > 3:
            break

def passed_to_hooks():
    class Hook:
        is_done = False

        def on_step(self, logs):
            self.is_done |= logs["loss"] > 3

    hooks = [Hook()]
    logs = {"loss": number().item()}
    for hook in hooks:
        hook.on_step(logs)
    if any(hook.is_done for hook in hooks):
        pass

def appended_by_an_inner_function():
    losses = []

    def note(value):
        losses.append(float(value))

    note(number())
    if losses[-1] < 1:
        pass

def field():
    import dataclasses

    @dataclasses.dataclass
    class Metrics:
        step: int
        loss: float

    metrics = Metrics(3, float(number()))
    if metrics.loss < 1:
        pass

def text_that_is_compared():
    if f"{float(number()):.2f}" != "0.00":
        pass

def text_of_json():
    import json

    metrics = json.loads(json.dumps({"loss": float(number())}))
    if metrics["loss"] > 3:
        pass

def logarithm():
    if math.log(float(number()) + 1) > 3:
        pass

def how_many_are_not_zero():
    if len(np.nonzero(np.asarray(row()))[0]) > 3:
        pass

def shape_of_unique_values():
    labels = np.unique(np.asarray(row()))
    return jnp.zeros(labels.shape)

def queue_of_the_last():
    from collections import deque

    losses = deque(maxlen=2)
    losses.extend(map(float, [number(), number()]))
    if losses[-1] > 3:
        pass

def lambda_that_is_called():
    if (lambda value: value > 3)(float(number())):
        pass

def lambda_by_name():
    is_large = lambda value: value > 3
    if is_large(float(number())):
        pass

def lambda_of_a_function_of_python():
    first = number()
    best = min([first, number()], key=lambda one: float(one))
    if best is first:
        pass

def copy_with_an_attribute():
    import dataclasses

    @dataclasses.dataclass
    class Result:
        best: float = 0.0

    result = dataclasses.replace(Result(), best=float(number()))
    if result.best > 3:
        pass

def property_of_a_copy():
    import dataclasses

    @dataclasses.dataclass
    class Result:
        best: float = 0.0

        @property
        def is_good(self):
            return self.best > 3

    result = dataclasses.replace(Result(), best=float(number()))
    if result.is_good:
        pass

def lambda_of_another_thread():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as threads:
        loss = threads.submit(lambda: float(number())).result()
    if loss > 3:
        pass

def function_of_another_thread():
    from concurrent.futures import ThreadPoolExecutor

    def evaluate(value):
        return float(value)

    with ThreadPoolExecutor() as threads:
        losses = list(threads.map(evaluate, [number()]))
    if losses[0] > 3:
        pass

def lambda_of_an_event_loop():
    import asyncio

    async def train():
        loss = await asyncio.to_thread(lambda: float(number()))
        if loss > 3:
            pass

    asyncio.run(train())

def gathered():
    import asyncio

    async def evaluate():
        return float(number())

    async def train():
        losses = await asyncio.gather(evaluate(), evaluate())
        if losses[0] > 3:
            pass

    asyncio.run(train())

def mean():
    import statistics

    if statistics.mean([float(number())] * 3) > 3:
        pass

def reduced():
    import functools

    if functools.reduce(operator.add, [float(value) for value in [number(), number()]]) > 3:
        pass

def heap():
    import heapq

    best = []
    heapq.heappush(best, (-float(number()), 0))
    if heapq.heappop(best)[0] < 3:
        pass

def hashed():
    if hash(float(number())) != 0:
        pass

def object_of_a_library():
    from types import SimpleNamespace

    trial = SimpleNamespace(report=lambda value: None, should_stop=lambda: False)
    trial.report(float(number()))
    if trial.should_stop():
        pass

def method_that_is_called_as_those_that_log():
    class History:
        best = 0.0

        def record(self, value):
            self.best = max(self.best, value)

    history = History()
    history.record(float(number()))
    if history.best > 3:
        pass

def archive(folder):
    np.savez(folder / "metrics.npz", loss=number())
    metrics = np.load(folder / "metrics.npz")
    if metrics["loss"] > 3:
        pass

def archive_in_memory():
    buffer = io.BytesIO()
    pickle.dump(number(), buffer)
    buffer.seek(0)
    if pickle.load(buffer) > 3:
        pass

def file(folder):
    import json

    with open(folder / "metrics.json", "w") as opened:
        json.dump({"loss": float(number())}, opened)
    with open(folder / "metrics.json") as opened:
        metrics = json.load(opened)
    if metrics["loss"] > 3:
        pass

def file_of_functions(folder):
    def save(path, text):
        with open(path, "w") as opened:
            opened.write(text)

    def load(path):
        return [float(line) for line in open(path)]

    save(folder / "losses", str(float(number())))
    if load(folder / "losses")[0] > 3:
        pass

def serialized():
    from flax import serialization

    metrics = {"loss": number()}
    metrics = serialization.from_bytes(metrics, serialization.to_bytes(metrics))
    if metrics["loss"] > 3:
        pass

def second_of_two_tests():
    kind = "a"
    if kind == "a" and number() > 3:
        pass
"""


def script_of(functions):
    """Return a script that calls functions, and the name of each by its lines."""
    lines, owners = SETUP.splitlines(), {}
    for function in re.split(r"\n(?=def )", functions.strip()):
        source = function.strip().splitlines()
        name = source[0].removeprefix("def ").partition("(")[0]
        owners.update(dict.fromkeys(range(len(lines) + 1, len(lines) + len(source) + 1), name))
        lines += [*source, f"{name}({'folder' if '(folder)' in source[0] else ''})"]
    return "\n".join(lines) + "\n", owners


@pytest.mark.parametrize(("functions", "decides"), [(SHOWN, False), (DECIDING, True)])
def test_it_is_told_apart_which_reads_decide_what_runs(tmp_path, functions, decides):
    script, owners = script_of(functions)
    reads, summary = reads_by_line(tmp_path, script)
    assert {owners[line] for line in reads} == set(owners.values())
    deciding = {owners[line] for line, row in reads.items() if row["decisions"]}
    assert deciding == (set(owners.values()) if decides else set())
    kinds = [condition["kind"] for condition in summary["verdict"]["conditions"]]
    assert ("placeholder_decides" in kinds) == decides
    # Python gives all tests of `a and b` the place of the first.
    assert 'kind == "a"' not in {row["expression"] for row in reads.values()}


POSITION = (
    SETUP
    + """
position = whole()
while int(position) < 3:
    position = position + whole() + 9
    break
"""
)


def test_the_headline_names_the_assumption(tmp_path):
    run = dryrun_of(tmp_path, POSITION, code=0)
    text = " ".join(run.err.split())
    assert "fits, if `int(position)` at program.py:" in text
    assert "(<module>) is 0: peak" in text


METERS = """
class Meter:
    def __init__(self):
        self.values = []

    def update(self, value):
        self.values.append(value)

    def mean(self):
        return sum(self.values) / len(self.values)

def should_stop(value, patience=3):
    return value < 1e-3

def show(value):
    print("loss", value)
"""

USES_METERS = (
    SETUP
    + """
import meters
from meters import should_stop
meter = meters.Meter()
meter.update(float(number()))
meters.show(float(number()))
if should_stop(meter.mean()):
    print("stopped")
"""
)


def test_values_are_followed_into_other_modules(tmp_path):
    (tmp_path / "meters.py").write_text(METERS)
    reads, _ = reads_by_line(tmp_path, USES_METERS)
    first = USES_METERS.splitlines().index("meter.update(float(number()))") + 1
    assert {line: row["decisions"] for line, row in reads.items()} == {first: 1, first + 1: 0}


MATH = (
    SETUP
    + """
if math.exp(1 + number()) > 3:
    print("good")
"""
)


def test_what_a_function_of_c_reads_is_its_argument(tmp_path):
    reads, _ = reads_by_line(tmp_path, MATH)
    assert [row["expression"] for row in reads.values()] == ["1 + number()"]


CALLBACKS = (
    SETUP
    + """
seen, shown = [], []

def note(loss):
    seen.append(float(loss))

@jax.jit
def step(x):
    loss = (x @ x).sum()
    jax.debug.callback(note, loss)
    jax.debug.callback(lambda loss: shown.append(loss), loss)
    return x

for _ in range(9):
    step(large)
    jax.effects_barrier()
    if seen[-1] < 1:
        break
print(shown)
"""
)


def test_a_callback_that_decides_what_runs_is_a_condition(tmp_path):
    reads, summary = reads_by_line(tmp_path, CALLBACKS)
    [(line, row)] = reads.items()
    assert "jax.debug.callback(note" in CALLBACKS.splitlines()[line - 1]
    assert (row["expression"], row["value"], row["decisions"]) == ("loss", "0", 1)
    kinds = [condition["kind"] for condition in summary["verdict"]["conditions"]]
    assert "placeholder_decides" in kinds
