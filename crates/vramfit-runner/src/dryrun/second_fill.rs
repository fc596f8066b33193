//! Whether a failure of the program comes from placeholder values: it is run again with others.

use std::path::Path;
use std::time::Duration;

use vramfit_analysis::analysis::{RunSummary, trace_files};
use vramfit_base::Result;
use vramfit_model::run_config::{Fill, RunConfig};

use super::program_run::ProgramRun;
use super::run_one::{remove_traces, run_program};
use super::spec::DryrunSpec;
use crate::context::Context;
use crate::files::cannot_write;
use crate::messages::{ErrorsOnly, Messages};
use crate::scratch::TempDirectory;

/// The second run may take this many times as long as the first, which may have been cut short by its failure …
const TIME_FACTOR: u32 = 3;
/// … and no less than this.
const MIN_TIME: Duration = Duration::from_secs(20);

/// Errors that no value leads to.
const NEVER_BY_VALUES: [&str; 5] =
    ["ImportError", "KeyboardInterrupt", "ModuleNotFoundError", "NameError", "SyntaxError"];

/// A run in which values that were not computed read as 1.
pub(super) struct SecondRun {
    pub(super) spec: DryrunSpec,
    pub(super) program: ProgramRun,
    pub(super) summary: RunSummary,
    _folder: TempDirectory,
}

impl SecondRun {
    /// Runs a program again that read placeholders and failed, with other values for them. `None` where it fails alike,
    /// or where that cannot be found out in reasonable time.
    pub(super) fn after(
        first: &RunSummary,
        elapsed: Duration,
        spec: &DryrunSpec,
        context: &Context,
        messages: &dyn Messages,
    ) -> Option<SecondRun> {
        let is_candidate = first.facts.unknown_reads.last.is_some()
            && !first.is_refused()
            && first.fits().is_none();
        if !is_candidate || !Failure::of(first).is_some_and(Failure::may_depend_on_values) {
            return None;
        }
        let folder = TempDirectory::create().ok()?;
        let fill = if spec.run.fill == Fill::Zeros { Fill::Ones } else { Fill::Zeros };
        let other = DryrunSpec { run: RunConfig { fill, ..spec.run.clone() }, ..spec.clone() };
        let bounded = DryrunSpec {
            time_limit: Some(MIN_TIME.max(elapsed * TIME_FACTOR)),
            log: Some(folder.path().join("output.log")),
            trace: None,
            ..other.clone()
        };
        let quiet = ErrorsOnly(messages);
        let program = run_program(&bounded, context, &quiet).ok()?;
        let summary = program.summarize(&quiet).ok()?;
        (Failure::of(&summary) != Failure::of(first)).then(|| SecondRun {
            spec: other,
            program,
            summary,
            _folder: folder,
        })
    }

    /// Makes it the result of the dry run, where it says what the first one could not: puts its traces where those of the
    /// first are kept.
    ///
    /// # Errors
    /// `io` when the traces cannot be replaced.
    pub(super) fn replace(&mut self, first: &RunSummary, messages: &dyn Messages) -> Result<()> {
        self.summary.read_as_one.clone_from(&first.facts.unknown_reads.last);
        let failure = match Failure::of(first) {
            Some(Failure::Error { name, site: "" }) => format!(" ({name})"),
            Some(Failure::Error { name, site }) => {
                format!(" ({name} at {})", site.rsplit('/').next().unwrap_or_default())
            }
            Some(Failure::ExitCode(code)) => format!(" (exit code {code})"),
            None => String::new(),
        };
        messages.info(&format!(
            "note: the program failed because values that were not computed read as 0{failure}; what follows is the \
             result of a second run, in which they read as 1"
        ));
        let Some(kept) = &self.spec.trace else { return Ok(()) };
        remove_traces(kept)?;
        for trace in trace_files(&self.program.trace) {
            let name =
                |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let suffix = name(&trace).split_off(name(&self.program.trace).len());
            let to = kept.with_file_name(name(kept) + &suffix);
            std::fs::copy(&trace, &to).map_err(|error| cannot_write(&to, error))?;
        }
        self.program.trace.clone_from(kept);
        self.program.is_trace_kept = true;
        Ok(())
    }
}

/// How a program failed by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure<'a> {
    /// By an error of this class at this line, which is not known after `raise SystemExit("no data")`. Not with its message, which may repeat the values.
    Error { name: &'a str, site: &'a str },
    /// With this exit code and no error that is known, as after `os._exit(3)`.
    ExitCode(u8),
}

impl<'a> Failure<'a> {
    fn of(summary: &'a RunSummary) -> Option<Failure<'a>> {
        match (&summary.uncaught_error, summary.process_exit.and_then(|exit| exit.code)) {
            (Some(error), _) => Some(Failure::Error { name: &error.name, site: &error.site }),
            (None, Some(0) | None) => None,
            (None, Some(code)) => Some(Failure::ExitCode(code)),
        }
    }

    /// Returns `true` if other values may have prevented it.
    fn may_depend_on_values(self) -> bool {
        match self {
            Failure::Error { name, .. } => !NEVER_BY_VALUES.contains(&name),
            // Above are shells' codes for signals.
            Failure::ExitCode(code) => code < 128,
        }
    }
}
