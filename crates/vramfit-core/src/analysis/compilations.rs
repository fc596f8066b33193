//! Functions that were compiled again and again, and what made them so.

use super::series::CompilationSummary;
use crate::program::ProgramSizes;
use crate::trace::TextId;

#[derive(Clone, Copy, Debug)]
pub(super) struct Compilation {
    pub(super) name: TextId,
    pub(super) site: TextId,
    pub(super) sizes: ProgramSizes,
    pub(super) loaded: bool,
    /// Index of its event.
    pub(super) event: u64,
}

/// Adds up what was compiled more than once under one name, the most often compiled first.
///
/// `step` is the name of the step, and the event of its first call.
pub(super) fn repeated(
    compiled: &[Compilation],
    step: Option<(TextId, u64)>,
    text: impl Fn(TextId) -> String,
) -> Vec<CompilationSummary> {
    let mut sorted: Vec<_> = compiled.iter().collect();
    sorted.sort_by_key(|one| (one.name, one.event));
    let functions = sorted.chunk_by(|a, b| a.name == b.name);
    let mut answers: Vec<_> = functions
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
    answers.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    answers
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
