//! Whether the GPU has the memory that the settings ask for.

use super::super::finding::{Change, Found};
use super::super::scene::Scene;
use super::super::{Rule, Severity};
use crate::Bytes;
use crate::allocator::Kind;
use crate::host::{ComputeMode, HostGpu, Mig, Process, ProcessKind};
use crate::settings::{
    GpuMemoryBudget, JAX_DEFAULT_FRACTION, UNKNOWN_CONTEXT_BYTES, min_total_bytes, outside_bytes,
    pool_bytes,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "too-little-left",
        severity: Severity::Warning,
        meaning: "The CUDA context, cuBLAS, cuDNN, NCCL, CUDA graphs and loaded kernels lie outside \
                  JAX's pool. A pool that leaves them too little makes them fail with errors that do \
                  not speak of memory. What they need is an estimate; what is left is exact.",
        cure: "Lower the fraction.",
        check: too_little_left,
    },
    Rule {
        id: "held-by-others",
        severity: Severity::Warning,
        meaning: "Other processes hold memory on the GPU, so that the pool cannot have what the \
                  fraction says. JAX takes less without an error, goes on telling the full figure, \
                  and fails later.",
        cure: "End the processes that are named, or lower the fraction.",
        check: held_by_others,
    },
    Rule {
        id: "mig-share-of-parent",
        severity: Severity::Warning,
        meaning: "On a MIG slice the fraction counts from the slice's own memory, while `nvidia-smi` \
                  reports that of the whole GPU. A fraction that was computed from the whole GPU \
                  gives a part of a part.",
        cure: "Compute the fraction from the slice's memory, or name the amount: \
               `vramfit run --limit`.",
        check: share_of_parent,
    },
    Rule {
        id: "pool-is-not-need",
        severity: Severity::Note,
        meaning: "A process holds just what a JAX pool takes at its start. `nvidia-smi` shows the \
                  pool, which says nothing about what the program needs.",
        cure: "Look inside the pool with `vramfit top`, or ask `vramfit dryrun` for the need.",
        check: pool_is_not_need,
    },
    Rule {
        id: "card-is-exclusive",
        severity: Severity::Warning,
        meaning: "The GPU's compute mode lets one process or none use it. Another one gets an error \
                  of CUDA that does not speak of the mode.",
        cure: "End the process that has the GPU, or ask the administrator: \
               `nvidia-smi --compute-mode`.",
        check: exclusive,
    },
];

/// Returns the share that gives at most so many bytes, in hundredths, if there is one worth having.
fn share_for(bytes: u64, total_bytes: u64) -> Option<f64> {
    let part = (bytes as f64 / total_bytes as f64 * 100.0).floor() / 100.0;
    (part >= 0.05).then_some(part)
}

/// Returns the change that sets the share which fits on every GPU.
fn lower<'a>(
    scene: &Scene<'_>,
    parts: impl Iterator<Item = Option<f64>> + 'a,
) -> Option<(String, Change)> {
    let part = parts.min_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))??;
    let name = scene.fraction_name();
    Some((
        format!("write `{name}={part}`"),
        Change::set(name, part.to_string()),
    ))
}

/// Says whether JAX's own pool with a plain share is what the program gets.
fn has_plain_pool(scene: &Scene<'_>) -> bool {
    scene.wants_gpu() && !scene.unified() && scene.allocator() == Some(Kind::Bfc)
}

/// Returns the share of such a pool, unless it is more than the GPU.
fn plain_share(scene: &Scene<'_>) -> Option<f64> {
    scene
        .share()
        .filter(|share| has_plain_pool(scene) && *share <= 1.0)
}

fn too_little_left(scene: &Scene<'_>) -> Vec<Found> {
    let Some(share) = plain_share(scene) else {
        return Vec::new();
    };
    let rooms = scene.rooms();
    if rooms.is_empty() {
        return too_little_of_an_unknown_gpu(scene);
    }
    let fitting = rooms.iter().map(|(_, room)| {
        share_for(
            room.total_bytes.saturating_sub(room.outside_bytes),
            room.total_bytes,
        )
    });
    let change = lower(scene, fitting);
    let name = scene.fraction_name();
    let found = |(gpu, room): &(&HostGpu, GpuMemoryBudget)| {
        let pool = pool_bytes(share, room.total_bytes);
        let missing = room.shortfall_outside(pool)?;
        let message = format!(
            "{share} of {}'s {} leaves {} for the CUDA context and libraries, which need about {}",
            told(gpu),
            Bytes(room.total_bytes),
            Bytes(room.total_bytes.saturating_sub(pool)),
            Bytes(room.outside_bytes),
        );
        let found = match change.clone() {
            Some((fix, change)) => Found::new(name, message, fix).change(change),
            None => Found::new(
                name,
                message,
                "use a larger GPU, or let the pool grow: `XLA_PYTHON_CLIENT_PREALLOCATE=false`",
            ),
        };
        Some(found.cost(missing))
    };
    rooms.iter().filter_map(found).collect()
}

/// The smallest GPUs that many people compute on. A fraction that leaves enough on these is not told
/// where the GPU is not known.
const COMMON_TOTAL_BYTES: u64 = 16 << 30;

fn too_little_of_an_unknown_gpu(scene: &Scene<'_>) -> Vec<Found> {
    let Some(fraction) = scene.fraction() else {
        return Vec::new();
    };
    let Some(part) = fraction.value.filter(|part| *part > 0.0 && *part <= 1.0) else {
        return Vec::new();
    };
    let enough = min_total_bytes(part);
    if enough.is_some_and(|total| total <= COMMON_TOTAL_BYTES) {
        return Vec::new();
    }
    let needed = Bytes(outside_bytes(UNKNOWN_CONTEXT_BYTES, 1));
    let which = match enough {
        Some(total) => format!("on every GPU below {}", Bytes(total)),
        None => "on every GPU".to_owned(),
    };
    let message = format!(
        "{} leaves less than {needed}, about what the CUDA context and libraries need, {which}",
        fraction.text
    );
    vec![Found::new(
        fraction.name,
        message,
        "on such a GPU write 0.9 or less",
    )]
}

fn held_by_others(scene: &Scene<'_>) -> Vec<Found> {
    let Some(share) = plain_share(scene) else {
        return Vec::new();
    };
    let rooms = scene.rooms();
    let fitting = rooms
        .iter()
        .map(|(_, room)| share_for(room.remaining_bytes(), room.total_bytes));
    let change = lower(scene, fitting);
    let mut all = Vec::new();
    for (gpu, room) in &rooms {
        let pool = pool_bytes(share, room.total_bytes);
        let free = room.total_bytes.saturating_sub(room.occupied_bytes);
        // Without others it is the rule before this one that speaks.
        if room.occupied_bytes == 0 || pool <= room.remaining_bytes() {
            continue;
        }
        let who = holders(gpu);
        let outcome = if pool <= free {
            "leaves too little for the context and libraries"
        } else if scene.preallocates() {
            "JAX would take less and not say so"
        } else {
            "the pool cannot grow to it"
        };
        let message = format!(
            "{share} of {} is {}, of which {} can be had: {} hold {who}; {outcome}",
            told(gpu),
            Bytes(pool),
            Bytes(room.remaining_bytes()),
            Bytes(room.occupied_bytes),
        );
        let found = match change.clone() {
            Some((fix, change)) => {
                Found::new(told(gpu), message, format!("end what holds it, or {fix}"))
                    .change(change)
            }
            None => Found::new(told(gpu), message, "end what holds it, or use another GPU"),
        };
        all.push(found.cost(pool.saturating_sub(room.remaining_bytes())));
    }
    all
}

/// Names the processes that hold most, as far as the driver tells.
fn holders(gpu: &HostGpu) -> String {
    const NAMED: usize = 3;
    let mut processes: Vec<&Process> = gpu.processes.iter().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.used_bytes));
    if processes.is_empty() {
        return "processes that the driver does not name here".to_owned();
    }
    let mut names: Vec<String> = processes.iter().take(NAMED).map(|p| process(p)).collect();
    if processes.len() > NAMED {
        names.push(format!("{} more", processes.len() - NAMED));
    }
    names.join(", ")
}

fn process(process: &Process) -> String {
    const COLUMNS: usize = 40;
    let pid = process.pid;
    let command = process.command.as_deref().unwrap_or("a process");
    let command: String = command.chars().take(COLUMNS).collect();
    let kind = match process.kind {
        ProcessKind::Compute => "",
        ProcessKind::Graphics | ProcessKind::Both => ", display",
    };
    match process.used_bytes {
        Some(bytes) => format!("`{command}` ({pid}{kind}, {})", Bytes(bytes)),
        None => format!("`{command}` ({pid}{kind})"),
    }
}

fn share_of_parent(scene: &Scene<'_>) -> Vec<Found> {
    let Some(fraction) = scene.fraction() else {
        return Vec::new();
    };
    let (Some(part), true) = (fraction.value, scene.wants_gpu()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (gpu, room) in scene.rooms() {
        let Mig::Slice {
            parent_total_bytes: Some(parent_total_bytes),
            ..
        } = gpu.mig
        else {
            continue;
        };
        let scale = parent_total_bytes as f64 / room.total_bytes as f64;
        // An ordinary share of the slice, written as a part of the GPU. With unified memory the
        // share is as large as the RAM allows, and any number may have been computed wrongly.
        let ordinary = (0.6..=1.0).contains(&(part * scale)) && part < 0.6;
        if !(ordinary || scene.unified() && part > 1.0) {
            continue;
        }
        let meant = pool_bytes(part * scale, room.total_bytes);
        let given = pool_bytes(part, room.total_bytes);
        all.push(
            Found::new(
                fraction.name,
                format!(
                    "{} of {}, a slice of {}, is {}; of the whole GPU's {} it would be {}",
                    fraction.text,
                    told(gpu),
                    Bytes(room.total_bytes),
                    Bytes(given),
                    Bytes(parent_total_bytes),
                    Bytes(meant),
                ),
                format!(
                    "write `{}={:.2}` if {} is meant",
                    fraction.name,
                    part * scale,
                    Bytes(meant)
                ),
            )
            .cost(meant.saturating_sub(given)),
        );
    }
    all
}

fn pool_is_not_need(scene: &Scene<'_>) -> Vec<Found> {
    let mut all = Vec::new();
    for (gpu, room) in scene.rooms() {
        let pool = pool_bytes(JAX_DEFAULT_FRACTION, room.total_bytes);
        // The context comes on top; libraries make it more.
        let looks_like_a_pool = |process: &&Process| {
            process.used_bytes.is_some_and(|bytes| {
                (pool..=pool.saturating_add(room.outside_bytes)).contains(&bytes)
            }) && process
                .command
                .as_deref()
                .is_none_or(|command| command.contains("python"))
        };
        for process in gpu.processes.iter().filter(looks_like_a_pool) {
            let pid = process.pid;
            all.push(Found::new(
                told(gpu),
                format!(
                    "process {pid} holds {}, which is JAX's default pool and a context: its need may \
                     be far less",
                    Bytes(process.used_bytes.unwrap_or(pool)),
                ),
                "look inside the pool with `vramfit top`",
            ));
        }
    }
    all
}

fn exclusive(scene: &Scene<'_>) -> Vec<Found> {
    let gpus = scene.gpus().into_iter().filter(|_| scene.wants_gpu());
    let found = |gpu: &HostGpu| {
        let (message, fix) = match (gpu.compute_mode?, gpu.processes.first()) {
            (ComputeMode::Prohibited, _) => (
                format!("{} is in a mode in which no process may use it", told(gpu)),
                "ask the administrator, or use another GPU".to_owned(),
            ),
            (ComputeMode::ExclusiveProcess, Some(first)) => (
                format!(
                    "{} takes one process at a time, and {} has it",
                    told(gpu),
                    process(first)
                ),
                "end that process, or use another GPU".to_owned(),
            ),
            _ => return None,
        };
        Some(Found::new(told(gpu), message, fix))
    };
    gpus.filter_map(found).collect()
}

/// Returns what a GPU is called in a sentence.
fn told(gpu: &HostGpu) -> String {
    format!("GPU {} ({})", gpu.index, gpu.name)
}
