# Run in the Python that is examined, after packages.py: what it has installed that bears on JAX.
# Prints one line of JSON.

OURS = re.compile(
    r"jax$|jaxlib$|jax-(cuda|rocm|metal)|libtpu|nvidia-|tensorflow(-cpu|-gpu)?$|tf-nightly|torch$"
)


packages, requirements = {}, {}
for distribution in import_metadata().distributions():
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
