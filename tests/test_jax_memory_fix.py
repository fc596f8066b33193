"""`vramfit.jax_memory_fix` sets what JAX obeys, and holds and proves what it says it does."""

import json
import os
import sys
import textwrap

import pytest
from commands import VRAMFIT, run_command, run_python
from run_configs import write_run_config

GIB = 1 << 30
PAGE = 2 << 20
# What the driver reports for the GPU that is used here.
T4_BYTES = 15_642_329_088

PRELUDE = """
import json
def report(**values): print("VALUES", json.dumps(values), flush=True)
def stats(): import jax; return jax.devices()[0].memory_stats()
def use(): import jax; jax.block_until_ready(jax.numpy.ones(8))
def refusal(kind, call, *arguments, **named):
    try: call(*arguments, **named)
    except kind as error: return {"id": error.id, "text": str(error), "hint": error.hint}
"""


def run(program, *, options=None, gpu="t4", code=0, **env):
    """Run a program, on a virtual GPU unless `gpu` is None; return its values, and errors."""
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
    if gpu is not None:
        command = [*VRAMFIT, "dryrun", "--full", "--gpu", gpu, *(options or ()), "--", *command]
    done = run_command(*command, env=env, code=code)
    values = {}
    for line in done.stdout.splitlines():
        if line.startswith("VALUES "):
            values |= json.loads(line.removeprefix("VALUES "))
    return values, done.stderr


def here(program, **env):
    """Run a program on this machine, without a GPU."""
    return run(program, gpu=None, **env)


# S11: a module that is imported before JAX.


def test_s11_the_import_applies_the_defaults():
    values, _ = run("""
        import vramfit.jax_memory_fix as fix
        import jax, jax.numpy as jnp
        jax.block_until_ready(jnp.ones(8))
        set = fix.applied.set
        report(**stats(), set=[s.name for s in set], reasons=[s.reason for s in set])
        """)
    assert abs(values["bytes_limit"] - 0.9 * T4_BYTES) <= PAGE
    assert values["pool_bytes"] == values["bytes_limit"]
    assert "XLA_CLIENT_MEM_FRACTION" in values["set"]
    assert all(values["reasons"])


@pytest.mark.fast
def test_s11_the_import_loads_neither_jax_nor_numpy():
    values, _ = here("""
        import sys
        import vramfit.jax_memory_fix
        report(loaded=[name for name in ("jax", "jaxlib", "numpy") if name in sys.modules])
        """)
    assert values["loaded"] == []


def test_s11_what_the_user_has_set_goes_before_the_defaults():
    values, _ = run(
        """
        import vramfit.jax_memory_fix as fix
        use()
        report(limit=stats()["bytes_limit"], kept=[s.name for s in fix.applied.kept])
        """,
        XLA_PYTHON_CLIENT_MEM_FRACTION="0.4",
    )
    assert abs(values["limit"] - 0.4 * T4_BYTES) <= PAGE
    assert values["kept"] == ["XLA_PYTHON_CLIENT_MEM_FRACTION"]


def test_s11_who_wants_the_cpu_says_so():
    program = "import vramfit.jax_memory_fix, jax; report(on=jax.devices()[0].platform)"
    assert here(program, JAX_PLATFORMS="cpu")[0] == {"on": "cpu"}
    _, err = here(program, code=1)
    assert "Unknown backend cuda" in err or "Unable to initialize backend 'cuda'" in err


def test_s11_wrong_words_of_the_environment_are_mended_and_reported():
    values, err = run(
        "import vramfit.jax_memory_fix; use(); report(**stats())",
        JAX_PREALLOCATION_SIZE_LIMIT_BYTES="8589934592",
        XLA_PYTHON_CLIENT_PREALLOCATE="no",
    )
    assert 8 * GIB - PAGE <= values["bytes_limit"] <= 8 * GIB
    assert "VramfitWarning: no release of JAX reads `JAX_PREALLOCATION_SIZE_LIMIT_BYTES`" in err


def test_s11_variables_that_are_no_text_do_no_harm():
    program = """
        import os
        os.environb[b"ODD"] = b"\\xff"
        import vramfit.jax_memory_fix as fix
        report(set=len(fix.applied.set))
        """
    assert here(program)[0]["set"] > 0


# S11 and S20: the order of imports.

LATE = """
import json
import {module}
jax = __import__("jax")
jax.devices()
"""


@pytest.mark.parametrize(("module", "line"), [("jax", 3), ("optax", 3)])
def test_s20_an_import_that_comes_too_late_warns_and_names_the_line(write_script, module, line):
    script = write_script(LATE.format(module=module) + "import vramfit.jax_memory_fix as fix\n")
    done = run_python(script, env={"JAX_PLATFORMS": "cpu"}, code=0)
    assert f"{script}:6: VramfitWarning: nothing was set" in done.stderr
    assert f"JAX was imported by {script}:{line}, `import {module}`" in done.stderr


def test_s20_the_line_is_found_in_a_module_of_the_users(tmp_path, write_script):
    (tmp_path / "model.py").write_text(
        "import sys\nfrom jax import numpy as jnp\nX = jnp.ones(3)\n"
    )
    script = write_script(
        "import os\nimport model\nfrom vramfit.jax_memory_fix import apply_jax_memory_fix\n"
    )
    done = run_python(script, env={"JAX_PLATFORMS": "cpu"}, code=0)
    assert f"JAX was imported by {script}:2, `import model`" in done.stderr


def test_s20_a_call_that_comes_too_late_raises():
    values, _ = here(
        """
        import jax
        jax.devices()
        import warnings; warnings.simplefilter("ignore")
        from vramfit.jax_memory_fix import apply_jax_memory_fix, applied
        report(**refusal(RuntimeError, apply_jax_memory_fix, 0.5), applied=applied)
        """,
        JAX_PLATFORMS="cpu",
    )
    assert values["id"] == "jax-already-initialized"
    assert "first line of the program" in values["hint"]
    assert values["applied"] is None


def test_s20_an_imported_jax_without_a_backend_is_reported_through_its_configuration():
    values, _ = run("""
        import jax
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        apply_jax_memory_fix(fraction=0.5, x64=True)
        report(limit=stats()["bytes_limit"], x64=str(jax.numpy.ones(1).dtype),
               platform=jax.config.values["jax_platform_name"])
        """)
    assert abs(values["limit"] - 0.5 * T4_BYTES) <= PAGE
    assert values["x64"] == "float64"
    assert values["platform"] == "cuda"


def test_s20_a_choice_made_in_the_configuration_is_the_users():
    values, _ = here("""
        import jax
        jax.config.update("jax_platforms", "cpu")
        import vramfit.jax_memory_fix as fix
        report(on=jax.devices()[0].platform, kept=[s.name for s in fix.applied.kept])
        """)
    assert values == {"on": "cpu", "kept": ["JAX_PLATFORMS"]}


# S12: the call with all settings as arguments.


def test_s12_arguments_go_before_the_environment_and_that_is_reported():
    values, _ = run(
        """
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        done = apply_jax_memory_fix(limit="4GiB", preallocate=False, allocator="bfc")
        import jax.numpy as jnp
        jnp.ones(8).block_until_ready()
        report(**stats(), text=str(done), shown=repr(done))
        report(again=done.value("XLA_CLIENT_MEM_FRACTION"))
        """,
        XLA_CLIENT_MEM_FRACTION="0.3",
    )
    assert 4 * GIB - PAGE <= values["bytes_limit"] <= 4 * GIB
    assert values["pool_bytes"] == PAGE
    assert f"`XLA_CLIENT_MEM_FRACTION` was 0.3 and is now {values['again']}" in values["text"]
    assert "4.0 GiB of the GPU's 14.6 GiB" in values["text"]
    assert values["shown"].startswith("<AppliedSettings for JAX 0.10.2\n  set ")


def test_s12_a_call_takes_back_what_an_earlier_one_set():
    values, _ = here(
        """
        import os
        before = {k: v for k, v in os.environ.items()}
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        apply_jax_memory_fix(allocator="cuda_async", x64=True, host_devices=2, limit=None)
        apply_jax_memory_fix(fraction=0.5, require_gpu=False)
        report(changed={k: v for k, v in os.environ.items() if before.get(k) != v},
               gone=[k for k in before if k not in os.environ])
        """,
        XLA_FLAGS="--xla_cpu_enable_fast_math=true",
    )
    assert values == {"changed": {"XLA_CLIENT_MEM_FRACTION": "0.5"}, "gone": []}


def test_s12_amounts_may_be_numbers_and_shares_leave_room_for_others():
    values, _ = run("""
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        apply_jax_memory_fix(limit=2 << 30)
        apply_jax_memory_fix(processes=2, keep_free="1GiB")
        use()
        report(**stats())
        """)
    assert 5.5 * GIB < values["bytes_limit"] < (T4_BYTES - GIB) / 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("fraction=90", "write 90 % as `0.9`"),
        ("fraction='0.9'", "`fraction='0.9'` has type str"),
        ("fraction=True", "`fraction=True` has type bool"),
        ("fraction=0.5, limit='1GiB'", "give one of `fraction`, `limit`"),
        ("limit='8 gigs'", "write a number and a unit"),
        ("limit='800GiB'", "out of range on a GPU of 14.6 GiB"),
        ("allocator='async'", "choose one of `default`"),
        ("allocator='address'", "it was added in 0.11.0"),
        ("preallocate='false'", "write True or False"),
        ("processes=0", "such as `processes=2`"),
        ("processes=-1", "write a number such as 2"),
    ],
)
def test_s12_a_wrong_argument_says_what_is_right(arguments, text):
    program = f"""
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        import os
        before = dict(os.environ)
        report(**refusal(ValueError, apply_jax_memory_fix, {arguments}))
        assert before == dict(os.environ), "what is refused changes nothing"
        """
    values, _ = here(program, VRAMFIT_RUN_CONFIG=write_run_config("t4"))
    assert values["id"] == "invalid-argument"
    assert text in values["text"]


def test_s12_a_limit_in_bytes_needs_a_gpu():
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    values, _ = here("""
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        report(**refusal(OSError, apply_jax_memory_fix, limit="8GiB"))
        """)
    assert values["id"] == "no-driver"


# S13, S14, S16: memory that is held.


def test_s13_memory_is_held_and_counted_by_the_allocator():
    values, _ = run("""
        from vramfit.jax_memory_fix import force_memory_allocation
        half = force_memory_allocation(0.5)
        before = stats()["bytes_in_use"]
        more = force_memory_allocation("1GiB", device=0)
        report(half=half, more=more, before=before, now=stats(), shown=repr(more))
        """)
    limit = values["now"]["bytes_limit"]
    assert values["half"][1] == limit // 2
    assert values["now"]["bytes_in_use"] - values["before"] == GIB
    assert values["more"][3] - values["more"][2] == GIB
    assert values["shown"].startswith("<HeldMemory 1.0 GiB on cuda:0: in use ")


def test_s13_what_cannot_be_had_is_refused_and_nothing_stays_held():
    values, _ = run(
        """
        from vramfit.jax_memory_fix import force_memory_allocation
        force_memory_allocation("60%")
        before = stats()["bytes_in_use"]
        report(**refusal(MemoryError, force_memory_allocation, "60%"))
        report(before=before, after=stats()["bytes_in_use"])
        """,
        code=1,  # for the dry run, a request that is refused is the answer
    )
    assert values["id"] == "insufficient-memory"
    assert values["before"] == values["after"]
    assert "of its pool are free" in values["text"]


def test_s13_more_than_the_pool_is_refused_by_one_request(tmp_path):
    summary_file = tmp_path / "summary.json"
    values, err = run(
        """
        from vramfit.jax_memory_fix import force_memory_allocation
        report(**refusal(MemoryError, force_memory_allocation, "500GiB"))
        """,
        options=("--json", str(summary_file)),
        code=1,
    )
    assert values["id"] == "insufficient-memory"
    assert "cannot allocate 500.0 GiB on cuda:0" in values["text"]
    # No piece of it was taken, and the dry run says what was asked for.
    oom = json.loads(summary_file.read_text())["oom"]
    assert oom["requested_bytes"] == 500 * GIB
    assert json.loads(summary_file.read_text())["oom_count"] == 1
    assert err.count("ran out of memory trying to allocate") <= 1


def test_s20_a_function_of_ours_that_imported_jax_says_for_whom(write_script):
    script = write_script(
        "import vramfit.jax_memory_fix as fix\n"
        "import vramfit\n"
        "with vramfit.watch():\n"
        "    pass\n"
        "fix.apply_jax_memory_fix(0.5)\n"
    )
    done = run_python(script, env={"JAX_PLATFORMS": "cpu"}, code=1)
    assert f"JAX was imported by {script}:3, which calls `watch` of vramfit" in done.stderr


@pytest.mark.parametrize("amount", ["0", "-1", "0.0", "1.5", "True", "'lots'", "'0%'", "None"])
def test_s13_what_is_no_amount_is_refused(amount):
    values, _ = run(f"""
        from vramfit.jax_memory_fix import force_memory_allocation
        report(**refusal(ValueError, force_memory_allocation, {amount}))
        import jax; jax.numpy.ones(1).block_until_ready()
        """)
    assert values["id"] == "invalid-argument"
    assert "GiB" in values["hint"]


def test_s14_steps_walk_up_to_the_target():
    values, _ = run("""
        from vramfit.jax_memory_fix import allocate_memory_incremental
        seen = []
        steps = allocate_memory_incremental(0.8, step=0.25, report=seen.append)
        report(steps=steps, same=seen == list(steps), part=steps[-1].utilization, now=stats())
        """)
    assert values["same"]
    assert [step[1] for step in values["steps"]] == [True] * 4
    assert 0.8 <= values["part"] < 0.801
    assert values["steps"][-1][3] == values["now"]["bytes_in_use"]
    assert values["steps"][-1][2] == sum(step[0] for step in values["steps"])


def test_s14_the_walk_stops_cleanly_at_what_is_there():
    values, _ = run(
        """
        from vramfit.jax_memory_fix import allocate_memory_incremental
        steps = allocate_memory_incremental(1.0, step="1GiB")
        report(steps=steps, now=stats(), shown=repr(steps[-1]))
        """,
        # The GPU has less than the pool wants, and JAX backs off.
        options=("--occupied", "6GiB"),
        code=1,
    )
    met = [step[1] for step in values["steps"]]
    assert met == [True] * (len(met) - 1) + [False]
    assert values["now"]["bytes_in_use"] > 6 * GIB
    assert "could not allocate 1.0 GiB" in values["shown"]


def test_s16_what_is_held_is_freed_and_counted():
    values, _ = run("""
        import jax.numpy as jnp
        from vramfit.jax_memory_fix import *
        own = jnp.ones(1 << 20).block_until_ready()
        before = stats()["bytes_in_use"]
        force_memory_allocation("3GiB")
        allocate_memory_incremental(0.5, step="2GiB")
        held = stats()["bytes_in_use"]
        cleared = clear_memory_registry(caches=True)
        after = stats()["bytes_in_use"]
        report(before=before, held=held, after=after, cleared=cleared, own=own.is_deleted(),
               again=clear_memory_registry(), shown=repr(cleared))
        """)
    assert values["after"] == values["before"]
    assert values["cleared"][0] == values["held"] - values["before"]
    assert values["cleared"][1] == {"cuda:0": [values["held"], values["after"]]}
    assert not values["own"]
    assert values["again"][0] == 0
    assert "caches cleared" in values["shown"]


# S15: a proof that JAX computes on the GPU.


def test_s15_the_pool_is_what_was_asked_for():
    values, _ = run("""
        from vramfit.jax_memory_fix import apply_jax_memory_fix, verify_gpu_usage
        apply_jax_memory_fix(fraction=0.6)
        usage = verify_gpu_usage()
        report(usage=usage, gpu=usage.gpu, virtual=usage.virtual, text=repr(usage), now=stats())
        """)
    assert values["now"]["bytes_limit"] == values["usage"][3] == values["usage"][4]
    assert values["virtual"]
    assert "a virtual GPU does not compute" in values["text"]
    assert "as the settings of this process require" in values["text"]
    assert "the pool is fully preallocated" in values["text"]


def test_s15_a_pool_that_could_not_be_had_is_reported():
    values, _ = run(
        """
        import vramfit.jax_memory_fix as fix
        report(**refusal(RuntimeError, fix.verify_gpu_usage))
        """,
        options=("--occupied", "6GiB"),
    )
    assert values["id"] == "verification-failed"
    assert "reserved" in values["text"]


def test_s15_a_setting_that_came_too_late_is_found():
    values, _ = run("""
        import os, jax
        jax.devices()
        os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.3"
        from vramfit.jax_memory_fix import verify_gpu_usage
        report(**refusal(RuntimeError, verify_gpu_usage))
        """)
    assert "should be 4.4 GiB, but it is 10.9 GiB" in values["text"]


def test_s15_the_cpu_is_no_gpu():
    values, _ = here(
        """
        import vramfit.jax_memory_fix as fix
        report(**refusal(RuntimeError, fix.verify_gpu_usage))
        """,
        JAX_PLATFORMS="cpu",
    )
    assert values["id"] == "verification-failed"
    assert values["text"].startswith("JAX has no GPU")


@pytest.mark.parametrize("allocator", ["default", "cuda_async", "platform", "vmm"])
def test_s13_more_than_the_gpu_has_is_refused_at_once_with_the_reason(allocator):
    values, _ = run(
        """
        import vramfit._functions._fill_pool as pool
        from vramfit.jax_memory_fix import force_memory_allocation
        requests = []
        allocate = pool._allocate
        pool._allocate = lambda size, *rest, **more: (
            requests.append([size, more]) or allocate(size, *rest, **more))
        report(**refusal(MemoryError, force_memory_allocation, "500GiB"))
        report(requests=requests)
        """,
        options=["--allocator", allocator],
        code=1,
    )
    assert values["id"] == "insufficient-memory"
    assert "cannot allocate 500.0 GiB on cuda:0" in values["text"]
    assert "the GPU has only 14.6 GiB" in values["text"]
    # In a dry run it is requested once, so that the report has it; on a GPU not at all.
    assert values["requests"] == [[500 * GIB, {"whole": True}]]


def test_s13_a_small_number_is_no_amount_of_memory():
    values, _ = run(
        """
        from vramfit.jax_memory_fix import apply_jax_memory_fix, force_memory_allocation
        # Before any device exists, which `force_memory_allocation` looks for.
        report(limit=refusal(ValueError, apply_jax_memory_fix, limit=16)["text"])
        for name, amount in (("text", "90"), ("number", 90)):
            report(**{name: refusal(ValueError, force_memory_allocation, amount)["text"]})
        use()
        """
    )
    for name, likely in (("text", "`90GiB`"), ("number", "`90GiB`")):
        assert "has no unit" in values[name]
        assert likely in values[name]


def test_s15_a_gpu_that_is_not_the_default_is_no_proof():
    values, _ = run(
        """
        import vramfit.jax_memory_fix as fix
        report(**refusal(RuntimeError, fix.verify_gpu_usage))
        fix.force_memory_allocation("1MiB")
        """,
        JAX_PLATFORMS="cpu,cuda",
    )
    assert "computes on cpu:0 by default" in values["text"]


@pytest.mark.gpu
def test_s15_a_real_gpu_computes():
    values, _ = here("""
        import vramfit.jax_memory_fix as fix
        usage = fix.verify_gpu_usage()
        report(virtual=usage.virtual, text=repr(usage))
        """)
    assert not values["virtual"]
    assert "computed a sum of 1024 squares correctly" in values["text"]
