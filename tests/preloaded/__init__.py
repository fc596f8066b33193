"""Runs scripts in copies of a process that has imported JAX.

Half of a small dry run is `import jax`, and a sixth is garbage collection among the objects of
JAX. A server imports JAX once, marks what there is as permanent, and forks for each script:
`python.c` is the program that tests start in the place of Python, and that runs the tests;
`server.py` is what runs in a server.

What is different there from any other Python, and why tests may use it nevertheless:

- JAX is imported before the script begins, with all that `vramfit dryrun` installs before it.
  Scripts that could notice (`NOTICES` in `python.c`: environment, `sys.modules`, signals,
  processes) run in a process of their own. Other libraries are not imported: those that keep
  functions of JAX would have them as they are before a plan or an edit replaces them.
- Garbage collections come at other times, as the objects of JAX are not counted. What is in
  reference cycles (JAX leaves some) is in use until then, which can be 256 B of a peak: runs that
  are compared are all served or none. So a server is there from the first script on, and scripts
  that speak of `gc` run in a process of their own.
- The parent of a script is a server.

`PRELOADED_PYTHON=` (empty) runs all tests without it.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

# The folder with the sockets of the servers; `python.c` reads it.
FOLDER = "PRELOADED_PYTHON"
# Where it finds the `pyvenv.cfg` of the environment, under a name that only a Python has.
PROGRAM = Path(sys.prefix) / "preloaded" / "python"
SOURCES = Path(__file__).parent


def build_program():
    """Compile the program into the environment whose packages it has; say whether it works here.

    Beside it is a `vramfit` that it runs: with this folder on the `PATH`, commands use both.
    """
    source = SOURCES / "python.c"
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > source.stat().st_mtime:
        return True
    value = sysconfig.get_config_var
    built = PROGRAM.with_name(f"{PROGRAM.name}-{os.getpid()}")
    words = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", built, source]
    words += [f"-I{value('INCLUDEPY')}", f"-L{value('LIBDIR')}", f"-Wl,-rpath,{value('LIBDIR')}"]
    words += [f"-lpython{value('LDVERSION')}", *value("LIBS").split(), *value("SYSLIBS").split()]
    words += value("LINKFORSHARED").split()
    try:
        PROGRAM.parent.mkdir(exist_ok=True)
        subprocess.run(words, check=True)
        subprocess.run([built, "--is-supported"], check=True)
        built.rename(PROGRAM)
        command = PROGRAM.with_name("vramfit")
        command.write_text(
            f"#!{PROGRAM}\nimport sys\nfrom vramfit.__main__ import main\nsys.exit(main())\n"
        )
        command.chmod(0o755)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


class Servers:
    """The servers of these tests. They end after the process that has made this."""

    def __init__(self):
        """Let programs that this process starts use servers, and be started with the program."""
        self.folder = Path(tempfile.mkdtemp(prefix="vramfit-servers-"))
        shutil.copy(SOURCES / "server.py", self.folder)
        self._alive = (self.folder / "alive").open("w")
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        os.environ[FOLDER] = str(self.folder)
        sys.executable = str(PROGRAM)

    def end(self):
        """Let the servers end, as soon as they have nothing to do."""
        self._alive.close()
        shutil.rmtree(self.folder, ignore_errors=True)
