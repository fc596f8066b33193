# Run in the Python that will run the user's program, before it does. Prints one line of JSON.
# Imports neither jax nor anything of vramfit: it must finish within a tenth of a second.
import sys

# With `-c` the current directory comes first; a file of the user's called json.py must not run.
searched, sys.path[:] = sys.path[:], [place for place in sys.path if place]
import json  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
from importlib import metadata, util  # noqa: E402

sys.path[:] = searched


def package_dirs(name):
    """Directories of a package, without importing it (only its parent, if it has one)."""
    try:
        spec = util.find_spec(name)
    except Exception:
        return []
    return list(spec.submodule_search_locations or []) if spec else []


def version(package, distribution=None):
    try:
        return metadata.version(distribution or package)
    except Exception:
        pass
    # A source tree on the path has no metadata.
    for folder in package_dirs(package):
        try:
            with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
                return re.search(r"^_version\s*=\s*['\"](.+?)['\"]", file.read(), re.M)[1]
        except (OSError, TypeError):
            pass
    return None


def first_file(candidates):
    return next((path for path in candidates if os.path.isfile(path)), None)


shim = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
plugins = []
for root in package_dirs("jax_plugins"):
    if shim and os.path.realpath(root).startswith(os.path.realpath(shim) + os.sep):
        continue
    for cuda in (13, 12):
        folder = os.path.join(root, f"xla_cuda{cuda}")
        if os.path.isfile(os.path.join(folder, "__init__.py")):
            plugins.append(
                {
                    "cuda": cuda,
                    "version": version(f"jax_cuda{cuda}_plugin", f"jax-cuda{cuda}-plugin"),
                    "library": os.path.isfile(os.path.join(folder, "xla_cuda_plugin.so")),
                }
            )

# The order in which jax and XLA look for the CUDA tools: the wheels, then the usual directories.
roots = [os.environ["CUDA_ROOT"]] if os.environ.get("CUDA_ROOT") else []
roots += package_dirs("nvidia.cu13") + package_dirs("nvidia.cuda_nvcc")
roots += ["/usr/local/cuda", "/opt/cuda"]
tools = [os.path.join(root, "bin") for root in roots]
tools += os.environ.get("PATH", "").split(os.pathsep)

answer = {
    "python": sys.version.split()[0],
    "python_version": sys.version_info[:2],
    "package": next(iter(package_dirs("vramfit")), None),
    "reads_pythonpath": not shim or shim in sys.path,
    "jax": version("jax"),
    "jaxlib": version("jaxlib"),
    "plugins": plugins,
    "ptxas": first_file(os.path.join(tool, "ptxas") for tool in tools),
    "libdevice": first_file(
        os.path.join(root, "nvvm", "libdevice", "libdevice.10.bc") for root in roots
    ),
}
print("\n" + json.dumps(answer), flush=True)
