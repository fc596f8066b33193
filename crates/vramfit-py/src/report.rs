//! The report of a dry run, for `vramfit.dryrun_report`.

use std::path::PathBuf;

use pyo3::prelude::*;
use vramfit_core::analysis::RunSummary;
use vramfit_core::report::Report;

use crate::error::raise;

/// What a dry run came to, read from its trace.
#[pyclass(frozen, module = "vramfit._native")]
pub(crate) struct RunReport {
    answer: RunSummary,
    report: Report,
}

/// Owner, path, line, shape, what made it, how many, bytes.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, u64, u64);

#[pymethods]
impl RunReport {
    /// The answer in one sentence.
    #[getter]
    fn answer(&self) -> &str {
        &self.report.headline
    }

    /// Whose the bytes are at the moment that decides, the most bytes first.
    fn parts(&self) -> Vec<Row<'_>> {
        let attribution = self.answer.attribution.iter();
        attribution
            .flat_map(|attribution| &attribution.parts)
            .map(|part| {
                (
                    part.kind.id(),
                    part.path.as_str(),
                    part.site.as_str(),
                    part.shape.as_str(),
                    part.made_by.as_str(),
                    part.count,
                    part.bytes,
                )
            })
            .collect()
    }

    /// What `vramfit dryrun --json` prints.
    fn to_json(&self) -> String {
        self.report.to_json()
    }

    /// What `vramfit report` prints.
    fn to_text(&self) -> String {
        self.report.to_full_text()
    }

    /// What `vramfit report --html` writes.
    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| self.report.to_html())
    }
}

/// Reads the trace of a dry run; of several processes, that of the one that decides.
#[pyfunction]
#[allow(
    clippy::needless_pass_by_value,
    reason = "arguments from Python come by value"
)]
pub(crate) fn read_report(py: Python<'_>, trace: PathBuf) -> PyResult<RunReport> {
    let answer = py.detach(|| vramfit::answer_of(&trace));
    let answer = answer.map_err(|error| raise(py, &error))?;
    let report = Report::from_dryrun(&answer);
    Ok(RunReport { answer, report })
}
