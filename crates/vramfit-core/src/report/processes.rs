//! Several processes on the same GPUs: which one an answer is about, and what the others hold.

use serde_json::{Value as Json, json};

use super::dryrun::{figure, section};
use super::{Body, Figure, Section, Table, Value};
use crate::analysis::{Condition, DeviceSummary, ProcessSummary, RunSummary};
use crate::bytes::Bytes;
use crate::trace::{OtherProcess, Sharing};

/// Processes that are listed at most; the JSON has all.
const MAX_PROCESSES_SHOWN: usize = 16;
/// Other processes that a sentence names.
const MAX_OTHERS_NAMED: usize = 3;
/// Characters of a command line that are shown.
const MAX_COMMAND_CHARACTERS: usize = 48;

/// Says in which process, where there are others; begins with a space.
pub(super) fn in_process(answer: &RunSummary) -> String {
    let is_alone = answer.processes.len() < 2 && answer.others_at_refusal.is_none();
    match is_alone || answer.header.pid == 0 {
        true => String::new(),
        false => format!(
            " in {}",
            name(answer.header.pid, &short(&answer.header.command))
        ),
    }
}

/// Says what other processes hold of a GPU, as the end of a sentence: at the first refusal, or at their most.
pub(super) fn held_by_others(answer: &RunSummary, device: &DeviceSummary) -> String {
    let (how, held) = match &answer.others_at_refusal {
        Some(others) => ("hold", others.held_bytes),
        None if answer.is_refused() => return String::new(),
        None => ("hold up to", device.held_by_others_bytes),
    };
    if held == 0 {
        return String::new();
    }
    let (who, total) = (others(answer), Bytes(answer.header.total_memory_bytes));
    format!("; {who} {how} {} of {total}", Bytes(held))
}

/// What other processes held at their most, where they held anything.
pub(super) fn held_figure(device: &DeviceSummary) -> Option<Figure> {
    let held = device.held_by_others_bytes;
    let note = "at most at once by other processes, while this one used the GPU; contexts included";
    (held > 0).then(|| figure("held by others", Value::Bytes(held), note))
}

/// One row for each process and GPU, where there are several processes.
pub(super) fn processes(answer: &RunSummary) -> Option<Section> {
    let count = answer.processes.len();
    if count < 2 {
        return None;
    }
    let rows = answer.processes.iter().flat_map(|process| {
        let fits = match process.fits {
            Some(true) => "fits",
            Some(false) => "does not fit",
            None => "cannot be told",
        };
        process.devices.iter().map(move |device| {
            vec![
                Value::Text(process.pid.to_string()),
                Value::Text(short(&process.command)),
                Value::Count(u64::from(device.gpu)),
                device
                    .pool_bytes
                    .map_or(Value::Missing("none"), Value::Bytes),
                Value::Bytes(device.peak_bytes),
                Value::Bytes(device.held_by_others_bytes),
                Value::Text(fits.to_owned()),
            ]
        })
    });
    let columns = [
        "process", "command", "GPU", "pool", "peak", "others", "answer",
    ];
    let rows: Vec<_> = rows.take(MAX_PROCESSES_SHOWN + 1).collect();
    let more = match rows.len() > MAX_PROCESSES_SHOWN {
        true => "; the others are in the JSON",
        false => "",
    };
    let table = Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.into_iter().take(MAX_PROCESSES_SHOWN).collect(),
        note: format!(
            "{}; everything else here is about process {}, which decides{more}",
            how_shared(answer),
            answer.header.pid
        ),
    };
    Some(section(
        &format!("{count} processes used the GPU"),
        Body::Table(table),
    ))
}

fn how_shared(answer: &RunSummary) -> &'static str {
    match (answer.header.sharing, answer.header.autotune_range) {
        (Sharing::Private, true) => "each as if it were alone (`--autotune-range`)",
        (Sharing::Private, false) => "each as if it were alone (`--private`)",
        _ => "they share the memory of the GPUs",
    }
}

/// What depends on the order in which processes take their memory.
pub(super) fn not_covered(answer: &RunSummary) -> Option<String> {
    let shares = answer.header.sharing != Sharing::Private;
    let held = answer
        .devices
        .iter()
        .any(|one| one.held_by_others_bytes > 0);
    (shares && held).then(|| {
        "another order of the processes: each got what was left when it came, and constants and \
         code of other processes' programs are not counted"
            .to_owned()
    })
}

/// Puts into words that other processes held memory when a request was refused.
pub(super) fn words(condition: &Condition) -> Option<String> {
    let Condition::SharedGpu {
        gpu,
        held_bytes,
        total_bytes,
        processes,
        fits_alone,
        of_this_run,
    } = condition
    else {
        return None;
    };
    let whose = whose(*of_this_run);
    let named = processes.iter().take(MAX_OTHERS_NAMED);
    let named: Vec<_> = named.map(other).collect();
    let alone = match fits_alone {
        Some(true) => "; without them it is met",
        Some(false) => "; without them it is refused all the same",
        None => "",
    };
    Some(format!(
        "{whose} hold {} of the {} of GPU {gpu} when the request is refused ({}){alone}. JAX takes \
         75 % of a GPU at its first operation, or what others leave of it. Keep processes that need \
         no GPU off it (`JAX_PLATFORMS=cpu`, for a data server), give each process a share (`vramfit \
         run --processes N`, or `XLA_PYTHON_CLIENT_MEM_FRACTION`), or let pools grow \
         (`XLA_PYTHON_CLIENT_PREALLOCATE=false`)",
        Bytes(*held_bytes),
        Bytes(*total_bytes),
        named.join(", ")
    ))
}

/// Returns the rows of the JSON: this process alone where no others are known.
pub(super) fn record(answer: &RunSummary) -> Json {
    let own = [answer.as_process()];
    let processes: &[ProcessSummary] = match answer.processes.is_empty() {
        true => &own,
        false => &answer.processes,
    };
    json!(processes)
}

fn others(answer: &RunSummary) -> &'static str {
    whose(answer.header.sharing == Sharing::Run)
}

fn whose(of_this_run: bool) -> &'static str {
    match of_this_run {
        true => "other processes of this run",
        false => "other processes that share it",
    }
}

fn other(process: &OtherProcess) -> String {
    let words: Vec<_> = process.command.split(' ').map(str::to_owned).collect();
    format!(
        "{}: {}",
        name(process.pid, &short(&words)),
        Bytes(process.bytes)
    )
}

fn name(pid: u32, command: &str) -> String {
    match command.is_empty() {
        true => format!("process {pid}"),
        false => format!("process {pid} (`{command}`)"),
    }
}

/// Shortens a command line: programs without their directories, one line, a few words.
pub(super) fn short(command: &[String]) -> String {
    let words = command.iter().enumerate().map(|(place, word)| {
        let is_path = place == 0 || word.ends_with(".py");
        let file = word.rsplit('/').next().filter(|_| is_path);
        file.unwrap_or(word).to_owned()
    });
    let words: Vec<_> = words.collect();
    // Code behind `-c` may have many lines.
    let line = words.join(" ");
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.contains(" from multiprocessing.") {
        // What such a process runs is not on its command line.
        let program = words.first().map_or("", |word| word.as_str());
        return format!("{program} (multiprocessing)");
    }
    match line.char_indices().nth(MAX_COMMAND_CHARACTERS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_without_directories_on_one_line() {
        let short = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
            super::short(&words)
        };
        assert_eq!(
            short(&["/usr/bin/python3", "/home/a/serve.py", "--data", "/data/x"]),
            "python3 serve.py --data /data/x"
        );
        assert_eq!(
            short(&["python", "-c", "\nimport jax\njax.devices()\n"]),
            "python -c import jax jax.devices()"
        );
        assert_eq!(
            short(&["a", &"b".repeat(60)]).chars().count(),
            MAX_COMMAND_CHARACTERS + 3
        );
        assert_eq!(short(&[]), "");
        let spawned = "from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=8)";
        assert_eq!(
            short(&["/usr/bin/python", "-B", "-c", spawned]),
            "python (multiprocessing)"
        );
    }
}
