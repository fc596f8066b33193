"""`run.json` in the directory of a run: what was trained, on what, by which command."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from vramfit.errors import InvalidFileError, first_line

RUN_RECORD = "run.json"
CODE = "code"
"""The directory with copies of the user's files that a configuration names."""
SCHEMA = 1


@dataclass(frozen=True)
class Session:
    """One call of `fit`.

    Attributes:
        started: When it began, in ISO 8601 with its time zone.
        command: The command line.
        directory: The current directory of it.
        versions: Versions of Python and of packages.
        device: Description of the devices.
        git: `commit` of the repository of that directory and whether it had `changes`, if it is in
            one.
    """

    started: str
    command: str
    directory: str
    versions: dict[str, str]
    device: str
    git: dict[str, Any] | None


@dataclass(frozen=True)
class CodeFile:
    """A file of the user's that a configuration names, with those beside it that it imports.

    Attributes:
        path: Where it was.
        copy: Where the copy of its folder is, relative to the directory of the run.
        files: The digest (SHA-256) of each file, by its path in that folder.
    """

    path: str
    copy: str
    files: Mapping[str, str]

    def is_unchanged(self) -> bool:
        """Return whether all files are where they were, with the same content."""
        folder = Path(self.path).parent
        try:
            return all(_digest(folder / name) == known for name, known in self.files.items())
        except OSError:
            return False


@dataclass(frozen=True)
class RunRecord:
    """What is known of a run beside its checkpoints.

    Attributes:
        config: The whole configuration of `vramfit train`, or what a program passed to `fit`.
        data: What `vramfit train` knows of the data: shapes, types, classes; None for a program.
        sources: For `data` and `eval_data`, what is read and how to recognize it.
        code: The user's files, by the key that names each.
        normalization: `mean` and `std` of the columns that are normalized; None without any.
        remarks: What was noticed about the data before the run, one sentence each.
        sessions: All sessions, the latest last.
        command: The command line, where it is not that of this process.
    """

    config: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    sources: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, CodeFile] = field(default_factory=dict)
    normalization: Mapping[str, Any] | None = None
    remarks: Sequence[str] = ()
    sessions: Sequence[Session] = ()
    command: str | None = None

    def write(self, directory: Path) -> None:
        """Write it, with the sessions that are recorded there before its own.

        Raises:
            OSError: It cannot be written.
        """
        earlier: Sequence[Session] = ()
        with contextlib.suppress(InvalidFileError, FileNotFoundError):
            earlier = read_record(directory).sessions
        for one in self.code.values():
            for name in one.files:
                copy = directory / one.copy / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(one.path).parent / name, copy)
        content = {
            "schema": SCHEMA,
            "config": self.config,
            "data": self.data,
            "sources": self.sources,
            "code": {key: asdict(one) for key, one in self.code.items()},
            "normalization": self.normalization,
            "remarks": self.remarks,
            "sessions": [asdict(one) for one in (*earlier, *self.sessions)],
        }
        path = directory / RUN_RECORD
        new = path.with_suffix(".json.new")
        new.write_text(json.dumps(null_non_finite(content), indent=1) + "\n")
        os.replace(new, path)


_current: ContextVar[RunRecord | None] = ContextVar("run_record", default=None)


@contextmanager
def recorded_as(record: RunRecord) -> Iterator[None]:
    """Have runs that are started inside recorded with what the caller knows of them."""
    token = _current.set(record)
    try:
        yield
    finally:
        _current.reset(token)


def current_record(config: Mapping[str, Any] | None) -> RunRecord:
    """Return what the caller knows of a run that is about to start.

    Args:
        config: What the program passed to `fit`, for a run that the caller knows nothing of.
    """
    return _current.get() or RunRecord(config=config)


def describe_run(record: RunRecord, device: str, **data: Any) -> RunRecord:
    """Return a record with the session that begins, and with what its batches are read from.

    Args:
        record: What is known already.
        device: Description of the devices.
        **data: The training and evaluation data.
    """
    sources = {name: describe_source(one) for name, one in data.items() if one is not None}
    session = record_session(device, record.command)
    return replace(record, sources=sources, sessions=(session,))


def describe_source(data: Any) -> dict[str, Any]:
    """Return what batches are read from, and how the content of files is recognized."""
    from vramfit.data import Loader
    from vramfit.data.device import DeviceBatches

    loader = data.loader if isinstance(data, DeviceBatches) else data
    if not isinstance(loader, Loader):
        return {"type": type(data).__qualname__}
    return {
        "loader": repr(loader),
        "datasets": loader.datasets,
        "rows": loader.rows,
        "contents": loader.state()["file"],
    }


def read_record(directory: Path) -> RunRecord:
    """Return the record of a run.

    Raises:
        FileNotFoundError: There is none.
        InvalidFileError: It cannot be read.
    """
    path = directory / RUN_RECORD
    try:
        found = json.loads(path.read_text())
        if found["schema"] != SCHEMA:
            raise ValueError(f"its format version is {found['schema']}, expected {SCHEMA}")
        return RunRecord(
            config=found["config"],
            data=found["data"],
            sources=found["sources"],
            code={key: CodeFile(**one) for key, one in found["code"].items()},
            normalization=found["normalization"],
            remarks=found["remarks"],
            sessions=[Session(**one) for one in found["sessions"]],
        )
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFileError(f"`{path}` cannot be read", cause=first_line(error)) from error


def record_session(device: str, command: str | None = None) -> Session:
    """Return the session that this process begins.

    Args:
        device: Description of the devices.
        command: The command line; None for that of this process.
    """
    from vramfit.train.checkpoint.metadata import versions

    if command is None:
        import shlex

        command = shlex.join([Path(sys.executable).name, *sys.argv])
    return Session(
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=command,
        directory=os.getcwd(),
        versions={"python": platform.python_version(), **versions()},
        device=device,
        git=_git_state(),
    )


def record_code(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, CodeFile]]:
    """Return a configuration with absolute paths, and the user's files that it names, by key.

    Args:
        config: A whole configuration of `vramfit train`.
    """
    recorded = {table: dict(keys) for table, keys in config.items()}
    for key in ("path", "validation_path"):
        if (path := recorded["data"][key]) is not None:
            recorded["data"][key] = os.path.abspath(path)
    code = {}
    for table, key in (("model", "kind"), ("training", "loss")):
        location, _, name = (recorded[table][key] or "").rpartition(":")
        if location.endswith(".py"):
            path = os.path.abspath(location)
            recorded[table][key] = f"{path}:{name}"
            code[f"{table}.{key}"] = CodeFile(path, f"{CODE}/{table}.{key}", _imported_beside(path))
    return recorded, code


def _imported_beside(path: str) -> dict[str, str]:
    """Return the digests of a file, and of the modules that were imported from its folder."""
    folder = Path(path).parent
    found = {Path(path)}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            within = Path(file)
            # Not an environment that lies in the same folder.
            if within.is_relative_to(folder) and "site-packages" not in within.parts:
                found.add(within)
    return {str(one.relative_to(folder)): _digest(one) for one in sorted(found)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def null_non_finite(value: Any) -> Any:
    """Return a value that all readers of JSON accept: NaN and infinities become null."""
    if isinstance(value, Mapping):
        return {name: null_non_finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [null_non_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _git_state() -> dict[str, Any] | None:
    """Return the commit of the current directory, and whether tracked files have changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], check=True, capture_output=True, text=True, timeout=10
        ).stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "changes": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None
