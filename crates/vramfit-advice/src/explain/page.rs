//! The pages `docs/causes/*.md`: all but their logs is made from the code, so that ids, texts and pages agree.

use super::ExplainOptions;
use super::cause::CauseId;
use super::facts::Facts;
use super::log::Log;
use super::remedy;

/// Returns the head of the page of a cause, up to its example.
pub fn page_head(id: CauseId) -> String {
    let log = Log::default();
    let facts = Facts::new(&log, &ExplainOptions::default());
    let title = id.title();
    let (first, rest) = title.split_at(1);
    let mut page = format!(
        "# {}{rest}\n\n[`vramfit explain`](../commands/explain.md) calls this cause `{}`.\n\n{}\n\n\
         It is ruled out if {}.\n",
        first.to_uppercase(),
        id.id(),
        id.meaning(),
        id.falsified_by(),
    );
    let remedies = remedy::of_cause(&facts, id);
    if !remedies.is_empty() {
        page.push_str("\n## What to do\n\nWhere the log tells no more:\n\n");
    }
    for remedy in remedies {
        let command = match remedy.command.as_str() {
            "" => String::new(),
            command => format!(" `{command}`"),
        };
        page.push_str(&format!("- `{}`: {}.{command}\n", remedy.id, remedy.text));
    }
    page
}
