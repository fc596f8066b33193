//! How much of a card a pool can have, once all that is not the pool is taken off.
//!
//! JAX's fraction is one of the card's total memory; what others hold, the CUDA context and the
//! libraries play no part in it. Whoever wants several processes on one card, or a part of it left
//! free, has to do this arithmetic; here it is done once, for every command.

use std::fmt;

use crate::allocator::PAGE_BYTES;
use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::gpu::{self, Gpu};
use crate::host::HostGpu;

/// Taken to be what the libraries of one process need on a card beside JAX's pool: an estimate.
///
/// A cuBLAS handle is reported at about 60 MB, one of cuSOLVER at about 250 MB, cuDNN's at tens to
/// hundreds of MB, kernels at up to tens of MiB a program; hardly any program has all of them.
pub const LIBRARIES_BYTES: u64 = 512 << 20;

/// Taken to be what NCCL needs on each card once a process uses several: an estimate, the upper end
/// of the 100 MB to 1 GB that are usual for one set of communicators.
pub const COLLECTIVES_BYTES: u64 = 1 << 30;

/// Taken for the CUDA context of a card that is not in the catalogue: more than was measured on any
/// (256 MiB on an RTX 3090, 426 MiB on an RTX 6000 Ada).
pub const UNKNOWN_CONTEXT_BYTES: u64 = 512 << 20;

/// What there is on one card, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The card's memory as CUDA reports it to JAX: what a fraction is a fraction of. A MIG slice
    /// has its own, not its parent's.
    pub total_bytes: u64,
    /// What others hold: a display, other processes. Processes of the same division do not count.
    pub held_bytes: u64,
    /// What each process of ours takes beside its pool: context and libraries. An estimate.
    pub outside_bytes: u64,
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, of which others hold {} and each process needs {} beside its pool (estimated)",
            Bytes(self.total_bytes),
            Bytes(self.held_bytes),
            Bytes(self.outside_bytes)
        )
    }
}

impl Room {
    /// Returns the room on a card of the catalogue, of which something else holds a part, for a
    /// process that uses `cards` of them.
    pub fn of_gpu(gpu: &Gpu, held_bytes: u64, cards: u32) -> Room {
        Room {
            total_bytes: gpu.total_memory_bytes,
            held_bytes,
            outside_bytes: outside_bytes(gpu.context_bytes_estimate, cards),
        }
    }

    /// Returns the room on a card of this machine, for a process that uses `cards` of them; `None`
    /// where the driver does not tell the card's memory.
    ///
    /// `siblings_bytes` is what processes of the same division hold there already.
    pub fn of_card(card: &HostGpu, siblings_bytes: u64, cards: u32) -> Option<Room> {
        let memory = card.memory?;
        let context =
            gpu::find(&card.name).map_or(UNKNOWN_CONTEXT_BYTES, |gpu| gpu.context_bytes_estimate);
        // CUDA reports the total without what the driver keeps for itself. Where an old driver does not
        // tell that apart, the total is a little too large, and a fraction of it a little too small.
        let total_bytes = memory
            .total_bytes
            .saturating_sub(memory.reserved_bytes.unwrap_or(0));
        Some(Room {
            total_bytes,
            held_bytes: total_bytes
                .saturating_sub(memory.free_bytes)
                .saturating_sub(siblings_bytes),
            outside_bytes: outside_bytes(context, cards),
        })
    }

    /// Returns what is left for the pool of one process.
    pub fn left_bytes(&self) -> u64 {
        let others = self.held_bytes.saturating_add(self.outside_bytes);
        self.total_bytes.saturating_sub(others)
    }

    /// Returns by how many bytes a pool leaves too little of the card for the CUDA context and the
    /// libraries of its process; `None` where it leaves enough.
    ///
    /// This is what "too little left" means in every command. What others hold plays no part in it: a
    /// pool that is too large beside them is another matter, which [`Room::left_bytes`] answers.
    pub fn missing_beside(&self, pool_bytes: u64) -> Option<u64> {
        let left = self.total_bytes.saturating_sub(pool_bytes);
        self.outside_bytes
            .checked_sub(left)
            .filter(|missing| *missing > 0)
    }

    /// Returns how large the pool of each of so many processes can be, in whole pages, so that all of
    /// them fit and `keep_free_bytes` of the card are left.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when nothing is left for the pools, or for no process.
    pub fn pool_bytes(&self, processes: u32, keep_free_bytes: u64) -> Result<u64> {
        let count = u64::from(processes);
        if count == 0 {
            return Err(
                Error::new(ErrorKind::InvalidArgument, "a card is not shared among 0")
                    .hint("write the number of processes, such as `2`"),
            );
        }
        let outside = self.outside_bytes.saturating_mul(count);
        let spoken_for = self
            .held_bytes
            .saturating_add(keep_free_bytes)
            .saturating_add(outside);
        let each = self.total_bytes.saturating_sub(spoken_for) / count;
        let pages = each / PAGE_BYTES * PAGE_BYTES;
        if pages > 0 {
            return Ok(pages);
        }
        let Room {
            total_bytes,
            held_bytes,
            outside_bytes,
        } = *self;
        let mut parts = vec![format!(
            "{} for the context and libraries of {}",
            Bytes(outside),
            if count == 1 {
                "one process".to_owned()
            } else {
                format!("{count} processes ({} each)", Bytes(outside_bytes))
            }
        )];
        if held_bytes > 0 {
            parts.push(format!("{} that others hold", Bytes(held_bytes)));
        }
        if keep_free_bytes > 0 {
            parts.push(format!("{} to be kept free", Bytes(keep_free_bytes)));
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "no room for a pool on a card of {}: {}",
                Bytes(total_bytes),
                parts.join(", ")
            ),
        )
        .hint(if held_bytes > 0 {
            "end what holds the memory, or ask for less: fewer processes, less kept free"
        } else {
            "ask for less: fewer processes, less kept free"
        }))
    }
}

/// Returns the bytes of a pool that may take that fraction of a card, as XLA computes them: the fraction
/// arrives in 32 bits. Rounding to pages, which depends on the release, is not in it. A fraction that is
/// negative or no number is nothing.
pub fn pool_bytes(fraction: f64, total_bytes: u64) -> u64 {
    (total_bytes as f64 * f64::from(fraction as f32)) as u64
}

/// Returns the total memory of the smallest card on which a pool of that fraction leaves enough, as
/// [`Room::missing_beside`] judges it for a card of which nothing is known; `None` where there is none.
pub fn smallest_total_bytes(fraction: f64) -> Option<u64> {
    let left = 1.0 - f64::from(fraction as f32);
    let needed = outside_bytes(UNKNOWN_CONTEXT_BYTES, 1);
    (left > 0.0).then(|| (needed as f64 / left).ceil() as u64)
}

/// Returns what one process takes beside its pool on each of the cards it uses: an estimate.
pub fn outside_bytes(context_bytes: u64, cards: u32) -> u64 {
    let collectives = if cards > 1 { COLLECTIVES_BYTES } else { 0 };
    context_bytes + LIBRARIES_BYTES + collectives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::GpuMemory;

    const GIB: u64 = 1 << 30;

    fn room(held_bytes: u64) -> Room {
        Room {
            total_bytes: 24 * GIB,
            held_bytes,
            outside_bytes: GIB,
        }
    }

    #[test]
    fn what_is_not_the_pool_is_taken_off_first() {
        assert_eq!(room(0).pool_bytes(1, 0).unwrap(), 23 * GIB);
        assert_eq!(room(0).pool_bytes(2, 0).unwrap(), 11 * GIB);
        assert_eq!(room(2 * GIB).pool_bytes(2, 4 * GIB).unwrap(), 8 * GIB);
        // A third of 21 GiB and a bit, down to a whole page.
        let third = Room {
            total_bytes: 24 * GIB + 10,
            ..room(0)
        };
        assert_eq!(third.pool_bytes(3, 0).unwrap(), 7 * GIB);
    }

    #[test]
    fn too_little_left_is_counted_in_bytes_of_the_card() {
        for (pool, missing) in [
            (0, None),
            (23 * GIB, None),
            (23 * GIB + 1, Some(1)),
            (24 * GIB, Some(GIB)),
            (99 * GIB, Some(GIB)),
        ] {
            // What others hold changes nothing about it.
            assert_eq!(room(0).missing_beside(pool), missing, "{pool}");
            assert_eq!(room(9 * GIB).missing_beside(pool), missing, "{pool}");
        }
    }

    #[test]
    fn the_smallest_card_for_a_fraction_is_just_large_enough() {
        for fraction in [0.5, 0.9, 0.95, 0.99] {
            let total_bytes = smallest_total_bytes(fraction).unwrap();
            let of = |total_bytes| Room {
                total_bytes,
                held_bytes: 0,
                outside_bytes: outside_bytes(UNKNOWN_CONTEXT_BYTES, 1),
            };
            let missing = |total| of(total).missing_beside(pool_bytes(fraction, total));
            assert_eq!(missing(total_bytes + 1), None, "{fraction}");
            // A fraction is 32 bits wide, so a few bytes below may still do.
            assert!(missing(total_bytes - GIB / 100).is_some(), "{fraction}");
        }
        assert_eq!(smallest_total_bytes(1.0), None);
    }

    #[test]
    fn a_card_without_room_is_refused_with_the_sum() {
        let error = room(20 * GIB).pool_bytes(3, 2 * GIB).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        for part in ["24.0 GiB", "3.0 GiB for", "20.0 GiB that", "2.0 GiB to be"] {
            assert!(error.message().contains(part), "{error} lacks {part}");
        }
        assert!(room(0).pool_bytes(0, 0).is_err());
        assert!(room(u64::MAX).pool_bytes(u32::MAX, u64::MAX).is_err());
    }

    #[test]
    fn what_the_driver_keeps_is_no_part_of_the_total_and_siblings_are_not_others() {
        let card = HostGpu {
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory: Some(GpuMemory {
                total_bytes: 80 * GIB,
                reserved_bytes: Some(GIB),
                used_bytes: 30 * GIB,
                free_bytes: 49 * GIB,
            }),
            ..HostGpu::default()
        };
        let room = Room::of_card(&card, 20 * GIB, 1).unwrap();
        assert_eq!((room.total_bytes, room.held_bytes), (79 * GIB, 10 * GIB));
        let h100 = gpu::find("h100-80g").unwrap();
        assert_eq!(
            room.outside_bytes,
            h100.context_bytes_estimate + LIBRARIES_BYTES
        );
        assert_eq!(Room::of_card(&HostGpu::default(), 0, 1), None);
        let unknown = HostGpu {
            name: "some prototype".to_owned(),
            ..card
        };
        assert_eq!(
            Room::of_card(&unknown, 0, 2).unwrap().outside_bytes,
            UNKNOWN_CONTEXT_BYTES + LIBRARIES_BYTES + COLLECTIVES_BYTES
        );
    }
}
