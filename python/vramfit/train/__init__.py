"""Training: your own training step over a data set, with timing, checkpoints and bit-exact resume.

Importing this loads neither JAX, nor orbax, nor numpy; :func:`fit` does.
"""

from __future__ import annotations

from vramfit.train.fit import fit
from vramfit.train.options import Checkpoints, FitOptions
from vramfit.train.result import Epoch, Result, Timing

__all__ = ["Checkpoints", "Epoch", "FitOptions", "Result", "Timing", "fit"]
