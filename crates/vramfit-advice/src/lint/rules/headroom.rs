//! Whether the GPU has enough memory for the settings.

use super::super::context::LintContext;
use super::super::finding::{Change, RawFinding};
use super::super::{CLOSED_GPU_RULE, Rule, Severity};
use crate::Bytes;
use crate::allocator::AllocatorKind;
use crate::host::{Closed, HostGpu, Mig, Process};
use crate::settings::{
    DEFAULT_FRACTION, GpuMemoryBudget, UNKNOWN_CONTEXT_BYTES, min_total_bytes, outside_bytes,
    pool_bytes,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "insufficient-headroom",
        severity: Severity::Warning,
        meaning: "The CUDA context, cuBLAS, cuDNN, NCCL, CUDA graphs and loaded kernels live \
                  outside JAX's pool. If the pool leaves too little memory for them, they fail \
                  with errors that do not mention memory. Their size is an estimate; the \
                  remaining memory is exact.",
        fix: "Lower the fraction.",
        check: insufficient_headroom,
    },
    Rule {
        id: "used-by-others",
        severity: Severity::Warning,
        meaning: "Other processes use memory on the GPU, so that the pool cannot reach its \
                  fraction. JAX silently allocates less, still reports the full limit, and fails \
                  later.",
        fix: "Stop the listed processes, or lower the fraction.",
        check: used_by_others,
    },
    Rule {
        id: "mig-fraction-of-parent",
        severity: Severity::Warning,
        meaning: "On a MIG slice, the fraction refers to the memory of the slice, but \
                  `nvidia-smi` reports that of the whole GPU. A fraction computed from the whole \
                  GPU is too small.",
        fix: "Compute the fraction from the memory of the slice, or give an amount: `vramfit run \
              --limit`.",
        check: mig_fraction_of_parent,
    },
    Rule {
        id: "preallocated-pool",
        severity: Severity::Note,
        meaning: "A process uses exactly what a JAX pool preallocates. `nvidia-smi` shows the \
                  size of the pool, not what the program needs.",
        fix: "Look inside the pool with `vramfit top`, or measure the need with `vramfit dryrun`.",
        check: preallocated_pool,
    },
    Rule {
        id: CLOSED_GPU_RULE,
        severity: Severity::Error,
        meaning: "The compute mode of the GPU allows only one process, or none. Others get a \
                  CUDA error that does not mention the mode. With NVIDIA's Multi-Process Service, its \
                  server is that process, and serves others.",
        fix: "Stop the process that uses the GPU, or ask the administrator to change the mode: \
              `nvidia-smi --compute-mode`.",
        check: exclusive_mode,
    },
];

/// Returns the largest fraction, in hundredths, that gives at most this many bytes; `None` below 0.05.
fn fraction_within(bytes: u64, total_bytes: u64) -> Option<f64> {
    let part = (bytes as f64 / total_bytes as f64 * 100.0).floor() / 100.0;
    (part >= 0.05).then_some(part)
}

/// Returns the fix that lowers the fraction to what fits on every GPU.
fn lower_fraction<'a>(
    context: &LintContext<'_>,
    fractions: impl Iterator<Item = Option<f64>> + 'a,
) -> Option<(String, Change)> {
    let part = fractions.min_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))??;
    let name = context.fraction_name();
    Some((format!("set `{name}={part}`"), Change::set(name, part.to_string())))
}

/// Returns whether the program uses JAX's default pool.
fn has_default_pool(context: &LintContext<'_>) -> bool {
    context.may_use_gpu() && !context.unified() && context.allocator() == Some(AllocatorKind::Bfc)
}

/// Returns the fraction of such a pool, unless it exceeds the GPU's memory.
fn pool_fraction(context: &LintContext<'_>) -> Option<f64> {
    context
        .fraction_value()
        .filter(|fraction_value| has_default_pool(context) && *fraction_value <= 1.0)
}

fn insufficient_headroom(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(fraction_value) = pool_fraction(context) else {
        return Vec::new();
    };
    let memory_budgets = context.memory_budgets();
    if memory_budgets.is_empty() {
        return Vec::from_iter(insufficient_headroom_unknown_gpu(context));
    }
    let fitting = memory_budgets.iter().map(|(_, room)| {
        fraction_within(room.total_bytes.saturating_sub(room.outside_bytes), room.total_bytes)
    });
    let change = lower_fraction(context, fitting);
    let name = context.fraction_name();
    let found = |(gpu, room): &(&HostGpu, GpuMemoryBudget)| {
        let pool = pool_bytes(fraction_value, room.total_bytes);
        let missing = room.shortfall_outside(pool)?;
        let message = format!(
            "{fraction_value} of the {1} of {0} leaves {2} for the CUDA context and libraries, \
             which need about {3}",
            display_name(gpu),
            Bytes(room.total_bytes),
            Bytes(room.total_bytes.saturating_sub(pool)),
            Bytes(room.outside_bytes).estimated(),
        );
        let found = match change.clone() {
            Some((fix, change)) => RawFinding::new(name, message, fix).with_change(change),
            None => RawFinding::new(
                name,
                message,
                "use a larger GPU, or let the pool grow: `XLA_PYTHON_CLIENT_PREALLOCATE=false`",
            ),
        };
        Some(found.with_cost(missing))
    };
    memory_budgets.iter().filter_map(found).collect()
}

/// The smallest common GPUs. A fraction that leaves enough on these is not reported if the GPU is unknown.
const COMMON_GPU_BYTES: u64 = 16 << 30;

fn insufficient_headroom_unknown_gpu(context: &LintContext<'_>) -> Option<RawFinding> {
    let fraction = context.fraction()?;
    let part = fraction.value.filter(|part| *part > 0.0 && *part <= 1.0)?;
    let enough = min_total_bytes(part);
    if enough.is_some_and(|total| total <= COMMON_GPU_BYTES) {
        return None;
    }
    let needed = Bytes(outside_bytes(UNKNOWN_CONTEXT_BYTES, 1)).estimated();
    let which = match enough {
        Some(total) => format!("on every GPU below {}", Bytes(total)),
        None => "on every GPU".to_owned(),
    };
    let message = format!(
        "{} leaves less than {needed}, about what the CUDA context and libraries need, {which}",
        fraction.text
    );
    Some(RawFinding::new(fraction.name, message, "on such a GPU use 0.9 or less"))
}

fn used_by_others(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(fraction_value) = pool_fraction(context) else {
        return Vec::new();
    };
    let memory_budgets = context.memory_budgets();
    let fitting = memory_budgets
        .iter()
        .map(|(_, room)| fraction_within(room.remaining_bytes(), room.total_bytes));
    let change = lower_fraction(context, fitting);
    let mut all = Vec::new();
    for (gpu, room) in &memory_budgets {
        let pool = pool_bytes(fraction_value, room.total_bytes);
        let free = room.total_bytes.saturating_sub(room.occupied_bytes);
        // Without others, `insufficient-headroom` applies.
        if room.occupied_bytes == 0 || pool <= room.remaining_bytes() {
            continue;
        }
        let who = gpu.describe_processes();
        let outcome = if pool <= free {
            "leaves too little for the context and libraries"
        } else if context.preallocates() {
            "JAX would silently allocate less"
        } else {
            "the pool cannot grow to it"
        };
        let message = format!(
            "{fraction_value} of {} is {}, of which {} is available: {} is used by {who}; \
             {outcome}",
            display_name(gpu),
            Bytes(pool),
            Bytes(room.remaining_bytes()),
            Bytes(room.occupied_bytes),
        );
        let found = match change.clone() {
            Some((fix, change)) => RawFinding::new(
                display_name(gpu),
                message,
                format!("stop these processes, or {fix}"),
            )
            .with_change(change),
            None => RawFinding::new(
                display_name(gpu),
                message,
                "stop these processes, or use another GPU",
            ),
        };
        all.push(found.with_cost(pool.saturating_sub(room.remaining_bytes())));
    }
    all
}

fn mig_fraction_of_parent(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(fraction) = context.fraction() else {
        return Vec::new();
    };
    let (Some(part), true) = (fraction.value, context.may_use_gpu()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (gpu, room) in context.memory_budgets() {
        let Mig::Instance { parent_total_bytes: Some(parent_total_bytes), .. } = gpu.mig else {
            continue;
        };
        let scale = parent_total_bytes as f64 / room.total_bytes as f64;
        // A usual fraction of the slice, expressed as a fraction of the GPU. With unified memory the
        // fraction is only limited by RAM, so any number may be meant that way.
        let ordinary = (0.6..=1.0).contains(&(part * scale)) && part < 0.6;
        if !(ordinary || context.unified() && part > 1.0) {
            continue;
        }
        let intended_name = pool_bytes(part * scale, room.total_bytes);
        let given = pool_bytes(part, room.total_bytes);
        all.push(
            RawFinding::new(
                fraction.name,
                format!(
                    "{} of {}, a slice of {}, is {}; of the {} of the whole GPU it would be {}",
                    fraction.text,
                    display_name(gpu),
                    Bytes(room.total_bytes),
                    Bytes(given),
                    Bytes(parent_total_bytes),
                    Bytes(intended_name),
                ),
                format!(
                    "set `{}={:.2}` if {} is intended",
                    fraction.name,
                    part * scale,
                    Bytes(intended_name)
                ),
            )
            .with_cost(intended_name.saturating_sub(given)),
        );
    }
    all
}

fn preallocated_pool(context: &LintContext<'_>) -> Vec<RawFinding> {
    let mut all = Vec::new();
    for (gpu, room) in context.memory_budgets() {
        let pool = pool_bytes(DEFAULT_FRACTION, room.total_bytes);
        // The context comes on top, and libraries.
        let looks_like_a_pool = |process: &&Process| {
            process.used_bytes.is_some_and(|bytes| {
                (pool..=pool.saturating_add(room.outside_bytes)).contains(&bytes)
            }) && process.command.as_deref().is_none_or(|command| command.contains("python"))
        };
        for process in gpu.processes.iter().filter(looks_like_a_pool) {
            let pid = process.pid;
            all.push(RawFinding::new(
                display_name(gpu),
                format!(
                    "process {pid} uses {}, the size of JAX's default pool and a CUDA context: it \
                     may need far less",
                    Bytes(process.used_bytes.unwrap_or(pool)),
                ),
                "look inside the pool with `vramfit top`",
            ));
        }
    }
    all
}

fn exclusive_mode(context: &LintContext<'_>) -> Vec<RawFinding> {
    let gpus = context.gpus().into_iter().filter(|_| context.may_use_gpu());
    let found = |gpu: &HostGpu| {
        let (message, fix) = match gpu.closed_by()? {
            Closed::ToAll => (
                format!("the compute mode of {} prohibits all processes", display_name(gpu)),
                "ask the administrator, or use another GPU".to_owned(),
            ),
            Closed::HeldBy(first) => (
                format!(
                    "the compute mode of {} allows one process, and {} uses it",
                    display_name(gpu),
                    first.describe()
                ),
                "stop that process, or use another GPU".to_owned(),
            ),
        };
        Some(RawFinding::new(display_name(gpu), message, fix))
    };
    gpus.filter_map(found).collect()
}

/// Returns how a GPU is named in a message.
fn display_name(gpu: &HostGpu) -> String {
    format!("GPU {} ({})", gpu.index, gpu.name)
}
