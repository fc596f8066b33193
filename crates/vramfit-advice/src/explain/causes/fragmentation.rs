use super::Judgement;
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::message::Message;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    by_dump(facts)
        .or_else(|| by_statistics(facts))
        .or_else(|| by_map(facts))
        .or_else(|| by_dryrun(facts))
        .or_else(|| by_report(facts))
}

/// The dump shows that free memory suffices, and that no free block does.
fn by_dump(facts: &Facts<'_>) -> Option<Judgement> {
    let dump = facts.log.dump()?;
    let rounded = facts.rounded_bytes()?;
    let free = dump.free_bytes()?;
    let largest = dump.largest_usable_bytes();
    if rounded > free || largest.is_some_and(|largest| largest >= rounded) {
        return None;
    }
    // Figures that the log rounds leave a doubt where they are close.
    let told = dump.figures.map_or(0, |figures| figures.pool.tolerance);
    let is_exact = dump.is_complete() || (free - rounded) / 4 >= told.max(1);
    let confidence = if is_exact { Confidence::Sure } else { Confidence::Likely };
    let block = match largest {
        Some(largest) => format!("the largest free block has {}", Bytes(largest)),
        None => "no free block is large enough".to_owned(),
    };
    let ends = match dump.is_partitioned() {
        true => {
            " (a request of one end of the partitioned pool cannot use the blocks of the other)"
        }
        false => "",
    };
    let summary = format!(
        "{} of the pool are free, more than the {} requested, but {block}{ends}",
        Bytes(free),
        Bytes(rounded),
    );
    Some(Judgement::new(confidence, summary, facts.quote_request()))
}

fn is_free_memory_dumped(facts: &Facts<'_>) -> bool {
    let dump = facts.log.dump();
    dump.is_some_and(|dump| dump.free_bytes().is_some())
}

/// What printed statistics leave of a pool, or of its limit.
pub(super) struct ReportedFreeMemory {
    pub(super) bytes: u64,
    /// Whether that is of the limit of a pool that grows on demand, whose size is not known: others may have it.
    pub(super) is_of_growing_pool: bool,
}

impl ReportedFreeMemory {
    /// Returns it where it is more than was requested, in no block that is large enough.
    pub(super) fn find(facts: &Facts<'_>) -> Option<Self> {
        let figures = &facts.figures;
        if is_free_memory_dumped(facts) || figures.in_use_is_at_end {
            return None;
        }
        let rounded = facts.rounded_bytes()?;
        let limit = figures.pool_bytes.or(figures.limit_bytes)?;
        let bytes = limit.checked_sub(figures.in_use_bytes?)?;
        let largest = figures.largest_free_block_bytes;
        let is_enough = rounded <= bytes && largest.is_none_or(|largest| largest < rounded);
        let is_of_growing_pool =
            figures.pool_bytes.is_none() && facts.settings.preallocate == Some(false);
        is_enough.then_some(ReportedFreeMemory { bytes, is_of_growing_pool })
    }
}

/// `memory_stats()`, as the program printed it, leaves room for the request.
fn by_statistics(facts: &Facts<'_>) -> Option<Judgement> {
    let free = ReportedFreeMemory::find(facts)?;
    let requested = Bytes(facts.rounded_bytes()?);
    let (confidence, summary) = match free.is_of_growing_pool {
        // They may have been printed long before the failure.
        false => (
            Confidence::Likely,
            format!(
                "by the printed statistics {} of the pool were free, more than the {requested} requested",
                Bytes(free.bytes)
            ),
        ),
        true => (
            Confidence::Possible,
            format!(
                "the limit of the pool, which grows on demand, left {}, more than the {requested} requested: where the \
                 pool had grown to it, no free block was large enough",
                Bytes(free.bytes)
            ),
        ),
    };
    let stats = |message: &Message| matches!(message, Message::MemoryStat { .. });
    let lines = facts.request_event().into_iter().chain(facts.log.all(stats));
    Some(Judgement::new(confidence, summary, facts.quote_all(lines)))
}

/// Free cells of a map that may hold what was requested, where nobody knows the size of the pool.
const MIN_FREE_PERCENT: u64 = 15;

/// The map shows many free cells in short runs. Its cells hide small gaps, so what it
/// shows as free is certainly free.
fn by_map(facts: &Facts<'_>) -> Option<Judgement> {
    if is_free_memory_dumped(facts) {
        return None;
    }
    let map = facts.log.map()?;
    let rounded = facts.rounded_bytes()?;
    let runs = || map.split(|cell| cell != '_').map(str::len);
    let cells = map.len() as u64;
    let free = runs().sum::<usize>() as u64;
    let longest = runs().max().unwrap_or(0) as u64;
    let pieces = runs().filter(|length| *length > 0).count();
    let percent = |part: u64| part * 100 / cells;
    let figures = &facts.figures;
    let default_pool = || Some(figures.gpu_total_bytes? / 4 * 3);
    let pool = figures.pool_bytes.or(figures.limit_bytes);
    let pool = pool.or_else(default_pool);
    let (confidence, comparison) = match pool {
        Some(pool) => {
            let cell = pool / cells;
            let fits_in_all = rounded <= free * cell;
            let fits_in_one = rounded <= longest.saturating_sub(1) * cell;
            if !fits_in_all || fits_in_one {
                return None;
            }
            (Confidence::Likely, format!(", about {} of {}", Bytes(free * cell), Bytes(pool)))
        }
        // Without the pool's size only the picture speaks: a part that may suffice is free, in pieces.
        None if percent(free) >= MIN_FREE_PERCENT && pieces > 1 && longest * 4 <= free * 3 => {
            (Confidence::Possible, String::new())
        }
        None => return None,
    };
    let summary = format!(
        "the map of the pool shows {} % free{comparison}, in pieces of at most {} %",
        percent(free),
        percent(longest)
    );
    Some(Judgement::new(confidence, summary, facts.quote_request()))
}

/// A dry run has measured it.
fn by_dryrun(facts: &Facts<'_>) -> Option<Judgement> {
    let is = |message: &Message| matches!(message, Message::Dryrun { fragmented: true, .. });
    Some(Judgement::likely(
        "a dry run has measured that free memory suffices, and that no free block does",
        vec![facts.quote(facts.log.first(is)?)],
    ))
}

/// The reporter says so.
fn by_report(facts: &Facts<'_>) -> Option<Judgement> {
    let named = |message: &Message| matches!(message, Message::FragmentationNamed);
    let said = facts.log.first(named)?;
    facts.request()?;
    // What the dump shows of the pool is better than what somebody says of it.
    if is_free_memory_dumped(facts) {
        return None;
    }
    let lines = [facts.request_event(), Some(said)].into_iter().flatten();
    Some(Judgement::possible(
        "the report calls it fragmentation; no figure of the pool in the log confirms or denies it",
        facts.quote_all(lines),
    ))
}
