//! JUnit's XML: one test case for each entry and GPU.

use std::fmt::Write;

use crate::check::CheckReport;

impl CheckReport {
    /// Returns the XML.
    pub fn to_junit(&self) -> String {
        let count = |answer| {
            let answers = self.rows.iter().map(|row| row.outcome.passes());
            answers.filter(|passes| *passes == answer).count()
        };
        let (tests, failures, errors) = (self.rows.len(), count(Some(false)), count(None));
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuites tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">\n\
             <testsuite name=\"vramfit check\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">\n"
        );
        for row in &self.rows {
            let _ = write!(
                xml,
                "<testcase classname=\"vramfit.check.{}\" name=\"{}\">",
                escape(&row.entry),
                escape(&row.gpu)
            );
            let element = match row.outcome.passes() {
                Some(true) => None,
                Some(false) => Some("failure"),
                None => Some("error"),
            };
            if let Some(element) = element {
                let _ = write!(
                    xml,
                    "<{element} message=\"{}\">{}</{element}>",
                    escape(&row.summary()),
                    escape(&row.details(&self.base, usize::MAX).join("\n"))
                );
            }
            if let Some(summary) = row.qualified_summary() {
                let _ = write!(xml, "<system-out>{}</system-out>", escape(&summary));
            }
            xml.push_str("</testcase>\n");
        }
        xml + "</testsuite>\n</testsuites>\n"
    }
}

/// Escapes a text for an element or an attribute. Characters that XML cannot have are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // A line feed in an attribute would be read as a space.
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
