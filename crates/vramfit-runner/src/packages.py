# Comes before each script that the user's Python runs. Imports neither jax nor anything of vramfit.
import sys

# With `-c` the current directory comes first; a file of the user's called json.py must not run.
searched, sys.path[:] = sys.path[:], [place for place in sys.path if place]
import json  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
from importlib import util  # noqa: E402

sys.path[:] = searched


def import_metadata():
    """Import what reads the metadata of packages. That takes longer than all else here."""
    searched, sys.path[:] = sys.path[:], [place for place in sys.path if place]
    try:
        from importlib import metadata
    finally:
        sys.path[:] = searched
    return metadata


def package_dirs(name):
    """Directories of a package, without importing it (only its parent, if it has one)."""
    try:
        spec = util.find_spec(name)
    except Exception:
        return []
    return list(spec.submodule_search_locations or []) if spec else []


def read_version(package, variable):
    """Read a version from a package's `version.py`, also where it has no metadata."""
    for folder in package_dirs(package):
        try:
            with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
                return re.search(rf"^{variable}\s*=\s*['\"](.+?)['\"]", file.read(), re.M)[1]
        except (OSError, TypeError):
            pass
    return None
