"""Programs of several hosts on one GPU, whose other hosts JAX mocks; a part of `record_gpu.py`.

With `jax_mock_gpu_topology`, JAX compiles for all hosts and executes the part of the first, with
collective operations that transfer nothing. Memory is that of a host of a real cluster, except what
NCCL itself takes outside the pool. The same program runs on the virtual GPU with the same mock, and
as one host of `vramfit dryrun --hosts`.
"""

import concurrent.futures
import json
import sys

from recorded_statistics import compare, read_statistics, read_versions, virtual_runs_at_once

PROGRAMS = ("hosts_fsdp", "hosts_tensor_parallel", "hosts_experts", "hosts_replicated")
HOSTS = (2, 4, 8, 16, 32)
# Programs share the GPU: it is the compiler that takes their time.
REAL_RUNS_AT_ONCE = 3
SETTINGS = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25"}
# Name of a run: the program and the number of hosts.
RUNS = {f"{program}-1x{count}x1": (program, count) for program in PROGRAMS for count in HOSTS}


def record_hosts(recorder, gpu, programs, names):
    """Run the programs on the GPU and virtually, compare them, and write the file of results.

    Args:
        recorder: Runs commands and keeps their output.
        gpu: The virtual GPU.
        programs: The folder of the programs.
        names: Which of `RUNS`.
    """
    statistics = {}
    with (
        concurrent.futures.ThreadPoolExecutor(virtual_runs_at_once()) as pool,
        concurrent.futures.ThreadPoolExecutor(REAL_RUNS_AT_ONCE) as real_pool,
    ):
        virtual = {
            name: pool.submit(_run_virtually, recorder, gpu, programs, name) for name in names
        }
        real_runs = {
            name: real_pool.submit(_run_really, recorder, programs, name) for name in names
        }
        for name in names:
            real = real_runs[name].result()
            mocked, host = virtual[name].result()
            compare(recorder, name, real, mocked)
            compare(recorder, f"{name} as a host", mocked, host, sides=("mocked", "as a host"))
            if real is not None:
                statistics[name] = read_statistics(real)
    result = {"schema": 1, "gpu": gpu.name, "versions": read_versions(recorder.folder)}
    if recorder.pretend:
        result["pretended"] = True
    result["statistics"] = statistics
    (recorder.folder / "hosts.json").write_text(json.dumps(result, indent=1) + "\n")


def _run_really(recorder, programs, name):
    """Return the output of the program on the GPU."""
    program, count = RUNS[name]
    command = [sys.executable, str(programs / f"{program}.py"), f"1x{count}x1"]
    return recorder.run(f"{name}.real", command, SETTINGS)


def _run_virtually(recorder, gpu, programs, name):
    """Return the output with mocked hosts, and that of host 0 of a dry run of as many."""
    program, count = RUNS[name]
    command = [sys.executable, str(programs / f"{program}.py")]
    dryrun = gpu.dryrun(*command, f"1x{count}x1")
    mocked = recorder.run(f"{name}.virtual", dryrun, SETTINGS, virtual=True)
    dryrun = gpu.dryrun(*command, options=("--hosts", str(count), "--host", "0"))
    host = recorder.run(f"{name}.host", dryrun, SETTINGS, virtual=True)
    return mocked, host
