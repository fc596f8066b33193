//! What the runner says, on the terminal.

use vramfit_model::trace::EventSource;
use vramfit_runner::Messages;

use super::{Output, Progress, write_to_stderr};
use crate::trace_progress::ReadProgress;

impl Messages for Output {
    fn info(&self, text: &str) {
        self.info(text);
    }

    fn verbose(&self, text: &str) {
        self.verbose(text);
    }

    fn program_output(&self, bytes: &[u8]) {
        write_to_stderr(bytes);
    }

    fn progress(&self, unit: &'static str) -> Box<dyn vramfit_runner::Progress + '_> {
        Box::new(self.progress_bar(unit))
    }

    fn reading<'a>(&'a self, events: Box<dyn EventSource + 'a>) -> Box<dyn EventSource + 'a> {
        Box::new(ReadProgress::new(events, self))
    }
}

impl vramfit_runner::Progress for Progress {
    fn show(&self, done: u64, total: u64) {
        self.show(done, 0, total);
    }
}
