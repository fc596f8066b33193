"""Writes all logs into a directory: `python -m oom_logs DIRECTORY`, in `tests`."""

import pathlib
import sys

from . import scenarios, visible_error_elsewhere

directory = pathlib.Path(sys.argv[1])
directory.mkdir(parents=True, exist_ok=True)
for log in [*scenarios(), *visible_error_elsewhere()]:
    directory.joinpath(log.name.replace("/", "-") + ".log").write_bytes(log.text)
