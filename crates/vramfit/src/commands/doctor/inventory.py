# Asked of the Python that is examined: what it has installed that bears on JAX. Prints one line of
# JSON. Imports neither jax nor anything of vramfit.
import sys

# With `-c` the current directory comes first; a file of the user's called json.py must not run.
searched, sys.path[:] = sys.path[:], [place for place in sys.path if place]
import json  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
from importlib import metadata, util  # noqa: E402

sys.path[:] = searched

OURS = re.compile(
    r"jax$|jaxlib$|jax-(cuda|rocm|metal)|libtpu|nvidia-|tensorflow(-cpu|-gpu)?$|tf-nightly|torch$"
)


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


packages, requirements = {}, {}
for distribution in metadata.distributions():
    try:
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        # The first on the path is the one that is imported.
        if not OURS.match(name) or name in packages:
            continue
        packages[name] = distribution.version
        if re.fullmatch(r"jax-cuda\d+-plugin", name):
            requirements[name] = distribution.requires or []
    except Exception:  # a distribution with damaged metadata says nothing of the others
        continue
for name in ("jax", "jaxlib"):
    if name not in packages and (found := read_version(name, "_version")):
        packages[name] = found

folders = []
for root in package_dirs("nvidia"):
    for below, _, files in os.walk(root):
        if os.path.basename(below) == "lib" and any(".so" in file for file in files):
            folders.append(below)

answer = {
    "python": sys.version.split()[0],
    "executable": sys.executable,
    "environment": sys.prefix if sys.prefix != sys.base_prefix else None,
    "packages": packages,
    "minimum_jaxlib": read_version("jax", "_minimum_jaxlib_version"),
    "requirements": requirements,
    "library_folders": sorted(folders),
}
print("\n" + json.dumps(answer), flush=True)
