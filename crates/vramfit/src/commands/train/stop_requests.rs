//! Signals that stop a run. Each is a request to save the state first, however many there are: process groups,
//! `timeout` and schedulers send more than one. Only after a line has said so does another one end it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use vramfit_runner::process_tree;

use crate::output::write_to_stderr;

/// From when on another signal may end the run at once. Schedulers send reminders sooner, such as LSF after 10 s.
const FORCE_AFTER: Duration = Duration::from_secs(15);

const ANNOUNCEMENT: &str = "still finishing the current step and saving the state; another Ctrl-C or SIGTERM \
    from now on ends the run immediately, without saving\n";

/// What a run is told by signals.
pub(super) struct StopRequests {
    force_after: Duration,
    /// Whether it was said that another signal ends the run.
    is_announced: Arc<AtomicBool>,
    /// The signal that ended the run at once; 0 for none.
    forced_by: Arc<AtomicI32>,
    /// Dropped with this when the run has ended; then nothing is announced any more.
    waiting: Option<Sender<()>>,
}

impl StopRequests {
    pub(super) fn new() -> Self {
        StopRequests {
            force_after: FORCE_AFTER,
            is_announced: Arc::default(),
            forced_by: Arc::default(),
            waiting: None,
        }
    }

    /// Returns where the signal will be that ends the run at once.
    pub(super) fn forced_by(&self) -> Arc<AtomicI32> {
        Arc::clone(&self.forced_by)
    }

    /// Handles a signal to this process while the run goes on.
    pub(super) fn handle(&mut self, run: Pid, number: i32) {
        let signal = match number {
            SIGTERM => Signal::TERM,
            SIGINT => Signal::INT,
            SIGHUP => Signal::HUP,
            // The terminal sends Ctrl-\ to the run, too, which ends by it.
            _ => return,
        };
        // A terminal that is closed is no order: a user who has pressed Ctrl-C may leave.
        if self.is_announced.load(Ordering::SeqCst) && number != SIGHUP {
            self.forced_by.store(number, Ordering::SeqCst);
            process_tree::kill(run);
            return;
        }
        let _ = kill_process(run, signal);
        self.waiting.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel::<()>();
            let (is_announced, after) = (Arc::clone(&self.is_announced), self.force_after);
            std::thread::spawn(move || {
                if receiver.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                    // First: the answer to the line may come at once.
                    is_announced.store(true, Ordering::SeqCst);
                    write_to_stderr(ANNOUNCEMENT.as_bytes());
                }
            });
            sender
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, ExitStatus, Stdio};

    use super::*;

    /// Starts a program that notes signals, and does not end by them.
    fn start() -> (Child, impl BufRead) {
        // A signal ends `read`, and so does the end of what it reads from, when the test fails.
        let script = "trap 'echo TERM' TERM; trap 'echo INT' INT; trap 'echo HUP' HUP
            echo ready; for _ in 1 2 3 4 5 6 7 8 9; do read line && exit 7; done";
        // A shell cannot trap what is ignored from the start (`nohup`).
        let mut child = Command::new("env")
            .args(["--default-signal=TERM,INT,HUP", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let stdout = child.stdout.take().expect("it is piped");
        let mut stdout = BufReader::new(stdout);
        assert_eq!(read_line(&mut stdout), "ready");
        (child, stdout)
    }

    fn read_line(stdout: &mut impl BufRead) -> String {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn requests(force_after: Duration) -> StopRequests {
        StopRequests { force_after, ..StopRequests::new() }
    }

    #[test]
    fn signals_are_requests_until_it_is_said_that_they_are_not() {
        let (mut child, mut stdout) = start();
        let pid = Pid::from_child(&child);
        let mut requests = requests(Duration::from_secs(3600));
        for (number, name) in
            [(SIGTERM, "TERM"), (SIGINT, "INT"), (SIGTERM, "TERM"), (SIGHUP, "HUP")]
        {
            requests.handle(pid, number);
            assert_eq!(read_line(&mut stdout), name);
        }
        drop(child.stdin.take());
        child.kill().expect("it runs");
        child.wait().expect("it was started");
        assert_eq!(requests.forced_by().load(Ordering::SeqCst), 0);
    }

    #[test]
    fn then_the_next_one_but_a_hangup_ends_the_run() {
        use std::os::unix::process::ExitStatusExt;

        let (mut child, mut stdout) = start();
        let pid = Pid::from_child(&child);
        let mut requests = requests(Duration::ZERO);
        requests.handle(pid, SIGTERM);
        assert_eq!(read_line(&mut stdout), "TERM");
        while !requests.is_announced.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        requests.handle(pid, SIGHUP);
        assert_eq!(read_line(&mut stdout), "HUP");
        requests.handle(pid, SIGINT);
        let status: ExitStatus = child.wait().expect("it was started");
        assert_eq!(status.signal(), Some(9));
        assert_eq!(requests.forced_by().load(Ordering::SeqCst), SIGINT);
    }
}
