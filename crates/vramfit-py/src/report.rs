//! The report of a dry run, for `vramfit.dryrun_report`.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use vramfit_analysis::Result;
use vramfit_analysis::analysis::{ReplayOverrides, RunSummary, compare, load_summary};
use vramfit_analysis::report::Report;
use vramfit_model::gpu;
use vramfit_model::settings::Options;
use vramfit_model::trace::Reader;

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
pub(crate) fn read_report(py: Python<'_>, trace: PathBuf) -> PyResult<NativeReport> {
    let summary = py.detach(move || load_summary(&trace));
    let summary = summary.map_err(|error| raise(py, &error))?;
    let report = Report::from_dryrun(&summary);
    Ok(NativeReport { summary, report })
}

/// Reads the trace of a function that ran with more memory than the GPU has; `limit` is what JAX's pool may
/// take of it, such as `8GiB`, or `None` where the settings of the run decide.
#[pyfunction]
pub(crate) fn read_estimate(
    py: Python<'_>,
    trace: PathBuf,
    gpu: &str,
    limit: Option<&str>,
) -> PyResult<NativeReport> {
    let report = py.detach(move || load_estimate(&trace, gpu, limit));
    report.map_err(|error| raise(py, &error))
}

fn load_estimate(trace: &Path, gpu: &str, limit: Option<&str>) -> Result<NativeReport> {
    let limit = limit.map(str::parse).transpose()?;
    let settings = ReplayOverrides {
        gpu: Some(gpu::find(gpu)?),
        options: Options { limit, ..Options::default() },
        ..ReplayOverrides::default()
    };
    let summary = load_summary(trace)?;
    let comparison = compare(&mut Reader::open(trace)?, &settings)?;
    let report = Report::from_estimate(&summary, &comparison);
    Ok(NativeReport { summary, report })
}
