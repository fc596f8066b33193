from collections.abc import Sequence

__all__ = ["__version__", "run_cli"]

__file__: str
__version__: str

def run_cli(
    args: Sequence[str], *, package: str, plugin: str | None, python: str | None
) -> int: ...
