"""A pytest plugin that writes down, test by test, what happened.

A test of a GPU plugin can end the process it runs in. What was written before that says which
test did it, and the next process leaves out what is already known.

It also counts how many made-up values a test read: a test that read none cannot have failed for
want of arithmetic.
"""

import faulthandler
import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

RECORD = os.environ["CONFORMANCE_RECORD"]
DONE = os.environ.get("CONFORMANCE_DONE")
LIMIT_S = float(os.environ.get("CONFORMANCE_LIMIT_S", "120"))
# Which of several hosts this process is; None for one.
with open(os.environ["VRAMFIT_RUN_CONFIG"]) as _config:
    HOST = json.load(_config).get("host")
# Enough to tell a comparison of numbers from anything else.
LONGEST_MESSAGE = 4000
# Elements.
LONG = 1000

made_up = 0


def name_of(item):
    """Return the test as `Class::method`: what it is called in the lists."""
    return item.nodeid.split("::", 1)[1]


def write(**entry):
    with open(RECORD, "a") as record:
        record.write(json.dumps(entry) + "\n")


def compare_beginnings_first():
    """Let numpy compare the first elements of long arrays before it compares all.

    Where two arrays of some million elements differ everywhere, numpy lists each difference, and
    takes minutes and as many GB for it.
    """
    from numpy.testing._private import utils

    compare = utils.assert_array_compare

    def compare_twice(comparison, x, y, *args, **kwargs):
        a, b = np.asanyarray(x), np.asanyarray(y)
        if a.shape == b.shape and a.size > LONG:
            compare(comparison, a.ravel()[:LONG], b.ravel()[:LONG], *args, **kwargs)
        compare(comparison, x, y, *args, **kwargs)

    utils.assert_array_compare = compare_twice


def count_made_up_values():
    """Count reads of values that the dry run makes up: at each the plugin asks who reads."""
    from vramfit._values import _cpu_eval

    read_site = _cpu_eval.read_site

    def counted_read_site():
        global made_up
        made_up += 1
        return read_site()

    _cpu_eval.read_site = counted_read_site


def connect_hosts(host, hosts):
    """Do what JAX's harness does in each process of a test with several: it cannot be used.

    The harness starts all processes itself, and each waits for the others at barriers. Here the
    hosts run one after the other, so this process is told which one it is.
    """
    import jax
    from absl import flags
    from jax._src import distributed, test_multiprocess

    jax.config.parse_flags_with_absl()
    flags.FLAGS[test_multiprocess.NUM_PROCESSES.name].value = hosts
    flags.FLAGS[test_multiprocess.MULTIPROCESS_TEST_WORKER_ID.name].value = host
    distributed.initialize("localhost:1234", num_processes=hosts, process_id=host)
    if jax.process_count() != hosts:
        # All tests would be skipped.
        raise pytest.UsageError(f"JAX knows of {jax.process_count()} hosts instead of {hosts}")


def separate_messages(test):
    """Let the hosts exchange messages about this test only.

    They are numbered, since every host makes the same calls. After a test that failed on one host
    before it had made all of them, the numbers would be wrong for all further tests.
    """
    from vramfit._inprogram import _hosts

    exchange = _hosts._exchange()
    exchange._folder = Path(HOST["folder"], hashlib.sha1(test.encode()).hexdigest())
    exchange._folder.mkdir(exist_ok=True)
    exchange._calls.clear()
    exchange._messages.cache_clear()


def pytest_configure(config):
    if HOST is not None:
        connect_hosts(HOST["index"], HOST["count"])
    compare_beginnings_first()
    count_made_up_values()
    for mark in ("multiaccelerator", "SlurmMultiNodeGpuTest"):
        config.addinivalue_line("markers", f"{mark}: a mark of JAX's own tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if DONE is None:
        return
    with open(DONE) as file:
        done = set(file.read().splitlines())
    items[:] = [item for item in items if name_of(item) not in done]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    global made_up
    made_up = 0
    write(start=name_of(item))
    if HOST is not None:
        separate_messages(name_of(item))
    # Also ends a process that hangs inside the plugin, where no signal handler of Python's runs.
    faulthandler.dump_traceback_later(LIMIT_S, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


def pytest_runtest_logreport(report):
    if report.when != "call" and report.outcome == "passed":
        return
    message = "" if report.outcome == "passed" else str(report.longrepr)
    # The end of a report holds the error; its beginning is the test's source.
    write(
        test=report.nodeid.split("::", 1)[1],
        when=report.when,
        outcome=report.outcome,
        seconds=round(report.duration, 2),
        made_up=made_up,
        message=message[-LONGEST_MESSAGE:],
    )


def pytest_collectreport(report):
    if report.failed:
        write(collection=str(report.longrepr)[-LONGEST_MESSAGE:])
