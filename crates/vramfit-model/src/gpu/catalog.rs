//! Reads `catalog.toml`: what is written once per compute capability is joined to each GPU, and
//! MIG slices are derived from their parents.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{Certainty, Gpu, HostLink, PeakTflops, Platform, Total};
use crate::error::{Error, Result};

const TEXT: &str = include_str!("catalog.toml");

/// The same on every GPU of every capability listed here (CUDA C++ Programming Guide).
const REGISTERS_PER_CORE: u32 = 65_536;
const SHARED_MEMORY_PER_BLOCK_BYTES: u32 = 49_152;

/// MIG divides the memory of a GPU, its bandwidth and its L2 cache into this many parts.
const MEMORY_SLICES: u64 = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalog {
    context: ContextModel,
    capability: Vec<Capability>,
    gpu: Vec<GpuEntry>,
    mig: Vec<Slice>,
}

/// What a CUDA context is taken to cost where a GPU says nothing itself.
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
struct GpuEntry {
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
    host_link: Option<HostLink>,
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
    gpus: Vec<Gpu>,
}

static CATALOGUE: LazyLock<Parsed> =
    LazyLock::new(|| parse(TEXT).expect("catalog.toml is part of the program and tested"));

/// Returns every GPU, MIG slices last.
pub(super) fn gpus() -> &'static [Gpu] {
    &CATALOGUE.gpus
}

/// Reads a file that describes one GPU.
pub(super) fn parse_gpu(text: &str) -> Result<Gpu> {
    let entry: GpuEntry = toml::from_str(text)
        .map_err(|e| Error::invalid_file("the text does not describe a GPU").cause(e.message()))?;
    check(&entry)?;
    to_gpu(entry, &CATALOGUE.capabilities, &CATALOGUE.context)
}

fn parse(text: &str) -> Result<Parsed> {
    let file: Catalog = toml::from_str(text)
        .map_err(|e| Error::invalid_file("the catalog cannot be read").cause(e))?;
    let Catalog { context, capability: capabilities, gpu: entries, mig } = file;
    let mut gpus = Vec::with_capacity(entries.len() + mig.len());
    for entry in entries {
        check(&entry)?;
        gpus.push(to_gpu(entry, &capabilities, &context)?);
    }
    for slice in mig {
        let parent = gpus.iter().find(|gpu| gpu.name == slice.parent).ok_or_else(|| {
            Error::invalid_file(format!("the parent `{}` of a slice is missing", slice.parent))
        })?;
        let derived = mig_slice_of(parent, slice, &context);
        gpus.push(derived);
    }
    Ok(Parsed { context, capabilities, gpus })
}

/// Refuses figures with which XLA divides by zero, or that are off by a unit.
fn check(entry: &GpuEntry) -> Result<()> {
    let implausible = |what: &str| {
        Err(Error::invalid_file(format!("`{what}` of GPU `{}` is implausible", entry.name)))
    };
    if entry.name.trim().is_empty() || entry.name.contains(char::is_whitespace) {
        return implausible("name");
    }
    if entry.description.trim().is_empty() {
        return implausible("description");
    }
    check_totals(entry)?;
    if entry.cores == 0 {
        return implausible("cores");
    }
    if entry.l2_bytes == 0 {
        return implausible("l2_bytes");
    }
    if entry.bandwidth_bytes_per_s < 1_000_000_000 {
        return implausible("bandwidth_bytes_per_s");
    }
    if !(0.1..10.0).contains(&entry.clock_ghz) {
        return implausible("clock_ghz");
    }
    Ok(())
}

/// The totals that drivers report for one GPU lie closer together than this, in percent of the
/// lowest. The widest known range is that of the Quadro RTX 5000, whose error correction takes a
/// sixteenth; the rest is a slip of the pen.
const MAX_TOTAL_SPREAD_PERCENT: u64 = 10;

/// Refuses a GPU without a total, with two ways of giving it, and with implausible ones.
fn check_totals(entry: &GpuEntry) -> Result<()> {
    let name = &entry.name;
    let plausible = 1 << 28..1 << 44;
    match (entry.memory_bytes, entry.totals.is_empty()) {
        (Some(bytes), true) if plausible.contains(&bytes) => return Ok(()),
        (Some(_), true) => {
            return Err(Error::invalid_file(format!(
                "`memory_bytes` of GPU `{name}` is implausible"
            )));
        }
        (None, true) => {
            return Err(Error::invalid_file(format!("`memory_bytes` of GPU `{name}` is missing")));
        }
        (Some(_), false) => {
            let message = format!("GPU `{name}` has both `memory_bytes` and `totals`");
            return Err(
                Error::invalid_file(message).hint("write one of them; the lowest total counts")
            );
        }
        (None, false) => {}
    }
    let implausible =
        || Err(Error::invalid_file(format!("`totals` of GPU `{name}` are implausible")));
    let Some((lowest, highest)) = range(&entry.totals) else {
        return implausible();
    };
    let is_wide = highest - lowest > lowest / 100 * MAX_TOTAL_SPREAD_PERCENT;
    let all_sourced = entry.totals.iter().all(|total| !total.source.trim().is_empty());
    if is_wide || !all_sourced || !plausible.contains(&lowest) {
        return implausible();
    }
    Ok(())
}

/// Returns the lowest and the highest total that was reported on Linux; `None` without any.
fn range(totals: &[Total]) -> Option<(u64, u64)> {
    let linux = totals.iter().filter(|total| total.platform == Platform::Linux);
    let bytes = linux.map(|total| total.bytes);
    Some((bytes.clone().min()?, bytes.max()?))
}

fn to_gpu(entry: GpuEntry, capabilities: &[Capability], context: &ContextModel) -> Result<Gpu> {
    let found = capabilities.iter().find(|c| c.version == entry.capability);
    let version = entry
        .capability
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let (Some(capability), Some(compute_capability)) = (found, version) else {
        let known: Vec<&str> = capabilities.iter().map(|c| c.version.as_str()).collect();
        return Err(Error::invalid_file(format!(
            "compute capability `{}` is not known",
            entry.capability
        ))
        .hint(format!("known: {}", known.join(", "))));
    };
    let (min_cuda_major, last) = capability.cuda_majors;
    let range = entry.memory_bytes.map(|bytes| (bytes, bytes));
    let (total_memory_bytes, max_total_memory_bytes) =
        range.or_else(|| self::range(&entry.totals)).unwrap_or_default();
    Ok(Gpu {
        context_bytes_estimate: entry
            .context_bytes_estimate
            .unwrap_or_else(|| context.bytes(entry.cores, capability.max_threads_per_core)),
        name: entry.name,
        aliases: entry.aliases,
        description: entry.description,
        compute_capability,
        total_memory_bytes,
        max_total_memory_bytes,
        totals: entry.totals,
        memory_certainty: entry.memory,
        shares_host_memory: entry.shares_host_memory,
        core_count: entry.cores,
        fp32_lanes_per_core: capability.fp32_lanes_per_core,
        max_threads_per_core: capability.max_threads_per_core,
        registers_per_core: REGISTERS_PER_CORE,
        shared_memory_per_block_bytes: SHARED_MEMORY_PER_BLOCK_BYTES,
        shared_memory_per_core_bytes: capability.shared_memory_per_core_bytes,
        shared_memory_per_block_optin_bytes: capability.shared_memory_per_block_optin_bytes,
        l2_bytes: entry.l2_bytes,
        bandwidth_bytes_per_s: entry.bandwidth_bytes_per_s,
        host_link: entry.host_link,
        clock_ghz: entry.clock_ghz,
        peak_tflops: entry.peak_tflops,
        min_cuda_major,
        max_cuda_major: (last != 0).then_some(last),
        mig_parent: None,
        source: entry.source,
    })
}

/// Derives a MIG slice from the GPU it is cut from.
fn mig_slice_of(parent: &Gpu, slice: Slice, context: &ContextModel) -> Gpu {
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
