//! GitHub's annotations: commands in the log of a job, which need no token and work in forks.

use crate::check::CheckReport;
use crate::check::report::Level;

impl CheckReport {
    /// Returns the commands, a line each.
    pub fn to_github_annotations(&self) -> String {
        let mut text = String::new();
        for problem in self.problems() {
            let command = match problem.level {
                Level::Error => "error",
                Level::Warning => "warning",
                Level::Note => "notice",
            };
            let (file, line) = &problem.location;
            let property = |value: &str| escape(value).replace(':', "%3A").replace(',', "%2C");
            text.push_str(&format!(
                "::{command} file={},line={line},title={}::{}\n",
                property(file),
                property(&format!("vramfit: {}", problem.row.name())),
                escape(&problem.text())
            ));
        }
        text
    }
}

fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}
