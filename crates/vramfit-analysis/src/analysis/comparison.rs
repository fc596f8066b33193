//! What other settings would have made of a run: the same events, counted twice.
//!
//! Before: as it was, checked against what the run recorded. After: through the allocators that the
//! settings ask for, on GPUs of their own.

use super::analyzer::{TraceAnalyzer, replay_events};
use super::device_summary::RequestContext;
use super::summary::RunSummary;
use crate::allocator::{AllocatorKind, POOL_GROWS_SINCE};
use crate::error::Result;
use crate::gpu::Gpu;
use crate::replay::{Divergence, Replay};
use crate::settings::{self, FractionPolicy, GpuBudgets, Options, Target, Version};
use crate::trace::{EventSource, Header};

/// What is to be different.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplayOverrides {
    /// The GPU; `None` leaves that of the run.
    pub gpu: Option<Gpu>,
    /// Allocator, size of the pool, preallocation. A limit is one of the GPU above.
    pub options: Options,
    /// Bytes that something else holds on each GPU; `None` leaves those of the run.
    pub occupied_bytes: Option<u64>,
    /// The pool of a later release of JAX, which may grow past its fraction; it takes the place of the size and
    /// allocator above.
    pub policy: Option<FractionPolicy>,
}

/// A run under its own settings and under others.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What the run came to; `None` for a list of requests, which has no answers.
    pub before: Option<RunSummary>,
    /// What it comes to under the settings, as far as it is known.
    pub after: RunSummary,
    /// The request that the run had refused and that is met now: how the program would have gone on
    /// is not known, and `after` ends there.
    pub newly_granted: Option<RequestContext>,
    /// Whether `after` ends at its last refusal, which the run did not have.
    pub ends_at_refusal: bool,
    /// What to know about the settings; one clause each.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Returns `true` if every request is met under the settings; `None` when that is not known.
    pub fn fits(&self) -> Option<bool> {
        match (self.after.is_refused(), &self.newly_granted) {
            (true, _) => Some(false),
            (false, Some(_)) => None,
            // What the run left open is open under other settings, too.
            (false, None) => self.after.fits(),
        }
    }
}

/// Replays the events under other settings, and returns the summaries there and here.
///
/// # Errors
/// Those of [`super::summarize`] for the run as it was, and
/// [`crate::ErrorKind::InvalidArgument`] for settings that cannot be.
///
/// # Examples
/// ```
/// use vramfit_analysis::analysis::{ReplayOverrides, compare};
/// use vramfit_model::gpu;
/// use vramfit_model::trace::RequestList;
///
/// // Two allocations, of 1 and 2 GiB, of which the first is freed.
/// let mut requests = RequestList::new(&b"A 0 1073741824\nA 1 2147483648\nF 0\n"[..]);
/// let settings = ReplayOverrides {
///     gpu: Some(gpu::find("t4")?),
///     ..ReplayOverrides::default()
/// };
/// let comparison = compare(&mut requests, &settings)?;
/// assert_eq!(comparison.fits(), Some(true));
/// assert_eq!(comparison.after.devices[0].peak_bytes, 3 << 30);
/// # Ok::<(), vramfit_analysis::Error>(())
/// ```
pub fn compare(source: &mut dyn EventSource, settings: &ReplayOverrides) -> Result<Comparison> {
    let (header, notes) = settings.applied(source.header())?;
    let mut before = match source.has_recorded_results() {
        true => Some(TraceAnalyzer::new(source.header())?),
        false => None,
    };
    let mut after = TraceAnalyzer::for_replay(&header, Replay::what_if(&header, before.is_none())?);
    let mut analyzers: Vec<_> = before.iter_mut().chain([&mut after]).collect();
    replay_events(source, &mut analyzers, u64::MAX)?;
    if let (Some(before), Some(footer)) = (&mut before, source.footer()) {
        before.verify_footer(footer)?;
    }
    let newly_granted = after.newly_granted(source);
    let ends_at_refusal = after.divergence() == Some(Divergence::Refused);
    Ok(Comparison {
        before: before.map(|analyzer| analyzer.into_summary(source.header(), source)),
        after: after.into_summary(&header, source),
        newly_granted,
        ends_at_refusal,
        notes,
    })
}

impl ReplayOverrides {
    /// Returns the header of a run under these settings, and what to know about them.
    fn applied(&self, header: &Header) -> Result<(Header, Vec<String>)> {
        let mut header = header.clone();
        if let Some(gpu) = &self.gpu {
            header.run.gpus.gpu = gpu.clone();
            header.run.context_bytes = gpu.context_bytes_estimate;
        }
        // A run that was measured without a limit is replayed with that of the GPU.
        header.run.unlimited = false;
        header.run.occupied_bytes = self.occupied_bytes.unwrap_or(header.run.occupied_bytes);
        let version = header.jax.parse().unwrap_or(Version::new(0, 0, 0));
        let was_partitionable = partitionable(&header, version);
        // The variables that would say it to JAX, read as JAX and XLA read them.
        let held = |name: &str| match name {
            "TF_FORCE_UNIFIED_MEMORY" if header.unified_memory => Some("1".to_owned()),
            "XLA_PYTHON_CLIENT_ALLOCATOR" if self.options.allocator.is_none() => {
                Some(header.allocator.clone())
            }
            _ => None,
        };
        let target = Target {
            jax: Some(version),
            variable: &held,
            gpu_budgets: &|| Ok(GpuBudgets::TotalOnly(header.total_memory_bytes())),
            ..Target::default()
        };
        let resolved = settings::resolve(&self.options, &target)?;
        let fraction = |name: &str| name.ends_with("CLIENT_MEM_FRACTION");
        let set = resolved.set.iter().find(|set| fraction(set.name));
        if let Some(part) = set.and_then(|set| set.value.parse::<f64>().ok()) {
            header.memory_fraction = f64::from(part as f32);
        }
        if self.options.sets_pool_size() {
            header.memory_cap = None;
            header.run.requested_limit_bytes = self.options.limit.map(|limit| limit.0);
        }
        if let Some(kind) = self.options.allocator {
            kind.name().clone_into(&mut header.allocator);
        }
        header.preallocate = self.options.preallocate.unwrap_or(header.preallocate);
        let mut notes = resolved.notes;
        if let Some(policy) = &self.policy {
            notes.push(apply_policy(policy, &mut header));
            return Ok((header, notes));
        }
        if partitionable(&header, version) && !was_partitionable {
            header.spatial_partitioning = true;
            notes.push(
                "the pool is partitioned, as is usual in this release of JAX; the run does not say \
                 whether its flags turn that off"
                    .to_owned(),
            );
        }
        Ok((header, notes))
    }
}

/// Gives a run the pool that XLA's main branch makes of a policy, and returns what to know about it.
fn apply_policy(policy: &FractionPolicy, header: &mut Header) -> String {
    let recorded = std::mem::replace(&mut header.jax, {
        let (major, minor, patch) = POOL_GROWS_SINCE;
        format!("{major}.{minor}.{patch}")
    });
    AllocatorKind::Bfc.name().clone_into(&mut header.allocator);
    header.memory_fraction = policy.start;
    header.memory_cap = policy.cap;
    header.preallocate = true;
    header.spatial_partitioning = true;
    header.unified_memory = false;
    header.run.requested_limit_bytes = None;
    format!(
        "no release of JAX up to 0.12.0.1 has a pool that grows past its fraction; this is the pool of XLA's main \
         branch, with the requests of a run of JAX {recorded}"
    )
}

/// Returns `true` if a flag decides about partitioning the pool of a run.
fn partitionable(header: &Header, version: Version) -> bool {
    let bfc = header.allocator.parse::<AllocatorKind>().ok() == Some(AllocatorKind::Bfc);
    bfc && header.preallocate && version >= Version::new(0, 11, 0)
}
