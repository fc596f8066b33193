"""What `vramfit run` says of the GPUs before the program starts, and after it has failed."""

import json
import subprocess
import sys

import pytest
from commands import run_vramfit
from fake_driver import gpu

GIB = 1 << 30
STARTS = ["--", sys.executable, "-c", "print('started')"]
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64.00GiB."


@pytest.fixture
def start(fake_driver, tmp_path):
    """Start a program on a host, and return what it and vramfit wrote."""

    def run(host, *options, program=STARTS, code=0, **env):
        environment = fake_driver(host).environment | env
        return run_vramfit("run", *options, *program, env=environment, cwd=tmp_path, code=code)

    return run


@pytest.fixture
def process():
    """Start processes with such a name, which end with the test."""
    processes = []

    def start(name):
        processes.append(subprocess.Popen(["bash", "-c", f"exec -a '{name}' sleep 600"]))
        return processes[-1].pid

    yield start
    for one in processes:
        one.kill()
        one.wait()


def used(pid, gib, kind="compute", **more):
    """Return a GPU of 16 GiB of which a process holds some."""
    used_bytes = int(gib * GIB)
    memory = {"total_bytes": 16 * GIB, "reserved_bytes": 0, "used_bytes": used_bytes}
    return gpu(
        memory=memory | {"free_bytes": 16 * GIB - used_bytes},
        processes=[{"pid": pid, "used_bytes": used_bytes, "kind": kind}],
        **more,
    )


def test_nothing_is_said_of_a_gpu_that_is_free(start, process):
    done = start({"gpus": [gpu()]})
    assert (done.stdout, done.stderr) == ("started\n", "")
    # A desktop, and pools that leave others their part.
    desktop = used(process("Xorg"), 0.5, kind="graphics", display=True)
    assert start({"gpus": [desktop]}).stderr == ""
    half = used(process("other"), 7)
    assert "used-by-others" not in start({"gpus": [half]}, "--fraction", "0.4").stderr


def test_a_pool_that_silently_gets_less_is_announced(start, process):
    pid = process("python other.py")
    done = start({"gpus": [used(pid, 10)]})
    assert done.stdout == "started\n"
    text = " ".join(done.stderr.split())
    assert "warning[used-by-others]: 0.75 of GPU 0 (Tesla T4) is 12.0 GiB" in text
    assert f"10.0 GiB is used by `python other.py 600` ({pid}, 10.0 GiB)" in text
    assert "JAX would silently allocate less" in text
    # A fraction that is set has a note, which is enough.
    set_by_hand = start({"gpus": [used(pid, 10)]}, "--fraction", "0.8").stderr
    assert "used-by-others" not in set_by_hand
    assert "so a pool of 12.8 GiB cannot be allocated" in set_by_hand
    # What the user says of the GPU is not contradicted, and a CPU has no pool.
    assert start({"gpus": [used(pid, 10)]}, "--occupied", "1GiB").stderr == ""
    assert start({"gpus": [used(pid, 10)]}, JAX_PLATFORMS="cpu").stderr == ""


@pytest.mark.parametrize("mode", ["prohibited", "exclusive_process"])
def test_a_program_that_no_gpu_lets_in_is_not_started(start, process, mode):
    closed = {"gpus": [used(process("python other.py"), 1, compute_mode=mode)]}
    done = start(closed, code=125)
    assert done.stdout == ""
    assert "error[gpu-is-exclusive]: the compute mode of GPU 0 (Tesla T4)" in done.stderr
    assert done.stderr.splitlines()[-1] == "not started: no GPU can be used"
    assert start(closed, JAX_PLATFORMS="cpu").stdout == "started\n"


def test_a_program_that_one_gpu_lets_in_is_started(start, process):
    closed = used(process("python other.py"), 1, compute_mode="exclusive_process")
    done = start({"gpus": [closed, gpu(1)]})
    assert done.stdout == "started\n"
    assert "error[gpu-is-exclusive]" in done.stderr
    assert start({"gpus": [closed, gpu(1)]}, CUDA_VISIBLE_DEVICES="1").stderr == ""
    start({"gpus": [closed, gpu(1)]}, CUDA_VISIBLE_DEVICES="0", code=125)


@pytest.mark.parametrize(
    ("name", "kind"), [("nvidia-cuda-mps-server", "compute"), ("Xorg", "graphics")]
)
def test_who_lets_others_compute_closes_no_gpu(start, process, name, kind):
    """NVIDIA's Multi-Process Service computes for others, and a desktop does not compute."""
    shared = used(process(name), 0.1, kind=kind, compute_mode="exclusive_process")
    done = start({"gpus": [shared]})
    assert (done.stdout, done.stderr) == ("started\n", "")


def test_a_process_that_cannot_be_named_may_let_others_compute(start):
    """In a container the driver tells numbers of the host, which mean nothing there."""
    unknown = used(2**22 + 1, 1, compute_mode="exclusive_process")
    assert start({"gpus": [unknown]}).stdout == "started\n"


def test_a_program_that_computes_through_a_service_is_started(start, process):
    closed = {"gpus": [used(process("python other.py"), 1, compute_mode="exclusive_process")]}
    assert start(closed, CUDA_MPS_PIPE_DIRECTORY="/run/mps").stdout == "started\n"


def test_tensorflow_beside_jax_is_named(start, tmp_path):
    (tmp_path / "packages" / "tensorflow-2.20.0.dist-info").mkdir(parents=True)
    packages = {"PYTHONPATH": str(tmp_path / "packages")}
    done = start({"gpus": [gpu()]}, **packages)
    text = " ".join(done.stderr.split())
    assert "TensorFlow 2.20.0 allocates up to 16.0 GiB, all free memory of a GPU" in text
    assert start({"gpus": [gpu()]}, TF_FORCE_GPU_ALLOW_GROWTH="true", **packages).stderr == ""
    # Without GPUs for JAX it takes nothing from it.
    assert start({"gpus": [gpu()]}, JAX_PLATFORMS="cpu", **packages).stderr == ""


# --- after a failure ---

FAILS = f"""
import json, os, sys
library = os.environ["VRAMFIT_NVML"]
host = json.loads(sys.argv[1])
[gpu] = host["gpus"]
gpu["processes"].append({{"pid": os.getpid(), "used_bytes": {4 * GIB}}})
open(library + ".json", "w").write(json.dumps(host))
raise RuntimeError({OUT_OF_MEMORY!r})
"""


def failing(host):
    return ["--", sys.executable, "-c", FAILS, json.dumps(host)]


def test_what_follows_a_failure_names_who_else_holds_memory(start, process):
    pid = process("python other.py")
    host = {"gpus": [used(pid, 9)]}
    done = start(host, program=failing(host), code=1)
    assert "\nvramfit: out of memory: " in done.stderr
    others = f"other processes use 9.0 GiB of GPU 0 now: `python other.py 600` ({pid}, 9.0 GiB)"
    assert done.stderr.splitlines()[-1] == others
    # Where the driver does not tell the bytes of processes, they cannot be told apart.
    no_bytes = used(pid, 9)
    no_bytes["processes"][0]["used_bytes"] = None
    program = failing({"gpus": [no_bytes]})
    program[3] = program[3].replace(f'"used_bytes": {4 * GIB}', '"used_bytes": None')
    assert "other processes" not in start({"gpus": [no_bytes]}, program=program, code=1).stderr
    # Of little use, such as that of a desktop, nothing is said.
    small = {"gpus": [used(pid, 0.3)]}
    assert "other processes" not in start(small, program=failing(small), code=1).stderr


def test_the_explanation_ends_with_who_else_holds_memory(start, process):
    pid = process("python other.py")
    host = {"gpus": [used(pid, 9)]}
    program = ["--", sys.executable, "-c", f"raise RuntimeError({OUT_OF_MEMORY!r})"]
    done = start(host, "--explain", program=program, code=1)
    last = done.stderr.splitlines()[-1]
    assert (
        last == f"other processes use 9.0 GiB of GPU 0 now: `python other.py 600` ({pid}, 9.0 GiB)"
    )
