"""A program under `vramfit run` that runs out of memory says why, and what fixes it."""

import os
import pty
import signal
import subprocess
import sys

import pytest
from commands import VRAMFIT, clean_environment, run_command, run_vramfit

RUN = [*VRAMFIT, "run"]
ERROR = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64.00GiB."
OUT_OF_MEMORY = f"raise RuntimeError({ERROR!r})"
# What the allocator prints before the error.
WARNING = (
    "W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory"
    " trying to allocate 2.00GiB (rounded to 2147483648)requested by op"
)
LINE = "vramfit: out of memory: "


def run(*arguments, **options):
    return run_command(*RUN, *arguments, stdin=subprocess.DEVNULL, **options)


def python(text):
    return ["--", sys.executable, "-c", text]


@pytest.fixture
def dryrun_of_run(write_script):
    """Return a function that runs a program under `vramfit run` on a virtual T4: our text of it.

    The program holds 6 GiB and requests 4 more.
    """

    def explanation(*options, before=""):
        lines = "import jax.numpy as jnp\nx = jnp.ones((6, 1 << 28))\njnp.ones((4, 1 << 28))\n"
        program = write_script(before + lines)
        inner = [*RUN, *options, "--", sys.executable, program]
        done = run_vramfit("dryrun", "--gpu", "t4", "--", *inner, code=1)
        _, text = " ".join(done.stderr.split()).split("out of memory: the pool is too small", 1)
        return text.split("does not fit")[0]

    return explanation


def lines_of_ours(stderr):
    return [line for line in stderr.splitlines() if line.startswith("vramfit: ")]


def test_the_explanation_follows_the_traceback():
    done = run(*python(OUT_OF_MEMORY), code=1)
    before, explanation = done.stderr.split(LINE)
    assert before.splitlines()[-1].startswith("RuntimeError: RESOURCE_EXHAUSTED")
    assert "\nwhat to do\n" in explanation
    assert "evidence" not in explanation, "the log stands above"
    assert len(explanation.splitlines()) <= 20


def test_the_explanation_knows_settings_pool_gpu_and_command(dryrun_of_run):
    text = dryrun_of_run("--fraction", "0.6")
    # What was in use when the program ended, of 60 % of 14.6 GiB.
    assert "6.0 GiB of the pool's limit of 8.7 GiB were in use" in text
    assert "raise JAX's memory fraction to 0.92: a pool of 13.4 GiB instead of 8.7 GiB" in text
    assert "vramfit run --fraction 0.92 -- python " in text
    assert "at most 10.0 GiB are needed up to the failure" in text
    # A larger GPU than this one, whose fraction is the first remedy.
    assert "use a GPU on which it fits: rtx-4080 at 0.75, or shard over at least 2 of this" in text
    assert "vramfit dryrun --gpu rtx-4080 -- python " in text


def test_the_variables_that_hold_arrays_are_named(dryrun_of_run):
    for options in ([], ["--explain"]):
        text = dryrun_of_run("--fraction", "0.6", *options)
        assert "held by `x` of train.py: 1 array, 6.0 GiB" in text


def test_explain_knows_the_same(dryrun_of_run):
    text = dryrun_of_run("--fraction", "0.6", "--explain")
    assert "6.0 GiB of the pool's limit of 8.7 GiB were in use" in text
    assert "a pool of 13.4 GiB instead of 8.7 GiB" in text
    assert "evidence" in text


def test_a_setting_of_the_program_itself_counts(dryrun_of_run):
    text = dryrun_of_run(before="import os; os.environ['XLA_CLIENT_MEM_FRACTION'] = '0.6'\n")
    assert "of the pool's limit of 8.7 GiB were in use" in text
    assert "a pool of 13.4 GiB instead of 8.7 GiB" in text


def test_the_diagnosis_is_of_the_log_where_standard_error_is_a_file(tmp_path):
    # The exception says nothing of memory; the warning before it does.
    program = (
        "import sys\n"
        f"print({WARNING!r}, file=sys.stderr)\n"
        "sys.stderr.flush()\n"
        "raise RuntimeError('INTERNAL: Failed to create cuDNN handle')\n"
    )
    log = tmp_path / "log"
    with log.open("w") as stream:
        stream.write("RESOURCE_EXHAUSTED: of an earlier program\n")
        stream.flush()
        command = [*RUN, *python(program)]
        subprocess.run(command, env=clean_environment(), stderr=stream, check=False)
    _, explanation = log.read_text().split(LINE)
    assert "2.0 GiB were requested" in explanation


@pytest.mark.parametrize("option", ["--quiet", "--no-publish"])
def test_an_option_turns_the_line_off(option):
    assert LINE not in run(option, *python(OUT_OF_MEMORY)).stderr


@pytest.mark.parametrize(
    "program",
    ["1 / 0", f"raise SystemExit({ERROR!r})", f"try: {OUT_OF_MEMORY}\nexcept RuntimeError: pass"],
    ids=["another error", "exit", "caught"],
)
def test_nothing_is_said_of_other_endings(program):
    assert lines_of_ours(run(*python(program)).stderr) == []


def test_the_process_is_the_programs_own_without_explain():
    done = run(*python(f"import os; print(os.getppid()); {OUT_OF_MEMORY}"))
    assert int(done.stdout) == os.getpid()


def test_explain_says_all_of_it_and_passes_the_exit_code_on():
    hook = "lambda *error: (sys.__excepthook__(*error), sys.exit(7))"
    program = f"import sys; print('out'); sys.excepthook = {hook}; {OUT_OF_MEMORY}"
    done = run("--explain", *python(program), code=7)
    assert done.stdout == "out\n"
    assert LINE not in done.stderr, "the line is for those who do not ask for more"
    assert "evidence" in done.stderr.lower()
    assert done.stderr.index("Traceback") < done.stderr.lower().index("evidence")
    code = run("--explain", "--", "sh", "-c", "exit 7")
    assert (code.returncode, code.stderr) == (7, "")


def test_explain_explains_programs_that_are_no_python():
    lines = f"echo '{WARNING}' >&2; kill -ABRT $$"
    done = run("--explain", "--", "sh", "-c", lines, code=128 + signal.SIGABRT)
    assert done.stderr.startswith(WARNING)
    assert "2.0 GiB" in done.stderr.removeprefix(WARNING)


def test_explain_says_nothing_of_success():
    program = f"import sys; print({OUT_OF_MEMORY!r}, file=sys.stderr)"
    assert run("--explain", *python(program)).stderr == f"{OUT_OF_MEMORY}\n"


def test_explain_says_when_memory_is_not_the_cause():
    done = run("--explain", *python("1 / 0"))
    assert "memory is not the cause" in done.stderr
    assert "pool" not in done.stderr


def test_explain_does_not_wait_for_what_the_program_leaves_behind():
    # `cat` ends when this test closes the other end of its input.
    its_input, ours = os.pipe()
    with os.fdopen(its_input), os.fdopen(ours, "w"):
        options = f"stdin={its_input}, stdout=subprocess.DEVNULL"
        start = f"import subprocess; subprocess.Popen(['cat'], {options})"
        command = python(f"{start}; {OUT_OF_MEMORY}")
        run("--explain", *command, code=1, pass_fds=[its_input], timeout=120)


def test_a_terminal_stays_a_terminal_with_explain():
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*RUN, "--explain", "--", "sh", "-c", "test -t 0 && test -t 2 && echo a >&2; exit 3"],
        env=clean_environment(),
        stdin=slave,
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    assert process.wait() == 3
    assert os.read(master, 100) == b"a\r\n"
    os.close(master)


def test_the_error_of_a_real_program_is_explained(write_script):
    program = write_script("import jax.numpy as jnp\njnp.ones((1 << 34,)).block_until_ready()\n")
    done = run_vramfit("dryrun", "--gpu", "t4", "--", *RUN, "--", sys.executable, program)
    _, explanation = done.stderr.split(LINE)
    assert "64.0 GiB" in explanation
