"""Stops a process at a point of its work, which is the same however fast the machine is."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class StopBefore:
    """Makes environments in which a process gets a signal before a call of the C library.

    Args:
        folder: Where the library is built that counts the calls.
    """

    def __init__(self, folder):
        self._library = folder / "stop_before.so"
        command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", self._library, SOURCE]
        subprocess.run([*command, "-ldl"], check=True)

    def __call__(self, function, number, signal):
        """Return the variables that send the signal before that call of `function`, from 1."""
        point = f"{function}:{number}:{int(signal)}"
        return {"LD_PRELOAD": str(self._library), "STOP_BEFORE": point}
