//! Reads `catalogue.toml`: what is written once per compute capability is joined to each card, and
//! MIG slices are derived from their parents.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{Certainty, Gpu, PeakTflops, Platform, Total};
use crate::error::{Error, ErrorKind, Result};

const TEXT: &str = include_str!("catalogue.toml");

/// The same on every card of every capability listed here (CUDA C++ Programming Guide).
const REGISTERS_PER_CORE: u32 = 65_536;
const SHARED_MEMORY_PER_BLOCK_BYTES: u32 = 49_152;

/// MIG divides the memory of a card, its bandwidth and its L2 cache into this many parts.
const MEMORY_SLICES: u64 = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    context: ContextModel,
    capability: Vec<Capability>,
    card: Vec<Card>,
    mig: Vec<Slice>,
}

/// What a CUDA context is taken to cost where a card says nothing itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextModel {
    base_bytes: u64,
    per_thread_bytes: u64,
}

impl ContextModel {
    fn bytes(&self, cores: u32, max_threads_per_core: u32) -> u64 {
        self.base_bytes + self.per_thread_bytes * u64::from(cores) * u64::from(max_threads_per_core)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Capability {
    version: String,
    fp32_lanes_per_core: u32,
    max_threads_per_core: u32,
    shared_memory_per_core_bytes: u32,
    shared_memory_per_block_optin_bytes: u32,
    cuda_majors: (u32, u32),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Card {
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    description: String,
    capability: String,
    memory_bytes: Option<u64>,
    #[serde(default)]
    totals: Vec<Total>,
    memory: Certainty,
    #[serde(default)]
    shares_host_memory: bool,
    cores: u32,
    l2_bytes: u64,
    bandwidth_bytes_per_s: u64,
    clock_ghz: f64,
    #[serde(default)]
    peak_tflops: PeakTflops,
    context_bytes_estimate: Option<u64>,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Slice {
    parent: String,
    profile: String,
    #[serde(default)]
    aliases: Vec<String>,
    /// Without it the slice has the totals of its parent.
    memory_bytes: Option<u64>,
    memory: Certainty,
    cores: u32,
    memory_slices: u64,
}

struct Parsed {
    context: ContextModel,
    capabilities: Vec<Capability>,
    cards: Vec<Gpu>,
}

static PARSED: LazyLock<Parsed> =
    LazyLock::new(|| parse(TEXT).expect("catalogue.toml is part of the program and tested"));

/// Returns every card, MIG slices last.
pub(super) fn cards() -> &'static [Gpu] {
    &PARSED.cards
}

/// Reads a file that describes one card.
pub(super) fn parse_card(text: &str) -> Result<Gpu> {
    let card: Card = toml::from_str(text)
        .map_err(|e| invalid("the text does not describe a GPU").cause(e.message()))?;
    check(&card)?;
    join(card, &PARSED.capabilities, &PARSED.context)
}

fn parse(text: &str) -> Result<Parsed> {
    let file: Catalogue =
        toml::from_str(text).map_err(|e| invalid("the catalogue cannot be read").cause(e))?;
    let Catalogue {
        context,
        capability: capabilities,
        card,
        mig,
    } = file;
    let mut cards = Vec::with_capacity(card.len() + mig.len());
    for card in card {
        check(&card)?;
        cards.push(join(card, &capabilities, &context)?);
    }
    for slice in mig {
        let parent = cards
            .iter()
            .find(|gpu| gpu.name == slice.parent)
            .ok_or_else(|| {
                invalid(format!(
                    "the parent `{}` of a slice is missing",
                    slice.parent
                ))
            })?;
        let derived = cut(parent, slice, &context);
        cards.push(derived);
    }
    Ok(Parsed {
        context,
        capabilities,
        cards,
    })
}

/// Refuses figures with which XLA divides by zero, or that are off by a unit.
fn check(card: &Card) -> Result<()> {
    let refuse = |what: &str| {
        Err(invalid(format!(
            "`{what}` of card `{}` is implausible",
            card.name
        )))
    };
    if card.name.trim().is_empty() || card.name.contains(char::is_whitespace) {
        return refuse("name");
    }
    if card.description.trim().is_empty() {
        return refuse("description");
    }
    check_totals(card)?;
    if card.cores == 0 {
        return refuse("cores");
    }
    if card.l2_bytes == 0 {
        return refuse("l2_bytes");
    }
    if card.bandwidth_bytes_per_s < 1_000_000_000 {
        return refuse("bandwidth_bytes_per_s");
    }
    if !(0.1..10.0).contains(&card.clock_ghz) {
        return refuse("clock_ghz");
    }
    Ok(())
}

/// The totals that drivers report for one GPU lie closer together than this, in percent of the
/// lowest. The widest known range is that of the Quadro RTX 5000, whose error correction takes a
/// sixteenth; the rest is a slip of the pen.
const MAX_TOTAL_SPREAD_PERCENT: u64 = 10;

/// Refuses a card without a total, with two ways of giving it, and with implausible ones.
fn check_totals(card: &Card) -> Result<()> {
    let name = &card.name;
    let plausible = 1 << 28..1 << 44;
    match (card.memory_bytes, card.totals.is_empty()) {
        (Some(bytes), true) if plausible.contains(&bytes) => return Ok(()),
        (Some(_), true) => {
            return Err(invalid(format!(
                "`memory_bytes` of card `{name}` is implausible"
            )));
        }
        (None, true) => {
            return Err(invalid(format!(
                "`memory_bytes` of card `{name}` is missing"
            )));
        }
        (Some(_), false) => {
            let message = format!("card `{name}` has both `memory_bytes` and `totals`");
            return Err(invalid(message).hint("write one of them; the lowest total counts"));
        }
        (None, false) => {}
    }
    let refuse = || {
        Err(invalid(format!(
            "`totals` of card `{name}` are implausible"
        )))
    };
    let Some((lowest, highest)) = range(&card.totals) else {
        return refuse();
    };
    let is_wide = highest - lowest > lowest / 100 * MAX_TOTAL_SPREAD_PERCENT;
    let all_sourced = card
        .totals
        .iter()
        .all(|total| !total.source.trim().is_empty());
    if is_wide || !all_sourced || !plausible.contains(&lowest) {
        return refuse();
    }
    Ok(())
}

/// Returns the lowest and the highest total that was reported on Linux; `None` without any.
fn range(totals: &[Total]) -> Option<(u64, u64)> {
    let linux = totals
        .iter()
        .filter(|total| total.platform == Platform::Linux);
    let bytes = linux.map(|total| total.bytes);
    Some((bytes.clone().min()?, bytes.max()?))
}

fn join(card: Card, capabilities: &[Capability], context: &ContextModel) -> Result<Gpu> {
    let found = capabilities.iter().find(|c| c.version == card.capability);
    let version = card
        .capability
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let (Some(capability), Some(compute_capability)) = (found, version) else {
        let known: Vec<&str> = capabilities.iter().map(|c| c.version.as_str()).collect();
        return Err(invalid(format!(
            "compute capability `{}` is not known",
            card.capability
        ))
        .hint(format!("known: {}", known.join(", "))));
    };
    let (min_cuda_major, last) = capability.cuda_majors;
    let range = card.memory_bytes.map(|bytes| (bytes, bytes));
    let (total_memory_bytes, max_total_memory_bytes) = range
        .or_else(|| self::range(&card.totals))
        .unwrap_or_default();
    Ok(Gpu {
        context_bytes_estimate: card
            .context_bytes_estimate
            .unwrap_or_else(|| context.bytes(card.cores, capability.max_threads_per_core)),
        name: card.name,
        aliases: card.aliases,
        description: card.description,
        compute_capability,
        total_memory_bytes,
        max_total_memory_bytes,
        totals: card.totals,
        memory_certainty: card.memory,
        shares_host_memory: card.shares_host_memory,
        core_count: card.cores,
        fp32_lanes_per_core: capability.fp32_lanes_per_core,
        max_threads_per_core: capability.max_threads_per_core,
        registers_per_core: REGISTERS_PER_CORE,
        shared_memory_per_block_bytes: SHARED_MEMORY_PER_BLOCK_BYTES,
        shared_memory_per_core_bytes: capability.shared_memory_per_core_bytes,
        shared_memory_per_block_optin_bytes: capability.shared_memory_per_block_optin_bytes,
        l2_bytes: card.l2_bytes,
        bandwidth_bytes_per_s: card.bandwidth_bytes_per_s,
        clock_ghz: card.clock_ghz,
        peak_tflops: card.peak_tflops,
        min_cuda_major,
        max_cuda_major: (last != 0).then_some(last),
        mig_parent: None,
        source: card.source,
    })
}

/// Derives a MIG slice from the card it is cut from.
fn cut(parent: &Gpu, slice: Slice, context: &ContextModel) -> Gpu {
    let share = f64::from(slice.cores) / f64::from(parent.core_count);
    let memory_share = |whole: u64| whole * slice.memory_slices / MEMORY_SLICES;
    let alias = |name: &String| format!("{name}-{}", slice.profile);
    Gpu {
        name: format!("{}-mig-{}", parent.name, slice.profile),
        aliases: std::iter::once(&parent.name)
            .chain(&parent.aliases)
            .map(alias)
            .chain(slice.aliases)
            .collect(),
        description: format!("{} MIG {}", parent.description, slice.profile),
        total_memory_bytes: slice.memory_bytes.unwrap_or(parent.total_memory_bytes),
        max_total_memory_bytes: slice.memory_bytes.unwrap_or(parent.max_total_memory_bytes),
        totals: match slice.memory_bytes {
            Some(_) => Vec::new(),
            None => parent.totals.clone(),
        },
        memory_certainty: slice.memory,
        core_count: slice.cores,
        l2_bytes: memory_share(parent.l2_bytes),
        bandwidth_bytes_per_s: memory_share(parent.bandwidth_bytes_per_s),
        peak_tflops: parent.peak_tflops.scaled(share),
        context_bytes_estimate: context.bytes(slice.cores, parent.max_threads_per_core),
        mig_parent: Some(parent.name.clone()),
        source: format!(
            "memory and cores: nvidia-smi mig -lgip; the rest is the slice's share of {}",
            parent.name
        ),
        ..parent.clone()
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidFile, message)
}
