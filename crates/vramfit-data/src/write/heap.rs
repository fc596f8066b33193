//! The heap that holds the texts of attributes, because they have no fixed length.

/// A collection of texts.
#[derive(Debug)]
pub(super) struct TextHeap {
    address: u64,
    objects: Vec<u8>,
    count: u16,
}

/// libhdf5 takes no smaller collection.
const MIN_SIZE: usize = 4096;

const HEADER: usize = 16;

impl TextHeap {
    /// Returns an empty heap that will be at `address`.
    pub(super) fn new(address: u64) -> Self {
        TextHeap {
            address,
            objects: Vec::new(),
            count: 0,
        }
    }

    /// Keeps a text and returns what an attribute holds in its place.
    pub(super) fn add(&mut self, text: &str) -> Vec<u8> {
        self.count += 1;
        self.object(self.count, 1, text.len() as u64);
        self.objects.extend(text.as_bytes());
        self.objects
            .resize(self.objects.len().next_multiple_of(8), 0);
        let mut reference = (text.len() as u32).to_le_bytes().to_vec();
        reference.extend(self.address.to_le_bytes());
        reference.extend(u32::from(self.count).to_le_bytes());
        reference
    }

    fn object(&mut self, index: u16, references: u16, size: u64) {
        self.objects.extend(index.to_le_bytes());
        self.objects.extend(references.to_le_bytes());
        self.objects.extend([0; 4]);
        self.objects.extend(size.to_le_bytes());
    }

    /// Returns the bytes of the collection; none when nothing was added.
    pub(super) fn encode(mut self) -> Vec<u8> {
        if self.count == 0 {
            return Vec::new();
        }
        let used = HEADER + self.objects.len();
        let size = (used + HEADER).next_multiple_of(8).max(MIN_SIZE);
        // What is left is object 0, the free space.
        self.object(0, 0, (size - used) as u64);
        let mut bytes = b"GCOL".to_vec();
        bytes.extend([1, 0, 0, 0]);
        bytes.extend((size as u64).to_le_bytes());
        bytes.extend(self.objects);
        bytes.resize(size, 0);
        bytes
    }
}
