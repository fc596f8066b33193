"""Composes the recording that `vramfit top` is tested with: fixtures/top/demo.jsonl.

The figures are made up, in the format of recordings.
The first sample shows two GPUs of a driver and a virtual one; the second a host without a driver.
"""

import json
from pathlib import Path

GIB = 1 << 30
MIB = 1 << 20
TARGET = Path(__file__).resolve().parent.parent / "fixtures" / "top" / "demo.jsonl"


def process(pid, gib, command, user="ada", container=None, kind="compute"):
    return {
        "pid": pid,
        "used_bytes": None if gib is None else int(gib * GIB),
        "kind": kind,
        "command": command,
        "user": user,
        "container": container,
    }


def gpu(index, used, processes, **more):
    total = 84942979072
    return {
        "index": index,
        "uuid": f"GPU-0a1b2c3d-0000-0000-0000-00000000000{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "memory": {
            "total_bytes": total,
            "reserved_bytes": 575 * MIB,
            "used_bytes": int(used * GIB),
            "free_bytes": total - int(used * GIB) - 575 * MIB,
        },
        "mig": "off",
        "utilization_percent": 97,
        "temperature_c": 61,
        "power_mw": [512_300, 700_000],
        "processes": processes,
        "unknown": [],
        **more,
    }


def published(
    pid, command, sample, liveness="fresh", *, jax="0.11.0", virtual=None, who=None, **settings
):
    device = {
        "id": 0,
        "local_hardware_id": 0,
        "kind": "Tesla T4" if virtual else "NVIDIA H100 80GB HBM3",
        "virtual_total_bytes": 15_655_829_504 if virtual else None,
    }
    empty = dict.fromkeys(
        ["peak_pool_bytes", "largest_free_block_bytes", "allocations", "driver_bytes"]
    )
    return {
        "header": {
            "pid": pid,
            "started_ticks": 4_000 + pid,
            "client": 0,
            "pid_namespace": 4026531836,
            "boot_id": "6a1d0f52-0d4e-4c3e-9a61-1f2e3d4c5b6a",
            "command": command,
            "jax": jax,
            "plugin_api": "0.112",
            "interval_ms": 100,
            "client_settings": {
                "allocator": "default",
                "fraction": None,
                "preallocate": None,
                "visible_devices": None,
                "policy": None,
                **settings,
            },
            "virtual_gpu": virtual,
            "devices": [device],
        },
        "live": {
            "heartbeat_ns": 90_000_000_000,
            "samples": 861,
            "sampling_ns": 4_305_000,
            "devices": [{"status": "available", **empty, **sample}],
        },
        "liveness": liveness,
        "same_namespace": True,
        "process": who,
    }


def pool(in_use, peak, reserved, limit, **more):
    return {
        "in_use_bytes": int(in_use * GIB),
        "peak_bytes": int(peak * GIB),
        "pool_bytes": int(reserved * GIB),
        "limit_bytes": int(limit * GIB),
        **more,
    }


def main():
    train = process(4121, 60.1, "/home/ada/.venv/bin/python train.py --config llama-8b.toml")
    serve = process(
        3310, 24.4, "python -m serve --port 8080", user="grace", container="docker 3f4e5a6b7c8d"
    )
    other = process(2977, 30.2, "python finetune.py", user="grace")
    desk = process(1204, 0.3, "/usr/lib/xorg/Xorg :0", user="root", kind="graphics")
    virtual = process(5170, None, "python examples/train_gpt.py")
    training = pool(
        12.1, 41.7, 59.3, 59.3, largest_free_block_bytes=int(30.9 * GIB), allocations=884_213
    )
    serving = pool(17.9, 18.2, 23.7, 23.7, allocations=52_001)
    dry = pool(
        3.4, 9.1, 10.9, 10.9, largest_free_block_bytes=6 * GIB, allocations=912,
        driver_bytes=int(11.1 * GIB),
    )  # fmt: skip
    processes_stats = [
        published(3310, serve["command"], serving, {"silent": {"for_ms": 3400}}, jax="0.10.2",
             who=serve, fraction=0.3, policy="--limit 23.7GiB"),
        published(4121, train["command"], training, who=train),
        published(5170, virtual["command"], dry, jax="0.10.2", virtual="t4", who=virtual),
    ]  # fmt: skip
    host = {
        "driver": "580.82.07",
        "cuda": "13.0",
        "gpus": [
            gpu(0, 61.0, [train, desk]),
            gpu(1, 55.2, [other, serve], utilization_percent=None,
                 unknown=["utilization: not supported"]),
        ],
        "unknown": [],
    }  # fmt: skip
    at = {"schema": 1, "at_unix_ms": 1_795_000_000_000}
    gone = published(5171, "python sweep.py", dry, {"gone": {"for_ms": 12_000}}, virtual="t4")
    unavailable = {
        "message": "`libnvidia-ml.so.1` cannot be opened",
        "hint": "install NVIDIA's driver",
    }
    samples = [
        {**at, "host": host, "no_driver": None, "published": processes_stats},
        {**at, "host": None, "no_driver": unavailable, "published": [processes_stats[2], gone]},
    ]
    TARGET.write_text("".join(json.dumps(sample) + "\n" for sample in samples))


if __name__ == "__main__":
    main()
