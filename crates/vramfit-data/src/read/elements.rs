//! Numbers as the bytes of a file have them.

/// Numbers that lie at equal distances.
#[derive(Clone, Copy)]
pub(super) struct StridedElements {
    /// Distance between elements, and where in each the number begins.
    pub(super) stride: usize,
    pub(super) offset: usize,
    pub(super) big_endian: bool,
}

/// A number as its bytes have it.
pub(super) trait Load: Copy {
    fn load(bytes: &[u8], big_endian: bool) -> Self;
}
