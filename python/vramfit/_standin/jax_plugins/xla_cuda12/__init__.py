"""Stands in for JAX's CUDA 12 plugin, so that JAX finds a virtual GPU.

Only ``vramfit dryrun`` puts this directory on the path. The real module is loaded from its own
file and does all of its registrations, through vramfit's library instead of its own.
"""

import os
import runpy

initialize = runpy.run_path(os.path.join(os.path.dirname(__file__), "..", "..", "standin.py"))[
    "initializer_of"
]("xla_cuda12")
