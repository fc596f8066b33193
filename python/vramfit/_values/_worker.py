"""The process that computes values which may take long; run as a script by `_evaluator`.

XLA cannot cancel an execution, so what may not come to an end runs where it can be killed. Takes
requests from standard input and answers on what was standard output; ends when either is closed.
"""

from __future__ import annotations

import importlib
import os
import queue
import signal
import sys
import threading
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _import_module(name: str) -> ModuleType:
    """Import a module of vramfit without the rest of it, which would take time and memory."""
    if "vramfit" not in sys.modules:
        package = ModuleType("vramfit")
        package.__path__ = [os.path.dirname(_HERE)]
        sys.modules["vramfit"] = package
    return importlib.import_module(f"vramfit._values.{name}")


def main() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's Ctrl-C is for the program
    replies = os.dup(1)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)  # what libraries print is no reply
    messages, cpu = _import_module("_messages"), _import_module("_cpu")
    import jax  # noqa: F401  what takes its time happens before the first request

    requests: queue.Queue[Any] = queue.Queue()
    returned: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        try:
            while True:
                kind, *content = messages.receive(0)
                (returned if kind == "returned" else requests).put(content)
        except (EOFError, OSError):
            os._exit(0)  # a computation that goes on is nobody's any more

    threading.Thread(target=read, daemon=True).start()
    messages.send(replies, ("ready",))

    one_at_a_time = threading.Lock()

    def ask_for(index: int) -> Any:
        """Return a function that has the user's one called in the user's process."""

        def ask(*arguments: Any) -> Any:
            import numpy as np

            with one_at_a_time:
                messages.send(replies, ("call", index, [np.asarray(each) for each in arguments]))
                results, error = returned.get()
            if error is not None:
                raise RuntimeError(error)
            return tuple(results)  # a list makes XLA fail

        return ask

    executables: dict[int, Any] = {}
    while True:
        request = requests.get()[0]
        number = request["program"]
        try:
            if number not in executables:
                executables[number] = cpu.compile_program(
                    request["code"],
                    request["options"],
                    request["devices"],
                    request["shardings"],
                    [ask_for(index) for index in range(request["callbacks"])],
                )
            with cpu.default_jax_config():
                data = cpu.run(
                    executables[number],
                    request["inputs"],
                    request["input_shapes"],
                    request["output_shapes"],
                    request["devices"],
                )
            reply = ("impossible", "") if data is None else ("outputs", data)
        except Exception as error:
            reply = ("impossible", str(error))
        messages.send(replies, reply)


if __name__ == "__main__":
    # The folder of a script is where Python looks first; ours has a `data` and a `train`.
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    main()
