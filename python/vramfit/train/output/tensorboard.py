"""Whether TensorBoard event files can be written."""

from __future__ import annotations

import importlib.util
import sys

from vramfit.errors import PackageMissingError


def ensure_installed() -> None:
    """Raise an error unless the package that writes event files is installed.

    Raises:
        PackageMissingError: It is not installed.
    """
    if importlib.util.find_spec("tensorboardX") is None:
        raise PackageMissingError(
            f"`{sys.executable}` has no `tensorboardX`, which writes TensorBoard files",
            hint=f"install it: `{sys.executable} -m pip install 'vramfit[tensorboard]'`",
        )
