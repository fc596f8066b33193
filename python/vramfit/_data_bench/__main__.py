"""Reads the request, measures, and tells the answer, one line of JSON each."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from vramfit._data_bench.request import Request
from vramfit._data_bench.runs import compare
from vramfit._errors import VramfitError


def main() -> int:
    """Measure what is asked for in the first argument."""
    # Ctrl-C reaches us, too; it ends us without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    request = Request(**json.loads(sys.argv[1]))
    # What libraries print is no answer of ours.
    answers, sys.stdout = sys.stdout, sys.stderr

    def tell(**words: Any) -> None:
        print(json.dumps(words), file=answers, flush=True)

    try:
        answer = compare(request, lambda done, total: tell(done=done, total=total))
    except VramfitError as error:
        tell(error=[error.id, error.message, error.cause, error.hint])
        return 0
    tell(answer=answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
