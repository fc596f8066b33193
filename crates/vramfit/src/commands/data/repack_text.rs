//! A repack plan or result as text: for each dataset its old and new storage.

use std::path::Path;

use vramfit_core::Bytes;
use vramfit_data::repack::{RepackPlan, Step, StorageInfo};

use super::numbers::{describe_chunks, grouped, grouped_list, shown};

/// Renders what would be done.
pub(super) fn render_plan(plan: &RepackPlan) -> String {
    let mut text = render_steps(plan);
    let about = if plan.is_estimate { "about " } else { "" };
    text.push_str(&format!(
        "\ncurrent size {}, new size {about}{}; {}\n",
        plan.old_bytes,
        plan.new_bytes,
        render_cost(plan)
    ));
    text
}

/// Renders what was done, the file last.
pub(super) fn render_result(plan: &RepackPlan, file: &Path, bytes: Bytes) -> String {
    format!(
        "{}wrote `{}`: {bytes} on disk, {} before; verified",
        render_steps(plan),
        file.display(),
        plan.old_bytes
    )
}

fn render_cost(plan: &RepackPlan) -> String {
    let threads = match plan.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    format!("{threads}, at most {} of memory for rows", plan.memory)
}

fn render_steps(plan: &RepackPlan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        text.push_str(&format!(
            "{}  {} [{}]\n",
            shown(&step.path),
            step.dtype,
            grouped_list(&step.shape)
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
                "  each old chunk is decoded up to {} times, because only {} rows fit in memory at once; \
                 increase `--memory` to avoid this\n",
                grouped(step.decodes),
                grouped(step.rows_per_read)
            ));
        }
    }
    if plan.small_objects > 0 {
        let what = match plan.small_objects {
            1 => "1 scalar, string or named datatype".to_owned(),
            count => format!("{} scalars, strings and named datatypes", grouped(count as u64)),
        };
        text.push_str(&format!("{what} copied unchanged\n"));
    }
    text
}

fn storage(step: &Step, info: &StorageInfo) -> String {
    let mut text = info.layout.to_owned();
    if let Some(chunk) = &info.chunk {
        text = describe_chunks(chunk, &step.shape);
        if !info.filters.is_empty() {
            text.push_str(&format!("; {}", info.filters.join(" + ")));
        }
    }
    let about = if info.is_estimate { "about " } else { "" };
    format!("{text}, {about}{}", info.bytes)
}
