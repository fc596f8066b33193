"""Reads the request, measures, and tells the answer, one line of JSON each."""

from __future__ import annotations

import json
import signal
import sys

from vramfit import _child
from vramfit._data_bench.request import Request
from vramfit._data_bench.runs import compare
from vramfit._errors import VramfitError


def main() -> int:
    """Run the benchmark that the first argument requests."""
    # Ctrl-C reaches this process, too, and ends it without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    request = Request(**json.loads(sys.argv[1]))
    messages = _child.claim_stdout()
    try:
        answer = compare(request, lambda done, total: _child.send(messages, done=done, total=total))
    except VramfitError as error:
        _child.send(messages, error=_child.failure(error))
        return 0
    _child.send(messages, answer=answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
