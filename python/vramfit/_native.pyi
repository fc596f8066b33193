from collections.abc import Sequence

__all__ = ["__version__", "finish_plugin", "run_cli", "start_plugin"]

__file__: str
__version__: str

def run_cli(
    args: Sequence[str], *, package: str, plugin: str | None, python: str | None
) -> int: ...
def start_plugin(library: str, values: object) -> None: ...
def finish_plugin() -> None: ...
