"""What the benchmarks share: how busy the machine is, and how long something takes."""

import os
import time


def print_load(when):
    """Print the load of the machine: times of a busy one say little."""
    print(f"machine load {when}: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


def time_call(function, *arguments):
    """Call a function; return the seconds that it takes by the clock, and its result."""
    begun = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - begun, result
