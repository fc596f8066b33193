"""XLA's best-fit-with-coalescing allocator, told again in the fewest words.

The expected answers of `test_examples.py` must not come from the allocator they test, so its
rules are written down here a second time, slowly and plainly. Read in XLA's `bfc_allocator.cc`
as JAX 0.10 pins it. Regions are laid out one after the other and never merge, as on a GPU.
"""

MIB = 1 << 20


def rounded(size):
    """Return `size` as the allocator counts it: whole blocks of 256 bytes."""
    return -(-size // 256) * 256


def pool_limit(total, fraction, jax):
    """Return what the pool of a GPU with `total` bytes may take.

    JAX 0.10.2 began to round it up to whole pages of 2 MiB.
    """
    limit = int(total * fraction)
    version = tuple(int(part) for part in jax.split(".")[:3])
    return limit if version < (0, 10, 2) else -(-limit // (2 * MIB)) * 2 * MIB


class OutOfMemory(Exception):
    """No chunk fits and no region can be added; `size` is what was asked for."""

    def __init__(self, size):
        super().__init__(f"no room for {size} bytes")
        self.size = size


class Chunk:
    def __init__(self, size, region):
        self.size, self.region, self.used = size, region, False


class Bfc:
    """A pool of at most `limit` bytes, preallocated or growing."""

    def __init__(self, limit, preallocate=True):
        self.limit = limit // 256 * 256
        self.next_region = self.limit if preallocate else min(rounded(limit), 2 * MIB)
        self.chunks = []  # of all regions, in address order
        self.regions = []
        self.in_use = self.peak = self.allocations = 0

    @property
    def pool(self):
        return sum(self.regions)

    @property
    def largest_free(self):
        return max((c.size for c in self.chunks if not c.used), default=0)

    def allocate(self, size):
        """Return the chunk for `size` bytes, or None when nothing was asked for."""
        if size == 0:
            return None
        need = rounded(size)
        chunk = self._smallest_free(need)
        if chunk is None:
            self._extend(need, size)
            chunk = self._smallest_free(need)
        if chunk.size >= 2 * need or chunk.size - need >= 128 * MIB:
            rest = Chunk(chunk.size - need, chunk.region)
            self.chunks.insert(self.chunks.index(chunk) + 1, rest)
            chunk.size = need
        chunk.used = True
        self.in_use += chunk.size
        self.peak = max(self.peak, self.in_use)
        self.allocations += 1
        return chunk

    def free(self, chunk):
        if chunk is None:
            return
        self.in_use -= chunk.size
        chunk.used = False
        at = self.chunks.index(chunk)
        for left in (at, at - 1):
            if left < 0 or left + 1 >= len(self.chunks):
                continue
            a, b = self.chunks[left], self.chunks[left + 1]
            if not a.used and not b.used and a.region == b.region:
                a.size += b.size
                del self.chunks[left + 1]

    def _smallest_free(self, need):
        free = [c for c in self.chunks if not c.used and c.size >= need]
        return min(free, key=lambda c: c.size, default=None)  # the first of equals: lowest address

    def _extend(self, need, size):
        available = (self.limit - self.pool) // 256 * 256
        if need > available:
            raise OutOfMemory(size)
        doubled = False
        while need > self.next_region:
            self.next_region *= 2
            doubled = True
        region = min(self.next_region, available)
        if not doubled:
            self.next_region *= 2
        self.chunks.append(Chunk(region, len(self.regions)))
        self.regions.append(region)
