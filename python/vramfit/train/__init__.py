"""Training: a step of yours, run over a data set, timed, kept and gone on with.

Importing this loads neither JAX, nor orbax, nor numpy; :func:`fit` does.
"""

from __future__ import annotations

from vramfit.train.checkpoint import Checkpoints
from vramfit.train.fit import fit
from vramfit.train.result import Epoch, Result, Timing

__all__ = ["Checkpoints", "Epoch", "Result", "Timing", "fit"]
