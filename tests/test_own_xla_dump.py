"""Owners are the same whatever the user lets XLA dump, and the dump is where it was asked for."""

import json

import pytest
from commands import run_vramfit

# `sys.argv[1]` is when the flags are set, `sys.argv[2]` the flags.
PROGRAM = """
import json, os, sys
when, flags = sys.argv[1:]
if when == "before":
    os.environ["XLA_FLAGS"] = flags
import jax, jax.numpy as jnp
if when == "imported":
    os.environ["XLA_FLAGS"] = flags
if when == "started":
    jax.devices()
    os.environ["XLA_FLAGS"] = flags
options = json.loads(flags) if when == "options" else None

def step(params, x):
    loss = lambda params, x: (jnp.tanh(x @ params["w"]) ** 2).mean()
    return jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params, x))

step = jax.jit(step, compiler_options=options)
params = {"w": jnp.ones((1024, 1024))}
for _ in range(3):
    params = step(params, jnp.ones((64, 1024)))
"""
AFTER = "gpu_after_optimizations"
# When the flags are set, the flags, and the file of the user's dump; `-` for standard output.
CASES = {
    "folder": ("before", "--xla_dump_to=D", f"*jit_step*{AFTER}.txt"),
    "after the import": ("imported", "--xla_dump_to=D", f"*jit_step*{AFTER}.txt"),
    # XLA has read its flags by then.
    "too late": ("started", "--xla_dump_to=D", None),
    "text": ("before", "--xla_dump_to=D --xla_dump_hlo_as_text", f"*jit_step*{AFTER}.txt"),
    "no proto": ("before", "--xla_dump_to=D --xla_dump_hlo_as_proto=false", f"*step*{AFTER}.txt"),
    "proto without folder": ("before", "--xla_dump_hlo_as_proto=false", None),
    "other modules": ("before", "--xla_dump_to=D --xla_dump_hlo_module_re=other", "*config.pbtxt"),
    "modules without folder": ("before", "--xla_dump_hlo_module_re=other", None),
    "few modules": ("before", "--xla_dump_to=D --xla_dump_max_hlo_modules=1", "module_*"),
    "passes": ("before", "--xla_dump_to=D --xla_dump_hlo_pass_re=fusion", f"*step*{AFTER}.txt"),
    "passes without folder": ("before", "--xla_dump_hlo_pass_re=.*", None),
    "no metadata": ("before", "--xla_dump_disable_metadata", None),
    "compressed": (
        "before",
        "--xla_dump_to=D --xla_dump_hlo_as_proto --xla_dump_compress_protos",
        f"*jit_step*{AFTER}.hlo.pb.gz",
    ),
    "subfolders": ("before", "--xla_dump_to=D --xla_dump_hlo_to_subfolder", "*"),
    "snapshots": ("before", "--xla_dump_to=D --xla_dump_hlo_snapshots", "*"),
    "standard output": ("before", "--xla_dump_to=-", "-"),
    "text on standard output": ("before", "--xla_dump_hlo_as_text", "-"),
    "nowhere": ("before", "--xla_dump_to=sponge", None),
    "switched off": ("options", '{"xla_enable_dumping": false}', None),
    "options": ("options", '{"xla_dump_to": "D"}', f"*jit_step*{AFTER}.txt"),
    "options that leave it out": (
        "options",
        '{"xla_dump_disable_metadata": true, "xla_dump_hlo_module_re": "other"}',
        None,
    ),
    "file": ("before", "flags.txt", f"*jit_step*{AFTER}.txt"),
}


@pytest.fixture(scope="module")
def dryrun(tmp_path_factory):
    """Return a function that runs the program with flags: its summary, output and folder."""

    def run(when, flags):
        folder = tmp_path_factory.mktemp("dump")
        (folder / "program.py").write_text(PROGRAM)
        (folder / "flags.txt").write_text("--xla_dump_to=D")
        options = ["--gpu", "t4", "--full", "--json", "summary.json"]
        done = run_vramfit("dryrun", *options, "program.py", when, flags, cwd=folder, code=0)
        # Lines are the same in each folder.
        text = (folder / "summary.json").read_text().replace(f"{folder}/", "")
        return json.loads(text), done, folder

    return run


@pytest.fixture(scope="module")
def plain(dryrun):
    return dryrun("never", "")[0]


@pytest.mark.parametrize("name", CASES)
def test_flags_of_a_dump_change_nothing_else(dryrun, plain, name):
    when, flags, dumped = CASES[name]
    summary, done, folder = dryrun(when, flags)
    for key in ("owners", "attribution", "step_time", "peak_bytes"):
        assert summary[key] == plain[key], key
    assert summary["compiler_warnings"] == []
    if dumped == "-":
        assert "*** Begin module_" in done.stdout
    elif dumped is None:
        assert (done.stdout, [*folder.glob("D/*")]) == ("", [])
    else:
        assert [*folder.glob(f"D/{dumped}")]


def test_nothing_is_said_twice_where_it_is_compiled_twice(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import jax, jax.numpy as jnp\n"
        "loss = lambda ws, x: sum(jnp.sum(x := jnp.tanh(x @ w)) for w in ws)\n"
        "ws, x = [jnp.ones((256, 256))] * 8, jnp.ones((16384, 256))\n"
        "jax.jit(jax.grad(loss)).lower(ws, x).compile()\n"
    )
    said = [
        run_vramfit("dryrun", "--gpu", "t4", "--limit", "96MiB", program, env=env).stderr
        for env in ({}, {"XLA_FLAGS": f"--xla_dump_to={tmp_path / 'dump'}"})
    ]
    counts = [text.count("hlo_rematerialization.cc") for text in said]
    assert counts[0] == counts[1] > 0
