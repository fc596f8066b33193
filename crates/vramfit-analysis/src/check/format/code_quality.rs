//! GitLab's code quality report.

use serde_json::{Value, json};

use super::sarif::rule;
use crate::check::CheckReport;
use crate::check::figures::short_digest;
use crate::check::report::Level;

impl CheckReport {
    /// Returns the list of issues.
    pub fn to_code_quality(&self) -> Value {
        let issues = self.problems().into_iter().map(|problem| {
            let severity = match problem.level {
                Level::Error => "major",
                Level::Warning => "minor",
                Level::Note => "info",
            };
            let rule = rule(&problem);
            let (file, line) = &problem.location;
            json!({
                "description": problem.text(),
                "check_name": format!("vramfit-{}", rule.replace('_', "-")),
                // The same in every pipeline as long as the problem is the same.
                "fingerprint": short_digest(&format!("{rule} {}", problem.row.name())),
                "severity": severity,
                "location": { "path": file, "lines": { "begin": line } },
            })
        });
        Value::Array(issues.collect())
    }
}
