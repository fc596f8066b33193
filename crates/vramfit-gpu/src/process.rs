//! What the system knows of a process: its command, its user, its container.

use std::os::unix::fs::MetadataExt;

use vramfit_core::machine::Process;

use crate::{cgroup, user};

/// Longest command line that is kept, in characters; those of Java programs have thousands.
const MAX_COMMAND_CHARS: usize = 1000;

/// Fills in who a process is. Returns whether there is a process of that number at all; one that
/// has just ended, or is counted in another pid namespace, is not.
pub(crate) fn describe(process: &mut Process) -> bool {
    let folder = format!("/proc/{}", process.pid);
    // The folder belongs to the user that the process runs as.
    let Ok(owner) = std::fs::metadata(&folder) else {
        return false;
    };
    process.user = Some(user::name(owner.uid()));
    let arguments = std::fs::read(format!("{folder}/cmdline")).unwrap_or_default();
    process.command = command(&arguments).or_else(|| {
        // What has no command line: kernel threads, and processes that have ended but are not
        // reaped.
        let name = std::fs::read_to_string(format!("{folder}/comm")).ok()?;
        Some(format!("[{}]", printable(name.trim_end())))
    });
    let groups = std::fs::read_to_string(format!("{folder}/cgroup")).unwrap_or_default();
    process.container = cgroup::container(&groups);
    true
}

/// Joins the arguments of `/proc/PID/cmdline`, which end with a zero byte each.
fn command(arguments: &[u8]) -> Option<String> {
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

/// Replaces control characters: a command line is the word of a stranger, and a terminal obeys.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let mut process = Process {
            pid: std::process::id(),
            ..Process::default()
        };
        assert!(describe(&mut process));
        let command = process.command.expect("we have a command line");
        assert!(command.contains("vramfit_gpu"), "{command}");
        assert!(process.user.is_some_and(|name| !name.is_empty()));
    }

    #[test]
    fn a_number_without_a_process_is_no_error() {
        // Numbers end at 4194304, the most that Linux can be told to use.
        let mut process = Process {
            pid: 4_194_305,
            ..Process::default()
        };
        assert!(!describe(&mut process));
        assert_eq!(process.command, None);
    }

    #[test]
    fn command_lines_cannot_steer_a_terminal() {
        let shown = command(b"python\0train.py\0--name=\x1b[2J\n\0");
        assert_eq!(
            shown.as_deref(),
            Some("python train.py --name=\u{fffd}[2J\u{fffd}")
        );
        assert_eq!(command(b""), None);
        let long = command(&vec![b'x'; 5000]).expect("a command");
        assert_eq!(long.chars().count(), MAX_COMMAND_CHARS + 1);
    }
}
