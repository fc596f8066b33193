# Run in the Python that will run the user's program, before it does. Prints one line of JSON.
# It follows packages.py and must finish within a tenth of a second.
def version(package, distribution=None):
    name = distribution or package
    if found := directory_version(name):
        return found
    try:
        return import_metadata().version(name)
    except Exception:
        return read_version(package, "_version")  # a source tree on the path has no metadata


def directory_version(distribution):
    """Read a version from the name of the directory that has the metadata of a wheel."""
    start = distribution.replace("-", "_") + "-"
    for name in metadata_names:
        if name.startswith(start):
            return name[len(start) :]
    return None


def list_metadata():
    """Names of the directories that have the metadata of wheels, without their ending."""
    for place in sys.path:
        try:
            entries = os.listdir(place or os.curdir)
        except OSError:
            continue
        for entry in entries:
            name, end = os.path.splitext(entry)
            if end == ".dist-info":
                yield name


def first_file(candidates):
    return next((path for path in candidates if os.path.isfile(path)), None)


def is_searched(directory):
    """Return whether Python searches a directory, which may be written in another way there."""
    wanted = os.path.realpath(directory)
    return any(os.path.realpath(place) == wanted for place in sys.path if place)


metadata_names = list(list_metadata())
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
    "reads_pythonpath": not sys.flags.ignore_environment and (not shim or is_searched(shim)),
    "jax": version("jax"),
    "jaxlib": version("jaxlib"),
    "plugins": plugins,
    "tensorflow": next(
        filter(None, map(directory_version, ("tensorflow", "tensorflow-gpu", "tf-nightly"))), None
    ),
    "torch": directory_version("torch"),
    "ptxas": first_file(os.path.join(tool, "ptxas") for tool in tools),
    "libdevice": first_file(
        os.path.join(root, "nvvm", "libdevice", "libdevice.10.bc") for root in roots
    ),
}
print("\n" + json.dumps(answer), flush=True)
