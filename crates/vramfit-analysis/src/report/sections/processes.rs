//! Several processes on the same GPUs: which one a result is about, and what the others use.

use crate::analysis::{Condition, DeviceSummary, RunSummary};
use crate::bytes::Bytes;
use crate::report::phrases::fits_phrase;
use crate::report::{Content, Metric, Section, Table, Value};
use crate::run_config::Sharing;
use crate::trace::OtherProcess;

/// Processes that are listed; the JSON has all.
const MAX_PROCESSES_SHOWN: usize = 16;
/// Other processes that a sentence names.
const MAX_OTHERS_NAMED: usize = 3;
/// Characters of a command line that are shown.
const MAX_COMMAND_CHARACTERS: usize = 48;

/// Says in which process, where there are others; begins with a space.
pub(super) fn in_process(summary: &RunSummary) -> String {
    let is_alone = summary.processes.len() < 2 && summary.others_at_failure.is_none();
    if is_alone || summary.header.pid == 0 {
        return String::new();
    }
    let name = name(summary.header.pid, &short_command(&summary.header.command));
    format!(" in {name}")
}

/// Says what other processes use of a GPU, as the end of a sentence: at the first failure, or at most.
pub(super) fn used_by_others(summary: &RunSummary, device: &DeviceSummary) -> String {
    let (verb, bytes) = match &summary.others_at_failure {
        Some(others) => ("use", others.used_bytes),
        None if summary.is_refused() => return String::new(),
        None => ("use up to", device.used_by_others_bytes),
    };
    if bytes == 0 {
        return String::new();
    }
    let others = others(summary.header.run.sharing == Sharing::Run);
    let total = Bytes(summary.header.total_memory_bytes());
    format!("; {others} {verb} {} of {total}", Bytes(bytes))
}

/// What other processes used at most, where they used anything.
pub(super) fn metric(device: &DeviceSummary) -> Option<Metric> {
    let bytes = device.used_by_others_bytes;
    let note = "maximum while this process used the GPU, CUDA contexts included";
    (bytes > 0).then(|| Metric::new("used by others", Value::Bytes(bytes), note))
}

/// One row for each process and GPU, where there are several processes.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let count = summary.processes.len();
    if count < 2 {
        return None;
    }
    let rows = summary.processes.iter().flat_map(|process| {
        let result = fits_phrase(process.fits);
        process.devices.iter().map(move |device| {
            vec![
                Value::Text(process.pid.to_string()),
                Value::Text(short_command(&process.command)),
                Value::Count(u64::from(device.gpu)),
                Value::bytes_or_none(device.pool_bytes),
                Value::Bytes(device.peak_bytes),
                Value::Bytes(device.used_by_others_bytes),
                Value::Text(result.to_owned()),
            ]
        })
    });
    let columns = ["process", "command", "GPU", "pool", "peak", "others", "result"];
    let mut rows: Vec<_> = rows.take(MAX_PROCESSES_SHOWN + 1).collect();
    let more = if rows.len() > MAX_PROCESSES_SHOWN { "; more in the JSON output" } else { "" };
    rows.truncate(MAX_PROCESSES_SHOWN);
    let note = format!(
        "{}; the rest of this report is about process {}, the critical one{more}",
        sharing(summary),
        summary.header.pid
    );
    let title = format!("{count} processes used the GPU");
    let table = Table::new(&columns, rows, note);
    Some(Section::new(title, Content::Table(table)))
}

fn sharing(summary: &RunSummary) -> &'static str {
    match summary.header.run.sharing {
        Sharing::Private => "each as if it were alone (`--autotune-range`)",
        Sharing::Run | Sharing::Named(_) => "they share the memory of the GPUs",
    }
}

/// What depends on the order in which processes allocate.
pub(super) fn caveat(summary: &RunSummary) -> Option<String> {
    let shares = summary.header.run.sharing != Sharing::Private;
    let has_others = summary.devices.iter().any(|it| it.used_by_others_bytes > 0);
    (shares && has_others).then(|| {
        "other orders of the processes: each got what was left when it allocated, and constants and \
         code of other processes' programs are not counted"
            .to_owned()
    })
}

/// Says that other processes used memory when a request failed.
pub(super) fn clause(condition: &Condition) -> Option<String> {
    let Condition::SharedGpu { gpu, used_bytes, total_bytes, processes, fits_alone, of_this_run } =
        condition
    else {
        return None;
    };
    let others = others(*of_this_run);
    let named: Vec<_> = processes.iter().take(MAX_OTHERS_NAMED).map(describe_other).collect();
    let alone = match fits_alone {
        Some(true) => "; without them it succeeds",
        Some(false) => "; without them it still fails",
        None => "",
    };
    Some(format!(
        "{others} use {} of the {} of GPU {gpu} when the request fails ({}){alone}. By default, JAX \
         reserves 75 % of a GPU at its first operation, or what other processes leave. Keep processes \
         that need no GPU off it (`JAX_PLATFORMS=cpu`, such as for a data server), divide the GPU \
         (`vramfit run --processes N`, or `XLA_PYTHON_CLIENT_MEM_FRACTION`), or let pools grow \
         (`XLA_PYTHON_CLIENT_PREALLOCATE=false`)",
        Bytes(*used_bytes),
        Bytes(*total_bytes),
        named.join(", ")
    ))
}

fn others(of_this_run: bool) -> &'static str {
    if of_this_run { "other processes of this run" } else { "other processes on this GPU" }
}

fn describe_other(process: &OtherProcess) -> String {
    let words: Vec<_> = process.command.split(' ').map(str::to_owned).collect();
    let name = name(process.pid, &short_command(&words));
    format!("{name}: {}", Bytes(process.bytes))
}

fn name(pid: u32, command: &str) -> String {
    if command.is_empty() {
        format!("process {pid}")
    } else {
        format!("process {pid} (`{command}`)")
    }
}

/// Shortens a command line: programs without their directories, on one line.
fn short_command(command: &[String]) -> String {
    let words = command.iter().enumerate().map(|(index, word)| {
        let is_path = index == 0 || word.ends_with(".py");
        let file = word.rsplit('/').next().filter(|_| is_path);
        file.unwrap_or(word)
    });
    let words: Vec<_> = words.collect();
    // Code after `-c` may have many lines.
    let line = words.join(" ");
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.contains(" from multiprocessing.") {
        // What such a process runs is not on its command line.
        return format!("{} (multiprocessing)", words[0]);
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
            short_command(&words)
        };
        assert_eq!(
            short(&["/usr/bin/python3", "/home/a/serve.py", "--data", "/data/x"]),
            "python3 serve.py --data /data/x"
        );
        assert_eq!(
            short(&["python", "-c", "\nimport jax\njax.devices()\n"]),
            "python -c import jax jax.devices()"
        );
        assert_eq!(short(&["a", &"b".repeat(60)]).chars().count(), MAX_COMMAND_CHARACTERS + 3);
        assert_eq!(short(&[]), "");
        let spawned = "from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=8)";
        assert_eq!(short(&["/usr/bin/python", "-B", "-c", spawned]), "python (multiprocessing)");
    }
}
