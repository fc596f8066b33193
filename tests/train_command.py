"""What the tests of `vramfit train` share: a small configuration, and runs of it."""

import json

from commands import VRAMFIT, clean_environment, run_vramfit, start_command


def environment(**changes):
    return clean_environment(NO_COLOR="1", **changes)


def vramfit(*arguments, cwd, code=None, **changes):
    return run_vramfit(*arguments, env=environment(**changes), code=code, cwd=cwd)


def generate(folder, kind="sequences", samples=6000, **options):
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = ["data", "generate", "train.h5", "--kind", kind, "--samples", samples]
    vramfit(*command, *words, cwd=folder, code=0)


def write(folder, **tables):
    """Write a small configuration; keyword arguments are tables."""
    usual = {
        "data": {"path": "train.h5", "batch_size": 64},
        "model": {"kind": "mlp", "hidden_sizes": [32]},
        "training": {"device": "cpu", "epochs": 2, "directory": "run", "log_every": 10},
    }
    lines = []
    for name in {**usual, **tables}:
        lines.append(f"[{name}]")
        keys = {**usual.get(name, {}), **tables.get(name, {})}
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    (folder / "train.toml").write_text("\n".join(lines) + "\n")


def until(folder, beginning, act, **options):
    """Train, act on the line that begins so, and return what was said and the exit code."""
    said = []
    options = {"env": environment(), "stdout": None} | options
    with start_command(*VRAMFIT, "train", "train.toml", cwd=folder, **options) as running:
        for line in running.stderr:
            said.append(line)
            if line.startswith(beginning):
                act(running)
    return said, running.returncode


def journal(folder):
    return [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]


def events(folder, name):
    return [line for line in journal(folder) if line["event"] == name]
