//! What was compiled more often than it should be.

use crate::analysis::{CompilationSummary, RunSummary};
use crate::report::Section;
use crate::report::phrases::more_in_json;

const MAX_SHOWN: usize = 5;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let all = summary.compilations.iter();
    let significant: Vec<_> = all.filter(|one| one.is_significant()).collect();
    let shown = significant.iter().copied().take(MAX_SHOWN);
    let mut points: Vec<_> = shown.map(point).collect();
    points.extend(more_in_json(significant.len().saturating_sub(MAX_SHOWN)));
    Section::list("repeated compilations", points)
}

fn point(one: &CompilationSummary) -> String {
    let sizes = match one.argument_sizes {
        1 => "always with arguments of the same size".to_owned(),
        sizes => format!("with {sizes} different argument sizes"),
    };
    let loaded = match one.loaded {
        0 => String::new(),
        loaded => format!(" ({loaded} loaded from a cache)"),
    };
    let after = match one.after_first_step {
        0 => String::new(),
        after => format!(", {after} of them after the first step"),
    };
    let at = match &one.sites[..] {
        [] => String::new(),
        [only] => format!(", at {only}"),
        [first, rest @ ..] => format!(", at {first} and {} more lines", rest.len()),
    };
    let (name, count) = (&one.name, one.count);
    format!("`{name}` {count} times{loaded}, {sizes}{after}{at}")
}
