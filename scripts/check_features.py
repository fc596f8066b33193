"""Checks that each part of the workspace is built with the same features of shared packages.

Cargo builds a package once for each set of features, so `make build`, `cargo test` and
`cargo test -p vramfit-model` would each build everything again. What differs has to be asked for
in `crates/workspace-hack/Cargo.toml`.

    python scripts/check_features.py
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    metadata = run("metadata", "--no-deps", "--format-version", "1")
    names = {package["name"] for package in json.loads(metadata)["packages"]} - {"workspace-hack"}
    # Tests are built with what they need besides.
    whole = features("--workspace", "--edges", "normal,build,dev")
    missing = {}
    for name in sorted(names):
        for package, found in features("--package", name, "--edges", "normal,build").items():
            if not found <= whole[package]:
                missing[package] = whole[package] - found
    for package, wanted in sorted(missing.items()):
        print(f"{package}: with all tests it has {' or '.join(sorted(wanted))}")
    if missing:
        sys.exit("check_features: ask for these features in crates/workspace-hack/Cargo.toml")


def features(*selection):
    """Return the sets of features that packages are built with, by name and version.

    A package has two where a procedural macro or a build script uses it, too.
    """
    found = {}
    for line in run("tree", *selection, "--prefix", "none", "--format", "{p}|{f}").splitlines():
        package, separator, names = line.removesuffix(" (*)").partition("|")
        if separator:
            found.setdefault(package.strip(), set()).add(names or "none")
    return found


def run(*words):
    command = ["cargo", *words]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
