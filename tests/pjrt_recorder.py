"""Records what JAX asks of a PJRT plugin, whatever plugin it is: buffers made, executions,
donations, reads and deletions, in their order.

Functions of the plugin's table are replaced by ones that note the call and pass it on. Offsets are
those of the argument structures of XLA's ``pjrt_c_api.h``.

    python tests/pjrt_recorder.py cpu|published|gpu CALLS PROGRAM [ARGUMENT ...]

runs a program on XLA's own plugin for the CPU, on that behind our wrapper that publishes, or on the
virtual GPU of a dry run, and writes the plugin's calls to a file, one per line.
"""

import ctypes
import importlib.util
import itertools
import os
import re
import runpy
import sys
import types
from pathlib import Path

NAMES_FILE = Path(__file__).parent.parent / "crates/vramfit-vgpu/src/pjrt/names.rs"
# Of the table before its functions: size, extensions, and the version with a size of its own.
HEAD_BYTES = 40
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
WORD = ctypes.sizeof(ctypes.c_size_t)


def read_word(address, offset=0):
    return ctypes.c_size_t.from_address(address + offset).value


def read_words(address, count):
    return [read_word(address, number * WORD) for number in range(count)] if address else []


class Recorder:
    """The calls to one plugin. Buffers and programs are numbered in the order of their creation."""

    def __init__(self, library):
        self.lines = []
        self._numbers = {}
        self._counter = itertools.count(1)
        self._outputs = {}
        # By their places in the table: what was there, and what is there now.
        self._replaced = {}
        plugin = ctypes.CDLL(str(library))
        plugin.GetPjrtApi.restype = ctypes.c_void_p
        self._table = plugin.GetPjrtApi()
        self._names = re.findall(r'"(PJRT_\w+)",', NAMES_FILE.read_text())
        self._make_table_writable()
        for name, note in {
            "PJRT_Client_BufferFromHostBuffer": self._on_host_buffer,
            "PJRT_Buffer_CopyToDevice": self._on_copied,
            "PJRT_Buffer_CopyToMemory": self._on_copied,
            "PJRT_LoadedExecutable_Execute": self._on_execute,
            "PJRT_Buffer_ToHostBuffer": self._on_read,
            "PJRT_Buffer_CopyRawToHost": self._on_read,
            "PJRT_Buffer_UnsafePointer": self._on_read,
            "PJRT_Buffer_OpaqueDeviceMemoryDataPointer": self._on_read,
            "PJRT_Buffer_Delete": self._on_deleted("delete"),
            "PJRT_Buffer_Destroy": self._on_deleted("destroy"),
        }.items():
            self._replace(name, note)

    def _slot(self, name):
        return self._table + HEAD_BYTES + self._names.index(name) * WORD

    def _make_table_writable(self):
        """Make the pages of the table writable: in a plugin it may be constant data."""
        page = os.sysconf("SC_PAGESIZE")
        first = self._table // page * page
        end = self._table + HEAD_BYTES + len(self._names) * WORD
        mprotect = ctypes.CDLL(None, use_errno=True).mprotect
        mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if mprotect(first, end - first, 3) != 0:  # to read and to write
            raise OSError(ctypes.get_errno(), "mprotect")

    def _replace(self, name, note):
        slot = self._slot(name)
        plain = FUNCTION(read_word(slot))
        noting = FUNCTION(lambda args: note(plain, args))
        self._replaced[slot] = read_word(slot), noting
        address = ctypes.cast(noting, ctypes.c_void_p).value
        ctypes.c_size_t.from_address(slot).value = address

    def stop(self):
        """Put back what was there: calls go on when there is no Python any more."""
        for slot, (address, _) in self._replaced.items():
            ctypes.c_size_t.from_address(slot).value = address

    def _call_plugin(self, name, args):
        error = FUNCTION(read_word(self._slot(name)))(ctypes.addressof(args))
        assert not error, name

    def _number_of(self, buffer):
        """Return the number of a buffer, a new one if it was not seen before."""
        if buffer not in self._numbers:
            self._numbers[buffer] = next(self._counter)
        return f"b{self._numbers[buffer]}"

    def _add_line(self, *parts):
        self.lines.append(" ".join(map(str, parts)))

    def _on_host_buffer(self, plain, args):
        error = plain(args)
        kind, dims = (
            read_word(args, 32) & 0xFFFFFFFF,
            read_words(read_word(args, 40), read_word(args, 48)),
        )
        made = "error" if error else self._number_of(read_word(args, 112))
        self._add_line("make", made, f"type {kind}", dims)
        return error

    def _on_copied(self, plain, args):
        error = plain(args)
        made = "error" if error else self._number_of(read_word(args, 32))
        self._add_line("copy", self._number_of(read_word(args, 16)), made)
        return error

    def _output_count(self, loaded):
        if loaded not in self._outputs:
            got = (ctypes.c_size_t * 4)(4 * WORD, 0, loaded, 0)
            self._call_plugin("PJRT_LoadedExecutable_GetExecutable", got)
            count = (ctypes.c_size_t * 4)(4 * WORD, 0, got[3], 0)
            self._call_plugin("PJRT_Executable_NumOutputs", count)
            name = (ctypes.c_size_t * 5)(5 * WORD, 0, got[3], 0, 0)
            self._call_plugin("PJRT_Executable_Name", name)
            self._outputs[loaded] = count[3], ctypes.string_at(name[3], name[4]).decode()
        return self._outputs[loaded]

    def _on_execute(self, plain, args):
        outputs, name = self._output_count(read_word(args, 16))
        options, devices, count = read_word(args, 24), read_word(args, 40), read_word(args, 48)
        arguments = [read_words(row, count) for row in read_words(read_word(args, 32), devices)]
        shown = [[self._number_of(buffer) for buffer in row] for row in arguments]
        kept = read_words(read_word(options, 56), read_word(options, 64))
        error = plain(args)
        rows = (
            []
            if error
            else [read_words(row, outputs) for row in read_words(read_word(args, 56), devices)]
        )
        made = [[self._number_of(buffer) for buffer in row] for row in rows]
        self._add_line("execute", name, shown, "not donatable", sorted(kept), "->", made)
        return error

    def _on_read(self, plain, args):
        line = f"read {self._number_of(read_word(args, 16))}"
        # A read asks for the size first, and copies or points to the same bytes then.
        if not self.lines or self.lines[-1] != line:
            self._add_line(line)
        return plain(args)

    def _on_deleted(self, what):
        def note(plain, args):
            buffer = read_word(args, 16)
            self._add_line(what, self._number_of(buffer))
            error = plain(args)
            if what == "destroy":
                self._numbers.pop(buffer, None)
            return error

        return note


def start_recording(platform):
    """Let JAX use the plugin of a platform, and return the recorder of its calls."""
    import jax

    if platform == "gpu":
        from vramfit import _native

        # The dry run has the table once JAX has asked for it.
        jax.devices()
        return Recorder(_native.__file__)
    from jax._src import xla_bridge

    [package] = importlib.util.find_spec("lammps_jax_pjrt_cpu").submodule_search_locations
    library = Path(package) / "pjrt_c_api_cpu_plugin.so"
    recorder = Recorder(library)
    plugin = types.SimpleNamespace()
    plugin._get_library_path = lambda: library

    def initialize():
        name, path = "xla_cpu", str(plugin._get_library_path())
        xla_bridge.register_plugin(name, library_path=path, priority=500)

    plugin.initialize = initialize
    if platform == "published":
        from vramfit import _native
        from vramfit._inprogram import _publisher

        _publisher.install(plugin)
        assert plugin._get_library_path() == _native.__file__
    else:
        plugin.initialize()
    jax.config.update("jax_platforms", "xla_cpu,cpu")
    jax.devices()
    return recorder


def main():
    platform, calls, program, *arguments = sys.argv[1:]
    recorder = start_recording(platform)
    recorder.lines.clear()
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        recorder.stop()
        Path(calls).write_text("\n".join(recorder.lines))
    if platform == "published":
        # The wrapper has a copy of the table, and would call what Python has taken down.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
