//! Reports a dry run that has ended.

use vramfit_analysis::Result;
use vramfit_analysis::report::{Extent, Report};
use vramfit_runner::child::ExitReason;
use vramfit_runner::dryrun::FinishedRun;

use super::result_files::ResultFiles;
use crate::commands::results::write_page;
use crate::files::write;
use crate::output::Output;
use crate::status::Status;

/// Prints the results of a dry run, and writes them to files.
///
/// # Errors
/// `io` for a file that cannot be written, `compiler-failed` when the program crashed before running out of memory.
pub(super) fn report(
    run: &FinishedRun,
    files: &ResultFiles,
    output: &mut Output,
) -> Result<Status> {
    write_report(&Report::from_dryrun(&run.summary), files, output)?;
    run.complete_traces(output);
    if let Some(crash) = run.crash() {
        return Err(crash);
    }
    let status = Status::from_answer(run.summary.fits());
    match run.exit {
        // A program that fails at the virtual GPU's limit ends with 1 as a rule; another end is worth a line.
        Some(exit) if status == Status::No && !matches!(exit, ExitReason::Code(0 | 1)) => {
            output.info(&format!("the program {}", exit.describe()));
        }
        Some(exit) if status == Status::Unknown && exit != ExitReason::Code(0) => {
            output.info(&format!("the program {}, but not because of GPU memory", exit.describe()));
        }
        _ => {}
    }
    Ok(status)
}

/// Prints the report, and writes the files but the traces.
fn write_report(report: &Report, files: &ResultFiles, output: &mut Output) -> Result<()> {
    if files.json_to_stdout {
        output.json_after_program(&report.to_json())?;
    } else {
        let extent =
            if files.full_text { Extent::Full } else { Extent::Brief { option: "--full" } };
        output.report_info(report, extent);
    }
    if let Some(path) = &files.json {
        write(path, &report.to_json(), files.force)?;
        output.info(&format!("JSON written to {}", path.display()));
    }
    write_page(report, files.html.as_deref(), files.force, output)
}
