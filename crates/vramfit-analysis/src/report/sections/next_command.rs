//! The command that comes next: with the program, the GPUs and the settings of this one.

use super::main_cause::{CauseKind, main_cause};
use super::spare_memory;
use crate::allocator::AllocatorKind;
use crate::analysis::{Condition, RunSummary};
use crate::explain::batch_option;
use crate::report::Action;
use crate::settings::DEFAULT_FRACTION;
use crate::trace::Header;

/// Batches that a search tries at most, as a multiple of the given one.
const MAX_BATCH_FACTOR: u64 = 64;

pub(in crate::report) fn next_command(summary: &RunSummary) -> Option<Action> {
    let header = &summary.header;
    if header.unified_memory {
        return None;
    }
    let program = shlex::try_join(words(header)).ok().filter(|program| !program.is_empty())?;
    let (gpu, pool) = (gpu_options(header), pool_options(header, header.preallocate));
    let new = |text: &str, command: String| Some(Action { text: text.to_owned(), command });
    let again = format!("vramfit dryrun {gpu}{pool} -- {program}");
    let plan = format!("vramfit plan {gpu}{pool} -- {program}");
    let verdict = summary.verdict();
    if verdict.fits == Some(true) {
        return match spare_memory::has_room(summary) && spare_memory::trains(summary) {
            false if summary.hosts.is_some() => None,
            false => new(
                "run it on the GPU with these settings",
                format!("vramfit run{pool} -- {program}"),
            ),
            true => match batch_option(&program) {
                Some(batch) => {
                    let range = format!("batch={}..{}", batch.size, batch.size * MAX_BATCH_FACTOR);
                    let command =
                        format!("vramfit plan {gpu}{pool} --vary {range} -- {}", batch.command);
                    new("find the largest batch that fits", command)
                }
                None => {
                    let command = format!("vramfit plan {gpu}{pool} --fastest -- {program}");
                    new("find what is faster with the memory that is left", command)
                }
            },
        };
    }
    if let Some(Condition::LibraryScratch { library, .. }) =
        verdict.conditions.first().filter(|_| verdict.fits.is_none())
    {
        return new(&format!("find a plan that fits whatever {library} takes"), plan);
    }
    summary.out_of_memory()?;
    let needed_bytes = summary.needed_bytes();
    let mut edits = summary.measured_edits.iter();
    let kind = main_cause(summary).map(|cause| cause.kind);
    match kind {
        Some(CauseKind::Fragmentation) if !header.preallocate => {
            // The environment may have switched it off.
            let pool = pool_options(header, true);
            let variable = "XLA_PYTHON_CLIENT_PREALLOCATE=true";
            let command = format!("{variable} vramfit dryrun {gpu}{pool} -- {program}");
            new("measure it with a preallocated pool", command)
        }
        Some(CauseKind::Leak) => new("measure it again without the leak", again),
        _ if edits.any(|edit| edit.fits == Some(true) && edit.helps(needed_bytes)) => {
            new("measure it again with the change below that fits", again)
        }
        _ if summary.program_memory.is_some() => new("find what makes it fit", plan),
        _ => None,
    }
}

/// Returns the words of the program's command; Python without its directory, as vramfit finds it.
pub(super) fn words(header: &Header) -> impl Iterator<Item = &str> {
    header.command.iter().enumerate().map(|(at, word)| match word.rsplit_once('/') {
        Some((_, "python" | "python3")) if at == 0 => "python",
        _ => word,
    })
}

/// Returns the options for the GPUs and hosts of a dry run.
pub(super) fn gpu_options(header: &Header) -> String {
    let count = match header.machine_gpu_count() {
        0 | 1 => String::new(),
        count => format!("x{count}"),
    };
    let mut options = format!("--gpu {}{count}", header.gpu().name);
    if let Some(host) = &header.run.host {
        options += &format!(" --hosts {}", host.count);
        options += &host.launcher.map_or(String::new(), |it| format!(" --launcher {}", it.name()));
    }
    if header.run.occupied_bytes > 0 {
        options += &format!(" --occupied {}", header.run.occupied_bytes);
    }
    options
}

/// Returns the settings of the pool that are not JAX's defaults.
fn pool_options(header: &Header, preallocates: bool) -> String {
    let mut options = String::new();
    if let Some(bytes) = header.run.requested_limit_bytes {
        options += &format!(" --limit {bytes}");
    } else if header.memory_fraction != DEFAULT_FRACTION {
        // It is a 32-bit number that was widened.
        options += &format!(" --fraction {}", header.memory_fraction as f32);
    }
    if header.allocator != AllocatorKind::Bfc.name() {
        options += &format!(" --allocator {}", header.allocator);
    } else if !preallocates {
        options += " --no-preallocate";
    }
    options
}
