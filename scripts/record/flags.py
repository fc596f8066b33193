"""Record the flags that the installed release of XLA knows in `XLA_FLAGS`.

Every word in jaxlib's library that could be a flag is tried in a process of its own: XLA reads the
variable when the first client is made, and names a flag that it does not know before it aborts. The
first line of the output names the release.

Usage: python scripts/record/flags.py > crates/vramfit-advice/src/lint/names/flags.txt
"""

import os
import pathlib
import re
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
os.environ.pop("XLA_FLAGS", None)

import jaxlib.version
from jax._src.lib import xla_client

WORD = re.compile(rb"xla_[a-z0-9_]{3,}")


def main():
    print(f"# jaxlib {jaxlib.version.__version__}")
    for name in sorted(candidates()):
        # A switch may stand alone; any other flag is only seen as one with a value behind it.
        if is_known(f"--{name}") or is_known(f"--{name}="):
            print(name)


def candidates():
    library = next(pathlib.Path(jaxlib.__file__).parent.glob("libjax_common.so"))
    words = {word.decode() for word in WORD.findall(library.read_bytes())}
    # In a serialized description a field's name may be followed by a letter that is its length.
    return words | {word[:-1] for word in words}


def is_known(flag):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(writer, 2)
        os.environ["XLA_FLAGS"] = flag
        xla_client.make_cpu_client()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as pipe:
        log = pipe.read()
    os.waitpid(child, 0)
    return "Unknown flag" not in log


if __name__ == "__main__":
    sys.exit(main())
