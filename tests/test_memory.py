"""How the virtual GPU hands out memory: JAX's own allocation rules (rows A1 to A7 and A9)."""

import pytest
from commands import hold_port
from on_gpu import GIB, Failed, finish, on_gpu, start

H100 = 84_929_347_584  # bytes, as the driver reports them
PAGE = 2 << 20


def limit(fraction):
    """Return what the pool may take: since JAX 0.10.2 it is rounded up to whole pages."""
    return -(-int(H100 * fraction) // PAGE) * PAGE


@pytest.mark.fast
def test_a1_three_quarters_are_taken_at_the_first_operation():
    values = on_gpu(
        """
        report(before=stats()["pool_bytes"])
        jnp.ones(3).block_until_ready()
        report(after=stats()["pool_bytes"], limit=stats()["bytes_limit"])
        """
    )
    assert values == {"before": 0, "after": limit(0.75), "limit": limit(0.75)}


def test_a2_without_preallocation_the_pool_grows_by_doubling():
    values = on_gpu(
        """
        pools = []
        for mebibytes in (1, 1, 1, 3, 100):
            keep = jax.device_put(np.zeros((mebibytes, 1 << 20), "int8"))
            globals()[f"keep{len(pools)}"] = keep
            pools.append(stats()["pool_bytes"] >> 20)
        report(pools=pools)
        """,
        XLA_PYTHON_CLIENT_PREALLOCATE="false",
    )
    # Regions of 2 and 4 MiB, then 8 for the 3 MiB (the 4 hold one), then 128 for the 100.
    assert values["pools"] == [2, 2, 6, 6, 134]


@pytest.mark.parametrize("name", ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"])
def test_a3_the_fraction_is_read_under_both_names(name):
    values = on_gpu("jnp.ones(3); report(limit=stats()['bytes_limit'])", **{name: ".5"})
    assert values["limit"] == limit(0.5)


def test_a3_both_names_together_are_refused_as_jax_refuses_them():
    with pytest.raises(Failed, match="is specified together with"):
        on_gpu("jnp.ones(3)", XLA_CLIENT_MEM_FRACTION=".5", XLA_PYTHON_CLIENT_MEM_FRACTION=".5")


@pytest.mark.parametrize(("word", "preallocates"), [("false", False), ("0", False), ("no", True)])
def test_s1_only_three_spellings_switch_preallocation_off(word, preallocates):
    values = on_gpu(
        "jnp.ones(3).block_until_ready(); report(pool=stats()['pool_bytes'])",
        XLA_PYTHON_CLIENT_PREALLOCATE=word,
    )
    assert (values["pool"] > GIB) == preallocates


def test_a4_platform_has_no_statistics_and_no_pool():
    values = on_gpu(
        "jnp.ones(3); report(stats=jax.devices()[0].memory_stats())",
        XLA_PYTHON_CLIENT_ALLOCATOR="platform",
    )
    assert values["stats"] is None


def test_a9_cuda_async_reports_no_pool():
    values = on_gpu(
        "x = jnp.ones(5); report(**stats())",
        XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async",
        TF_GPU_ALLOCATOR="ignored by JAX",
    )
    assert "pool_bytes" not in values
    assert values["bytes_in_use"] == 20  # requested bytes, not rounded


def test_a5_a_second_process_gets_what_the_first_one_leaves(tmp_path):
    lines = """
    x = jnp.ones(3).block_until_ready()
    report(pool=stats()["pool_bytes"], limit=stats()["bytes_limit"])
    input()
    """
    settings = {"run": {"sharing": {"named": "test"}}, "XDG_RUNTIME_DIR": tmp_path}
    first = start(lines, **settings)
    first_line = first.stdout.readline()
    second = start(lines, **settings)
    second_values, _, _, code_second = finish(second)
    first_values, _, _, code_first = finish(first)
    assert code_first == code_second == 1  # input() at the end of the file
    assert f'"pool": {limit(0.75)}' in first_line
    assert first_values == {}
    # XLA asks for 10 % less until the driver grants it, and goes on with the smaller pool.
    assert second_values["limit"] == limit(0.75)
    assert second_values["pool"] < H100 // 4
    values, _, _, _ = finish(start(lines, **settings))
    assert values["pool"] == limit(0.75), "both are gone, so the GPU is free again"


def test_a7_what_a_display_holds_makes_the_pool_smaller():
    values = on_gpu(
        "jnp.ones(3).block_until_ready(); report(**stats())",
        gpu="rtx-3090",
        run={"occupied_bytes": 10 * GIB},
    )
    assert values["bytes_limit"] > values["pool_bytes"] > 0


def test_a_donated_loop_holds_its_state_once():
    values = on_gpu(
        """
        @jax.jit
        def init(): return [jnp.zeros((1024, 1024)) for _ in range(4)]
        def step(state): return [x + 1 for x in state]
        donating, keeping = jax.jit(step, donate_argnums=0), jax.jit(step)
        state = init()
        held, peak_before = stats()["bytes_in_use"], stats()["peak_bytes_in_use"]
        for _ in range(50):
            old, state = state, donating(state)
        report(held=held, peak_before=peak_before)
        report(after=stats()["bytes_in_use"], peak=stats()["peak_bytes_in_use"],
               gone=[x.is_deleted() for x in old])
        state = keeping(state)
        report(peak_kept=stats()["peak_bytes_in_use"])
        try:
            old[0] + 1
        except RuntimeError as error:
            report(error=str(error))
        """
    )
    state, table = 4 * (4 << 20), 256  # the table of output pointers, during the call
    assert values["held"] == values["after"] == state
    # With 32 B of temporaries in init.
    assert values["peak"] == values["peak_before"] == state + table + 256
    assert values["peak_kept"] == 2 * state + table
    assert values["gone"] == [True] * 4
    assert "deleted" in values["error"]


def test_donating_one_array_twice_is_an_error():
    with pytest.raises(Failed, match="Attempt to donate the same buffer twice"):
        on_gpu(
            """
            x = jnp.ones((512, 512))
            jax.jit(lambda a, b: (a + 1, b + 1), donate_argnums=(0, 1))(x, x)
            """
        )


@pytest.mark.fast
def test_out_of_memory_can_be_caught_and_its_arguments_live_on():
    values = on_gpu(
        """
        x = jnp.ones((1024, 1024))
        try:
            jax.jit(lambda x: jnp.broadcast_to(x, (40000, 1024, 1024)) * 2)(x)
        except Exception as error:
            report(text=str(error))
        y = x + 1
        report(usable=not x.is_deleted(), in_use=stats()["bytes_in_use"])
        """
    )
    assert values["text"].startswith(
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 156.25GiB."
    )
    assert values["usable"]
    assert values["in_use"] == 2 * (4 << 20)


def test_asking_for_the_users_line_keeps_no_array_alive():
    values = on_gpu(
        """
        def work():
            x = jax.device_put(np.ones((1024, 1024), "float32"))
            return float((x + 1).sum())  # reads an unknown value, which asks for the line

        import gc
        work()
        gc.collect()  # JAX itself leaves cycles behind when it first traces something
        gc.disable()
        work()
        report(in_use=stats()["bytes_in_use"])
        """
    )
    assert values["in_use"] == 0


def test_each_device_has_a_pool_of_its_own():
    values = on_gpu(
        """
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        mesh = Mesh(np.array(jax.devices()), ("x",))
        x = jax.device_put(np.zeros((8192, 1024), "float32"), NamedSharding(mesh, P("x")))
        y = jax.device_put(np.zeros((1024,), "float32"), NamedSharding(mesh, P()))
        report(in_use=[stats(d)["bytes_in_use"] for d in range(8)])
        """,
        count=8,
    )
    assert values["in_use"] == [(4 << 20) + 4096] * 8


def test_host_memory_costs_no_device_memory():
    values = on_gpu(
        """
        from jax.sharding import SingleDeviceSharding
        x = jnp.ones((1024, 1024))
        before = stats()["bytes_in_use"]
        host = SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
        y = jax.device_put(x, host)
        report(before=before, after=stats()["bytes_in_use"], kind=y.sharding.memory_kind)
        """
    )
    assert values["after"] == values["before"] == 4 << 20
    assert values["kind"] == "pinned_host"


def test_cuda_visible_devices_hides_gpus():
    values = on_gpu("report(n=jax.device_count())", count=4, CUDA_VISIBLE_DEVICES="2,3")
    assert values["n"] == 2


def test_two_processes_run_one_program(tmp_path):
    lines = """
    import sys
    jax.distributed.initialize("127.0.0.1:{port}", num_processes=2, process_id={process})
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()), ("x",))
    rows = NamedSharding(mesh, P("x"))
    x = jax.make_array_from_process_local_data(rows, np.ones((2048, 1024), np.float32))
    y = jax.jit(lambda x: x * 2)(x)
    report(devices=jax.device_count(), local=jax.local_device_count(),
           process=jax.process_index(), shape=list(y.shape),
           in_use=jax.local_devices()[0].memory_stats()["bytes_in_use"])
    """
    port = hold_port()
    processes = [
        start(lines.replace("{port}", str(port)).replace("{process}", str(i)), count=2)
        for i in range(2)
    ]
    finished = [finish(process) for process in processes]
    for index, (values, out, err, _) in enumerate(finished):
        assert values == {
            "devices": 4,
            "local": 2,
            "process": index,
            "shape": [4096, 1024],
            "in_use": 2 * (4 << 20),
        }, out + err[-3000:]
