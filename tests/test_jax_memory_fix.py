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

TELL = """
import json
def tell(**values): print("TOLD", json.dumps(values), flush=True)
def stats(): import jax; return jax.devices()[0].memory_stats()
def use(): import jax; jax.block_until_ready(jax.numpy.ones(8))
def refusal(kind, call, *arguments, **named):
    try: call(*arguments, **named)
    except kind as error: return {"id": error.id, "text": str(error), "hint": error.hint}
"""


def run(program, *, options=None, gpu="t4", code=0, **env):
    """Run a program, on a virtual GPU unless `gpu` is None; return what it told, and errors."""
    command = [sys.executable, "-c", TELL + textwrap.dedent(program)]
    if gpu is not None:
        command = [*VRAMFIT, "dryrun", "--full", "--gpu", gpu, *(options or ()), "--", *command]
    done = run_command(*command, env=env, code=code)
    told = {}
    for line in done.stdout.splitlines():
        if line.startswith("TOLD "):
            told |= json.loads(line.removeprefix("TOLD "))
    return told, done.stderr


def here(program, **env):
    """Run a program on this machine, without a GPU."""
    return run(program, gpu=None, **env)


# S11: a module that is imported before JAX.


def test_s11_the_import_applies_the_defaults():
    told, _ = run("""
        import vramfit.jax_memory_fix as fix
        import jax, jax.numpy as jnp
        jax.block_until_ready(jnp.ones(8))
        set = fix.applied.set
        tell(**stats(), set=[s.name for s in set], reasons=[s.reason for s in set])
        """)
    assert abs(told["bytes_limit"] - 0.9 * T4_BYTES) <= PAGE
    assert told["pool_bytes"] == told["bytes_limit"]
    assert "XLA_CLIENT_MEM_FRACTION" in told["set"]
    assert all(told["reasons"])


@pytest.mark.fast
def test_s11_the_import_loads_neither_jax_nor_numpy():
    told, _ = here("""
        import sys
        import vramfit.jax_memory_fix
        tell(loaded=[name for name in ("jax", "jaxlib", "numpy") if name in sys.modules])
        """)
    assert told["loaded"] == []


def test_s11_what_the_user_has_set_goes_before_the_defaults():
    told, _ = run(
        """
        import vramfit.jax_memory_fix as fix
        use()
        tell(limit=stats()["bytes_limit"], kept=[s.name for s in fix.applied.kept])
        """,
        XLA_PYTHON_CLIENT_MEM_FRACTION="0.4",
    )
    assert abs(told["limit"] - 0.4 * T4_BYTES) <= PAGE
    assert told["kept"] == ["XLA_PYTHON_CLIENT_MEM_FRACTION"]


def test_s11_who_wants_the_cpu_says_so():
    program = "import vramfit.jax_memory_fix, jax; tell(on=jax.devices()[0].platform)"
    assert here(program, JAX_PLATFORMS="cpu")[0] == {"on": "cpu"}
    _, err = here(program, code=1)
    assert "Unknown backend cuda" in err or "Unable to initialize backend 'cuda'" in err


def test_s11_wrong_words_of_the_environment_are_mended_and_reported():
    told, err = run(
        "import vramfit.jax_memory_fix; use(); tell(**stats())",
        JAX_PREALLOCATION_SIZE_LIMIT_BYTES="8589934592",
        XLA_PYTHON_CLIENT_PREALLOCATE="no",
    )
    assert 8 * GIB - PAGE <= told["bytes_limit"] <= 8 * GIB
    assert "VramfitWarning: no release of JAX reads `JAX_PREALLOCATION_SIZE_LIMIT_BYTES`" in err


def test_s11_variables_that_are_no_text_do_no_harm():
    program = """
        import os
        os.environb[b"ODD"] = b"\\xff"
        import vramfit.jax_memory_fix as fix
        tell(set=len(fix.applied.set))
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
    told, _ = here(
        """
        import jax
        jax.devices()
        import warnings; warnings.simplefilter("ignore")
        from vramfit.jax_memory_fix import apply_jax_memory_fix, applied
        tell(**refusal(RuntimeError, apply_jax_memory_fix, 0.5), applied=applied)
        """,
        JAX_PLATFORMS="cpu",
    )
    assert told["id"] == "jax-already-initialized"
    assert "first line of the program" in told["hint"]
    assert told["applied"] is None


def test_s20_an_imported_jax_without_a_backend_is_reported_through_its_configuration():
    told, _ = run("""
        import jax
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        apply_jax_memory_fix(fraction=0.5, x64=True)
        tell(limit=stats()["bytes_limit"], x64=str(jax.numpy.ones(1).dtype),
             platform=jax.config.values["jax_platform_name"])
        """)
    assert abs(told["limit"] - 0.5 * T4_BYTES) <= PAGE
    assert told["x64"] == "float64"
    assert told["platform"] == "cuda"


def test_s20_a_choice_made_in_the_configuration_is_the_users():
    told, _ = here("""
        import jax
        jax.config.update("jax_platforms", "cpu")
        import vramfit.jax_memory_fix as fix
        tell(on=jax.devices()[0].platform, kept=[s.name for s in fix.applied.kept])
        """)
    assert told == {"on": "cpu", "kept": ["JAX_PLATFORMS"]}


# S12: the call with all settings as arguments.


def test_s12_arguments_go_before_the_environment_and_that_is_reported():
    told, _ = run(
        """
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        done = apply_jax_memory_fix(limit="4GiB", preallocate=False, allocator="bfc")
        import jax.numpy as jnp
        jnp.ones(8).block_until_ready()
        tell(**stats(), text=str(done), shown=repr(done))
        tell(again=done.value("XLA_CLIENT_MEM_FRACTION"))
        """,
        XLA_CLIENT_MEM_FRACTION="0.3",
    )
    assert 4 * GIB - PAGE <= told["bytes_limit"] <= 4 * GIB
    assert told["pool_bytes"] == PAGE
    assert f"`XLA_CLIENT_MEM_FRACTION` was 0.3 and is now {told['again']}" in told["text"]
    assert "4.0 GiB of the GPU's 14.6 GiB" in told["text"]
    assert told["shown"].startswith("<AppliedSettings for JAX 0.10.2\n  set ")


def test_s12_a_call_takes_back_what_an_earlier_one_set():
    told, _ = here(
        """
        import os
        before = {k: v for k, v in os.environ.items()}
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        apply_jax_memory_fix(allocator="cuda_async", x64=True, host_devices=2, limit=None)
        apply_jax_memory_fix(fraction=0.5, require_gpu=False)
        tell(changed={k: v for k, v in os.environ.items() if before.get(k) != v},
             gone=[k for k in before if k not in os.environ])
        """,
        XLA_FLAGS="--xla_cpu_enable_fast_math=true",
    )
    assert told == {"changed": {"XLA_CLIENT_MEM_FRACTION": "0.5"}, "gone": []}


def test_s12_amounts_may_be_numbers_and_shares_leave_room_for_others():
    told, _ = run("""
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        apply_jax_memory_fix(limit=2 << 30)
        apply_jax_memory_fix(processes=2, keep_free="1GiB")
        use()
        tell(**stats())
        """)
    assert 5.5 * GIB < told["bytes_limit"] < (T4_BYTES - GIB) / 2


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
        tell(**refusal(ValueError, apply_jax_memory_fix, {arguments}))
        assert before == dict(os.environ), "what is refused changes nothing"
        """
    told, _ = here(program, VRAMFIT_RUN_CONFIG=write_run_config("t4"))
    assert told["id"] == "invalid-argument"
    assert text in told["text"]


def test_s12_a_limit_in_bytes_needs_a_gpu():
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    told, _ = here("""
        from vramfit.jax_memory_fix import apply_jax_memory_fix
        tell(**refusal(OSError, apply_jax_memory_fix, limit="8GiB"))
        """)
    assert told["id"] == "no-driver"


# S13, S14, S16: memory that is held.


def test_s13_memory_is_held_and_counted_by_the_allocator():
    told, _ = run("""
        from vramfit.jax_memory_fix import force_memory_allocation
        half = force_memory_allocation(0.5)
        before = stats()["bytes_in_use"]
        more = force_memory_allocation("1GiB", device=0)
        tell(half=half, more=more, before=before, now=stats(), shown=repr(more))
        """)
    limit = told["now"]["bytes_limit"]
    assert told["half"][1] == limit // 2
    assert told["now"]["bytes_in_use"] - told["before"] == GIB
    assert told["more"][3] - told["more"][2] == GIB
    assert told["shown"].startswith("<HeldMemory 1.0 GiB on cuda:0: in use ")


def test_s13_what_cannot_be_had_is_refused_and_nothing_stays_held():
    told, _ = run(
        """
        from vramfit.jax_memory_fix import force_memory_allocation
        force_memory_allocation("60%")
        before = stats()["bytes_in_use"]
        tell(**refusal(MemoryError, force_memory_allocation, "60%"))
        tell(before=before, after=stats()["bytes_in_use"])
        """,
        code=1,  # for the dry run, a request that is refused is the answer
    )
    assert told["id"] == "insufficient-memory"
    assert told["before"] == told["after"]
    assert "of its pool are free" in told["text"]


def test_s13_more_than_the_pool_is_refused_by_one_request(tmp_path):
    answer = tmp_path / "answer.json"
    told, err = run(
        """
        from vramfit.jax_memory_fix import force_memory_allocation
        tell(**refusal(MemoryError, force_memory_allocation, "500GiB"))
        """,
        options=("--json", str(answer)),
        code=1,
    )
    assert told["id"] == "insufficient-memory"
    assert "cannot allocate 500.0 GiB on cuda:0" in told["text"]
    # No piece of it was taken, and the dry run says what was asked for.
    oom = json.loads(answer.read_text())["oom"]
    assert oom["requested_bytes"] == 500 * GIB
    assert json.loads(answer.read_text())["oom_count"] == 1
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
    told, _ = run(f"""
        from vramfit.jax_memory_fix import force_memory_allocation
        tell(**refusal(ValueError, force_memory_allocation, {amount}))
        import jax; jax.numpy.ones(1).block_until_ready()
        """)
    assert told["id"] == "invalid-argument"
    assert "GiB" in told["hint"]


def test_s14_steps_walk_up_to_the_target():
    told, _ = run("""
        from vramfit.jax_memory_fix import allocate_memory_incremental
        seen = []
        steps = allocate_memory_incremental(0.8, step=0.25, report=seen.append)
        tell(steps=steps, same=seen == list(steps), part=steps[-1].utilization, now=stats())
        """)
    assert told["same"]
    assert [step[1] for step in told["steps"]] == [True] * 4
    assert 0.8 <= told["part"] < 0.801
    assert told["steps"][-1][3] == told["now"]["bytes_in_use"]
    assert told["steps"][-1][2] == sum(step[0] for step in told["steps"])


def test_s14_the_walk_stops_cleanly_at_what_is_there():
    told, _ = run(
        """
        from vramfit.jax_memory_fix import allocate_memory_incremental
        steps = allocate_memory_incremental(1.0, step="1GiB")
        tell(steps=steps, now=stats(), shown=repr(steps[-1]))
        """,
        # The GPU has less than the pool wants, and JAX backs off.
        options=("--occupied", "6GiB"),
        code=1,
    )
    met = [step[1] for step in told["steps"]]
    assert met == [True] * (len(met) - 1) + [False]
    assert told["now"]["bytes_in_use"] > 6 * GIB
    assert "could not allocate 1.0 GiB" in told["shown"]


def test_s16_what_is_held_is_freed_and_counted():
    told, _ = run("""
        import jax.numpy as jnp
        from vramfit.jax_memory_fix import *
        own = jnp.ones(1 << 20).block_until_ready()
        before = stats()["bytes_in_use"]
        force_memory_allocation("3GiB")
        allocate_memory_incremental(0.5, step="2GiB")
        held = stats()["bytes_in_use"]
        cleared = clear_memory_registry(caches=True)
        after = stats()["bytes_in_use"]
        tell(before=before, held=held, after=after, cleared=cleared, own=own.is_deleted(),
             again=clear_memory_registry(), shown=repr(cleared))
        """)
    assert told["after"] == told["before"]
    assert told["cleared"][0] == told["held"] - told["before"]
    assert told["cleared"][1] == {"cuda:0": [told["held"], told["after"]]}
    assert not told["own"]
    assert told["again"][0] == 0
    assert "caches cleared" in told["shown"]


# S15: a proof that JAX computes on the GPU.


def test_s15_the_pool_is_what_was_asked_for():
    told, _ = run("""
        from vramfit.jax_memory_fix import apply_jax_memory_fix, verify_gpu_usage
        apply_jax_memory_fix(fraction=0.6)
        usage = verify_gpu_usage()
        tell(usage=usage, gpu=usage.gpu, virtual=usage.virtual, text=repr(usage), now=stats())
        """)
    assert told["now"]["bytes_limit"] == told["usage"][3] == told["usage"][4]
    assert told["virtual"]
    assert "a virtual GPU does not compute" in told["text"]
    assert "as the settings of this process require" in told["text"]
    assert "the pool is fully preallocated" in told["text"]


def test_s15_a_pool_that_could_not_be_had_is_reported():
    told, _ = run(
        """
        import vramfit.jax_memory_fix as fix
        tell(**refusal(RuntimeError, fix.verify_gpu_usage))
        """,
        options=("--occupied", "6GiB"),
    )
    assert told["id"] == "verification-failed"
    assert "reserved" in told["text"]


def test_s15_a_setting_that_came_too_late_is_found():
    told, _ = run("""
        import os, jax
        jax.devices()
        os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.3"
        from vramfit.jax_memory_fix import verify_gpu_usage
        tell(**refusal(RuntimeError, verify_gpu_usage))
        """)
    assert "should be 4.4 GiB, but it is 10.9 GiB" in told["text"]


def test_s15_the_cpu_is_no_gpu():
    told, _ = here(
        """
        import vramfit.jax_memory_fix as fix
        tell(**refusal(RuntimeError, fix.verify_gpu_usage))
        """,
        JAX_PLATFORMS="cpu",
    )
    assert told["id"] == "verification-failed"
    assert told["text"].startswith("JAX has no GPU")


@pytest.mark.parametrize("allocator", ["default", "cuda_async", "platform", "vmm"])
def test_s13_more_than_the_gpu_has_is_refused_at_once_with_the_reason(allocator):
    told, _ = run(
        """
        import vramfit._functions._fill_pool as pool
        from vramfit.jax_memory_fix import force_memory_allocation
        requests = []
        allocate = pool._allocate
        pool._allocate = lambda size, *rest, **more: (
            requests.append([size, more]) or allocate(size, *rest, **more))
        tell(**refusal(MemoryError, force_memory_allocation, "500GiB"))
        tell(requests=requests)
        """,
        options=["--allocator", allocator],
        code=1,
    )
    assert told["id"] == "insufficient-memory"
    assert "cannot allocate 500.0 GiB on cuda:0" in told["text"]
    assert "the GPU has only 14.6 GiB" in told["text"]
    # In a dry run it is requested once, so that the report has it; on a GPU not at all.
    assert told["requests"] == [[500 * GIB, {"whole": True}]]


def test_s13_a_small_number_is_no_amount_of_memory():
    told, _ = run(
        """
        from vramfit.jax_memory_fix import apply_jax_memory_fix, force_memory_allocation
        # Before any device exists, which `force_memory_allocation` looks for.
        tell(limit=refusal(ValueError, apply_jax_memory_fix, limit=16)["text"])
        for name, amount in (("text", "90"), ("number", 90)):
            tell(**{name: refusal(ValueError, force_memory_allocation, amount)["text"]})
        use()
        """
    )
    for name, likely in (("text", "`90GiB`"), ("number", "`90GiB`")):
        assert "has no unit" in told[name]
        assert likely in told[name]


def test_s15_a_gpu_that_is_not_the_default_is_no_proof():
    told, _ = run(
        """
        import vramfit.jax_memory_fix as fix
        tell(**refusal(RuntimeError, fix.verify_gpu_usage))
        fix.force_memory_allocation("1MiB")
        """,
        JAX_PLATFORMS="cpu,cuda",
    )
    assert "computes on cpu:0 by default" in told["text"]


@pytest.mark.gpu
def test_s15_a_real_gpu_computes():
    told, _ = here("""
        import vramfit.jax_memory_fix as fix
        usage = fix.verify_gpu_usage()
        tell(virtual=usage.virtual, text=repr(usage))
        """)
    assert not told["virtual"]
    assert "computed a sum of 1024 squares correctly" in told["text"]
