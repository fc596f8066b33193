//! What to do about a cause, with the bytes that it is about.
//!
//! `pool.rs` has what changes the pool, `program.rs` what the program needs of it, `beside.rs` what is about all else,
//! `platform.rs` what holds without a GPU of NVIDIA. What a remedy depends on, it asks itself: it is offered where it applies.

pub(super) mod beside;
pub(super) mod platform;
mod pool;
mod program;

use super::cause::{Cause, CauseId, Confidence};
use super::causes::not_memory;
use super::facts::Facts;
use super::message::Message;
use beside::{free_gpu, hide_from_tensorflow, host_memory, outside_pool, tpu};
use pool::{fragmentation, preallocate, raise_fraction};
use program::{divide, less_at_once, need_less};

/// Where the bytes of a remedy come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// A dry run with the remedy applied.
    Dryrun,
    /// A replay of a recorded run with the remedy applied.
    Replay,
    /// Figures of the log.
    Log,
    /// They are not known.
    None,
}

impl Basis {
    /// Returns the word for it in JSON.
    pub fn label(self) -> &'static str {
        match self {
            Basis::Dryrun => "dryrun",
            Basis::Replay => "replay",
            Basis::Log => "log",
            Basis::None => "none",
        }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Its stable id.
    pub id: &'static str,
    /// What to do, in one sentence.
    pub text: String,
    /// The command that does it, or shows how.
    pub command: String,
    /// The bytes that it saves, or makes available; `None` where that is not known.
    pub bytes: Option<u64>,
    /// Where they come from.
    pub basis: Basis,
    /// What was found when it was applied; empty where it was not.
    pub outcome: String,
}

impl Remedy {
    pub(super) fn new(
        id: &'static str,
        text: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Remedy {
            id,
            text: text.into(),
            command: command.into(),
            bytes: None,
            basis: Basis::None,
            outcome: String::new(),
        }
    }

    fn with_log_bytes(self, bytes: Option<u64>) -> Self {
        let bytes = bytes.filter(|bytes| *bytes > 0);
        let basis = if bytes.is_some() { Basis::Log } else { Basis::None };
        Remedy { bytes, basis, ..self }
    }
}

/// Causes whose remedies are shown: the first, and others that are as likely.
const MAX_CAUSES: usize = 3;

/// Returns the remedies, those about most bytes first.
pub(super) fn remedies(facts: &Facts<'_>, causes: &[Cause]) -> Vec<Remedy> {
    let mut remedies: Vec<Remedy> = Vec::new();
    let first = causes.first().map_or(Confidence::Possible, |cause| cause.confidence);
    let shown = causes
        .iter()
        .filter(|cause| cause.confidence == first || cause.confidence > Confidence::Possible);
    for cause in shown.take(MAX_CAUSES) {
        for remedy in of_cause(facts, cause.id) {
            let is_new = remedies.iter().all(|known| known.id != remedy.id);
            if is_new {
                remedies.push(remedy);
            }
        }
    }
    let mut remedies = match facts.platform() {
        Some(platform) => platform::adapt_to_platform(remedies, platform),
        None => remedies,
    };
    sort(&mut remedies);
    remedies
}

/// Sorts by bytes, the most first; those without stay in their order behind.
pub(super) fn sort(remedies: &mut [Remedy]) {
    remedies.sort_by_key(|remedy| std::cmp::Reverse(remedy.bytes));
}

pub(super) fn of_cause(facts: &Facts<'_>, cause: CauseId) -> Vec<Remedy> {
    let command = &facts.command;
    let run = |options: &str| format!("vramfit run {options} -- {command}");
    match cause {
        CauseId::PoolTooSmall => {
            hide_from_tensorflow(facts).into_iter().chain(need_less(facts)).collect()
        }
        CauseId::RequestLargerThanGpu => divide(facts),
        CauseId::Fragmentation => {
            fragmentation(facts).into_iter().chain(raise_fraction(facts)).collect()
        }
        CauseId::PoolNotObtained => {
            let hide = hide_from_tensorflow(facts);
            // It has taken the memory: no other process is known of.
            let is_shared = hide.is_none();
            let split = Remedy::new(
                "split-gpu",
                "give each of the processes that share the GPU a part that fits",
                run("--processes 2"),
            );
            let fraction = pool::fitting_fraction(facts);
            let free = Some(free_gpu(facts)).filter(|_| is_shared);
            let split = Some(split).filter(|_| is_shared);
            [pool::under_wsl(facts), hide, free, fraction, split].into_iter().flatten().collect()
        }
        CauseId::MemoryTakenLater => {
            let why = "take the pool's whole limit at startup, so that nobody else can";
            hide_from_tensorflow(facts)
                .into_iter()
                .chain([free_gpu(facts), preallocate(facts, why)])
                .collect()
        }
        CauseId::OutsidePool => outside_pool(facts),
        CauseId::AddressSpace => vec![Remedy::new(
            "raise-address-limit",
            "lift the limit of the address space",
            format!("ulimit -v unlimited; {command}"),
        )],
        CauseId::Autotuning => {
            let off = Remedy::new(
                "disable-autotuning",
                "compile without trying kernels; the default ones may be slower",
                format!("XLA_FLAGS=--xla_gpu_autotune_level=0 {command}"),
            );
            std::iter::once(off).chain(less_at_once(facts)).collect()
        }
        CauseId::Leak => vec![Remedy::new(
            "find-leak",
            "find the arrays that stay allocated, with the lines that make them",
            format!("vramfit dryrun --gpu {} --steps 20 --full -- {command}", facts.gpu_label()),
        )],
        CauseId::Recompilation => {
            let mut remedies = vec![Remedy::new(
                "pad-shapes",
                "pad inputs to a few fixed shapes, and pass changing numbers as arrays instead of static \
                 arguments; the log then shows one compilation for each",
                format!("JAX_LOG_COMPILES=1 {command}"),
            )];
            if facts.log.has(|message| *message == Message::CompiledPrograms) {
                remedies.push(Remedy::new(
                    "clear-caches",
                    "make jitted functions once, outside of loops, and drop programs that are no longer needed",
                    "jax.clear_caches()",
                ));
            }
            remedies
        }
        CauseId::HostMemory => host_memory(facts),
        CauseId::WrongSetting => vec![Remedy::new(
            "correct-settings",
            "start with settings that this JAX version honors; wrong ones are corrected or reported",
            run("").replace("  ", " "),
        )],
        CauseId::Tpu => tpu(facts),
        CauseId::NotMemory => not_memory::remedies(facts),
    }
}
