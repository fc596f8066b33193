//! Holding through CUDA's driver: exactly the bytes that were asked for, and no JAX.

use vramfit_core::machine::Card;
use vramfit_core::{Error, ErrorKind, Result};
use vramfit_gpu::{Absence, Driver, DriverCard, Sampler, SimulatedDeviceMemory};

use super::holder::{Holder, Other, Room, Verdict};

/// Where the way without a card is told.
const WITHOUT_A_CARD: &str = "without a card, on a virtual one: `vramfit dryrun --gpu t4 -- vramfit hold 8GiB --backend jax`";

/// Opens the driver and makes a context on a card, which is given by number or UUID.
///
/// # Errors
/// `no-driver` when there is none, or the card cannot be used; `invalid-argument` when there is no
/// such card.
pub(super) fn start(gpu: &str) -> Result<Box<dyn Holder>> {
    let driver = Driver::open().map_err(absent)?;
    let cards = driver.cards()?;
    let card = find(&cards, gpu)?.clone();
    let memory = driver.enter(card.index)?;
    let free = memory.free()?;
    Ok(Box::new(ByDriver {
        room: Room {
            gpu: card.index,
            card: card.name,
            whose: "the card",
            total_bytes: Some(free.total_bytes),
            free_bytes: free.free_bytes,
        },
        uuid: card.uuid,
        memory,
    }))
}

/// Makes sure that there is a driver, without touching a card's memory.
///
/// # Errors
/// `no-driver`.
pub(super) fn check() -> Result<()> {
    Sampler::open().map(drop).map_err(absent)
}

fn absent(absence: Absence) -> Error {
    let error = Error::from(absence);
    let cure = error.hint_text().unwrap_or_default().to_owned();
    error.hint(format!("{cure}; {WITHOUT_A_CARD}"))
}

/// Finds a card by its number or by its UUID, written as `nvidia-smi -L` does or in short.
fn find<'a>(cards: &'a [DriverCard], gpu: &str) -> Result<&'a DriverCard> {
    let refuse = |message: String| {
        let known: Vec<String> = cards
            .iter()
            .map(|card| format!("{} ({}, GPU-{})", card.index, card.name, card.uuid))
            .collect();
        Error::new(ErrorKind::InvalidArgument, message)
            .hint(format!("CUDA shows: {}", known.join(", ")))
    };
    if let Ok(index) = gpu.parse::<u32>() {
        let found = cards.iter().find(|card| card.index == index);
        return found.ok_or_else(|| refuse(format!("there is no GPU {index} here")));
    }
    let bare = gpu
        .strip_prefix("GPU-")
        .or_else(|| gpu.strip_prefix("MIG-"))
        .unwrap_or(gpu);
    let mut found = cards.iter().filter(|card| card.uuid.starts_with(bare));
    match (found.next(), found.next()) {
        (Some(card), None) if !bare.is_empty() => Ok(card),
        (Some(_), Some(_)) => Err(refuse(format!("`{gpu}` begins the UUID of several cards"))),
        _ => Err(refuse(format!("no card here has the UUID `{gpu}`"))),
    }
}

#[derive(Debug)]
struct ByDriver {
    room: Room,
    uuid: String,
    memory: SimulatedDeviceMemory,
}

impl Holder for ByDriver {
    fn room(&self) -> &Room {
        &self.room
    }

    fn others(&self) -> Vec<Other> {
        // Without NVML the refusal stands, only without names.
        let machine = vramfit_gpu::machine().unwrap_or_default();
        let is_ours = |card: &&Card| {
            let uuid = card.uuid.split_once('-').map(|(_, bare)| bare);
            card.is_usable() && uuid == Some(&self.uuid)
        };
        let card = machine.cards.iter().find(is_ours);
        let processes = card.map(|card| card.processes.clone()).unwrap_or_default();
        processes
            .into_iter()
            .filter(|process| process.pid != std::process::id())
            .map(|process| Other {
                pid: process.pid,
                used_bytes: process.used_bytes,
                command: process.command,
                user: process.user,
                container: process.container,
            })
            .collect()
    }

    fn take(&mut self, bytes: u64) -> Result<bool> {
        self.memory.take(bytes)
    }

    fn free_bytes(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.memory.free()?.free_bytes))
    }

    fn verify(&mut self) -> Result<Verdict> {
        let wrong = self.memory.verify()?;
        let free = self.memory.free()?.free_bytes;
        Ok(Verdict {
            held_bytes: self.memory.held_bytes(),
            counted_bytes: self.room.free_bytes.saturating_sub(free),
            read_back: Some(wrong.is_none()),
            note: wrong.map(|wrong| {
                format!(
                    "byte {} reads as {:#010x} after {:#010x} was written",
                    wrong.offset_bytes, wrong.read, wrong.written
                )
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(index: u32, uuid: &str) -> DriverCard {
        DriverCard {
            index,
            uuid: uuid.to_owned(),
            name: "Tesla T4".to_owned(),
            total_bytes: 1,
        }
    }

    #[test]
    fn cards_are_found_by_number_and_uuid() {
        let cards = [card(0, "0a1b-22"), card(1, "0a1c-33")];
        let index = |gpu: &str| find(&cards, gpu).map(|card| card.index).ok();
        assert_eq!(index("1"), Some(1));
        assert_eq!(index("GPU-0a1c-33"), Some(1));
        assert_eq!(index("MIG-0a1b"), Some(0));
        assert_eq!(index("0a1c"), Some(1));
        for (gpu, expected) in [
            ("2", "there is no GPU 2 here"),
            ("GPU-0a", "`GPU-0a` begins the UUID of several cards"),
            ("GPU-ff", "no card here has the UUID `GPU-ff`"),
            ("GPU-", "`GPU-` begins the UUID of several cards"),
        ] {
            let error = find(&cards, gpu).expect_err(gpu);
            assert_eq!(error.message(), expected);
            let hint = error.hint_text().expect("the cards there are");
            assert!(hint.contains("1 (Tesla T4, GPU-0a1c-33)"), "{hint}");
        }
    }
}
