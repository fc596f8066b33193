//! The heap that holds texts, which have no fixed length. It is made of collections.

/// The size of what stands for a text: its length, and where in which heap it is.
const REFERENCE_BYTES: usize = 16;

/// All texts, at an address that is known.
#[derive(Debug)]
pub(super) struct Heap {
    /// Where the collection that is being filled will be.
    address: u64,
    /// Collections that are full.
    closed: Vec<u8>,
    objects: Vec<u8>,
    count: u16,
}

/// libhdf5 takes no smaller collection.
const MIN_SIZE: usize = 4096;
/// A collection is read as a whole, so it is not filled further than this; objects are numbered by 16 bits.
const MAX_BYTES: usize = 1 << 20;
const MAX_OBJECTS: u16 = 60_000;

const HEADER: usize = 16;

impl Heap {
    /// Returns an empty heap that will be at `address`.
    pub(super) fn new(address: u64) -> Self {
        Heap { address, closed: Vec::new(), objects: Vec::new(), count: 0 }
    }

    /// Stores a text and returns the reference to it.
    pub(super) fn add(&mut self, text: &str) -> [u8; REFERENCE_BYTES] {
        if self.count == MAX_OBJECTS || self.objects.len() >= MAX_BYTES {
            self.close();
        }
        self.count += 1;
        self.object(self.count, 1, text.len() as u64);
        self.objects.extend(text.as_bytes());
        self.objects.resize(self.objects.len().next_multiple_of(8), 0);
        let mut reference = [0; REFERENCE_BYTES];
        reference[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
        reference[4..12].copy_from_slice(&self.address.to_le_bytes());
        reference[12..].copy_from_slice(&u32::from(self.count).to_le_bytes());
        reference
    }

    fn object(&mut self, index: u16, references: u16, size: u64) {
        self.objects.extend(index.to_le_bytes());
        self.objects.extend(references.to_le_bytes());
        self.objects.extend([0; 4]);
        self.objects.extend(size.to_le_bytes());
    }

    /// Finishes the collection that is being filled, so that another starts after it.
    fn close(&mut self) {
        let used = HEADER + self.objects.len();
        let size = (used + HEADER).next_multiple_of(8).max(MIN_SIZE);
        // What is left is object 0, the free space.
        self.object(0, 0, (size - used) as u64);
        let start = self.closed.len();
        self.closed.extend(b"GCOL");
        self.closed.extend([1, 0, 0, 0]);
        self.closed.extend((size as u64).to_le_bytes());
        self.closed.append(&mut self.objects);
        self.closed.resize(start + size, 0);
        self.address += size as u64;
        self.count = 0;
    }

    /// Returns the bytes of all collections; none when nothing was added.
    pub(super) fn encode(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.close();
        }
        self.closed
    }
}
