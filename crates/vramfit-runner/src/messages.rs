//! What a user is told while programs run. The command line writes it to the terminal.

use vramfit_model::trace::EventSource;

/// Where messages go.
pub trait Messages: Sync {
    /// Says something that everybody is to know.
    fn info(&self, text: &str);

    /// Says something about the details.
    fn verbose(&self, text: &str);

    /// Passes on what a program wrote to its standard error.
    fn program_output(&self, bytes: &[u8]);

    /// Begins to show how many of `unit` are done; it ends with the value.
    fn progress(&self, unit: &'static str) -> Box<dyn Progress + '_>;

    /// Returns events that show how many of them were read, where that takes long.
    fn reading<'a>(&'a self, events: Box<dyn EventSource + 'a>) -> Box<dyn EventSource + 'a>;
}

/// How much of some work is done.
pub trait Progress: Sync {
    /// Shows that `done` of `total` are done.
    fn show(&self, done: u64, total: u64);
}

/// Messages of a run whose failure alone matters: what it says by the way is left out.
pub struct ErrorsOnly<'a>(pub &'a dyn Messages);

/// Progress that nobody sees.
struct NoProgress;

impl Messages for ErrorsOnly<'_> {
    fn info(&self, _text: &str) {}

    fn verbose(&self, _text: &str) {}

    fn program_output(&self, bytes: &[u8]) {
        self.0.program_output(bytes);
    }

    fn progress(&self, _unit: &'static str) -> Box<dyn Progress + '_> {
        Box::new(NoProgress)
    }

    fn reading<'a>(&'a self, events: Box<dyn EventSource + 'a>) -> Box<dyn EventSource + 'a> {
        events
    }
}

impl Progress for NoProgress {
    fn show(&self, _done: u64, _total: u64) {}
}
