//! The programs that need most memory.

use crate::analysis::{ProgramSummary, RunSummary};
use crate::bytes::Bytes;
use crate::report::{Content, Section, Table, Value};

/// Programs that are listed; the others are summed up in one line.
pub(super) const MAX_PROGRAMS_SHOWN: usize = 10;
/// Programs that are listed however little they need. Of the others, those that need less than
/// 1 % of the largest are not: eager code makes hundreds of them.
const MIN_PROGRAMS_SHOWN: usize = 3;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let programs = &summary.programs;
    let needed = |program: &ProgramSummary| program.sizes.needed_bytes();
    let min_bytes = (needed(programs.first()?) / 100).max(1);
    let large = programs.iter().filter(|it| needed(it) >= min_bytes);
    let shown = large.count().clamp(MIN_PROGRAMS_SHOWN, MAX_PROGRAMS_SHOWN);
    let rows = programs.iter().take(shown).map(|program| {
        let sizes = &program.sizes;
        vec![
            Value::Text(program.name.clone()),
            Value::Count(program.calls),
            Value::Bytes(sizes.argument_bytes),
            Value::Bytes(sizes.output_bytes),
            Value::Bytes(sizes.alias_bytes),
            Value::Bytes(sizes.temp_bytes),
            Value::Bytes(sizes.constant_bytes),
        ]
    });
    let columns = ["program", "calls", "arguments", "outputs", "aliased", "temporary", "constants"];
    let rest = programs.get(shown..).unwrap_or_default();
    let note = rest.first().map_or_else(String::new, |largest| {
        let calls: u64 = rest.iter().map(|program| program.calls).sum();
        format!(
            "{} more with {calls} calls total, each of at most {}",
            rest.len(),
            Bytes(needed(largest))
        )
    });
    let table = Table::new(&columns, rows.collect(), note);
    Some(Section::new("programs, per device", Content::Table(table)))
}
