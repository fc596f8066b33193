"""Records how XLA's BFC allocator extends a partitioned pool, by calling the one in a CUDA plugin.

The plugin of JAX 0.12.0.1 contains the code that grows such a pool, though its client never turns
it on (see `docs/concepts/allocators.md`). The allocator is driven here over a fake device that
grants what is asked for while it has memory, at the end of what it granted before, in units of
2 MiB: what XLA's own device memory does in a reserved range of addresses. No GPU is needed, but
`nm`.

    python scripts/record/growth.py PLUGIN.so fixtures/bfc-growth
"""

import argparse
import contextlib
import ctypes
import pathlib
import random
import struct
import subprocess

MIB = 1 << 20
GRANULARITY = 2 * MIB
BASE = 1 << 40
LOWER, UPPER = 0, 1

# Functions by the beginning of their names; all of them are in the symbol table, none is exported.
FUNCTIONS = {
    "create": "tsl::BFCAllocator::BFCAllocator(",
    "allocate": "tsl::BFCAllocator::AllocateRawInternal(",
    "free": "tsl::BFCAllocator::DeallocateRawInternal(",
    "stats": "tsl::BFCAllocator::GetStats(",
}


class Plugin:
    """The functions of one plugin, by address."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        here = ctypes.cast(library.GetPjrtApi, ctypes.c_void_p).value
        listed = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True)
        addresses = {}
        for line in listed.stdout.splitlines():
            address, kind, name = [*line.split(" ", 2), "", ""][:3]
            if kind in ("t", "T"):
                addresses.setdefault(name, int(address, 16))
        begin = here - addresses["GetPjrtApi"]
        self.addresses = {
            key: begin + next(value for name, value in addresses.items() if name.startswith(prefix))
            for key, prefix in FUNCTIONS.items()
        }

    def function(self, name, result, *arguments):
        return ctypes.CFUNCTYPE(result, *arguments)(self.addresses[name])


class Device:
    """Memory at rising addresses, as an object of C++ with the functions of `tsl::SubAllocator`."""

    def __init__(self, capacity, free_bytes, record):
        self.mapped, self.capacity, self.free_bytes, self.record = 0, capacity, free_bytes, record
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        kinds = [
            (None, [pointer], lambda _: None),
            (None, [pointer], lambda _: None),
            (pointer, [pointer, size, size, ctypes.POINTER(size)], self.allocate),
            (None, [pointer, pointer, size], self.free),
            (ctypes.c_bool, [pointer], lambda _: True),
            (ctypes.c_int, [pointer], lambda _: 1),
            (size, [pointer], lambda _: GRANULARITY),
        ]
        self.functions = [
            ctypes.CFUNCTYPE(result, *arguments)(call) for result, arguments, call in kinds
        ]
        places = [ctypes.cast(function, pointer) for function in self.functions]
        self.table = (pointer * len(places))(*places)
        self.object = (pointer * 1)(ctypes.addressof(self.table))

    def allocate(self, _, alignment, asked, received):
        whole = -(-asked // GRANULARITY) * GRANULARITY
        granted = 0 < whole <= min(self.capacity, self.free_bytes) - self.mapped
        self.record(f"ask {asked} = {whole if granted else 0}")
        if not granted:
            received[0] = 0
            return None
        received[0] = whole
        self.mapped += whole
        return BASE + self.mapped - whole

    def free(self, _, address, freed):
        self.record(f"return {freed}")
        self.mapped -= freed


class Pool:
    """One `tsl::BFCAllocator`, with the options of a pool that grows."""

    def __init__(self, plugin, start, limit, free_bytes, record):
        self.plugin, self.record = plugin, record
        record(f"pool start={start} limit={limit} free={free_bytes}")
        self.device = Device(limit, free_bytes, record)
        self.object = ctypes.create_string_buffer(4096)
        # `BFCAllocator::Options`: allow_growth, allow_retry_on_failure, garbage_collection,
        # fragmentation_fraction, enable_spatial_partitioning, initial_region_bytes; for each end
        # the order of equal holes (1: descending) and the split of holes and of the gap (1:
        # exact), as in `CreateBFCAllocator` of the same plugin.
        ends = (0, 1, 1, 1, 0, 0)
        options = struct.pack("<3?5xd?7xQ6i", True, False, False, 0.0, True, start, *ends)
        # A short `std::string` holds its text itself.
        name = b"GPU_0_bfc"
        self.name = ctypes.create_string_buffer(struct.pack("<QQ16s", 0, len(name), name), 32)
        inside = ctypes.addressof(self.name) + 16
        ctypes.memmove(self.name, struct.pack("<Q", inside), 8)
        self.options = ctypes.create_string_buffer(options, len(options))
        owner = ctypes.c_void_p(ctypes.addressof(self.device.object))
        pointer = ctypes.c_void_p
        create = plugin.function("create", None, *[pointer] * 2, ctypes.c_size_t, *[pointer] * 2)
        create(self.object, ctypes.byref(owner), limit, self.name, self.options)
        size, flag = ctypes.c_size_t, ctypes.c_bool
        arguments = [pointer, size, size, flag, ctypes.c_uint64, ctypes.c_uint8]
        self.allocate_raw = plugin.function("allocate", pointer, *arguments)
        self.free_raw = plugin.function("free", None, pointer, pointer)
        self.read_stats = plugin.function("stats", None, pointer, pointer)
        self.live = {}

    def allocate(self, number, end, size, alignment):
        address = self.allocate_raw(self.object, alignment, size, False, 0, end)
        self.live[number] = address
        place = -1 if address is None else address - BASE
        self.record(f"{'AU' if end == UPPER else 'AL'} {number} {size} {alignment} = {place}")
        return address is not None

    def free(self, number):
        self.record(f"F {number}")
        self.free_raw(self.object, self.live.pop(number))

    def stats(self):
        """Tell the statistics, in the order that `fixtures/README.md` lists."""
        words = (ctypes.c_int64 * 64)()
        self.read_stats(words, self.object)
        chosen = [words[index] for index in (0, 1, 2, 3, 4, 11, 12, 14)]
        self.record("stats " + " ".join(map(str, chosen)))


def play(pool, seed, operations, largest, collective):
    """Plays random requests and frees, so many of them for collective memory, at its alignment."""
    chance = random.Random(seed)
    live = []
    for number in range(operations):
        if live and chance.random() < 0.42:
            pool.free(live.pop(chance.randrange(len(live))))
        elif chance.random() < collective:
            size = chance.randrange(1, largest)
            live += [number] if pool.allocate(number, LOWER, size, GRANULARITY) else []
        else:
            size = (
                int(largest ** chance.random())
                if chance.random() < 0.5
                else chance.randrange(1, largest)
            )
            alignment = chance.choice([256, 256, 256, 4096, 65536])
            live += [number] if pool.allocate(number, UPPER, size, alignment) else []
        if number % 50 == 49:
            pool.stats()
    pool.stats()


# Start, limit and free memory in MiB; the seed; operations; the largest request; the share of
# collective memory.
SCENARIOS = {
    "default_memory_only": (32, 256, 4096, 1, 1500, 24 * MIB, 0.0),
    "both_ends": (64, 256, 4096, 2, 1500, 16 * MIB, 0.3),
    "others_hold_the_rest": (64, 512, 150, 3, 1500, 20 * MIB, 0.2),
    "start_is_not_free": (128, 256, 90, 4, 800, 20 * MIB, 0.2),
    "nothing_is_free": (64, 128, 1, 5, 50, 4 * MIB, 0.2),
    "small_requests": (2, 16, 4096, 6, 1500, 300_000, 0.1),
    "large_requests": (512, 8192, 65536, 7, 800, 1500 * MIB, 0.1),
    "cap_is_start": (96, 96, 4096, 8, 1200, 12 * MIB, 0.2),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plugin", type=pathlib.Path, metavar="PLUGIN.so")
    parser.add_argument("folder", type=pathlib.Path)
    asked = parser.parse_args()
    plugin = Plugin(asked.plugin)
    asked.folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for name, (start, limit, free, seed, operations, largest, collective) in SCENARIOS.items():
        with contextlib.closing((asked.folder / f"{name}.txt").open("w")) as file:
            pool = Pool(
                plugin, start * MIB, limit * MIB, free * MIB, lambda line: print(line, file=file)
            )
            # The allocator's destructor is never called, and what it points to must stay.
            kept.append(pool)
            play(pool, seed, operations, largest, collective)
            pool.device.record = lambda line: None


if __name__ == "__main__":
    main()
