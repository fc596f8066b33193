//! Whether the program recovered from the failure: it went on, and ended by itself.

use super::causes::is_gpu_memory_failure;
use super::log::{Event, Log};
use super::message::{HostFailure, Message, Subject};

/// What a log shows of the program after the last request for memory that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It handled the failure: by this line it went on.
    WentOn {
        /// The number of the line.
        line: u64,
    },
    /// It handled the failure: this line says that it came to its end.
    Ended {
        /// The number of the line.
        line: u64,
    },
    /// There are lines of progress, and an error about memory was raised before them: the program handled it, or was
    /// started again, or the lines were written late.
    Unclear {
        /// The number of the last of them.
        line: u64,
    },
}

impl Recovery {
    /// Returns the line by which the program handled the failure.
    pub fn handled_by_line(self) -> Option<u64> {
        match self {
            Recovery::WentOn { line } | Recovery::Ended { line } => Some(line),
            Recovery::Unclear { .. } => None,
        }
    }

    /// Returns the word for it in JSON, and the line that shows it.
    pub fn label_and_line(self) -> (&'static str, u64) {
        match self {
            Recovery::WentOn { line } => ("went-on", line),
            Recovery::Ended { line } => ("ended", line),
            Recovery::Unclear { line } => ("unclear", line),
        }
    }

    /// Returns it as a note.
    pub(super) fn note(self) -> String {
        match self {
            Recovery::WentOn { line } => {
                format!("the program handled the failure: line {line} is progress after it")
            }
            Recovery::Ended { line } => {
                format!("the program handled the failure: line {line} says that it came to its end")
            }
            Recovery::Unclear { line } => format!(
                "there is progress after the failure, up to line {line}: the program handled it, or was started again, or \
                 its output was written late"
            ),
        }
    }
}

impl Log {
    /// Returns what became of the program after the last failure. None where it ended with an error or was killed, and of
    /// several logs, of which one may go on where another ends.
    pub(super) fn recovery(&self) -> Option<Recovery> {
        let [_] = self.sources[..] else { return None };
        let last = self.events.iter().rev().find(|event| is_failure(&event.message))?;
        let ends_it = |event: &Event| event.order > last.order && is_end_by_error(&event.message);
        if is_end_by_error(&last.message) || self.events.iter().any(ends_it) {
            return None;
        }
        if let Some((_, line)) = self.ended.filter(|(order, _)| *order > last.order) {
            return Some(Recovery::Ended { line });
        }
        let goes_on = last.step_lines_before > 0 && self.steps.count > last.step_lines_before;
        let line = self.last_step_line;
        goes_on.then(|| match self.has(is_raised) {
            true => Recovery::Unclear { line },
            false => Recovery::WentOn { line },
        })
    }
}

fn is_failure(message: &Message) -> bool {
    is_gpu_memory_failure(message) || matches!(message, Message::Host { .. }) || is_raised(message)
}

/// Returns `true` for an error about memory that was raised as far as a traceback, which programs also print when they
/// handle it.
fn is_raised(message: &Message) -> bool {
    matches!(
        message,
        Message::Exception { subject: Subject::Memory, .. }
            | Message::Host { how: HostFailure::Python, .. }
    )
}

fn is_end_by_error(message: &Message) -> bool {
    match message {
        Message::Exception { subject, .. } => *subject != Subject::Memory,
        Message::Abort | Message::PeerFailure | Message::KilledByName { .. } => true,
        Message::Host { how, .. } => how.is_kill(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::explain::{Confidence, Recovery, explain_text};

    const WARNED: &str = "bfc_allocator.cc:512] Allocator (GPU_0_bfc) ran out of memory trying to allocate 64.00GiB \
        (rounded to 68719476736)requested by op\n";
    const RAISED: &str = "Traceback (most recent call last):\n  File \"/home/user/fit.py\", line 11, in <module>\n    \
        step()\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.\n";

    #[test]
    fn what_was_handled_is_not_called_the_end_of_the_program() {
        let went_on = |line| Some(Recovery::WentOn { line });
        let ended = |line| Some(Recovery::Ended { line });
        let unclear = |line| Some(Recovery::Unclear { line });
        for (log, after) in [
            (format!("step 1\n{WARNED}step 2\nstep 3\n"), went_on(4)),
            (format!("step 1\n{WARNED}half the batch\nstep 2\ntraining finished\n"), ended(5)),
            (format!("{RAISED}half the batch\nfinal loss: 0.3\n"), ended(6)),
            (
                "step 1\nMemoryError\nno cache\nstep 2\ntraining finished in 3 h\n".to_owned(),
                ended(5),
            ),
            (format!("step 1\n{RAISED}step 2\n"), unclear(6)),
            // It failed again, or with another error, or nothing shows that it went on.
            (format!("step 1\n{WARNED}step 2\n{RAISED}"), None),
            (format!("step 1\n{WARNED}step 2\nKeyError: 'lr'\n"), None),
            (format!("{RAISED}done\n"), None),
            (format!("{WARNED}step 1\nstep 2\n"), None),
            (format!("{RAISED}training failed\n"), None),
        ] {
            let explanation = explain_text(&log);
            assert_eq!(explanation.recovery, after, "{log}");
            let is_handled = after.is_some_and(|after| after.handled_by_line().is_some());
            assert_eq!(explanation.headline().contains("but handled"), is_handled, "{log}");
            let is_sure = explanation.causes.iter().any(|it| it.confidence == Confidence::Sure);
            assert!(!(is_handled && is_sure), "{log}");
        }
    }
}
