//! The whole machine, now and again every second.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use nvml_wrapper::{Device, Nvml};
use vramfit_core::machine::{Card, Machine, Mig};

use crate::card::{self, Slice};
use crate::nvml::{self, Unknown, reason};
use crate::{Absence, list};

/// How often the expensive questions are asked. Lists of processes cost the driver milliseconds,
/// during which everybody else waits for it.
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A session with the driver that remembers what seldom changes.
#[derive(Debug)]
pub struct Sampler {
    nvml: Nvml,
    known: Option<Known>,
}

/// What was asked at the last full look.
#[derive(Debug)]
struct Known {
    at: Instant,
    machine: Machine,
    cards: Vec<Seen>,
}

/// A card of the last full look: where it is found again, and what was not known even then.
#[derive(Debug)]
struct Seen {
    index: u32,
    slice: Option<u32>,
    unknown: Vec<String>,
}

impl Sampler {
    /// Opens NVML and starts a session, which ends when the sampler is dropped.
    ///
    /// # Errors
    /// Why there is no driver to ask; it turns into an error of the kind `no-driver`.
    pub fn open() -> Result<Sampler, Absence> {
        Sampler::open_library(&nvml::library())
    }

    /// As [`Sampler::open`], with the library that has this name or path.
    ///
    /// # Errors
    /// As [`Sampler::open`].
    pub fn open_library(library: &OsStr) -> Result<Sampler, Absence> {
        Ok(Sampler {
            nvml: nvml::open(library)?,
            known: None,
        })
    }

    /// Asks for everything.
    pub fn machine(&mut self) -> Machine {
        self.look(Instant::now())
    }

    /// Asks for what changes every moment, and for processes, names and divisions at most every
    /// five seconds. `now` is the time of the caller's clock.
    pub fn sample(&mut self, now: Instant) -> Machine {
        match self.known.take() {
            Some(known) if now.saturating_duration_since(known.at) < SLOW_POLL_INTERVAL => {
                let machine = self.refresh(&known);
                self.known = Some(known);
                machine
            }
            _ => self.look(now),
        }
    }

    /// A full look, which is remembered.
    fn look(&mut self, now: Instant) -> Machine {
        let mut unknown = Unknown::default();
        let mut machine = Machine {
            driver: unknown.note("driver version", self.nvml.sys_driver_version()),
            cuda: unknown
                .note("CUDA version", self.nvml.sys_cuda_driver_version())
                .map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
            ..Machine::default()
        };
        let count = unknown.note("number of cards", self.nvml.device_count());
        let mut seen = Vec::new();
        for index in 0..count.unwrap_or(0) {
            match self.nvml.device_by_index(index) {
                Ok(device) => self.look_at(&device, index, &mut machine.cards, &mut seen),
                Err(error) => {
                    let unknown = vec![format!("everything: {}", reason(&error))];
                    machine.cards.push(Card {
                        index,
                        unknown: unknown.clone(),
                        ..Card::default()
                    });
                    seen.push(Seen {
                        index,
                        slice: None,
                        unknown,
                    });
                }
            }
        }
        machine.unknown = unknown.clauses();
        self.known = Some(Known {
            at: now,
            machine: machine.clone(),
            cards: seen,
        });
        machine
    }

    /// Adds a card and its slices.
    fn look_at(
        &self,
        device: &Device<'_>,
        index: u32,
        cards: &mut Vec<Card>,
        seen: &mut Vec<Seen>,
    ) {
        let parent = self.add(device, index, None, cards, seen);
        let (capability, total) = (
            parent.compute_capability,
            parent.memory.map(|memory| memory.total_bytes),
        );
        if parent.mig != Mig::Parent {
            return;
        }
        // The driver numbers as many places as the card could have slices; many are empty.
        for number in 0..device.mig_device_count().unwrap_or(0) {
            if let Ok(part) = device.mig_device_by_index(number) {
                let slice = Slice {
                    number,
                    parent_total_bytes: total,
                    capability,
                };
                self.add(&part, index, Some(&slice), cards, seen);
            }
        }
    }

    /// Adds one card or slice.
    fn add<'cards>(
        &self,
        device: &Device<'_>,
        index: u32,
        slice: Option<&Slice>,
        cards: &'cards mut Vec<Card>,
        seen: &mut Vec<Seen>,
    ) -> &'cards Card {
        let mut lasting = Unknown::default();
        let mut card = card::identify(&self.nvml, device, index, slice, &mut lasting);
        if card.is_usable() {
            card.processes = list::processes(&self.nvml, device, &mut lasting);
        }
        seen.push(Seen {
            index,
            slice: slice.map(|slice| slice.number),
            unknown: lasting.clauses(),
        });
        let mut momentary = lasting;
        card::measure(&self.nvml, device, &mut card, &mut momentary);
        card.unknown = momentary.clauses();
        cards.push(card);
        cards.last().expect("a card was just added")
    }

    /// The machine of the last full look with the figures of this moment.
    fn refresh(&self, known: &Known) -> Machine {
        let mut machine = known.machine.clone();
        for (card, seen) in machine.cards.iter_mut().zip(&known.cards) {
            let found = self
                .nvml
                .device_by_index(seen.index)
                .and_then(|device| match seen.slice {
                    Some(number) => device.mig_device_by_index(number),
                    None => Ok(device),
                });
            card.unknown.clone_from(&seen.unknown);
            match found {
                Ok(device) => {
                    let mut unknown = Unknown::default();
                    card::measure(&self.nvml, &device, card, &mut unknown);
                    card.unknown.extend(unknown.clauses());
                }
                Err(error) => {
                    card.memory = None;
                    card.utilization_percent = None;
                    card.temperature_c = None;
                    card.power_mw = None;
                    let told = format!("everything: {}", reason(&error));
                    if !card.unknown.contains(&told) {
                        card.unknown.push(told);
                    }
                }
            }
        }
        machine
    }
}
