//! Options about how JAX is to be started, the same in every command that has them.
//!
//! [`PoolArgs`] are those of a pool on a card that is known, for `dryrun` and `replay`. [`PolicyArgs`]
//! are all of them, for commands about a real program on cards that have to be found.

use vramfit_core::allocator::Kind;
use vramfit_core::settings::{self, Policy, Room, Share, Version};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use crate::cards::{self, Told};
use crate::wishes::Wishes;

/// How JAX's pool is to be.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct PoolArgs {
    /// Fraction of GPU memory that JAX's pool may use
    #[arg(
        long,
        value_name = "F",
        conflicts_with = "limit",
        allow_negative_numbers = true
    )]
    fraction: Option<f64>,
    /// Bytes that JAX's pool may use
    #[arg(long, value_name = "BYTES")]
    limit: Option<Bytes>,
    /// Allocator: default, bfc, platform, cuda_async, vmm or address
    #[arg(long, value_name = "NAME")]
    allocator: Option<Kind>,
    /// Let the pool grow instead of preallocating it
    #[arg(long)]
    no_preallocate: bool,
}

/// A version that has everything any version has.
const ANY_VERSION: Version = Version::new(u32::MAX, 0, 0);

impl PoolArgs {
    /// Gathers what was asked for, for a card of so many bytes.
    ///
    /// # Errors
    /// `invalid-argument` for a share that no card can give.
    pub(crate) fn policy(
        &self,
        total_bytes: u64,
        inherited: impl Fn(&str) -> Option<String>,
    ) -> Result<Policy> {
        let limit = self.limit.map(|limit| Share::Limit {
            limit_bytes: limit.0,
            total_bytes,
        });
        let policy = Policy {
            share: self.fraction.map(Share::Fraction).or(limit),
            allocator: self.allocator,
            preallocate: self.no_preallocate.then_some(false),
            ..Policy::default()
        };
        // Which names the program's JAX reads is known later; whether a share can be had, now.
        settings::variables_for(&policy, ANY_VERSION, inherited)?;
        Ok(policy)
    }
}

/// Everything about how JAX is to be started.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Split the GPU evenly among N processes
    #[arg(long, value_name = "N", conflicts_with_all = ["fraction", "limit"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: Option<u32>,
    /// Memory to leave free for other processes
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["fraction", "limit"])]
    keep_free: Option<Bytes>,
    /// Preallocate the whole pool at startup
    #[arg(long, conflicts_with = "no_preallocate")]
    preallocate: bool,
    /// Fail if no GPU is available, instead of falling back to the CPU
    #[arg(long)]
    require_gpu: bool,
    /// Allow XLA rematerialization
    #[arg(long, value_name = "WHETHER")]
    remat: Option<Switch>,
    /// Enable 64-bit types
    #[arg(long, conflicts_with = "no_x64")]
    x64: bool,
    /// Disable 64-bit types
    #[arg(long)]
    no_x64: bool,
    /// Compile jitted functions
    #[arg(long, conflicts_with = "no_jit")]
    jit: bool,
    /// Run jitted functions operation by operation
    #[arg(long)]
    no_jit: bool,
    /// Number of virtual CPU devices (does not affect GPUs)
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    host_devices: Option<u32>,
    /// Plan for this GPU, or several, instead of those of this machine: `h100-80g`, `h100-80gx8`
    #[arg(long, value_name = "NAME[xN]")]
    gpu: Option<String>,
    /// Memory already used on each GPU, overriding what the driver reports
    #[arg(long, value_name = "BYTES")]
    occupied: Option<Bytes>,
    /// Memory each process needs outside its pool, overriding the estimate
    #[arg(long, value_name = "BYTES")]
    headroom: Option<Bytes>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// Allowed
    On,
    /// Not allowed
    Off,
}

impl PolicyArgs {
    /// Returns what a command line would say that wishes the same.
    pub(crate) fn of(wishes: &Wishes) -> PolicyArgs {
        let is = |wish: Option<bool>, value: bool| wish == Some(value);
        PolicyArgs {
            pool: PoolArgs {
                fraction: wishes.fraction,
                limit: wishes.limit,
                allocator: wishes.allocator,
                no_preallocate: is(wishes.preallocate, false),
            },
            processes: wishes.processes,
            keep_free: wishes.keep_free,
            preallocate: is(wishes.preallocate, true),
            require_gpu: is(wishes.require_gpu, true),
            remat: wishes
                .remat
                .map(|on| if on { Switch::On } else { Switch::Off }),
            x64: is(wishes.x64, true),
            no_x64: is(wishes.x64, false),
            jit: is(wishes.jit, true),
            no_jit: is(wishes.jit, false),
            host_devices: wishes.host_devices,
            gpu: None,
            occupied: None,
            headroom: None,
        }
    }

    /// Gathers what was asked for. The cards are looked for where an amount depends on them, and
    /// with `look` also where they would only let more be told.
    ///
    /// # Errors
    /// As [`PolicyArgs::policy`].
    pub(crate) fn resolve(
        &self,
        look: bool,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Policy> {
        // Asking the driver costs time, so it is asked only when the answer matters.
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let limit_is_meant = is_set("JAX_PREALLOCATION_SIZE_LIMIT_BYTES");
        // What a fraction of the environment leaves to the libraries is told in bytes of the card.
        let fraction_is_set =
            is_set("XLA_CLIENT_MEM_FRACTION") || is_set("XLA_PYTHON_CLIENT_MEM_FRACTION");
        let depends = self.pool.limit.is_some() || self.is_divided() || self.gpu.is_some();
        if depends || limit_is_meant || (look && (self.concerns_cards() || fraction_is_set)) {
            self.policy(cards::rooms(&self.told(), variable), true)
        } else {
            self.policy(Ok(Vec::new()), true)
        }
    }

    /// Returns what was said about the cards.
    pub(crate) fn told(&self) -> Told<'_> {
        Told {
            gpu: self.gpu.as_deref(),
            occupied: self.occupied,
            headroom: self.headroom,
            processes: self.processes,
        }
    }

    /// Says whether the cards matter at all to what was asked for.
    pub(crate) fn concerns_cards(&self) -> bool {
        let amount = self.pool.fraction.is_some() || self.pool.limit.is_some();
        amount || self.is_divided() || self.gpu.is_some()
    }

    /// Returns among how many processes the card is to be divided, if it is.
    pub(crate) fn processes(&self) -> Option<u32> {
        self.processes
    }

    /// Returns what was asked for about the pool, in the words of the command line.
    pub(crate) fn words(&self) -> String {
        let pool = &self.pool;
        let mut words = Vec::new();
        words.extend(pool.fraction.map(|part| format!("--fraction {part}")));
        words.extend(pool.limit.map(|limit| format!("--limit {limit}")));
        words.extend(self.processes.map(|count| format!("--processes {count}")));
        words.extend(self.keep_free.map(|kept| format!("--keep-free {kept}")));
        words.extend(
            pool.allocator
                .map(|kind| format!("--allocator {}", kind.name())),
        );
        words.extend(self.preallocate.then(|| "--preallocate".to_owned()));
        words.extend(pool.no_preallocate.then(|| "--no-preallocate".to_owned()));
        words.join(" ")
    }

    fn is_divided(&self) -> bool {
        self.processes.is_some() || self.keep_free.is_some()
    }

    /// Gathers what was asked for, given the room on the cards.
    ///
    /// # Errors
    /// `invalid-argument` for a share that no card can give; the error of `rooms`, where an amount
    /// in bytes was asked for and cannot be turned into a fraction without a card.
    pub(crate) fn policy(&self, rooms: Result<Vec<Room>>, mend: bool) -> Result<Policy> {
        let needs_card = self.pool.limit.is_some() || self.keep_free.is_some();
        let rooms = match rooms {
            Err(error) if needs_card || self.gpu.is_some() => return Err(error),
            rooms => rooms.unwrap_or_default(),
        };
        let processes = self.processes.unwrap_or(1);
        let keep_free_bytes = self.keep_free.map_or(0, |bytes| bytes.0);
        // One fraction serves all cards: it must not be too much on any of them.
        let largest = rooms.iter().max_by_key(|room| room.total_bytes).copied();
        let tightest = if self.is_divided() {
            tightest(&rooms, processes, keep_free_bytes)?
        } else {
            rooms.iter().min_by_key(|room| room.left_bytes()).copied()
        };
        let share = match (self.pool.fraction, self.pool.limit, largest) {
            (Some(part), ..) => Some(Share::Fraction(part)),
            (None, Some(limit), Some(room)) => Some(Share::Limit {
                limit_bytes: limit.0,
                total_bytes: room.total_bytes,
            }),
            _ => self.is_divided().then_some(Share::Divided {
                processes,
                keep_free_bytes,
                room: tightest,
            }),
        };
        let either = |yes: bool, no: bool| yes.then_some(true).or(no.then_some(false));
        Ok(Policy {
            share,
            allocator: self.pool.allocator,
            preallocate: either(self.preallocate, self.pool.no_preallocate),
            require_gpu: self.require_gpu,
            remat: self.remat.map(|switch| switch == Switch::On),
            x64: either(self.x64, self.no_x64),
            jit: either(self.jit, self.no_jit),
            host_devices: self.host_devices,
            room: tightest,
            mend,
        })
    }
}

/// Returns the card on which the least part can be had, if every one has room at all.
fn tightest(rooms: &[Room], processes: u32, keep_free_bytes: u64) -> Result<Option<Room>> {
    let mut least: Option<(f64, Room)> = None;
    for room in rooms {
        let part = room.pool_bytes(processes, keep_free_bytes)? as f64 / room.total_bytes as f64;
        if least.is_none_or(|(other, _)| part < other) {
            least = Some((part, *room));
        }
    }
    Ok(least.map(|(_, room)| room))
}

/// Refuses more memory in others' hands than the card has.
///
/// # Errors
/// `invalid-argument`.
pub(crate) fn check_occupied(occupied: Option<Bytes>, total_bytes: u64) -> Result<()> {
    let total = Bytes(total_bytes);
    match occupied {
        Some(occupied) if occupied > total => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{occupied} cannot be occupied on a GPU of {total}"),
        )
        .hint(format!("give at most {}", total.rounded_down()))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_can_be_occupied_than_the_gpu_has() {
        assert!(check_occupied(None, 100).is_ok());
        assert!(check_occupied(Some(Bytes(100)), 100).is_ok());
        let error = check_occupied(Some(Bytes(101)), 100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
