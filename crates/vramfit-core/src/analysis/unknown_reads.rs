//! Reads of values that a dry run does not know, by line.

use rustc_hash::FxHashMap;

use super::summary::UnknownReads;
use crate::trace::TextId;

/// Counts reads of unknown values.
#[derive(Default)]
pub(super) struct UnknownReadCounts {
    by_site: FxHashMap<TextId, Counts>,
    /// The line of the last of them.
    last: Option<TextId>,
}

#[derive(Default)]
struct Counts {
    reads: u64,
    bytes: u64,
    /// Of how many of them JAX made a shape.
    shapes: u64,
    /// How many of them decided what the program did next.
    decisions: u64,
    /// The first of those.
    decision: Option<Decision>,
}

/// What is read of which the program decides something.
#[derive(Clone, Copy)]
pub(super) struct Decision {
    pub(super) expression: TextId,
    pub(super) value: TextId,
}

impl UnknownReadCounts {
    /// Counts a read.
    pub(super) fn on_read(&mut self, site: TextId, bytes: u64) {
        self.count(site, bytes);
    }

    /// Counts a read of which JAX makes a shape.
    pub(super) fn on_shape(&mut self, site: TextId, bytes: u64) {
        self.count(site, bytes).shapes += 1;
    }

    /// Counts a read that decides what the program does next.
    pub(super) fn on_decision(&mut self, site: TextId, bytes: u64, decision: Decision) {
        let counts = self.count(site, bytes);
        counts.decisions += 1;
        counts.decision.get_or_insert(decision);
    }

    fn count(&mut self, site: TextId, bytes: u64) -> &mut Counts {
        self.last = Some(site);
        let counts = self.by_site.entry(site).or_default();
        counts.reads += 1;
        counts.bytes = counts.bytes.saturating_add(bytes);
        counts
    }

    /// Returns the line of the last read.
    pub(super) fn last(&self) -> Option<TextId> {
        self.last
    }

    /// Returns them by line: first where most shapes were made of them, then where they decided most, then
    /// where most reads were.
    pub(super) fn summary(&self, text: &impl Fn(TextId) -> String) -> Vec<UnknownReads> {
        let mut reads: Vec<_> = self
            .by_site
            .iter()
            .map(|(site, counts)| UnknownReads {
                site: text(*site),
                reads: counts.reads,
                bytes: counts.bytes,
                shapes: counts.shapes,
                decisions: counts.decisions,
                expression: counts.decision.map(|it| text(it.expression)),
                value: counts.decision.map(|it| text(it.value)),
            })
            .collect();
        reads.sort_by(|a, b| {
            (b.shapes, b.decisions, b.reads)
                .cmp(&(a.shapes, a.decisions, a.reads))
                .then_with(|| a.site.cmp(&b.site))
        });
        reads
    }
}
