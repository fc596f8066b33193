"""Slices of programs: they compute what the program computes, from no more than it needs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cpu_programs import run_on_cpu
from jax import export, lax
from jax._src.interpreters import mlir, partial_eval
from jax.experimental import io_callback

from vramfit._values._module_signature import read_signature
from vramfit._values._module_slice import slice_calls, slice_outputs
from vramfit._values._module_work import count_work

BIG = jax.ShapeDtypeStruct((4096, 4096), jnp.float32)
SCALAR = jnp.int32(3)


def decoder(weights, cache, position, token):
    """A step with a cache: of all that its loop carries, the position needs itself."""

    def layer(carry, parts):
        x, place = carry
        weight, cached = parts
        cached = lax.dynamic_update_slice(cached, (x @ weight)[None], (place, 0))
        return (x + jax.nn.softmax(cached @ x) @ cached, place), cached

    x = weights[0, token]
    (x, position), cache = lax.scan(layer, (x, position), (weights, cache))
    return x.argmax(), cache, jnp.where(position < 9, position + 1, position)


def trainer(weights, step, key):
    """A training step: its counters beside gradients, its rate, its key."""
    loss, gradients = jax.value_and_grad(lambda w: ((w @ w) ** 2).mean())(weights)
    rate = 1e-3 * jnp.minimum(1.0, step / 100)
    new_key, _ = jax.random.split(jax.random.wrap_key_data(key))
    return weights - rate * gradients, loss, step + 1, rate, jax.random.key_data(new_key)


def checkpointed(weights, count):
    @jax.checkpoint
    def inner(w, n):
        return (jnp.tanh(w) @ w).sum(), n + 1

    (_, count), gradients = jax.value_and_grad(inner, has_aux=True)(weights, count)
    return gradients, count


def loops(weights, n):
    """A counter and weights in one loop, a branch in it, and a loop that ends by the counter."""

    def body(carry, i):
        w, n = carry
        n = lax.cond(n > 5, lambda n: n * 2, lambda n: n + i, n)
        return (w @ w, n), n

    (weights, n), counts = lax.scan(body, (weights, n), jnp.arange(5))
    last = lax.while_loop(
        lambda c: c[1] < 100, lambda c: (c[0] @ weights, c[1] * 2 + 1), (weights, n)
    )
    return weights, n, counts, last[1], jnp.argsort(counts), jnp.cumsum(counts), counts.max()


def nested_loops(weights, n):
    def outer(i, carry):
        w, n, total = carry
        n = lax.fori_loop(0, 3, lambda j, n: n + j * i, n)
        return w @ w, n, total + w.sum()

    weights, n, total = lax.fori_loop(0, 4, outer, (weights, n, 0.0))
    return weights, n, total


def swapped_carries(weights, a, b):
    """Each carried value needs the other one of the round before."""

    def body(i, carry):
        w, a, b = carry
        return w * 2, b, a + i

    return lax.fori_loop(0, 7, body, (weights, a, b))


def captured(weights, n):
    """A reduction by a function that uses a value from outside, and a sort by several keys."""
    order = jnp.arange(7, dtype=jnp.int32) * n % 5
    by_key = lax.sort((order, jnp.arange(7, dtype=jnp.int32)), num_keys=1)
    return weights @ weights, *by_key, lax.reduce(order, jnp.int32(0), lax.bitwise_xor, (0,))


def constants(weights):
    return weights @ weights, jnp.int32(7), jnp.arange(3)


def switched(weights, n):
    branches = [lambda w, n: (w, n + 1), lambda w, n: (w @ w, n - 1), lambda w, n: (w.T, n)]
    weights, n = lax.switch(n, branches, weights, n)
    return weights, n


def vmapped_loop(weights, n):
    def one(n):
        return lax.while_loop(lambda c: c < 10, lambda c: c * 2, n)

    return weights @ weights, jax.vmap(one)(n + jnp.arange(1, 4, dtype=jnp.int32))


# Of each program: its arguments, the large ones as shapes, and which results a slice has.
PROGRAMS = {
    decoder: ((jax.ShapeDtypeStruct((4, 4096, 4096), jnp.float32),
               jax.ShapeDtypeStruct((4, 8192, 4096), jnp.float32), SCALAR, SCALAR), {2}),
    trainer: ((BIG, SCALAR, jnp.zeros(2, jnp.uint32)), {2, 3, 4}),
    checkpointed: ((BIG, SCALAR), {1}),
    loops: ((BIG, SCALAR), {1, 2, 3, 4, 5, 6}),
    nested_loops: ((BIG, SCALAR), {1}),
    swapped_carries: ((BIG, SCALAR, jnp.int32(5)), {1, 2}),
    captured: ((BIG, SCALAR), {1, 2, 3}),
    constants: ((BIG,), {1, 2}),
    switched: ((BIG, jnp.int32(1)), {1}),
    vmapped_loop: ((BIG, SCALAR), {1}),
}  # fmt: skip


def slices_of(function, arguments):
    """Return the slices of a function, where everything is on one device."""
    exported = export.export(jax.jit(function), platforms=["cuda"])(*arguments)
    assert exported.module_kept_var_idx == tuple(range(len(arguments)))
    code = exported.mlir_module_serialized
    return slice_outputs(code, [True] * len(exported.in_avals), [True] * len(exported.out_avals))


def run(slice_, arguments, results):
    """Run a slice on the CPU; return its results."""
    inputs = [arguments[place] for place in slice_.parameters]
    return run_on_cpu(slice_.code, inputs, [results[place] for place in slice_.outputs])


def needed_by_jax(function, arguments, outputs):
    """Return which arguments some results need, as JAX finds them for partial evaluation."""
    closed = jax.make_jaxpr(function)(*arguments)
    used = [place in outputs for place in range(len(closed.out_avals))]
    return partial_eval.dce_jaxpr(closed.jaxpr, used)[1]


def computed_with_small_weights(function, arguments):
    """Return the results with smaller weights, which change only what depends on them."""

    def small(array):
        if isinstance(array, jax.ShapeDtypeStruct):
            return jnp.zeros([size // 1024 if size > 8 else size for size in array.shape])
        return array

    return function(*map(small, arguments))


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_a_slice_computes_what_the_program_computes_from_no_more_than_it_needs(function):
    arguments, small = PROGRAMS[function]
    slices = slices_of(function, arguments)
    assert {output for each in slices for output in each.outputs} == small
    expected = computed_with_small_weights(function, arguments)
    for each in slices:
        needed = needed_by_jax(function, arguments, each.outputs)
        assert all(needed[place] for place in each.parameters)
        assert all(isinstance(arguments[place], jax.Array) for place in each.parameters)
        computed = run(each, arguments, expected)
        for output, value in zip(each.outputs, computed, strict=True):
            np.testing.assert_array_equal(np.asarray(value), np.asarray(expected[output]))


def test_the_cost_of_a_slice_is_counted_on_what_remains():
    arguments, _ = PROGRAMS[decoder]
    (position,) = slices_of(decoder, arguments)
    assert position.parameters == [2]
    assert position.largest_array_bytes == 4
    assert count_work(-1, position.code).nanoseconds < 1e4


def test_a_result_that_ends_a_loop_late_holds_up_no_other():
    arguments, _ = PROGRAMS[loops]
    alone = [each for each in slices_of(loops, arguments) if 3 in each.outputs]
    assert [each.outputs for each in alone] == [[3]]


def test_functions_of_the_user_s_are_called_by_no_slice():
    def calls(weights, n):
        shape = jax.ShapeDtypeStruct((), jnp.int32)
        given = jax.pure_callback(lambda n: n, shape, n)
        jax.debug.callback(lambda n: None, n)
        return weights @ weights, given, n + 1

    # For the CPU: JAX lowers no function of a process that has no GPU for one.
    code = mlir.module_to_bytecode(jax.jit(calls).lower(BIG, SCALAR).compiler_ir())
    assert [each.outputs for each in slice_outputs(code, [True] * 2, [True] * 3)] == [[2]]


def counted_calls(weights, n, noise):
    """Functions in a loop, a branch and a function of the module, beside what is large."""
    shape = jax.ShapeDtypeStruct((), jnp.int32)

    def body(carry, i):
        w, total = carry
        total = total + io_callback(note("loop"), shape, i * n, ordered=True)
        return (w @ w, total), None

    (weights, total), _ = lax.scan(body, (weights, n), jnp.arange(3))
    branch = note("branch", returns=False)
    lax.cond(n > 2, lambda n: io_callback(branch, None, n, ordered=True), lambda n: None, n)
    asked = jax.jit(lambda n: jax.pure_callback(note("asked"), shape, n))(n + 1)
    return weights, total, asked, noise.sum() + asked, n + 1


called = []


def note(name, returns=True):
    def called_back(n):
        called.append((name, int(n)))
        return np.int32(n) if returns else None

    return called_back


def test_a_slice_of_all_calls_makes_those_of_the_program_in_their_order():
    arguments = (BIG, SCALAR, jax.ShapeDtypeStruct((4096, 4096), jnp.int32))
    lowered = jax.jit(counted_calls).lower(*arguments)
    code = mlir.module_to_bytecode(lowered.compiler_ir())
    # In front is what orders the effects.
    inputs, outputs = (len(part) for part in read_signature(code))
    first, first_output = inputs - 3, outputs - 5
    slice_ = slice_calls(code, [True] * inputs)
    assert slice_.parameters == [first + 1]
    # Of the results that need a function, those that need nothing else.
    assert slice_.outputs == [first_output + 1, first_output + 2]
    assert slice_calls(code, [place != first + 1 for place in range(inputs)]) is None
    callbacks = lowered._lowering.compile_args["host_callbacks"]
    results = run_on_cpu(slice_.code, [SCALAR], [np.asarray(SCALAR)] * 2, callbacks)
    # That of `pure_callback` has no place among those that are ordered.
    assert sorted(called, key=lambda each: each[0] == "asked") == [
        *(("loop", number) for number in (0, 3, 6)),
        ("branch", 3),
        ("asked", 4),
    ]
    assert [int(value) for value in results] == [12, 4]


def test_calls_that_need_a_large_array_are_in_no_slice():
    def calls(weights, n):
        jax.debug.callback(lambda n: None, n)
        jax.debug.callback(lambda loss: None, (weights @ weights).sum())
        return n + 1

    code = mlir.module_to_bytecode(jax.jit(calls).lower(BIG, SCALAR).compiler_ir())
    assert slice_calls(code, [True] * 2) is None
    code = mlir.module_to_bytecode(jax.jit(lambda n: n + 1).lower(SCALAR).compiler_ir())
    assert slice_calls(code, [True]) is None


def test_arguments_that_a_device_has_a_part_of_are_not_taken():
    exported = export.export(jax.jit(loops), platforms=["cuda"])(*PROGRAMS[loops][0])
    code, results = exported.mlir_module_serialized, [True] * 7
    assert slice_outputs(code, [True, False], results) == []
    assert slice_outputs(code, [False, True], results) != []
    assert slice_outputs(code, [False, True], [False] * 7) == []


COLLECTIVES = {
    "psum": lambda n: lax.psum(n, "x"),
    "pmean": lambda n: lax.pmean(n, "x"),
    "pmax": lambda n: lax.pmax(n, "x"),
    "all_gather": lambda n: lax.all_gather(n, "x").sum(),
    "ppermute": lambda n: lax.ppermute(n, "x", [(0, 0)]),
    "all_to_all": lambda n: lax.all_to_all(n[None], "x", 0, 0)[0],
    "psum_scatter": lambda n: lax.psum_scatter(n[None], "x", tiled=True)[0],
    "axis_index": lambda n: n + lax.axis_index("x"),
}


@pytest.mark.parametrize("collective", COLLECTIVES.values(), ids=COLLECTIVES)
@pytest.mark.parametrize("is_pmap", [True, False], ids=["pmap", "shard_map"])
def test_collectives_of_one_device_are_sliced(collective, is_pmap):
    def step(weights, n):
        return weights + 1, collective(n + 1)

    if is_pmap:
        wrapped, shapes = jax.pmap(step, axis_name="x"), (1,)
    else:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
        spec = jax.sharding.PartitionSpec()
        specs = {"in_specs": spec, "out_specs": spec, "check_vma": False}
        wrapped, shapes = jax.jit(jax.shard_map(step, mesh=mesh, **specs)), ()
    numbers = jax.ShapeDtypeStruct(shapes, jnp.int32)
    weights = jax.ShapeDtypeStruct((*shapes, 4096, 4096), jnp.float32)
    code = mlir.module_to_bytecode(wrapped.lower(weights, numbers).compiler_ir())
    slices = slice_outputs(code, [True] * 2, [True] * 2)
    assert [(each.outputs, each.parameters) for each in slices] == [([1], [1])]
    given = [None, np.full(shapes, 3, np.int32)]
    assert run(slices[0], given, [None, numbers])[0].tolist() == np.full(shapes, 4).tolist()


def test_what_each_device_does_to_arrays_that_it_has_in_full_is_sliced():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    spec = jax.sharding.PartitionSpec

    def step(weights, n):
        def each(w, n):
            return w * lax.psum(w.sum(), "x"), n + 1, n + lax.axis_index("x")

        specs = (spec("x"), spec())
        out_specs = (spec("x"), spec(), spec())
        return jax.shard_map(each, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)(
            weights, n
        )

    lowered = jax.jit(step).trace(BIG, SCALAR).lower(lowering_platforms=("cuda",))
    code = mlir.module_to_bytecode(lowered.compiler_ir())
    together = slice_outputs(code, [True] * 2, [True] * 3, has_several_devices=True)
    slices = [each for each in together if not each.on_all_devices]
    assert [(each.outputs, each.parameters) for each in slices] == [([1], [1])]
    results = [None, jnp.int32(4)]
    assert [int(value) for value in run(slices[0], [None, SCALAR], results)] == [4]
