//! SARIF 2.1.0, which code scanning reads.

use serde_json::{Value, json};

use crate::check::CheckReport;
use crate::check::report::{Level, Problem, Row};

/// The rules that results refer to, with what each says.
const RULES: [(&str, &str); 7] = [
    ("larger", "A program needs more GPU memory than was accepted."),
    ("over_limit", "The peak of a program exceeds a limit of its entry."),
    ("does_not_fit", "A program runs out of memory on a GPU."),
    ("not_accepted", "The lock file has no figures for a program."),
    ("not_reproducible", "A program needs another amount of memory each time."),
    ("failed", "The memory of a program could not be measured."),
    ("accepted", "A branch has accepted that a program needs more GPU memory."),
];

impl CheckReport {
    /// Returns the log.
    pub fn to_sarif(&self) -> Value {
        let rules = RULES
            .iter()
            .map(|(id, text)| json!({ "id": id, "shortDescription": { "text": text } }));
        // No result: what a check that passes depends on is nothing to act on.
        let qualified = self.rows.iter().filter_map(Row::qualified_summary);
        let notifications =
            qualified.map(|text| json!({ "level": "note", "message": { "text": text } }));
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": {
                    "name": "vramfit",
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": rules.collect::<Vec<_>>(),
                }},
                "invocations": [{
                    "executionSuccessful": true,
                    "toolExecutionNotifications": notifications.collect::<Vec<_>>(),
                }],
                "results": self.problems().iter().map(result).collect::<Vec<_>>(),
            }],
        })
    }
}

fn result(problem: &Problem<'_>) -> Value {
    let level = match problem.level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    };
    let (file, line) = &problem.location;
    json!({
        "ruleId": rule(problem),
        "level": level,
        "message": { "text": problem.text() },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": file },
            "region": { "startLine": line },
        }}],
        // Entry and GPU say what it is about, wherever the line moves.
        "partialFingerprints": { "entry": problem.row.name() },
    })
}

/// Returns the id of the rule that a problem breaks.
pub(super) fn rule(problem: &Problem<'_>) -> String {
    if problem.level == Level::Note {
        return "accepted".to_owned();
    }
    let value = serde_json::to_value(&problem.row.outcome).unwrap_or_default();
    value["id"].as_str().unwrap_or_default().to_owned()
}

impl Problem<'_> {
    /// Returns summary and details, a line each.
    pub(super) fn text(&self) -> String {
        let mut text = self.summary.clone();
        for line in &self.details {
            text.push('\n');
            text.push_str(line);
        }
        text
    }
}
