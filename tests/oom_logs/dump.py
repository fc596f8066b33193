"""What a BFC pool writes when a request fails, and pools in typical states."""

from __future__ import annotations

from dataclasses import dataclass

from .log import Line, Role, plain
from .texts import Writer, human

NO_CHUNK = 2**64 - 1
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Chunk:
    """A piece of a region."""

    size: int
    requested: int = 0
    tag: str = "lower"
    label: str = ""

    @property
    def in_use(self) -> bool:
        return self.requested > 0

    @property
    def bin(self) -> int:
        return min(20, (self.size >> 8).bit_length() - 1)


@dataclass(frozen=True)
class Pool:
    """The state of a pool at the moment of a failure."""

    limit: int
    regions: list[list[Chunk]]
    grows: bool = False
    name: str = "GPU_0_bfc"

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for region in self.regions for chunk in region]

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self.chunks)

    @property
    def used(self) -> int:
        return sum(chunk.size for chunk in self.chunks if chunk.in_use)

    @property
    def gap(self) -> Chunk | None:
        return next((chunk for chunk in self.chunks if chunk.tag == "central_gap"), None)

    @property
    def next_region(self) -> int:
        return 1 << (self.size - 1).bit_length() if self.grows else self.limit

    def largest(self, tag: str | None = None) -> int:
        """Returns the largest free chunk in a bin, of one end or of any."""
        free = [chunk for chunk in self.chunks if not chunk.in_use and chunk.tag != "central_gap"]
        return max((c.size for c in free if tag is None or c.tag == tag), default=0)


def split(writer: Writer, room: int, count: int, tag: str = "lower") -> list[Chunk]:
    """Returns chunks in use of differing sizes that fill some room."""
    chunks = []
    for left in range(count, 0, -1):
        size = room if left == 1 else int(room / left * writer.rng.uniform(0.6, 1.4)) // 256 * 256
        waste = writer.rng.choice((0, 0, 0, 0, 64, 192))
        label = writer.rng.choice(("", "", "xla.execute{executable=jit_train_step}"))
        chunks.append(Chunk(size, size - waste, tag, label))
        room -= size
    return chunks


def with_holes(writer: Writer, size: int, holes: list[int], per_hole: int = 9) -> list[Chunk]:
    """Returns a region with free chunks of the given sizes, each between chunks in use."""
    parts = split(writer, size - sum(holes), (len(holes) + 1) * per_hole)
    chunks = parts[:per_hole]
    for number, hole in enumerate(holes, 1):
        chunks.append(Chunk(hole))
        chunks += parts[number * per_hole : (number + 1) * per_hole]
    return chunks


def full_pool(writer: Writer, limit: int, free: int, name: str = "GPU_0_bfc") -> Pool:
    """Returns a pool that was obtained whole and has little left."""
    holes = [free // 4 // 256 * 256, free // 8 // 256 * 256]
    if writer.jax < (0, 11, 0):
        return Pool(limit, [with_holes(writer, limit, [free - sum(holes), *holes])], name=name)
    upper = split(writer, 96 * MIB, 3, "upper")
    lower = with_holes(writer, limit - 96 * MIB - free + sum(holes), holes)
    gap = Chunk(free - sum(holes), tag="central_gap")
    return Pool(limit, [[*lower, gap, *upper]], name=name)


def grown(writer: Writer, count: int, free: float) -> list[list[Chunk]]:
    """Returns regions of 2 MiB, 4 MiB and so on, with a share of each free at its end."""
    regions = []
    for number in range(count):
        size = 2 * MIB << number
        hole = int(size * free) // 256 * 256
        regions.append([*split(writer, size - hole, 4), Chunk(hole)])
    return regions


def refusal(writer: Writer, size: int, name: str = "GPU_0_bfc") -> str:
    """Returns the warning about a request whose failure the caller can live with."""
    end = " from the lower end" if writer.jax >= (0, 11, 0) else ""
    return writer.warning(
        "bfc_allocator.cc",
        f"Allocator ({name}) ran out of memory trying to allocate {human(size)}{end} with "
        "freed_by_count=0. The caller indicates that this is not a failure, but this may mean "
        "that there could be performance gains if more memory were available.",
        line=296,
    )


def header(writer: Writer, size: int, name: str = "GPU_0_bfc") -> str:
    """Returns the first record of a dump, which JAX shows by default."""
    rounded = -(-size // 256) * 256
    text = f"Allocator ({name}) ran out of memory trying to allocate {human(size)} "
    text += f"(rounded to {rounded})"
    if writer.jax >= (0, 11, 0):
        text += (
            " from the lower end requested by op \nIf this is caused by memory fragmentation, the "
            "environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' may improve the situation."
            "\nCurrent allocation summary follows."
        )
    else:
        text += (
            "requested by op \nIf the cause is memory fragmentation maybe the environment variable "
            "'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. \n"
            "Current allocation summary follows.\nCurrent allocation summary follows."
        )
    return writer.warning("bfc_allocator.cc", text, line=482 if writer.jax < (0, 5, 0) else 501)


def picture(pool: Pool) -> str:
    """Returns the map of all regions in 100 characters."""
    cells = ["_"] * 100
    total = pool.size
    at = 0
    for chunk in pool.chunks:
        if chunk.in_use:
            first, last = at * 100 // total, (at + chunk.requested - 1) * 100 // total
            cells[first : last + 1] = "*" * (last + 1 - first)
        at += chunk.size
    return "".join(cells)


def warnings(writer: Writer, pool: Pool, size: int, role: Role = Role.TELLS) -> list[Line]:
    """Returns what is seen of a dump at the level of logging that JAX sets."""
    first = header(writer, size, pool.name)
    drawing = writer.warning("bfc_allocator.cc", picture(pool), line=512)
    return plain(first, drawing, role=role)


def dump(writer: Writer, pool: Pool, size: int, role: Role = Role.TELLS) -> list[Line]:
    """Returns the whole dump."""
    rounded = -(-size // 256) * 256
    texts = [f"BFCAllocator dump for {pool.name}", *_bins(pool), *_target_bin(pool, rounded)]
    texts += _regions(pool, writer.jax >= (0, 11, 0))
    texts += _summary(pool)
    texts += _pool_lines(writer, pool, rounded)
    texts.append(_statistics(writer, pool))
    first = header(writer, size, pool.name)
    records = [writer.info("bfc_allocator.cc", text) for text in texts]
    drawing = writer.warning("bfc_allocator.cc", picture(pool), line=512)
    return plain(first, *records, drawing, role=role)


def _bins(pool: Pool) -> list[str]:
    lines = []
    for number in range(21):
        chunks = [c for c in pool.chunks if c.bin == number and c.tag != "central_gap"]
        used = [chunk for chunk in chunks if chunk.in_use]
        lines.append(
            f"Bin ({256 << number}): \tTotal Chunks: {len(chunks)}, Chunks in use: {len(used)}. "
            f"{human(sum(c.size for c in chunks))} allocated for chunks. "
            f"{human(sum(c.size for c in used))} in use in bin. "
            f"{human(sum(c.requested for c in used))} client-requested in use in bin."
        )
    return lines


def _state(chunk: Chunk) -> str:
    number = -1 if chunk.in_use or chunk.tag == "central_gap" else chunk.bin
    return (
        f"  Size: {human(chunk.size)} | Requested Size: {human(chunk.requested)} | "
        f"in_use: {int(chunk.in_use)} | bin_num: {number}"
    )


def _target_bin(pool: Pool, rounded: int) -> list[str]:
    wanted = Chunk(rounded).bin
    lines = [f"Bin for {human(rounded)} was {human(256 << wanted)}, Chunk State: "]
    for region in pool.regions:
        for before, chunk, after in zip([None, *region], region, [*region[1:], None], strict=False):
            if chunk.in_use or chunk.bin != wanted or chunk.tag == "central_gap":
                continue
            neighbors = [("prev", before), ("next", after)]
            lines.append(_state(chunk) + "".join(f", {w}: {_state(n)}" for w, n in neighbors if n))
    return lines


def _regions(pool: Pool, tags: bool) -> list[str]:
    lines = []
    address, number = 0x7F2A40000000, 0
    for region in pool.regions:
        lines.append(f"Next region of size {sum(chunk.size for chunk in region)}")
        for place, chunk in enumerate(region, 1):
            number += 1
            text = f"{'InUse' if chunk.in_use else 'Free '} at {address:x} of size {chunk.size}"
            if tags:
                text += f" tag {chunk.tag}"
                text += f" allocation_annotation {chunk.label}" if chunk.label else ""
            lines.append(f"{text} next {NO_CHUNK if place == len(region) else number}")
            address += chunk.size
        address += 64 * MIB
    return lines


def _summary(pool: Pool) -> list[str]:
    counts: dict[int, int] = {}
    for chunk in pool.chunks:
        if chunk.in_use:
            counts[chunk.size] = counts.get(chunk.size, 0) + 1
    lines = ["     Summary of in-use Chunks by size: "]
    for size, count in sorted(counts.items()):
        lines.append(f"{count} Chunks of size {size} totalling {human(size * count)}")
    return [*lines, f"Sum Total of in-use chunks: {human(pool.used)}"]


def _pool_lines(writer: Writer, pool: Pool, rounded: int) -> list[str]:
    left = pool.limit - pool.size
    if writer.jax < (0, 8, 2):
        return [
            f"Total bytes in pool: {pool.size} memory_limit_: {pool.limit} available bytes: "
            f"{left} curr_region_allocation_bytes_: {pool.next_region}"
        ]
    if writer.jax < (0, 11, 0):
        return [
            f"Total size in pool: {human(pool.size)} memory_limit_: {human(pool.limit)} "
            f"available size: {human(left)} "
            f"curr_region_allocation_bytes_: {human(pool.next_region)}"
        ]
    gap = pool.gap.size if pool.gap else 0
    lines = [
        f"Allocator memory summary: rounded request {human(rounded)}, total free in pool "
        f"{human(pool.size - pool.used)}, largest free chunk usable by lower end "
        f"{human(max(gap, pool.largest('lower')))}, unallocated bytes {human(left)}, pool size "
        f"{human(pool.size)}, pool limit {human(pool.limit)}"
    ]
    if pool.gap:
        lines.append(
            f"Spatial partitioning summary for lower end: central gap {human(gap)}, largest "
            f"same-end binned free chunk {human(pool.largest('lower'))}, largest binned free chunk "
            f"from any end {human(pool.largest())}. The central gap is shared by lower/upper "
            "allocations and is not inserted into a bin."
        )
    growth = "growth enabled" if pool.grows else "growth disabled; fixed-size pool; not an "
    growth += "" if pool.grows else "attempted allocation"
    target = human(pool.next_region)
    hint = f"Allocator region growth hint: next region allocation target {target}"
    return [*lines, f"{hint} ({growth})."]


def _statistics(writer: Writer, pool: Pool) -> str:
    new = writer.jax >= (0, 11, 0)
    show = str if writer.jax < (0, 8, 2) else human
    peak = min(pool.size, pool.used + pool.used // 50 // 256 * 256)
    rows = [
        ("Limit:", show(pool.limit)),
        ("InUse:", show(pool.used)),
        ("MaxInUse:", show(peak)),
        ("NumAllocs:", str(writer.rng.randrange(700, 90_000))),
        ("MaxAllocSize:", show(max(chunk.size for chunk in pool.chunks if chunk.in_use))),
        ("Reserved:", show(0)),
        ("PeakReserved:", show(0)),
        ("LargestFreeBlock:", show(max(pool.largest(), pool.gap.size if pool.gap else 0))),
    ]
    if not new:
        rows[-1] = ("LargestFreeBlock:", show(0))
    lines = [f"{label:<18}{value:>20}" for label, value in rows]
    if new:
        lines.insert(-1, f"{'PeakAllocated:':<22}{show(0):>20}")
    return "Stats: \n" + "\n".join(lines) + "\n"
