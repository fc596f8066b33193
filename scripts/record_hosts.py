"""Programs of several hosts on one GPU, whose other hosts JAX mocks; a part of `record_gpu.py`.

With `jax_mock_gpu_topology`, JAX compiles for all hosts and executes the part of the first, with
collective operations that transfer nothing. Memory is that of a host of a real cluster, except what
NCCL itself takes outside the pool. The same program runs on the virtual GPU with the same mock, and
as one host of `vramfit dryrun --hosts`.
"""

import concurrent.futures
import json
import os
import sys

from recorded_statistics import compare, read_statistics

PROGRAMS = ("hosts_fsdp", "hosts_tensor_parallel", "hosts_experts", "hosts_replicated")
HOSTS = (2, 4, 8, 16, 32)
# Name of a run: the program and the number of hosts.
RUNS = {f"{program}-1x{count}x1": (program, count) for program in PROGRAMS for count in HOSTS}
# A virtual run uses the CPU for the compiler only, which has several threads.
CPUS_PER_VIRTUAL_RUN = 4


def record_hosts(recorder, gpu, programs, vramfit, names):
    """Run the programs on the GPU and virtually, compare them, and write the file of results.

    Args:
        recorder: Runs commands and keeps their output.
        gpu: Name of the virtual GPU.
        programs: The folder of the programs.
        vramfit: Returns the command line of vramfit's own command.
        names: Which of `RUNS`.
    """
    workers = max(1, (os.cpu_count() or 1) // CPUS_PER_VIRTUAL_RUN)
    statistics = {}
    # The real GPU takes one program at a time; the virtual ones run beside it.
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        virtual = {
            name: pool.submit(_run_virtually, recorder, gpu, programs, vramfit, name)
            for name in names
        }
        for name in names:
            program, count = RUNS[name]
            command = [sys.executable, str(programs / f"{program}.py"), f"1x{count}x1"]
            real = recorder.run(f"{name}.real", command)
            mocked, host = virtual[name].result()
            compare(recorder, name, real, mocked)
            compare(recorder, f"{name} as a host", mocked, host, sides=("mocked", "as a host"))
            if real is not None:
                statistics[name] = read_statistics(real)
    result = {"schema": 1, "gpu": gpu, "versions": _read_versions(recorder)}
    if recorder.pretend:
        result["pretended"] = True
    result["statistics"] = statistics
    (recorder.folder / "hosts.json").write_text(json.dumps(result, indent=1) + "\n")


def _run_virtually(recorder, gpu, programs, vramfit, name):
    """Return the output with mocked hosts, and that of host 0 of a dry run of as many."""
    program, count = RUNS[name]
    command = [sys.executable, str(programs / f"{program}.py")]
    mocked = recorder.run(
        f"{name}.virtual",
        [*vramfit("dryrun", "--gpu", gpu, "--"), *command, f"1x{count}x1"],
        virtual=True,
    )
    options = ["--gpu", gpu, "--hosts", str(count), "--host", "0", "--"]
    host = recorder.run(f"{name}.host", [*vramfit("dryrun", *options), *command], virtual=True)
    return mocked, host


def _read_versions(recorder):
    """Return the versions of JAX and of what it uses, as `pip list` has them."""
    listed = recorder.folder / "packages.out.txt"
    packages = json.loads(listed.read_text() or "[]")
    return {
        package["name"]: package["version"]
        for package in packages
        if package["name"].startswith(("jax", "nvidia-"))
    }
