//! What a file is rewritten to, as text: a line for each dataset as it is, and one as it will be.

use std::path::Path;

use vramfit_core::Bytes;
use vramfit_data::repack::{Plan, Step, StorageFacts};

use super::numbers::{grouped, shown};

/// Tells what would be done.
pub(super) fn planned(plan: &Plan) -> String {
    let mut text = steps(plan);
    let about = if plan.is_estimate { "about " } else { "" };
    text.push_str(&format!(
        "\n{} now, {about}{} then; {}\n",
        plan.old_bytes,
        plan.new_bytes,
        means(plan)
    ));
    text
}

/// Tells what was done, the file last.
pub(super) fn told(plan: &Plan, file: &Path, bytes: Bytes) -> String {
    format!(
        "{}wrote `{}`: {bytes} on disk, {} before; read back and found equal",
        steps(plan),
        file.display(),
        plan.old_bytes
    )
}

fn means(plan: &Plan) -> String {
    let threads = match plan.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    format!("{threads}, at most {} of rows in memory", plan.memory)
}

fn steps(plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        let shape: Vec<String> = step.shape.iter().map(|&n| grouped(n)).collect();
        text.push_str(&format!(
            "{}  {} [{}]\n",
            shown(&step.path),
            step.dtype,
            shape.join(", ")
        ));
        text.push_str(&format!("  from  {}\n", storage(step, &step.old)));
        let note = step.note.as_ref().map(|note| format!(" ({note})"));
        text.push_str(&format!(
            "  to    {}{}\n",
            storage(step, &step.new),
            note.unwrap_or_default()
        ));
        if step.decodes > 2 {
            text.push_str(&format!(
                "  each old chunk is decoded up to {} times, since {} rows fit into the memory at \
                 once; `--memory` gives more\n",
                grouped(step.decodes),
                grouped(step.rows_at_once)
            ));
        }
    }
    if plan.whole > 0 {
        let what = match plan.whole {
            1 => "1 single value, text or type is".to_owned(),
            count => format!(
                "{} single values, texts and types are",
                grouped(count as u64)
            ),
        };
        text.push_str(&format!("{what} copied as a whole\n"));
    }
    text
}

fn storage(step: &Step, facts: &StorageFacts) -> String {
    let mut text = facts.layout.to_owned();
    if let Some(chunk) = &facts.chunk {
        let whole = (chunk.iter().zip(&step.shape).skip(1)).all(|(chunk, length)| chunk >= length);
        text = match (whole, chunk.first()) {
            (true, Some(rows)) => format!("chunks of {} rows", grouped(*rows)),
            _ => {
                let lengths: Vec<String> = chunk.iter().map(|&n| grouped(n)).collect();
                format!("chunks of [{}]", lengths.join(", "))
            }
        };
        if !facts.filters.is_empty() {
            text.push_str(&format!("; {}", facts.filters.join(" + ")));
        }
    }
    let about = if facts.is_estimate { "about " } else { "" };
    format!("{text}, {about}{}", facts.bytes)
}
