//! Functions that were compiled again and again, and what made them so.

use serde::Serialize;

use crate::program::ProgramSizes;
use crate::section::Section;
use crate::section::phrases::more_in_json;
use crate::trace::TextId;

/// Functions that a report lists.
const MAX_SHOWN: usize = 5;

/// Programs of one name that were compiled, or loaded from a cache, more than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompilationSummary {
    /// Their name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// How many of those came from a cache.
    pub loaded: u64,
    /// With how many different sizes of the arguments in all.
    pub argument_sizes: u64,
    /// How often after the first call of the step.
    pub after_first_step: u64,
    /// Whether the step is one of them.
    pub step: bool,
    /// The lines that asked for them, the one that asked most often first.
    pub sites: Vec<String>,
}

impl CompilationSummary {
    /// Returns `true` if a reader wants to know: while the run should have got going, or if it is the step
    /// itself. That start-up code compiles its operations for many shapes is usual.
    pub fn is_significant(&self) -> bool {
        self.after_first_step > 3 || (self.step && self.argument_sizes > 3)
    }
}

/// Something that was compiled, or loaded from a cache.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct Compilation {
    pub(in crate::analysis) name: TextId,
    pub(in crate::analysis) site: TextId,
    pub(in crate::analysis) sizes: ProgramSizes,
    pub(in crate::analysis) loaded: bool,
    /// Index of its event.
    pub(in crate::analysis) event: u64,
}

/// Adds up what was compiled more than once under one name, the most often compiled first.
///
/// `step` is the name of the step, and the event of its first call.
pub(in crate::analysis) fn repeated(
    compiled: &[Compilation],
    step: Option<(TextId, u64)>,
    text: impl Fn(TextId) -> String,
) -> Vec<CompilationSummary> {
    let mut sorted: Vec<_> = compiled.iter().collect();
    sorted.sort_by_key(|one| (one.name, one.event));
    let functions = sorted.chunk_by(|a, b| a.name == b.name);
    let mut found: Vec<_> = functions
        .filter(|all| all.len() > 1)
        .map(|all| {
            let count = |is_counted: &dyn Fn(&Compilation) -> bool| {
                all.iter().filter(|one| is_counted(one)).count() as u64
            };
            CompilationSummary {
                name: text(all[0].name),
                count: all.len() as u64,
                loaded: count(&|one| one.loaded),
                argument_sizes: different(all.iter().map(|one| one.sizes.argument_bytes)),
                after_first_step: count(&|one| step.is_some_and(|(_, first)| one.event > first)),
                step: step.is_some_and(|(name, _)| all[0].name == name),
                sites: sites(all, &text),
            }
        })
        .collect();
    found.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    found
}

fn different(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.len() as u64
}

/// Returns the lines that asked for them, the one that asked most often first.
fn sites(all: &[&Compilation], text: impl Fn(TextId) -> String) -> Vec<String> {
    let mut sites: Vec<_> = all.iter().map(|one| one.site).collect();
    sites.sort_unstable();
    let lines = sites.chunk_by(|a, b| a == b);
    let mut counted: Vec<_> = lines.map(|line| (line.len(), text(line[0]))).collect();
    counted.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let named = counted.into_iter().map(|(_, line)| line);
    named.filter(|line| !line.is_empty()).collect()
}

/// Shows what was compiled more often than it should be.
pub fn section(all: &[CompilationSummary]) -> Option<Section> {
    let significant: Vec<_> = all.iter().filter(|one| one.is_significant()).collect();
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
