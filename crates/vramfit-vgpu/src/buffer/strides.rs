//! Copying arrays between strided memory and dense row-major bytes.

use std::ptr;

use vramfit_model::program::Shape;

use crate::pjrt::abi::buffer::BufferMemoryLayout;
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status};

/// Byte strides of a dense array whose dimensions vary in this order, fastest first.
pub(crate) fn minor_to_major_strides(
    minor_to_major: &[i64],
    dims: &[i64],
    element_bytes: u64,
) -> Vec<i64> {
    let mut strides = vec![0; dims.len()];
    let mut stride = element_bytes as i64;
    for &dim in minor_to_major {
        if let Some(slot) = usize::try_from(dim).ok().and_then(|dim| strides.get_mut(dim)) {
            *slot = stride;
            stride *= dims[dim as usize].max(1);
        }
    }
    strides
}

/// Byte strides of a row-major array.
pub(crate) fn row_major_strides(dims: &[i64], element_bytes: u64) -> Vec<i64> {
    let order: Vec<i64> = (0..dims.len() as i64).rev().collect();
    minor_to_major_strides(&order, dims, element_bytes)
}

/// Returns the strides in bytes of a layout for an array of this shape.
///
/// # Errors
/// `Unimplemented` for tiled layouts, which no GPU array has.
///
/// # Safety
/// The layout is valid for the call.
pub(crate) unsafe fn layout_strides(
    layout: &BufferMemoryLayout,
    shape: &Shape,
) -> PjrtResult<Vec<i64>> {
    const STRIDES: i32 = 1;
    let rank = shape.dims.len();
    let rank_error =
        || Status::invalid_argument("the rank of a layout differs from that of its array");
    // SAFETY: `type` says which field of the union holds.
    unsafe {
        if layout.r#type == STRIDES {
            let strides = layout.value.strides;
            return if strides.num_byte_strides == rank {
                Ok(pointers::list(strides.byte_strides, rank).to_vec())
            } else {
                Err(rank_error())
            };
        }
        let tiled = layout.value.tiled;
        if tiled.num_tiles > 0 {
            return Err(Status::unimplemented("a tiled layout"));
        }
        if tiled.minor_to_major_size != rank {
            return Err(rank_error());
        }
        Ok(minor_to_major_strides(
            pointers::list(tiled.minor_to_major, rank),
            &shape.dims,
            shape.element_type.bytes(),
        ))
    }
}

/// Copies an array from strided memory to strided memory.
///
/// # Safety
/// Every element of `from` may be read, and every element of `to` written.
pub(crate) unsafe fn copy_strided(
    from: *const u8,
    from_strides: &[i64],
    to: *mut u8,
    to_strides: &[i64],
    dims: &[i64],
    element_bytes: u64,
) {
    if dims.iter().any(|&dim| dim <= 0) || element_bytes == 0 {
        return;
    }
    // The innermost dimensions that are dense on both sides are copied in one piece.
    let mut run = element_bytes as i64;
    let mut outer = dims.len();
    while outer > 0 && from_strides[outer - 1] == run && to_strides[outer - 1] == run {
        run *= dims[outer - 1];
        outer -= 1;
    }
    let mut index = vec![0_i64; outer];
    loop {
        let offset = |strides: &[i64]| -> isize {
            index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<i64>() as isize
        };
        // SAFETY: the offsets are those of elements, promised by the caller.
        unsafe {
            ptr::copy_nonoverlapping(
                from.offset(offset(from_strides)),
                to.offset(offset(to_strides)),
                run as usize,
            );
        }
        let Some(dim) = (0..outer).rev().find(|&dim| index[dim] + 1 < dims[dim]) else {
            return;
        };
        index[dim] += 1;
        index[dim + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies an array, whose first element is that at `first`, to row-major order; one more element stays 7.
    fn copied(source: &[u16], first: usize, strides: &[i64], dims: &[i64]) -> Vec<u16> {
        let mut target = vec![7; dims.iter().product::<i64>() as usize + 1];
        // SAFETY: the arrays of the tests lie in their sources, and the target has their elements.
        unsafe {
            copy_strided(
                source.as_ptr().add(first).cast(),
                strides,
                target.as_mut_ptr().cast(),
                &row_major_strides(dims, 2),
                dims,
                2,
            );
        }
        target
    }

    #[test]
    fn transposed_and_reversed_arrays_are_copied_to_row_major() {
        let source: Vec<u16> = (0..6).collect(); // 3 x 2, column-major
        let strides = minor_to_major_strides(&[0, 1], &[3, 2], 2);
        assert_eq!(strides, [2, 6]);
        assert_eq!(copied(&source, 0, &strides, &[3, 2]), [0, 3, 1, 4, 2, 5, 7]);
        // A negative stride walks back from the last element.
        assert_eq!(copied(&source, 5, &[-2], &[6]), [5, 4, 3, 2, 1, 0, 7]);
    }

    #[test]
    fn empty_arrays_and_scalars() {
        assert_eq!(copied(&[1], 0, &[2, 2], &[0, 5]), [7]);
        assert_eq!(copied(&[1], 0, &[], &[]), [1, 7]);
    }
}
