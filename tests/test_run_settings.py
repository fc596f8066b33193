"""The settings of a run: what is refused, what is told, what takes effect, what comes too late."""

import json
import os
import sys
import textwrap

import pytest
from commands import VRAMFIT, run_python, run_vramfit
from run_configs import VARIABLE, write_run_config

USE = "import jax, jax.numpy as jnp\njax.block_until_ready(jnp.ones(8))\n"

# Copied from project to project, all at once.
RECIPE = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
    "XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95",
    "JAX_PLATFORM_NAME": "gpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
    "JAX_DISABLE_JIT": "false",
    "JAX_ENABLE_X64": "false",
    "JAX_PREALLOCATION_SIZE_LIMIT_BYTES": "8589934592",
}


@pytest.fixture
def dry(tmp_path):
    """Make a dry run of a program; return the process, its summary if there is one, its page."""

    def run(program, *options, gpu="t4", command=None, **env):
        script, summary_file = tmp_path / "train.py", tmp_path / "summary.json"
        page = tmp_path / "report.html"
        script.write_text(textwrap.dedent(program))
        words = [
            "dryrun",
            "--full",
            "--gpu",
            gpu,
            "--force",
            "--json",
            summary_file,
            "--report",
            page,
        ]
        words += [*options, "--", *(command or [sys.executable]), script]
        summary_file.unlink(missing_ok=True)
        done = run_vramfit(*words, env=env)
        summary = json.loads(summary_file.read_text()) if summary_file.exists() else None
        return done, summary, page

    return run


def joined(text):
    """Return a text without its line ends, so that a wrapped sentence is found."""
    return " ".join(text.split())


# What leaves no GPU is refused before the program starts.


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", ".XX", "`.XX` is not a number"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "100", "100 requests 100 times the GPU's memory"),
        ("XLA_CLIENT_MEM_FRACTION", "0", "every allocation fails"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "async", "JAX has no allocator `async`"),
        ("JAX_ENABLE_X64", "maybe", "is not a boolean"),
        ("XLA_FLAGS", "--xla_gpu_autotune_levl=0", "XLA has no flag"),
    ],
)
def test_settings_that_leave_no_gpu_are_refused_before_the_program_starts(dry, name, value, reason):
    done, summary, _ = dry("print('STARTED')", **{name: value})
    assert done.returncode == 2, done.stderr
    assert "STARTED" not in done.stdout
    assert summary is None
    assert done.stderr.startswith("error[invalid-argument]: ")
    assert reason in joined(done.stderr)
    assert "hint: " in done.stderr


def test_what_jax_refuses_inside_the_program_is_explained(dry):
    program = "import os; os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = '.XX'\n" + USE
    done, summary, _ = dry(program)
    assert done.returncode == 2
    assert summary is None
    assert "error[gpu-not-used]: JAX rejected its settings: " in done.stderr
    assert "`.XX` is not a number" in done.stderr


def test_settings_that_are_put_right_by_run_are_left_to_it(dry):
    both = {"XLA_CLIENT_MEM_FRACTION": "0.4", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.8"}
    done, summary, _ = dry(USE, command=[*VRAMFIT, "run", "--", sys.executable], **both)
    assert done.returncode == 0, done.stderr
    assert summary["settings"]["memory_fraction"] == pytest.approx(0.4)
    refused, _, _ = dry(USE, **both)
    assert refused.returncode == 2


# What is told before, and in the report.


def test_a_sound_run_says_nothing_of_its_settings(dry):
    done, summary, _ = dry(USE)
    assert done.returncode == 0
    assert "settings of this run" not in done.stderr
    assert summary["settings"]["findings"] == []
    own = {row["name"]: row["set_by_vramfit"] for row in summary["settings"]["variables"]}
    assert own["JAX_PLATFORMS"]


def test_a_recipe_of_eight_variables_gets_a_word_for_each(dry):
    done, summary, page = dry(USE, **RECIPE)
    assert done.returncode == 0, done.stderr
    report = joined(done.stderr[done.stderr.index("settings of this run") :])
    rows = {row["name"]: row for row in summary["settings"]["variables"]}
    for name, value in RECIPE.items():
        assert f"`{name}={value}`: " in report, name
        assert rows[name]["value"] == value
        assert rows[name]["effect"]
    assert rows["XLA_PYTHON_CLIENT_MEM_FRACTION"]["effect"].startswith("no effect")
    assert rows["XLA_PYTHON_CLIENT_PREALLOCATE"]["effect"].startswith("no effect")
    assert rows["JAX_PREALLOCATION_SIZE_LIMIT_BYTES"]["effect"].startswith("no effect")
    assert "choose one: " in rows["JAX_PREALLOCATION_SIZE_LIMIT_BYTES"]["effect"]
    assert "it does not affect GPUs" in rows["XLA_FLAGS"]["effect"]
    assert "deprecated" in rows["JAX_PLATFORM_NAME"]["effect"]
    ids = {finding["id"] for finding in summary["settings"]["findings"]}
    assert {"ignored-by-allocator", "unread-variable", "flag-cpu-only"} <= ids
    assert "settings of this run" in page.read_text()
    # Before the program starts, too, and without `--verbose`.
    before = joined(done.stderr[: done.stderr.index("settings of this run")])
    assert "note[flag-cpu-only]" in before
    assert "warning[ignored-by-allocator]" in before


def test_what_a_fraction_leaves_is_judged_in_bytes_of_the_gpu(dry):
    tight, summary, _ = dry(USE, XLA_PYTHON_CLIENT_MEM_FRACTION="0.99", gpu="h100-80g")
    assert "warning[insufficient-headroom]" in tight.stderr
    (row,) = [r for r in summary["settings"]["variables"] if "FRACTION" in r["name"]]
    assert row["effect"].startswith("the pool may use 78.")
    roomy, summary, _ = dry(USE, XLA_PYTHON_CLIENT_MEM_FRACTION="0.95", gpu="h100-80g")
    assert "insufficient-headroom" not in roomy.stderr
    assert summary["settings"]["findings"] == []
    assert "settings of this run" in roomy.stderr


def test_the_report_of_a_kept_trace_has_the_settings(dry, tmp_path):
    trace = tmp_path / "run.trace"
    dry(USE, "--trace", str(trace), XLA_PYTHON_CLIENT_MEM_FRACTION="0.5")
    report = run_vramfit("report", "--full", trace)
    text = report.stdout + report.stderr
    assert "settings of this run" in text
    assert "`XLA_PYTHON_CLIENT_MEM_FRACTION=0.5`: the pool may use 7.3 GiB" in joined(text)


# What the program sets too late.

LATE = """
import os, jax, jax.numpy as jnp
os.environ["JAX_ENABLE_X64"] = "1"
jax.block_until_ready(jnp.ones(8))
def main():
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.5"
main()
jax.block_until_ready(jnp.ones(8))
"""


def test_a_dry_run_tells_what_was_set_too_late_and_where(dry, tmp_path):
    done, summary, page = dry(LATE, XLA_PYTHON_CLIENT_MEM_FRACTION="0.6")
    script = tmp_path / "train.py"
    late = [f for f in summary["settings"]["findings"] if f["id"] == "set-too-late"]
    found = {finding["subject"]: finding for finding in late}
    x64, fraction = found["JAX_ENABLE_X64"], found["XLA_PYTHON_CLIENT_MEM_FRACTION"]
    assert f"at {script}:3 (<module>), after JAX was imported" in x64["message"]
    assert "it was not set when JAX read it" in x64["message"]
    assert "jax.config.update" in x64["fix"]
    assert f"{script}:6 (main), after the first use of JAX" in fraction["message"]
    assert "JAX has read `0.6`" in fraction["message"]
    # The value that JAX has read is the one that counts.
    (row,) = [r for r in summary["settings"]["variables"] if "FRACTION" in r["name"]]
    assert row["value"] == "0.6"
    assert summary["settings"]["memory_fraction"] == pytest.approx(0.6)
    assert "error (set-too-late)" in joined(done.stderr)
    assert "set-too-late" in page.read_text()


@pytest.mark.parametrize(
    "program",
    [
        # Before JAX reads them.
        "import os; os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = '0.5'\n" + USE,
        # The pool's variables are read at the first use, and not by the import.
        "import os, jax; os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = '0.5'\n" + USE,
        # Said in JAX's configuration, too.
        USE + "import os; os.environ['JAX_ENABLE_X64'] = '1'\n"
        "jax.config.update('jax_enable_x64', True)\n",
        # The same as before, in other words, and what is set back.
        USE + "import os; os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'true'\n",
        USE + "import os; os.environ['JAX_ENABLE_X64'] = '1'; del os.environ['JAX_ENABLE_X64']\n",
        # Read when it is needed, and nobody's.
        USE
        + "import os; os.environ['JAX_COORDINATOR_ADDRESS'] = 'x:1'; os.environ['MINE'] = '1'\n",
    ],
)
def test_what_is_set_in_time_or_without_a_difference_is_no_finding(dry, program):
    done, summary, _ = dry(program)
    assert done.returncode == 0, done.stderr
    assert [f for f in summary["settings"]["findings"] if f["id"] == "set-too-late"] == []


def test_what_ends_without_exit_handlers_has_its_settings_too(dry):
    _, summary, _ = dry(LATE + "os._exit(0)\n")
    ids = [finding["id"] for finding in summary["settings"]["findings"]]
    assert ids.count("set-too-late") == 2


def test_under_run_it_is_reported_on_standard_error(write_script):
    script = write_script(LATE + "print('RAN')\n")
    done = run_vramfit("run", "--", sys.executable, script, env={"JAX_PLATFORMS": "cpu"})
    assert done.stdout == "RAN\n", done.stderr
    messages = [
        line for line in done.stderr.splitlines() if "has no effect in this process" in line
    ]
    assert len(messages) == 2, done.stderr
    assert messages[0].startswith("vramfit: `JAX_ENABLE_X64=1` is set at ")
    assert f"{script}:6 (main)" in messages[1]


def test_after_jax_memory_fix_it_is_a_warning(write_script):
    script = write_script("import vramfit.jax_memory_fix\n" + LATE)
    done = run_python(script, env={"JAX_PLATFORMS": "cpu"}, code=0)
    # Each once, and Python shows the line itself, and none of ours.
    assert f"{script}:4: VramfitWarning: `JAX_ENABLE_X64=1` is set at {script}:4" in done.stderr
    assert f"{script}:7: VramfitWarning: `XLA_PYTHON_CLIENT_MEM_FRACTION=0.5`" in done.stderr
    assert f"{script}:7 (main), after the first use of JAX" in done.stderr
    assert '\n  os.environ["JAX_ENABLE_X64"] = "1"\n' in done.stderr
    assert done.stderr.count("VramfitWarning") == 2
    assert "_late_settings.py" not in done.stderr


@pytest.mark.parametrize("imported", ["before", "after", "in between"])
def test_under_run_jax_memory_fix_does_not_say_it_again(write_script, imported):
    fix = "import vramfit.jax_memory_fix\n"
    jax, late = LATE.split("\n", 2)[1], LATE.split("\n", 2)[2]
    program = {
        "before": fix + LATE,
        "in between": f"{jax}\n{fix}{late}",
        "after": f'{jax}\nos.environ["JAX_ENABLE_X64"] = "1"\n{fix}{late}',
    }[imported]
    script = write_script(program)
    done = run_vramfit("run", "--", sys.executable, script, env={"JAX_PLATFORMS": "cpu"})
    for name in ("JAX_ENABLE_X64", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        assert done.stderr.count(f"`{name}=") == 1, done.stderr


def test_jax_memory_fix_notices_what_was_lost_before_it_came():
    program = """
        import os, jax
        os.environ["JAX_ENABLE_X64"] = "1"
        import vramfit.jax_memory_fix as fix
        print([note for note in fix.applied.notes if "X64" in note][0])
        """
    done = run_python("-c", textwrap.dedent(program), env={"JAX_PLATFORMS": "cpu"}, code=0)
    assert done.stdout.startswith("`JAX_ENABLE_X64=1` was set after JAX was imported")
    assert "VramfitWarning: `JAX_ENABLE_X64=1`" in done.stderr


# The recipe, where a limit cannot hold.


def test_run_refuses_a_limit_that_the_allocator_cannot_keep():
    def run(*options):
        return run_vramfit(
            "run", "--gpu", "t4", *options, "--", sys.executable, "-c", "print('RAN')", env=RECIPE
        )

    done = run()
    assert (done.returncode, done.stdout) == (125, "")
    assert "asks for at most 8.0 GiB" in done.stderr
    assert "enforces no limit" in done.stderr
    assert "hint: unset " in done.stderr
    chosen = run("--allocator", "platform")
    assert chosen.stdout == "RAN\n"
    assert "enforces its" not in chosen.stderr
    assert "note[flag-cpu-only]" in chosen.stderr
    held = run("--allocator", "bfc")
    assert held.stdout == "RAN\n"
    assert "8.0 GiB of the GPU's" in held.stderr


def test_the_import_of_jax_memory_fix_says_that_a_choice_is_needed():
    program = """
        import vramfit.jax_memory_fix as fix
        try:
            fix.apply_jax_memory_fix()
        except ValueError as error:
            print(error.id)
        print(fix.apply_jax_memory_fix(allocator="bfc").value("XLA_CLIENT_MEM_FRACTION"))
        """
    settings = {VARIABLE: write_run_config("t4"), **RECIPE}
    done = run_python("-c", textwrap.dedent(program), env=settings, code=0)
    assert done.stdout.splitlines()[0] == "invalid-argument"
    assert float(done.stdout.splitlines()[1]) == pytest.approx((8 << 30) / 15_642_329_088, rel=1e-6)
    assert "VramfitWarning: nothing was set: " in done.stderr
    assert "enforces no limit" in done.stderr


# One recommendation about the platforms.


def test_doctor_finds_no_fault_with_what_run_sets():
    printed = run_vramfit("run", "--print", "--require-gpu", "--fraction", "0.5", code=0)
    settings = dict(line.split("=", 1) for line in printed.stdout.splitlines())
    assert settings["JAX_PLATFORM_NAME"] == "cuda"
    doctor = run_vramfit(
        "dryrun", "--full", "--gpu", "t4", "--", *VRAMFIT, "doctor", "--json", env=settings
    )
    checks = json.loads(doctor.stdout)["checks"]
    settings_checks = [check for check in checks if check["id"] == "settings"]
    assert [check["status"] for check in settings_checks] == ["pass"], settings_checks
    assert "remove" not in json.dumps(settings_checks)


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a GPU")
def test_doctor_says_a_note_without_verbose():
    flag = "--xla_force_host_platform_device_count=1"
    doctor = run_vramfit("doctor", env={"XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"})
    assert "note: `XLA_FLAGS`:" in doctor.stdout + doctor.stderr
    assert "it does not affect GPUs" in joined(doctor.stdout + doctor.stderr)
