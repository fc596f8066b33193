"""Scripts that a server runs, see `preloaded/`, against the same in a Python of their own."""

import os
import resource
import select
import signal
import subprocess

import preloaded
import pytest
from cli_dryrun import dryrun_of
from commands import ROOT, clean_environment, run_python, run_vramfit

pytestmark = pytest.mark.skipif(
    not os.environ.get(preloaded.FOLDER), reason="this run of the tests has no servers"
)

SHIM = ROOT / "python" / "vramfit" / "_inprogram" / "_jax_shim"
IS_SERVED = """
parent = open("/proc/self/stat").read().rpartition(")")[2].split()[1]
print("--serve" in open(f"/proc/{parent}/cmdline").read())
"""
EVERYTHING = """
import os, resource, sys, traceback
import jax, jax.numpy as jnp

def frames():
    return [frame.name for frame in traceback.extract_stack()]

print(sys.argv, os.getcwd(), sys.path, frames(), __name__, __file__, sorted(vars()))
print(os.popen("echo $GREETING; umask; tr '\\\\0' ' ' < /dev/null").read(), sys.stdin.read())
print(resource.getrlimit(resource.RLIMIT_NOFILE), os.getpgrp() == int(sys.argv[1]))
print(sorted(os.listdir("/proc/self/fd"))[:3], sys.stdout.encoding, sys.stdout.line_buffering)
print(jax.config.jax_enable_x64, jax.jit(lambda x: jnp.arange(4) @ x)(jnp.ones((4, 1 << 20))).shape)
sys.exit("the end")
"""


def run(script, *arguments, **options):
    command = ("dryrun", "--gpu", "t4", script, *arguments)
    return run_vramfit(*command, cwd=script.parent, **options)


def test_the_first_script_of_an_environment_is_served(write_script):
    script = write_script("import jax\n" + IS_SERVED)
    printed = [run(script, env={"GREETING": "new"}).stdout for _ in range(3)]
    assert ["True" in text for text in printed] == [True] * 3


def test_a_served_script_is_like_any_other(write_script, monkeypatch):
    env = {"JAX_ENABLE_X64": "1", "GREETING": "hello"}
    script = write_script(EVERYTHING)
    found = []
    for folder in (os.environ[preloaded.FOLDER], ""):
        monkeypatch.setenv(preloaded.FOLDER, folder)
        done = run(
            script, os.getpgrp(), env=env, input="from stdin", preexec_fn=set_umask_and_limit
        )
        found.append((done.returncode, done.stderr, done.stdout))
    assert found[0] == found[1]
    assert "hello" in found[0][2]
    assert "from stdin" in found[0][2]


@pytest.mark.parametrize(
    "words",
    [
        ["{folder}/train.py"],
        ["train.py"],
        ["././train.py"],
        ["../{name}/train.py"],
        ["-P", "train.py"],
        ["-c", "{program}"],
        ["-P", "-c", "{program}"],
    ],
)
def test_a_script_without_a_dry_run_is_like_any_other(words, write_script, monkeypatch):
    program = f"""
import jax, sys, traceback
from flax import nnx
names = sorted(vars())
frames = [frame.name for frame in traceback.extract_stack()]
print(sys.argv, sys.orig_argv, sys.path, sys.flags, frames, __name__, __spec__, names)
print(globals().get("__file__"), sys._getframe().f_code.co_filename)
print(open("/proc/self/cmdline").read().split(chr(0)), jax.devices(), nnx.Param(1))
{IS_SERVED}"""
    script_folder = write_script(program).parent
    given = {"folder": script_folder, "name": script_folder.name, "program": program}
    command = [word.format(**given) for word in words]

    def lines(folder):
        monkeypatch.setenv(preloaded.FOLDER, folder)
        env = {"JAX_PLATFORMS": "cpu"}
        return run_python(*command, "-x", env=env, cwd=script_folder, code=0).stdout.splitlines()

    folder = os.environ[preloaded.FOLDER]
    found = lines(folder)
    assert found[-1] == "True"
    assert found[:-1] == lines("")[:-1]


def set_umask_and_limit():
    os.umask(0o27)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, hard), hard))


def test_a_summary_is_the_same_to_the_byte(tmp_path, monkeypatch):
    program = """
import jax, jax.numpy as jnp

@jax.jit
def step(params, batch):
    grads = jax.grad(lambda p: jnp.tanh(batch @ p["w"]).sum())(params)
    return jax.tree.map(lambda p, g: p - g, params, grads)

params = {"w": jnp.ones((1024, 1024))}
for _ in range(4):
    params = step(params, jnp.ones((64, 1024)))
"""
    found = []
    for folder in (os.environ[preloaded.FOLDER], ""):
        monkeypatch.setenv(preloaded.FOLDER, folder)
        summary = dryrun_of(tmp_path, program).summary
        (process,) = summary["processes"]
        found.append(summary | {"pid": 0, "processes": [process | {"pid": 0}]})
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import os; os._exit(7)", "exit code 7"),
    ],
)
def test_a_script_ends_as_it_would(write_script, lines, said):
    done = run(write_script(f"import jax\n{IS_SERVED}jax.numpy.ones(8)\n{lines}\n"))
    assert "True" in done.stdout
    assert said in done.stderr


def test_a_script_ends_with_its_client(write_script):
    script = write_script(
        "import jax, os, time\nprint(os.getpid(), flush=True)\nwhile True:\n    time.sleep(1)\n"
    )
    words = [preloaded.PROGRAM, script]
    config = script.with_name("run.json")
    config.write_text("{}")
    env = clean_environment(
        VRAMFIT_RUN_CONFIG=str(config), PYTHONPATH=str(SHIM), JAX_PLATFORMS="cpu"
    )
    client = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    script_id = int(client.stdout.readline())
    assert script_id != client.pid
    process = os.pidfd_open(script_id)
    client.kill()
    client.wait()
    is_over, _, _ = select.select([process], [], [], 60)
    os.close(process)
    client.stdout.close()
    assert is_over


@pytest.mark.parametrize(
    "lines",
    [
        'import os; os.environ["JAX_ENABLE_X64"] = "1"\nimport jax',
        'import sys; assert "jax" not in sys.modules\nimport jax',
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL)\nimport jax",
    ],
)
def test_what_notices_is_not_served(write_script, lines):
    assert "False" in run(write_script(f"{lines}\n{IS_SERVED}")).stdout
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
