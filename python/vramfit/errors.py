"""The exceptions of vramfit, raised from Python and from Rust alike.

Each has the id of an error that ``docs/reference/errors.md`` explains, and says the same as the
command line would. Where Python has a standard class for the case, ours is one of that kind too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class VramfitError(Exception):
    """What could not be done, why, and one thing to do about it.

    Attributes:
        id: The error's stable name, an anchor in ``docs/reference/errors.md``.
        message: What could not be done, in one clause.
        cause: What the system said, unchanged, or None.
        hint: One thing to do, or None.
    """

    id: ClassVar[str] = "internal"

    def __init__(self, message: str, *, cause: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        text = self.message
        if self.cause is not None:
            text += f"\n  cause: {self.cause}"
        if self.hint is not None:
            text += f"\nhint: {self.hint}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        from functools import partial

        # Exceptions pickle by their positional arguments, which would lose cause and hint.
        return partial(type(self), cause=self.cause, hint=self.hint), (self.message,)


class InvalidArgumentError(VramfitError, ValueError):
    """An argument, or a combination of them, is not accepted."""

    id = "invalid-argument"


class UnknownGpuError(VramfitError, KeyError):
    """No GPU of that name is in the catalog."""

    id = "unknown-gpu"


class IoError(VramfitError, OSError):
    """A file could not be read or written."""

    id = "io"


class InvalidFileError(VramfitError, ValueError):
    """A file is not what it claims to be: truncated, corrupt, or another version."""

    id = "invalid-file"


class UnsupportedFeatureError(VramfitError, NotImplementedError):
    """A file is sound and has something in it that is not read here."""

    id = "unsupported-feature"


class FileChangedError(VramfitError, ValueError):
    """A file is not the one that was begun with."""

    id = "file-changed"


class FileNotClosedError(VramfitError, OSError):
    """A program has the file open for writing, or ended without closing it."""

    id = "file-not-closed"


class DirectoryInUseError(VramfitError, OSError):
    """Another process writes to the directory of a run."""

    id = "directory-in-use"


class CommandNotFoundError(VramfitError):
    """The program to run does not exist or cannot be executed."""

    id = "command-not-found"


class CompilerMissingError(VramfitError):
    """JAX or its CUDA compiler is not installed where the program runs."""

    id = "compiler-missing"


class PackageMissingError(VramfitError, ImportError):
    """A Python package that is needed is not installed where the program runs."""

    id = "package-missing"


class GpuNotUsedError(VramfitError):
    """The program ended without ever using the virtual GPU."""

    id = "gpu-not-used"


class ProgramFailedError(VramfitError):
    """The program ended with an error of its own before it was measured."""

    id = "program-failed"


class CompilerFailedError(VramfitError):
    """XLA or the CUDA plugin failed in a way that is not the program's fault."""

    id = "compiler-failed"


class AllocatorAbortsError(VramfitError):
    """XLA's own allocator would end the process at this point."""

    id = "allocator-aborts"


class NoDriverError(VramfitError, OSError):
    """NVIDIA's driver is not there, or does not answer."""

    id = "no-driver"


class JaxAlreadyInitializedError(VramfitError, RuntimeError):
    """JAX has started already, and reads no settings any more."""

    id = "jax-already-initialized"


class VerificationFailedError(VramfitError, RuntimeError):
    """JAX does not compute where, or does not hold what, it was asked to."""

    id = "verification-failed"


class InsufficientMemoryError(VramfitError, MemoryError):
    """There is not enough memory for what was requested."""

    id = "insufficient-memory"


class TimeLimitError(VramfitError, TimeoutError):
    """A program did not end in time."""

    id = "time-limit"


class CommandInterruptedError(VramfitError):
    """A signal ended a command before it had a result."""

    id = "interrupted"


class InternalError(VramfitError, RuntimeError):
    """Something in vramfit does not hold that must hold."""

    id = "internal"


class VramfitWarning(UserWarning):
    """A setting has no effect, or not the intended one."""


def first_line(error: BaseException) -> str:
    """Return what an exception says in one line; its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# Rust finds the class of an error here.
BY_ID: dict[str, type[VramfitError]] = {kind.id: kind for kind in VramfitError.__subclasses__()}
