//! Reading traces, with the progress on the terminal.

use std::path::Path;
use std::time::{Duration, Instant};

use vramfit_analysis::Result;
use vramfit_analysis::analysis::{RunSummary, load_summary_until};
use vramfit_model::program::{ProgramMemory, ProgramTime};
use vramfit_model::trace::{
    CompilerWarning, Event, EventSource, Footer, Header, NotComputed, Note, RunEnvironment, TextId,
};

use crate::output::{Output, Progress};

/// Reads the traces of a run as if it had ended after an event.
///
/// # Errors
/// Those of [`load_summary_until`].
pub(crate) fn load_until(trace: &Path, last: u64, output: &Output) -> Result<RunSummary> {
    load_summary_until(trace, last, &|events| Box::new(ReadProgress::new(events, output)))
}

/// Progress is shown after reading for this long.
const PROGRESS_DELAY: Duration = Duration::from_secs(2);
/// How many events are read between two checks of the clock.
const CHECK_INTERVAL: u64 = 1 << 16;

/// Events that show how many of them were read, once that takes long.
pub(crate) struct ReadProgress<'a> {
    inner: Box<dyn EventSource + 'a>,
    output: &'a Output,
    start: Instant,
    progress: Option<Progress>,
    events: u64,
}

impl<'a> ReadProgress<'a> {
    pub(crate) fn new(inner: Box<dyn EventSource + 'a>, output: &'a Output) -> Self {
        ReadProgress { inner, output, start: Instant::now(), progress: None, events: 0 }
    }

    fn update(&mut self) {
        if self.start.elapsed() < PROGRESS_DELAY {
            return;
        }
        let progress =
            self.progress.get_or_insert_with(|| self.output.count("events of the trace"));
        progress.count(self.events);
    }
}

impl EventSource for ReadProgress<'_> {
    fn header(&self) -> &Header {
        self.inner.header()
    }

    fn next_event(&mut self) -> Result<Option<Event>> {
        self.events += 1;
        if self.events.is_multiple_of(CHECK_INTERVAL) {
            self.update();
        }
        self.inner.next_event()
    }

    fn text(&self, id: TextId) -> &str {
        self.inner.text(id)
    }

    fn footer(&self) -> Option<&Footer> {
        self.inner.footer()
    }

    fn program_memory(&self, program: u32) -> Option<ProgramMemory> {
        self.inner.program_memory(program)
    }

    fn program_time(&self, program: u32) -> Option<&ProgramTime> {
        self.inner.program_time(program)
    }

    fn compiler_warnings(&self) -> &[CompilerWarning] {
        self.inner.compiler_warnings()
    }

    fn notes(&self) -> &[Note] {
        self.inner.notes()
    }

    fn settings(&self) -> Option<&RunEnvironment> {
        self.inner.settings()
    }

    fn not_computed(&self) -> &[NotComputed] {
        self.inner.not_computed()
    }

    fn has_recorded_results(&self) -> bool {
        self.inner.has_recorded_results()
    }
}
