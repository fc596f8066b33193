"""Runs in a server, see `__init__.py`: imports JAX, and forks for each script of a client."""

import contextlib
import fcntl
import gc
import importlib
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import sys
import types

_given = dict(os.environb)
import jax  # noqa: E402, F401

# What JAX has set while it was imported.
SET_BY_JAX = {name: value for name, value in os.environb.items() if _given.get(name) != value}
# Bytes of a text, and how many descriptors there are with which numbers; 64 at most.
HEAD = struct.Struct("=66I")
ALIVE_CHECK_MILLISECONDS = 2000
# A server that no script has needed for so many checks ends: each has all of JAX in memory.
IDLE_CHECKS = 15
# The descriptor that is closed when this listens; `python.c` has it, too.
LISTENS = 3
LIMITS = range(16)


def serve(path):
    """Fork for each request, as long as the tests run.

    Returns in copies only: which argument is the script, and the command line.
    """
    for limit in LIMITS:
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (hard, hard))  # not those of the script that has started this
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    gc.collect()
    gc.freeze()
    listener.listen(64)
    os.close(LISTENS)
    alive = open(pathlib.Path(path).parent / "alive")  # noqa: SIM115
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    clients, processes = {}, {}
    idle_checks = 0
    while True:
        events = poll.poll(ALIVE_CHECK_MILLISECONDS)
        if not events and _is_over(alive):
            for _, process in clients.values():
                signal.pidfd_send_signal(process, signal.SIGKILL)
            os._exit(0)
        idle_checks = 0 if events or clients else idle_checks + 1
        if idle_checks >= IDLE_CHECKS:
            _end_if_unused(path, poll)
        for number, _ in events:
            if number == listener.fileno():
                client = listener.accept()[0]
                request = _receive_request(client)
                if request is None:
                    client.close()
                    continue
                process_id = os.fork()
                if process_id == 0:
                    kept = {client, listener, alive}
                    for each in (*kept, *(client for client, _ in clients.values())):
                        each.close()
                    for process in processes:
                        os.close(process)
                    return _become_client(*request)
                for descriptor in request[1].values():
                    os.close(descriptor)
                process = os.pidfd_open(process_id)
                clients[client.fileno()] = client, process
                processes[process] = client, process_id
                poll.register(client, select.POLLIN)
                poll.register(process, select.POLLIN)
            elif number in processes:
                client, process_id = processes.pop(number)
                _, status = os.waitpid(process_id, 0)
                if clients.pop(client.fileno(), None) is not None:
                    poll.unregister(client)
                with contextlib.suppress(OSError):  # it has been killed
                    client.sendall(struct.pack("=i", status))
                client.close()
                poll.unregister(number)
                os.close(number)
            elif number in clients:
                # Clients send nothing more: this one has been killed.
                client, process = clients.pop(number)
                poll.unregister(client)
                signal.pidfd_send_signal(process, signal.SIGKILL)


def _is_over(alive):
    try:
        fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _end_if_unused(path, poll):
    """End, so that the next script starts a server, unless one has just connected to this."""
    with open(f"{path}.lock") as lock:
        # Scripts connect while they hold this.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not poll.poll(0):
            os.unlink(path)
            os._exit(0)


def _receive_request(client):
    """Return the text of a request and its descriptors, by the number that they have there."""
    head, received, _, _ = socket.recv_fds(client, HEAD.size, 64)
    if len(head) < HEAD.size:
        return None
    length, count, *numbers = HEAD.unpack(head)
    text = b""
    while len(text) < length:
        more = client.recv(length - len(text))
        if not more:
            return None
        text += more
    return text.split(b"\0")[:-1], dict(zip(numbers[:count], received, strict=True))


def _become_client(words, descriptors):
    """Make this process the one that the client would have been; see `serve` for the result."""
    moved = {
        number: fcntl.fcntl(descriptor, fcntl.F_DUPFD, 1 << 9)
        for number, descriptor in descriptors.items()
    }
    for descriptor in descriptors.values():
        os.close(descriptor)
    for number, descriptor in moved.items():
        os.dup2(descriptor, number, inheritable=True)
        os.close(descriptor)
    folder, mask, group, client, start, count, *words = words
    os.chdir(folder)
    os.umask(int(mask))
    os.setpgid(0, int(group))
    for limit in LIMITS:
        resource.setrlimit(limit, resource.prlimit(int(client), limit))
    arguments, variables = words[: int(count)], words[int(count) :]
    environment = dict(variable.split(b"=", 1) for variable in variables) | SET_BY_JAX
    for name in set(os.environb) - set(environment):
        del os.environb[name]
    os.environb.update(environment)
    sys.orig_argv = [os.fsdecode(word) for word in arguments]
    first = {b"f": [], b"c": ["-c"], b"m": ["-m"]}[start[:1]]
    sys.argv = first + sys.orig_argv[int(start[1:]) + len(first) :]
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    _replace_main_module()
    late_settings = sys.modules.get("_vramfit_late_settings")
    if late_settings:  # a dry run
        late_settings.changes.clear()
        _install_dryrun()
    # Counts from zero: when the script collects garbage depends on nothing that this server did.
    gc.collect()
    return start, arguments


def _replace_main_module():
    """Make a module for the script: what it holds is to be found by the garbage collector."""
    plain = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    vars(sys.modules["__main__"]).update(vars(plain))


def _install_dryrun():
    """Do what Python does when it starts in this dry run, and when it then imports JAX."""
    del sys.modules["sitecustomize"]
    importlib.import_module("sitecustomize")
    for finder in sys.meta_path:
        functions = getattr(finder, "_functions", {})
        for name in set(functions) & set(sys.modules):
            for function in functions.pop(name):
                owner, _, called = function.rpartition(".")
                getattr(importlib.import_module(owner), called)(sys.modules[name])
