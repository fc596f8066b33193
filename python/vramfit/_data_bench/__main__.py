"""Measures, and reports progress and the result, one line of JSON each."""

from __future__ import annotations

import json
import signal
import sys

from vramfit import _child
from vramfit._data_bench.options import BenchOptions
from vramfit._data_bench.runs import compare
from vramfit.errors import VramfitError


def main() -> int:
    """Run the benchmark that the first argument requests."""
    # Ctrl-C reaches this process, too, and ends it without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    options = BenchOptions(**json.loads(sys.argv[1]))
    messages = _child.claim_stdout()
    try:
        result = compare(options, lambda done, total: _child.send(messages, done=done, total=total))
    except VramfitError as error:
        _child.send(messages, error=_child.failure(error))
        return 0
    _child.send(messages, result=result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
