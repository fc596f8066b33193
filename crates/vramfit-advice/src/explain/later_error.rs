//! The error that a program ended with, after it had handled an out-of-memory error and gone on.

use super::causes::is_gpu_memory_failure;
use super::facts::Facts;
use super::message::{Message, Subject};
use crate::explain::cause::Evidence;

/// An error that is not about memory, later in a log than the failure to allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaterError {
    /// Its class, such as `KeyError`.
    pub class: String,
    /// Its line.
    pub evidence: Evidence,
}

/// Returns the last error of a log if it is one of the program, and no request failed after it. None where an error
/// about memory was raised as far as a traceback: what follows it may be of the same failure.
pub(super) fn find(facts: &Facts<'_>) -> Option<LaterError> {
    let failed = facts.log.all(is_gpu_memory_failure).last()?;
    let errors = facts.log.messages().filter_map(|(event, message)| match message {
        Message::Exception { class, subject } => Some((event, class, *subject)),
        _ => None,
    });
    let errors: Vec<_> = errors.filter(|(event, ..)| event.source == failed.source).collect();
    let (last, class, _) = *errors.last()?;
    let is_later = last.order > failed.order && last.writer == failed.writer;
    let are_of_program = errors.iter().all(|(_, _, subject)| *subject == Subject::Program);
    (is_later && are_of_program)
        .then(|| LaterError { class: class.clone(), evidence: facts.quote(last) })
}

#[cfg(test)]
mod tests {
    use crate::explain::explain_text;

    const REFUSED: &str = "W1129 10:54:35.622650 32742 bfc_allocator.cc:512] Allocator (GPU_0_bfc) ran out of \
        memory trying to allocate 64.00GiB (rounded to 68719476736)requested by op\n";
    const STATUS: &str = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64.00GiB.\n";
    const KEY: &str = "Traceback (most recent call last):\n  File \"/home/user/fit.py\", line 11, in <module>\n    \
        print(cfg[\"lr\"])\nKeyError: 'lr'\n";

    #[test]
    fn an_error_after_a_handled_one_is_named() {
        let raised = format!("jax.errors.JaxRuntimeError: {STATUS}");
        let chained = "\nDuring handling of the above exception, another exception occurred:\n\n";
        for (log, class) in [
            (format!("{REFUSED}retrying: {STATUS}{KEY}"), Some("KeyError")),
            (format!("{REFUSED}step 3\n{KEY}step 4\nValueError: no data\n"), Some("ValueError")),
            (format!("{REFUSED}{STATUS}"), None),
            // Before the failure, or in the end nothing but it.
            (format!("{KEY}{REFUSED}{STATUS}"), None),
            (format!("{REFUSED}{raised}"), None),
            (format!("{REFUSED}{KEY}{REFUSED}{raised}"), None),
            (format!("{REFUSED}{raised}{chained}{KEY}"), None),
            (format!("{REFUSED}RuntimeError: the trial failed\n"), None),
        ] {
            let explanation = explain_text(&log);
            let found = explanation.later_error.as_ref().map(|error| error.class.as_str());
            assert_eq!(found, class, "{log}");
            assert_eq!(explanation.headline().contains("went on"), class.is_some());
        }
    }
}
