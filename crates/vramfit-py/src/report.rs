//! The report of a dry run, for `vramfit.dryrun_report`.

use std::path::PathBuf;

use pyo3::prelude::*;
use vramfit_core::analysis::{RunSummary, load_summary};
use vramfit_core::report::Report;

use crate::error::raise;

/// The report of a dry run, read from its trace.
#[pyclass(frozen, module = "vramfit._native")]
pub(crate) struct NativeReport {
    summary: RunSummary,
    report: Report,
}

/// Owner, path, site, shape, producer, count, bytes.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, u64, u64);

#[pymethods]
impl NativeReport {
    /// The result in one sentence.
    #[getter]
    fn headline(&self) -> &str {
        &self.report.headline
    }

    /// Memory by owner at the critical moment, largest first.
    fn attribution(&self) -> Vec<Row<'_>> {
        let attribution = self.summary.attribution.iter();
        attribution
            .flat_map(|attribution| &attribution.parts)
            .map(|entry| {
                (
                    entry.kind.id(),
                    entry.path.as_str(),
                    entry.site.as_str(),
                    entry.shape.as_str(),
                    entry.made_by.as_str(),
                    entry.count,
                    entry.bytes,
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

/// Reads the trace of a dry run; of several processes, that of the critical one.
#[pyfunction]
#[allow(
    clippy::needless_pass_by_value,
    reason = "arguments from Python come by value"
)]
pub(crate) fn read_report(py: Python<'_>, trace: PathBuf) -> PyResult<NativeReport> {
    let summary = py.detach(|| load_summary(&trace));
    let summary = summary.map_err(|error| raise(py, &error))?;
    let report = Report::from_dryrun(&summary);
    Ok(NativeReport { summary, report })
}
