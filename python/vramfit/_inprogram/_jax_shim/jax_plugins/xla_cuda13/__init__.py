"""Replaces JAX's CUDA 13 plugin, for a virtual GPU or to publish statistics of a real one.

Only vramfit puts this directory on the path, for a program that it starts. The real module is
loaded from its own file and does all of its registrations, through vramfit's library instead of its
own.
"""

import os
import runpy

_LOADER = os.path.join(os.path.dirname(__file__), "..", "..", "plugin_loader.py")

initialize = runpy.run_path(_LOADER)["initializer_of"]("xla_cuda13")
