//! What `/proc` knows of a process: command, user, container.

use std::os::unix::fs::MetadataExt;

use vramfit_model::host::Process;

use crate::{cgroup, user};

/// Longest command line that is kept, in characters; those of Java programs have thousands.
const MAX_COMMAND_CHARS: usize = 1000;

/// Fills in command, user and container. Returns whether the process exists in this PID namespace.
pub(crate) fn fill_details(process: &mut Process) -> bool {
    let folder = format!("/proc/{}", process.pid);
    // The folder belongs to the user that the process runs as.
    let Ok(owner) = std::fs::metadata(&folder) else {
        return false;
    };
    process.user = Some(user::user_name(owner.uid()));
    let arguments = std::fs::read(format!("{folder}/cmdline")).unwrap_or_default();
    process.command = join_arguments(&arguments).or_else(|| {
        // Kernel threads and zombies have no command line.
        let name = std::fs::read_to_string(format!("{folder}/comm")).ok()?;
        Some(format!("[{}]", printable(name.trim_end())))
    });
    let groups = std::fs::read_to_string(format!("{folder}/cgroup")).unwrap_or_default();
    process.container = cgroup::container(&groups);
    true
}

/// Joins the arguments of `/proc/PID/cmdline`, which end with a zero byte each.
fn join_arguments(arguments: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(arguments);
    let joined = text.trim_end_matches('\0').replace('\0', " ");
    if joined.is_empty() {
        return None;
    }
    let mut shown = printable(&joined);
    if let Some((end, _)) = shown.char_indices().nth(MAX_COMMAND_CHARS) {
        shown.truncate(end);
        shown.push('…');
    }
    Some(shown)
}

/// Replaces control characters: a command line is untrusted, and could contain terminal escapes.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let mut process = Process { pid: std::process::id(), ..Process::default() };
        assert!(fill_details(&mut process));
        let command = process.command.expect("we have a command line");
        assert!(command.contains("vramfit_gpu"), "{command}");
        assert!(process.user.is_some_and(|name| !name.is_empty()));
    }

    #[test]
    fn an_unused_pid_is_no_error() {
        // One more than the largest `pid_max` of Linux.
        let mut process = Process { pid: 4_194_305, ..Process::default() };
        assert!(!fill_details(&mut process));
        assert_eq!(process.command, None);
    }

    #[test]
    fn command_lines_cannot_steer_a_terminal() {
        let shown = join_arguments(b"python\0train.py\0--name=\x1b[2J\n\0");
        assert_eq!(shown.as_deref(), Some("python train.py --name=\u{fffd}[2J\u{fffd}"));
        assert_eq!(join_arguments(b""), None);
        let long = join_arguments(&vec![b'x'; 5000]).expect("a command");
        assert_eq!(long.chars().count(), MAX_COMMAND_CHARS + 1);
    }
}
