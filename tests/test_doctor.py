"""`vramfit doctor`: here without a GPU, on virtual GPUs, and with every sort of thing broken.

Rows S15, S19, S21 and T9. What the checks make of drivers, GPUs and versions that are not here is
in `crates/vramfit-advice/tests/doctor.rs`, and in `crates/vramfit/tests/doctor.rs` with a stand-in
for the driver.
"""

import json
import os
import re
import textwrap

import pytest
from commands import ROOT, VRAMFIT, run_command, run_vramfit

TRAINING = ["backend", "computation", "transfers", "jit", "readiness"]


class DoctorRun:
    """What a run of the doctor said."""

    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def record(self):
        lines = [line for line in self.out.splitlines() if line.startswith('{"schema"')]
        assert len(lines) == 1, self.out + self.err
        return json.loads(lines[0])

    def all(self, name):
        return [check for check in self.record["checks"] if check["id"] == name]

    def one(self, name):
        [check] = self.all(name)
        return check


def start(command, **environment):
    return run_command(*command, env=environment, timeout=170)


def doctor(*options, **environment):
    return DoctorRun(start([*VRAMFIT, "doctor", "--json", *options], **environment))


def on_gpu(*options, gpu="t4", dryrun=(), **environment):
    """Run the doctor on a virtual GPU; `environment` is set inside the dry run only."""
    settings = [f"{name}={value}" for name, value in environment.items()]
    command = [*VRAMFIT, "dryrun", "--quiet", "--gpu", gpu, *dryrun, "--"]
    command += ["env", *settings, *VRAMFIT, "doctor", "--json", *options]
    return DoctorRun(start(command))


def is_here(name):
    return os.path.exists(f"/dev/{name}")


without_gpu = pytest.mark.skipif(is_here("nvidiactl"), reason="there is a GPU here")


@without_gpu
def test_row_s19_a_host_without_a_gpu_passes():
    run = doctor()
    assert run.code == 0, run.out + run.err
    assert run.record["passed"] is True
    assert run.one("driver")["status"] == "skip"
    assert run.one("jax")["status"] == "pass"
    assert run.one("dry-run")["status"] == "pass"
    assert run.one("backend")["message"] == "JAX uses the CPU; there is no GPU"
    assert run.one("computation")["status"] == "pass"
    assert run.one("jit")["status"] == "pass"


@without_gpu
def test_row_s19_a_required_gpu_that_is_not_there_fails():
    run = doctor("--require", "gpu")
    assert run.code == 1
    assert run.one("required-gpu")["status"] == "fail"
    loud = doctor(JAX_PLATFORMS="cuda")
    assert loud.code == 1
    assert "demands a GPU, but there is none" in loud.one("backend")["message"]


@without_gpu
def test_row_t9_training_is_reported_in_five_checks():
    run = doctor("--train")
    assert run.code == 0, run.out + run.err
    assert [check["id"] for check in run.record["checks"]] == TRAINING
    readiness = run.one("readiness")
    assert readiness["status"] == "pass"
    assert readiness["message"].startswith("ready to train on the CPU: loss ")


@without_gpu
def test_people_get_one_line_a_check_and_a_verdict():
    done = start([*VRAMFIT, "doctor"])
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert done.stderr == ""
    assert all(line[:4] in ("PASS", "SKIP") for line in lines[:-1]), done.stdout
    assert lines[-1].startswith("no check failed: ")
    quiet = start([*VRAMFIT, "doctor", "--quiet"])
    assert "PASS" not in quiet.stdout


def test_row_s15_the_pool_of_a_virtual_gpu_is_what_was_asked_for():
    run = on_gpu()
    assert run.code == 0, run.out + run.err
    assert run.record["virtual_gpu"] == "t4"
    assert run.one("backend")["message"].endswith("has a virtual GPU (Tesla T4)")
    pool = run.one("pool")
    assert pool["status"] == "pass"
    assert "preallocated, 75.0 % of the GPU's 14.6 GiB" in pool["message"]
    assert run.one("computation")["status"] == "skip"
    assert run.one("jit")["status"] == "pass"
    assert run.one("transfers")["status"] == "skip"
    assert run.one("outside-pool")["status"] == "skip"


def test_row_t9_on_a_virtual_gpu_nothing_is_claimed():
    run = on_gpu("--train")
    assert run.code == 0, run.out + run.err
    assert [check["id"] for check in run.record["checks"]] == TRAINING
    assert run.one("readiness")["status"] == "skip"
    assert "20 training steps were compiled" in run.one("readiness")["message"]


def test_a_slice_has_the_memory_of_the_slice():
    run = on_gpu(gpu="a100-40g-mig-1g.5gb")
    assert "75.0 % of the GPU's 4.8 GiB" in run.one("pool")["message"]


def test_row_s15_a_pool_that_cannot_be_had_fails():
    run = on_gpu(dryrun=["--occupied", "8GiB"])
    # Of the dry run: `doctor` ended with 1, so whether it fits cannot be told.
    assert run.code == 2
    pool = run.one("pool")
    assert pool["status"] == "fail"
    assert "10.9 GiB requested" in pool["message"]
    assert "JAX does not report this" in pool["message"]
    assert "--occupied" in pool["fix"]
    # The rules knew it before.
    assert any("is used by" in check["message"] for check in run.all("settings"))
    growing = on_gpu("--no-preallocate", dryrun=["--occupied", "8GiB"])
    assert growing.one("pool")["status"] == "pass"
    assert "grows up to" in growing.one("pool")["message"]


def test_row_s15_the_cpu_by_choice_is_a_warning():
    run = on_gpu(JAX_PLATFORMS="cpu")
    assert run.one("backend")["status"] == "warn"
    assert run.one("backend")["fix"] == "unset JAX_PLATFORMS"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".XX"}, ".XX"),
        (
            {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5", "XLA_CLIENT_MEM_FRACTION": "0.5"},
            "XLA_CLIENT_MEM_FRACTION",
        ),
    ],
    ids=["no-number", "both-names"],
)
def test_row_s15_the_cpu_without_a_word_fails_with_the_reason(settings, reason):
    # Without JAX_PLATFORMS, which a dry run sets, JAX falls back to the CPU.
    run = on_gpu(JAX_PLATFORMS="", **settings)
    # The exit code is that of the dry run, which has no answer: no GPU was used.
    assert run.record["passed"] is False
    backend = run.one("backend")
    assert backend["status"] == "fail"
    assert "JAX falls back to the CPU" in backend["message"]
    assert any(reason in line for line in backend["evidence"])
    wrong = [check for check in run.all("settings") if check["status"] == "fail"]
    assert wrong
    assert backend["message"].startswith("see `settings`, which fails above: ")
    assert backend["fix"] == "fix `settings` first"
    # What the CPU computes proves nothing about the GPU.
    assert run.one("computation")["status"] == "skip"


def test_a_plugin_of_another_release_is_named(tmp_path):
    other = tmp_path / "jax_cuda13_plugin-0.9.2.dist-info"
    other.mkdir()
    (other / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: jax-cuda13-plugin\nVersion: 0.9.2\n"
    )
    run = doctor(PYTHONPATH=str(tmp_path))
    assert run.code == 1
    jax = run.one("jax")
    assert jax["status"] == "fail"
    assert "0.9.2 is incompatible with jaxlib" in jax["message"]
    assert "jax-cuda13-plugin==" in jax["fix"]


def with_jax(folder, body):
    """Put a package `jax` before the real one, which does something when it is imported."""
    package = folder / "jax"
    package.mkdir()
    (package / "__init__.py").write_text(textwrap.dedent(body))
    return str(folder)


def test_a_jax_that_hangs_is_ended_and_reported(tmp_path):
    path = with_jax(tmp_path, "import threading\nthreading.Event().wait()\n")
    run = doctor("--timeout", "2", PYTHONPATH=path)
    assert run.code == 1
    backend = run.one("backend")
    assert backend["status"] == "fail"
    assert "hung while it imported JAX: no progress for 2 s" in backend["message"]
    assert run.one("pool")["status"] == "skip"


def test_a_jax_that_crashes_is_reported_with_its_last_words(tmp_path):
    path = with_jax(
        tmp_path,
        """
        import os, signal, sys
        print("printed before the end")
        print("logged before the end", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
        """,
    )
    run = doctor(PYTHONPATH=path)
    assert run.code == 1
    backend = run.one("backend")
    assert "was killed by SIGABRT while it imported JAX" in backend["message"]
    assert "logged before the end" in backend["evidence"]


def test_a_jax_that_cannot_be_imported_is_reported(tmp_path):
    path = with_jax(tmp_path, "raise ImportError('libfoo.so: no such file')\n")
    run = doctor(PYTHONPATH=path)
    assert run.code == 1
    assert "ImportError: libfoo.so: no such file" in run.one("backend")["message"]


def test_the_environment_is_held_against_the_rules():
    run = doctor(JAX_PREALLOCATION_SIZE_LIMIT_BYTES="8589934592")
    assert run.code == 0, run.out
    settings = run.one("settings")
    assert settings["status"] == "warn"
    assert "JAX_PREALLOCATION_SIZE_LIMIT_BYTES" in settings["message"]
    assert settings["fix"]


def test_libraries_of_another_cuda_are_found(tmp_path):
    (tmp_path / "libcudnn.so.9").write_bytes(b"")
    path = doctor(LD_LIBRARY_PATH=str(tmp_path)).one("library-path")
    assert path["evidence"] == [str(tmp_path / "libcudnn.so.9")]
    assert path["fix"] in (None, "unset LD_LIBRARY_PATH")


def test_files_of_the_user_do_not_get_in_the_way(tmp_path):
    for name in ("json.py", "jax.py", "logging.py"):
        (tmp_path / name).write_text("raise SystemExit('a file of the user was imported')\n")
    done = run_vramfit("doctor", "--json", cwd=tmp_path)
    run = DoctorRun(done)
    assert run.one("jax")["status"] == "pass"
    assert run.one("computation")["status"] in ("pass", "skip")


def test_row_s21_the_pages_name_the_checks_that_there_are():
    every = {check["id"] for check in doctor("--require", "gpu").record["checks"]}
    every |= {check["id"] for check in doctor("--train").record["checks"]}
    page = (ROOT / "docs/commands/doctor.md").read_text()
    table = page.split("## The checks")[1].split("## ")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.M)) == every
    causes = page.split("## No GPU is found")[1].split("\n## ")[0]
    named = set(re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"\((`.*?`)\)", causes))))
    assert {"backend", "settings", "cuda-packages", "library-path"} <= named <= every


@pytest.mark.gpu
def test_row_s15_a_real_gpu_computes_and_its_pool_is_there():
    run = doctor("--require", "gpu")
    assert run.code == 0, run.out + run.err
    assert run.one("driver")["status"] == "pass"
    assert all(check["status"] == "pass" for check in run.all("gpu"))
    assert run.one("computation")["status"] == "pass"
    assert all("preallocated" in check["message"] for check in run.all("pool"))
    assert "to the device" in run.one("transfers")["message"]
    assert run.one("required-gpu")["status"] == "pass"


@pytest.mark.gpu
def test_row_t9_a_real_gpu_is_ready_to_train():
    run = doctor("--train", "--require", "gpu")
    assert run.code == 0, run.out + run.err
    assert [check["status"] for check in run.record["checks"]] == ["pass"] * 5
    assert "ready to train on the GPU" in run.one("readiness")["message"]


@pytest.mark.gpu
def test_what_lies_outside_the_pool_is_measured():
    run = doctor()
    outside = run.one("outside-pool")
    # In a container the driver may count processes by PIDs of another namespace here.
    assert outside["status"] in ("pass", "skip")
    assert outside["status"] == "pass" or "PIDs of another namespace" in outside["message"]
