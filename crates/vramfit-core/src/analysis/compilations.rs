//! Functions that were compiled again and again, and what made them so.

use super::series::CompilationSummary;
use crate::trace::{ProgramSizes, TextId};

/// One compilation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compilation {
    pub(super) name: TextId,
    pub(super) site: TextId,
    pub(super) sizes: ProgramSizes,
    pub(super) loaded: bool,
    /// Index of its event.
    pub(super) event: u64,
    /// How often, and how many events apart: a repeat of the trace that was skipped has many.
    pub(super) times: u64,
    pub(super) every: u64,
}

impl Compilation {
    /// Returns how many of them were after an event.
    fn after(&self, event: u64) -> u64 {
        if self.event > event {
            return self.times;
        }
        let until = (event - self.event) / self.every.max(1) + 1;
        self.times.saturating_sub(until)
    }
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
        .filter(|all| all.iter().map(|one| one.times).sum::<u64>() > 1)
        .map(|all| {
            let counted =
                |count: &dyn Fn(&Compilation) -> u64| all.iter().map(|one| count(one)).sum();
            CompilationSummary {
                name: text(all[0].name),
                count: counted(&|one| one.times),
                loaded: counted(&|one| if one.loaded { one.times } else { 0 }),
                argument_sizes: different(all.iter().map(|one| one.sizes.argument_bytes)),
                after_first_step: counted(&|one| step.map_or(0, |(_, first)| one.after(first))),
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
    let mut sites: Vec<_> = all.iter().map(|one| (one.site, one.times)).collect();
    sites.sort_unstable();
    let lines = sites.chunk_by(|a, b| a.0 == b.0);
    let times = |line: &[(TextId, u64)]| line.iter().map(|(_, times)| times).sum::<u64>();
    let mut counted: Vec<_> = lines.map(|line| (times(line), text(line[0].0))).collect();
    counted.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let named = counted.into_iter().map(|(_, line)| line);
    named.filter(|line| !line.is_empty()).collect()
}
