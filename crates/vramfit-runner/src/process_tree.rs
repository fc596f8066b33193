//! The processes that a process has started, and those that these have started.

use std::collections::HashSet;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// A process. Its number alone may be given to another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pid: Pid,
    /// When it started, in clock ticks since the system did.
    started: u64,
}

/// What the system says of one process.
struct Entry {
    process: Process,
    parent: i32,
    is_running: bool,
}

/// Returns the processes that one has started and that run, and their descendants; not those of `except`.
pub fn descendants(root: Pid, except: &HashSet<Process>) -> Vec<Process> {
    let all = read_processes();
    let mut parents = vec![root.as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        for entry in all.iter().filter(|entry| entry.parent == parent) {
            if except.contains(&entry.process) {
                continue;
            }
            parents.push(entry.process.pid.as_raw_nonzero().get());
            if entry.is_running {
                found.push(entry.process);
            }
        }
    }
    found
}

impl Process {
    /// Returns `true` if it runs; one that has ended and was not waited for does not.
    pub fn is_running(self) -> bool {
        read_process(self.pid).is_some_and(|entry| entry.process == self && entry.is_running)
    }

    /// Sends it a signal. It may end this moment.
    pub fn send(self, signal: Signal) {
        if self.is_running() {
            let _ = kill_process(self.pid, signal);
        }
    }
}

/// Kills a process and its descendants, such as `ptxas`, which takes gigabytes and would go on.
pub fn kill(root: Pid) {
    // Stopped, it starts no more of them meanwhile.
    let _ = kill_process(root, Signal::STOP);
    let all = descendants(root, &HashSet::new());
    let _ = kill_process(root, Signal::KILL);
    for process in all {
        process.send(Signal::KILL);
    }
}

fn read_processes() -> Vec<Entry> {
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = names.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter_map(read_process).collect()
}

fn read_process(pid: Pid) -> Option<Entry> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    // The second field is a name in parentheses, which may have any characters, also not UTF-8.
    let text = std::fs::read(Path::new(&path)).ok()?;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = String::from_utf8_lossy(&text[end + 1..]).into_owned();
    // The third field is the state, the fourth the parent, the 22nd the time of the start.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Entry {
        process: Process { pid, started: fields.get(19)?.parse().ok()? },
        parent: fields.get(1)?.parse().ok()?,
        is_running: !matches!(*fields.first()?, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_are_found_and_killed_with_the_process() {
        let script = "sh -c 'sleep 600 & echo ready; wait' & wait";
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line).expect("a line");
        let root = Pid::from_child(&child);
        let found = descendants(root, &HashSet::new());
        assert_eq!(found.len(), 2, "{found:?}");
        let outer =
            read_processes().into_iter().find(|entry| entry.parent == root.as_raw_nonzero().get());
        let outer = HashSet::from([outer.expect("the inner shell").process]);
        assert_eq!(descendants(root, &outer), []);
        kill(root);
        child.wait().expect("it was started");
        // The end of the pipe: nobody is left who has it open.
        assert_eq!(stdout.read_line(&mut line).expect("readable"), 0);
    }
}
