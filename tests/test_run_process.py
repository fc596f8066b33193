"""`vramfit run` becomes the program: exit code, signals, terminal and streams are the program's."""

import os
import pty
import signal
import subprocess
import sys

from commands import VRAMFIT, clean_environment, run_command, start_command

RUN = [*VRAMFIT, "run"]


def run(*arguments, stdin="", code=None, **env):
    return run_command(*RUN, *arguments, env=env, code=code, input=stdin)


def test_the_exit_code_is_the_programs():
    assert run("--", "sh", "-c", "exit 7").returncode == 7
    assert run("--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_standard_streams_are_the_programs(write_script):
    done = run(
        write_script("import sys; print(input()[::-1]); print('aside', file=sys.stderr)"),
        stdin="abc\n",
    )
    assert (done.stdout, done.stderr) == ("cba\n", "aside\n")


def test_the_program_has_our_process_number_and_every_signal_reaches_it(write_script):
    waits = write_script("import os, signal; print(os.getpid(), flush=True); signal.pause()")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
        # What we were started to ignore (`nohup`) the program ignores as well, see below.
        if signal.getsignal(number) == signal.SIG_IGN:
            continue
        process = start_command(*RUN, "--", sys.executable, waits)
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(number)
        _, err = process.communicate()
        # Python turns Ctrl-C into an exception of its own, and dies of the signal all the same.
        assert process.returncode == -number
        assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)


SIGNAL_MASKS = ["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"]


def signal_masks(*command):
    """Return the signals that a program started by a command ignores and blocks.

    A service may ignore some of its own accord, so what a program gets is compared with what it
    would have got without us, never with nothing at all.
    """
    done = run_command(*command, *SIGNAL_MASKS, code=0, stdin=subprocess.DEVNULL)
    return {line.split()[0]: int(line.split()[1], 16) for line in done.stdout.splitlines()}


def test_no_signal_is_left_ignored_or_blocked():
    assert signal_masks(*RUN, "--") == signal_masks()


def test_what_our_caller_ignores_stays_ignored():
    ignored = signal_masks("nohup", *RUN, "--")
    assert ignored == signal_masks("nohup")
    assert ignored["SigIgn:"] & 1 << (signal.SIGHUP - 1)


def test_a_terminal_stays_a_terminal():
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*RUN, "--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2"],
        env=clean_environment(),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    assert process.wait() == 0
    os.close(master)


def test_what_comes_after_the_program_is_the_programs(write_script):
    path = write_script("import sys; print(sys.argv[1:])")
    for separator in ([], ["--"]):
        done = run(*separator, path, "--limit", "8GiB", "-x", "--", "--print")
        assert done.stdout == "['--limit', '8GiB', '-x', '--', '--print']\n", done.stderr


def test_failures_of_ours_have_codes_of_their_own(write_script):
    no_program = run("--", "no-such-program")
    assert (no_program.returncode, no_program.stdout) == (127, "")
    data = write_script("no program", name="data")
    assert run("--", data).returncode == 126
    script = write_script("#!/no/such/interpreter", name="script")
    os.chmod(script, 0o755)
    refused = run("--", script, code=126)
    assert "cannot start" in refused.stderr
    assert run("--gpu", "no-such-gpu", "--limit", "1GiB", "--", "true").returncode == 125
    assert run("--no-such-option", "--", "true").returncode == 125


def test_quiet_says_nothing_and_verbose_says_which_jax():
    settings = ["--gpu", "t4", "--limit", "8GiB", "--", sys.executable, "-c", "pass"]
    assert run("--quiet", *settings).stderr == ""
    said = run("--verbose", *settings).stderr
    assert "has JAX 0." in said
    assert "GPU memory: 14.6 GiB" in said


def test_printed_settings_are_taken_back_by_a_shell():
    users = {"XLA_FLAGS": "--a='x y' --b=$HOME", "XLA_CLIENT_MEM_FRACTION": "0.5"}
    settings = "--gpu t4 --limit 8GiB --remat off --host-devices 2"
    printed = f"{sys.executable} -m vramfit run --print {settings} | tr '\\n' ' '"
    line = f'eval "export $({printed})"; env'
    done = run_command("sh", "-c", line, env=users, code=0)
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert seen["XLA_CLIENT_MEM_FRACTION"] == "0.5491468"
    assert seen["JAX_COMPILER_ENABLE_REMAT_PASS"] == "false"
    flag = "--xla_force_host_platform_device_count=2"
    assert seen["XLA_FLAGS"] == f"{users['XLA_FLAGS']} {flag}"


SMALL = """
import jax, jax.numpy as jnp
jax.block_until_ready(jnp.ones((1 << 20,)))
print("ran on", jax.devices()[0].platform)
"""


def test_a_program_that_fits_is_started_after_its_dry_run(write_script):
    done = run("--preflight", "t4", "--limit", "8GiB", "--gpu", "t4", write_script(SMALL), code=0)
    # Once on the virtual GPU, and then for good; there is no GPU here.
    assert done.stdout == "ran on gpu\nran on cpu\n"
    assert "fits" in done.stderr
    assert "8.0 GiB" in done.stderr


def test_a_program_that_does_not_fit_is_not_started(write_script):
    large = write_script(SMALL.replace("1 << 20", "3 << 30"))
    done = run("--preflight", "t4", large)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "does not fit" in done.stderr
    assert "not started" in done.stderr


def test_what_only_a_person_can_put_right_is_reported_and_left_alone():
    users = {"XLA_PYTHON_CLIENT_MEM_FRACTON": "0.5", "XLA_PYTHON_CLIENT_MEM_FRACTION": "95"}
    done = run("--", "env", **users)
    assert (
        "error[fraction-out-of-range]: `XLA_PYTHON_CLIENT_MEM_FRACTION`: 95 requests" in done.stderr
    )
    assert "fix: remove `XLA_PYTHON_CLIENT_MEM_FRACTON`" in done.stderr
    for name, value in users.items():
        assert f"{name}={value}" in done.stdout.splitlines()

    quiet = run("--quiet", "--", "true", **users)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    chosen = run("--fraction", "0.5", "--", "true", XLA_PYTHON_CLIENT_MEM_FRACTION="95")
    assert "error[" not in chosen.stderr, "an option took its place"
