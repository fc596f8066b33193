"""Stands in for JAX's CUDA 13 plugin, for a virtual GPU or a real one that is watched.

Only vramfit puts this directory on the path, for a program that it starts. The real module is
loaded from its own file and does all of its registrations, through vramfit's library instead of its
own.
"""

import os
import runpy

initialize = runpy.run_path(os.path.join(os.path.dirname(__file__), "..", "..", "standin.py"))[
    "initializer_of"
]("xla_cuda13")
