"""Environments of Python that scripts make once, each of one list of packages."""

import shlex
import subprocess
import sys


def make_environment(folder, requirements, command, what):
    """Make an environment, unless it is there and neither its list nor its Python has changed.

    `command` starts a Python, as a list of words, and `what` says for people what is installed.
    Returns the command of the environment's own Python, in the same form.
    """
    contents = f"{shlex.join(command)}\n{requirements.read_text()}"
    stamp = folder / ".complete"
    # What stands before the Python stands before that of the environment as well.
    python = [*command[:-1], str(folder / "bin" / "python")]
    if stamp.is_file() and stamp.read_text() == contents:
        return python
    print(f"installing {what}", flush=True)
    install = [*python, "-m", "pip", "install", "--quiet", "--no-deps"]
    install += ["--disable-pip-version-check", "-r", str(requirements)]
    for step in ([*command, "-m", "venv", "--clear", str(folder)], install):
        if subprocess.run(step).returncode != 0:
            sys.exit(f"{what} could not be installed; see above")
    stamp.write_text(contents)
    return python
