//! The part of a card that the pool may take, as the text that JAX reads.

use super::room::{Room, pool_bytes};
use super::version::Version;
use crate::allocator::{Kind, PoolOptions};
use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};

/// How much of a card the pool may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// A part of the card's total memory.
    Fraction(f64),
    /// At most so many bytes of a card of that size. JAX has no such setting: it becomes the
    /// fraction of the card that comes nearest from below.
    Limit {
        /// What the pool may take.
        limit_bytes: u64,
        /// What the card has.
        total_bytes: u64,
    },
    /// As much as each of several processes can have beside the others, when a part of the card is
    /// to stay free.
    Divided {
        /// How many processes there will be on the card, this one included.
        processes: u32,
        /// What is to be left for whoever comes.
        keep_free_bytes: u64,
        /// The card; `None` where nothing is known of it. JAX's own three quarters are divided then.
        room: Option<Room>,
    },
}

/// The part that JAX takes when it is told nothing.
pub(crate) const DEFAULT_FRACTION: f64 = 0.75;

/// A fraction as JAX reads it, and why it is that one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) reason: String,
    /// What to know where the pool is not as large as was asked for.
    pub(super) note: Option<String>,
}

impl Share {
    /// Returns the bytes that the pool may take at most, where bytes were asked for.
    pub fn limit_bytes(self) -> Option<u64> {
        match self {
            Share::Limit { limit_bytes, .. } => Some(limit_bytes),
            Share::Fraction(_) | Share::Divided { .. } => None,
        }
    }

    /// Returns the fraction that gives this share in that release (`None`: any) with that allocator.
    pub(super) fn part(
        self,
        version: Option<Version>,
        kind: Kind,
        unified: bool,
        room: Option<Room>,
    ) -> Result<Part> {
        // Newer releases round up; where it is not known which one it is, as if it did.
        let jax_version = version.unwrap_or(Version::new(u32::MAX, 0, 0)).into();
        let pool = |total_bytes: u64| PoolOptions {
            kind,
            jax_version,
            total_memory_bytes: total_bytes,
            ..PoolOptions::default()
        };
        let limit = |limit_bytes: u64, total_bytes: u64| part_for(limit_bytes, &pool(total_bytes));
        match self {
            Share::Fraction(part) => Ok(Part {
                text: check_fraction(part, unified)?,
                reason: fraction_reason(part, room),
                note: None,
            }),
            Share::Limit {
                limit_bytes,
                total_bytes,
            } => {
                let part = limit(limit_bytes, total_bytes)?;
                let options = PoolOptions {
                    memory_fraction: f64::from(part),
                    ..pool(total_bytes)
                };
                Ok(Part {
                    text: shortest(part),
                    reason: format!(
                        "{} of the card's {}",
                        Bytes(limit_bytes),
                        Bytes(total_bytes)
                    ),
                    note: limit_note(limit_bytes, &options),
                })
            }
            Share::Divided {
                processes,
                keep_free_bytes,
                room: Some(room),
            } => {
                let pool = room.pool_bytes(processes, keep_free_bytes)?;
                Ok(Part {
                    text: shortest(limit(pool, room.total_bytes)?),
                    reason: divided_reason(pool, processes, keep_free_bytes, room),
                    note: None,
                })
            }
            Share::Divided {
                keep_free_bytes, ..
            } if keep_free_bytes > 0 => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{} of a card can only be kept free when its size is known",
                    Bytes(keep_free_bytes)
                ),
            )
            .hint("name the card, such as `--gpu a100-80g`; `vramfit gpus` lists them")),
            Share::Divided { processes: 0, .. } => Err(Error::new(
                ErrorKind::InvalidArgument,
                "a card is not shared among 0",
            )
            .hint("write the number of processes, such as `2`")),
            Share::Divided { processes, .. } => {
                let part = DEFAULT_FRACTION / f64::from(processes);
                Ok(Part {
                    // Cut and not rounded, so that the parts never come to more than the whole.
                    text: ((part * 1e4).floor() / 1e4).max(1e-4).to_string(),
                    reason: format!(
                        "JAX's own 75 % divided among {processes}; the card is not known, so \
                         whether the rest is enough for {processes} contexts is not, either"
                    ),
                    note: None,
                })
            }
        }
    }
}

/// Says what a limit in bytes becomes, where that is not what was asked for.
fn limit_note(asked_bytes: u64, options: &PoolOptions) -> Option<String> {
    let pool_bytes = options.limit_bytes();
    if pool_bytes == asked_bytes {
        return None;
    }
    let why = match options.limit_step_bytes() {
        1 => "JAX takes a fraction of 32 bits".to_owned(),
        step => format!(
            "JAX takes a fraction of 32 bits and makes pools of whole {}",
            Bytes(step)
        ),
    };
    Some(format!(
        "a limit of {asked_bytes} bytes was asked for, and the pool is limited to {pool_bytes}: {why}"
    ))
}

fn fraction_reason(part: f64, room: Option<Room>) -> String {
    let percent = part * 100.0;
    let Some(room) = room else {
        return format!("{percent:.1} % of the card, whatever it has");
    };
    let total = room.total_bytes;
    let pool = pool_bytes(part, total);
    format!(
        "{percent:.1} % of the card's {}, which leaves {} beside the pool",
        Bytes(total),
        Bytes(total.saturating_sub(pool))
    )
}

fn divided_reason(pool: u64, processes: u32, keep_free: u64, room: Room) -> String {
    let mut text = format!("{} of the card's {}", Bytes(pool), Bytes(room.total_bytes));
    let outside = Bytes(room.outside_bytes);
    text += &match processes {
        1 => format!(", after {outside} for context and libraries (estimated)"),
        _ => format!(
            ": a pool for each of {processes} processes, after {outside} each for context and \
             libraries (estimated)"
        ),
    };
    if room.held_bytes > 0 {
        text += &format!(", {} that others hold", Bytes(room.held_bytes));
    }
    if keep_free > 0 {
        text += &format!(", {} kept free", Bytes(keep_free));
    }
    text
}

/// Returns the text of a fraction that makes sense.
fn check_fraction(part: f64, unified: bool) -> Result<String> {
    let refuse = |hint: &str| {
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{part} is not a part of a card's memory"),
        )
        .hint(hint))
    };
    if !part.is_finite() || part <= 0.0 {
        return refuse("write a number above 0 and up to 1, such as `0.9`");
    }
    if part > 1.0 && !unified {
        return refuse(if (2.0..=100.0).contains(&part) {
            "write 90 percent as `0.9`; more than the card needs `TF_FORCE_UNIFIED_MEMORY=1`"
        } else {
            "more than the card needs `TF_FORCE_UNIFIED_MEMORY=1`"
        });
    }
    Ok(part.to_string())
}

/// Returns the largest fraction whose pool, as XLA computes it, is not larger than the limit.
fn part_for(limit_bytes: u64, options: &PoolOptions) -> Result<f32> {
    let total_bytes = options.total_memory_bytes;
    let refuse = |hint: String| {
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "a limit of {} cannot be had on a card of {}",
                Bytes(limit_bytes),
                Bytes(total_bytes)
            ),
        )
        .hint(hint))
    };
    if limit_bytes == 0 || limit_bytes > total_bytes {
        return refuse(format!(
            "give at most {}",
            Bytes(total_bytes).rounded_down()
        ));
    }
    let pool = |part: f32| {
        PoolOptions {
            memory_fraction: f64::from(part),
            ..options.clone()
        }
        .limit_bytes()
    };
    let step = options.limit_step_bytes();
    let whole = limit_bytes / step * step;
    if whole == 0 {
        return refuse(format!(
            "give at least {}: pools come in steps of that",
            Bytes(step).exact()
        ));
    }
    let mut part = (whole as f64 / total_bytes as f64) as f32;
    while pool(part) > limit_bytes {
        part = part.next_down();
    }
    while pool(part.next_up()) <= limit_bytes {
        part = part.next_up();
    }
    Ok(part)
}
/// Returns a text that Python reads as a number which becomes exactly this one in 32 bits.
pub(super) fn shortest(part: f32) -> String {
    let short = part.to_string();
    // Python reads 64 bits first, and rounding twice is not rounding once.
    if short.parse::<f64>().is_ok_and(|read| read as f32 == part) {
        short
    } else {
        f64::from(part).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASES: [Version; 2] = [Version::new(0, 10, 1), Version::new(0, 10, 2)];

    /// The pool that JAX and XLA make of a text: Python's 64 bits, the C API's 32, and XLA's product.
    fn pool(text: &str, total_memory_bytes: u64, jax: Version, kind: Kind) -> u64 {
        PoolOptions {
            kind,
            total_memory_bytes,
            memory_fraction: f64::from(text.parse::<f64>().unwrap() as f32),
            jax_version: jax.into(),
            ..PoolOptions::default()
        }
        .limit_bytes()
    }

    #[test]
    fn a_limit_is_never_exceeded_and_hardly_missed() {
        for total in [
            10_468_982_784_u64,
            25_414_860_800,
            84_942_979_072,
            191_514_411_008,
        ] {
            for limit in [
                2 << 20,
                1 << 30,
                8 << 30,
                8_589_934_593,
                total / 3,
                total - 1,
                total,
            ] {
                for (jax, kind) in RELEASES.into_iter().zip([Kind::Bfc, Kind::CudaAsync]) {
                    for kind in [Kind::Bfc, kind] {
                        let share = Share::Limit {
                            limit_bytes: limit,
                            total_bytes: total,
                        };
                        let text = share.part(Some(jax), kind, false, None).unwrap().text;
                        let had = pool(&text, total, jax, kind);
                        assert!(had <= limit, "{limit} of {total}: {had}");
                        let more = f64::from((text.parse::<f64>().unwrap() as f32).next_up());
                        let next = pool(&more.to_string(), total, jax, kind);
                        assert!(next > limit, "{limit} of {total}: {next} would fit too");
                    }
                }
            }
        }
    }

    #[test]
    fn a_limit_that_becomes_another_is_told_with_both_figures() {
        let note = |limit_bytes, jax, kind| {
            let share = Share::Limit {
                limit_bytes,
                total_bytes: 84_942_979_072,
            };
            share.part(Some(jax), kind, false, None).unwrap().note
        };
        // 500 MiB are 250 pages; the nearest fraction of 32 bits is a few bytes below.
        let old = note(500 << 20, RELEASES[0], Kind::Bfc).unwrap();
        assert!(old.contains("524288000 bytes was asked for"), "{old}");
        assert!(old.contains("limited to 52428"), "{old}");
        assert!(!old.contains("whole"), "{old}");
        assert_eq!(note(500 << 20, RELEASES[1], Kind::Bfc), None);
        let pages = note((500 << 20) + 1, RELEASES[1], Kind::Bfc).unwrap();
        assert!(pages.contains("limited to 524288000: "), "{pages}");
        assert!(pages.contains("whole 2.0 MiB"), "{pages}");
        assert!(note(500 << 20, RELEASES[1], Kind::CudaAsync).is_some());
    }

    #[test]
    fn a_pool_of_less_than_a_page_is_refused_where_pools_are_pages() {
        let share = Share::Limit {
            limit_bytes: 1 << 20,
            total_bytes: 1 << 34,
        };
        assert!(
            share
                .part(Some(RELEASES[0]), Kind::Bfc, false, None)
                .is_ok()
        );
        let error = share
            .part(Some(RELEASES[1]), Kind::Bfc, false, None)
            .unwrap_err();
        assert!(error.hint_text().unwrap().contains("2MiB"), "{error}");
    }

    #[test]
    fn shares_of_an_unknown_card_never_come_to_more_than_jax_itself_takes() {
        for processes in 1..=64 {
            let share = Share::Divided {
                processes,
                keep_free_bytes: 0,
                room: None,
            };
            let text = share.part(None, Kind::Bfc, false, None).unwrap().text;
            let all = text.parse::<f64>().unwrap() * f64::from(processes);
            assert!(all <= DEFAULT_FRACTION && all > 0.74, "{processes}: {all}");
        }
    }
}
