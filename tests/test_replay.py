"""A run replayed under other settings comes to what a dry run with those settings comes to."""

import json

from commands import run_vramfit

SMALL = ("--features", 256, "--width", 512, "--classes", 1000, "--batch", 512, "--steps", 5)


def replay(trace, *options):
    """Return the JSON and the exit code of `vramfit replay`."""
    done = run_vramfit("replay", trace, *options, "--json", "-")
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def figures(side):
    keys = ("fits", "limit_bytes", "pool_bytes", "peak_bytes", "largest_free_block_bytes")
    return {key: side[key] for key in keys} | {"refused": side["oom_count"]}


def test_replays_agree_with_dry_runs(dryrun):
    run = dryrun("leak.py", *SMALL)
    same, code = replay(run.trace)
    assert code == 0
    assert figures(same["before"]) == figures(same["after"]) == figures(run.summary)
    assert same["after"]["events"] == same["before"]["events"]

    # The model is small beside the GPU, so that XLA compiles the same under each of them.
    for options in (
        ("--allocator", "platform"),
        ("--fraction", "0.5", "--no-preallocate"),
        ("--occupied", "70GiB"),
    ):
        real = dryrun("leak.py", *SMALL, options=options)
        there, code = replay(run.trace, *options)
        assert code == 0, options
        assert figures(there["after"]) == figures(real.summary), options


def test_a_smaller_gpu_refuses_what_a_dry_run_is_refused_there(dryrun):
    run = dryrun("leak.py", *SMALL)
    limit = run.summary["peak_bytes"] // 2
    there, code = replay(run.trace, "--limit", limit)
    assert (there["fits"], there["ends_at_failure"], code) == (False, True, 1)
    real = dryrun("leak.py", *SMALL, options=("--limit", limit))
    keys = ("requested_bytes", "program", "call", "purpose", "in_use_bytes", "available_bytes")
    ours, theirs = there["after"]["oom"], real.summary["oom"]
    assert {key: ours[key] for key in keys} == {key: theirs[key] for key in keys}
