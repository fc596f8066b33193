"""Small values are right: programs on known values are run on the CPU when somebody looks."""

SHARDED = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
x = jax.device_put(np.arange(16.0).reshape(8, 2), NamedSharding(mesh, P("x", "y")))
print(np.asarray(x * 2 + 1)[7].tolist())
print(float(jnp.sum(x)))
column_sums = jax.shard_map(
    lambda a: jax.lax.psum(a.sum(0), "x"), mesh=mesh, in_specs=P("x", "y"), out_specs=P("y"))
print(np.asarray(column_sums(x)).tolist())
place = jax.pmap(lambda a: a + 10 * jax.lax.axis_index("i"), axis_name="i")
print(np.asarray(place(np.arange(8))).tolist())
"""


def test_values_spread_over_devices(on_virtual_gpu):
    assert on_virtual_gpu(SHARDED, devices=8) == [
        "[29.0, 31.0]",
        "120.0",
        "[56.0, 64.0]",
        "[0, 11, 22, 33, 44, 55, 66, 77]",
    ]


HOST_MEMORY = """
import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

here = SingleDeviceSharding(jax.devices()[0])
host = here.with_memory_kind("pinned_host")

@jax.jit
def offload(x):
    y = jax.device_put(x * 2, host)
    return y, jax.device_put(y, here) + 1

y, z = offload(jnp.arange(4.0))
print(y.sharding.memory_kind, y.tolist(), z.sharding.memory_kind, z.tolist())
"""


def test_values_in_host_memory(on_virtual_gpu):
    expected = "pinned_host [0.0, 2.0, 4.0, 6.0] device [1.0, 3.0, 5.0, 7.0]"
    assert on_virtual_gpu(HOST_MEMORY) == [expected]


LAYOUT = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

columns_first = Format(Layout((1, 0)), SingleDeviceSharding(jax.devices()[0]))
x = jax.device_put(np.arange(6).reshape(2, 3), columns_first)
double = jax.jit(lambda x: x * 2, in_shardings=columns_first, out_shardings=columns_first)
print(np.asarray(x).tolist(), np.asarray(double(x)).tolist())
"""


def test_values_in_another_layout(on_virtual_gpu):
    assert on_virtual_gpu(LAYOUT) == ["[[0, 1, 2], [3, 4, 5]] [[0, 2, 4], [6, 8, 10]]"]


WIDE = """
import jax
import jax.numpy as jnp

with jax.enable_x64(True):
    x = jnp.arange(3, dtype=jnp.int64) + 2**40
    y = x * 2
print(y.dtype, y.tolist())
"""


def test_values_of_64_bits_outside_the_mode_they_were_made_in(on_virtual_gpu):
    twice = [2 * (2**40 + n) for n in range(3)]
    assert on_virtual_gpu(WIDE) == [f"int64 {twice}"]


def test_computing_a_value_is_no_transfer_of_the_programs(on_virtual_gpu):
    script = """
import jax
import jax.numpy as jnp
x = jnp.ones(3)
with jax.transfer_guard_host_to_device("disallow_explicit"):
    print(int(jnp.sum(x)))
"""
    assert on_virtual_gpu(script) == ["3"]


UNREDUCED = """
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P, reshard

with jax.set_mesh(jax.make_mesh((8,), ("x",))):
    parts = reshard(jnp.array(3), P(unreduced={"x"}))
    print([int(shard.data) for shard in parts.addressable_shards], int(reshard(parts, P())))
"""


def test_scalars_that_differ_from_device_to_device(on_virtual_gpu):
    assert on_virtual_gpu(UNREDUCED, devices=8) == ["[3, 0, 0, 0, 0, 0, 0, 0] 3"]


ALIKE = """
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((8,), ("x",))

@jax.jit
@jax.shard_map(mesh=mesh, in_specs=P(), out_specs=P())
def weighted_sum(x):
    return jax.lax.psum(x * jax.lax.axis_index("x"), "x")

print(int(weighted_sum(jnp.array(3))))
"""


def test_results_that_are_alike_but_need_all_devices(on_virtual_gpu):
    assert on_virtual_gpu(ALIKE, devices=8) == [str(3 * sum(range(8)))]


COLLECTIVES_BESIDE_A_LARGE_ARRAY = """
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

def step(large, count):
    return large + 1, jax.lax.pmean(count + 1, "x")

mesh = jax.make_mesh((1,), ("x",))
steps = {
    (1,): jax.pmap(step, axis_name="x"),
    (): jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)),
}
for shape, step in steps.items():
    large, count, rounds = jnp.zeros((*shape, 1 << 26)), jnp.zeros(shape), 0
    while float(count.sum()) < 3 and rounds < 9:
        large, count = step(large, count)
        rounds += 1
    print(rounds)
"""


def test_a_collective_of_one_gpu_ends_a_loop_as_on_the_gpu(on_virtual_gpu):
    assert on_virtual_gpu(COLLECTIVES_BESIDE_A_LARGE_ARRAY) == ["3", "3"]


PRODUCTS = """
import jax.numpy as jnp
import numpy as np

a = np.arange(64.0 * 64).reshape(64, 64) % 7
z = a[:4, :4].astype("complex64")
print(np.array_equal(jnp.asarray(a, "float32") @ jnp.asarray(a, "float32"), a @ a))
print(np.array_equal(jnp.asarray(z) @ jnp.asarray(z), z @ z))
"""


def test_a_small_product_is_known_although_its_routine_wants_a_workspace(on_virtual_gpu):
    # A T4 has no Triton kernels, and no GPU has them for complex numbers: cuBLAS, with 4 MiB.
    for gpu in ("t4", "h100-80g"):
        assert on_virtual_gpu(PRODUCTS, gpu=gpu) == ["True", "True"]


CALLBACKS = """
import jax
import jax.numpy as jnp
import numpy as np

@jax.jit
def ask(x):
    return jax.pure_callback(lambda _: 42.0, jax.ShapeDtypeStruct((), np.float32), x)

@jax.jit
def ask_ints(x):
    return jax.pure_callback(lambda _: 7, jax.ShapeDtypeStruct((), np.int32), x)

print(float(ask(0.0)), int(ask_ints(0.0)))
with jax.enable_x64(True):
    wide = jax.jit(lambda x: jax.pure_callback(
        lambda _: 1 + 2**-40, jax.ShapeDtypeStruct((), np.float64), x))
    print(float(wide(0.0)) - 1 == 2**-40)
"""


def test_a_callback_may_return_numbers_of_python(on_virtual_gpu):
    assert on_virtual_gpu(CALLBACKS) == ["42.0 7", "True"]


CALLBACKS_WITHOUT_RESULTS = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import Mesh, PartitionSpec as P

seen = []

def note(x):
    total = 0
    for number in range(200_000):  # long enough for the others to be ahead
        total += number
    seen.append(int(x[0]))

mesh = Mesh(np.array(jax.devices()), "x")
send = jax.jit(jax.shard_map(
    lambda a: io_callback(note, (), a), mesh=mesh, in_specs=P("x"), out_specs=P()))
send(jnp.arange(8))
print(sorted(seen))
"""


def test_callbacks_of_all_devices_are_over_when_the_program_continues(on_virtual_gpu):
    assert on_virtual_gpu(CALLBACKS_WITHOUT_RESULTS, devices=8) == ["[0, 1, 2, 3, 4, 5, 6, 7]"]
