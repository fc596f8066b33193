use super::fragmentation::ReportedFreeMemory;
use super::request_larger_than_gpu::max_plausible_gpu_bytes;
use super::{Judgement, has};
use crate::bytes::Bytes;
use crate::explain::cause::{Cause, CauseId, Confidence};
use crate::explain::facts::Facts;
use crate::explain::figures::scale_budget;
use crate::explain::message::Message;
use crate::explain::request::{Request, RequestKind};

/// `others` are the causes that were found.
pub(super) fn find(facts: &Facts<'_>, others: &[Cause]) -> Option<Judgement> {
    by_dump(facts)
        .or_else(|| by_free_memory(facts))
        .or_else(|| arguments_exceed_limit(facts))
        .or_else(|| nothing_left(facts))
        .or_else(|| beyond_the_budget(facts))
        .or_else(|| beyond_every_gpu(facts))
        .or_else(|| by_dryrun(facts))
        .or_else(|| by_dumped_program(facts))
        .or_else(|| by_request(facts, others))
        .or_else(|| by_workspace(facts))
        .or_else(|| by_buffers(facts, others))
        .or_else(|| by_memory_map(facts))
        .or_else(|| by_cut_message(facts, others))
        .or_else(|| by_dump_alone(facts, others))
}

/// The dump shows that free memory, and what the pool may still take, do not suffice.
fn by_dump(facts: &Facts<'_>) -> Option<Judgement> {
    let dump = facts.log.dump()?;
    let rounded = facts.rounded_bytes()?;
    let limit = dump.limit()?;
    let in_use = dump.in_use_bytes()?;
    let free_of_limit = limit.max().saturating_sub(in_use);
    if rounded <= free_of_limit {
        return None;
    }
    // What rounded figures leave open.
    let in_use_tolerance = match dump.is_complete() {
        true => 0,
        false => dump.stats.and_then(|stats| stats.in_use).map_or(0, |size| size.tolerance),
    };
    let is_certain = rounded > free_of_limit.saturating_add(in_use_tolerance);
    let confidence = match is_certain {
        true => Confidence::Sure,
        false => Confidence::Likely,
    };
    let summary = format!(
        "{} were requested and {} of the pool's limit of {} were left, with {} in use",
        Bytes(rounded),
        Bytes(limit.bytes.saturating_sub(in_use)),
        Bytes(limit.bytes),
        Bytes(in_use),
    );
    Some(Judgement::new(confidence, summary, facts.quote_request()))
}

/// CUDA's own pool, which may take all of the GPU, was refused: the driver tells how much was free.
fn by_free_memory(facts: &Facts<'_>) -> Option<Judgement> {
    let request = facts.request().filter(|request| request.kind == RequestKind::Async)?;
    let figures = &facts.figures;
    let (free, total) = (figures.gpu_free_bytes?, figures.gpu_total_bytes?);
    let in_use = figures.in_use_bytes?;
    // What exceeds the GPU is another cause.
    let requested = Some(request.size.bytes).filter(|bytes| *bytes <= total)?;
    let rest = total.saturating_sub(free).saturating_sub(in_use);
    let confidence = match in_use.saturating_add(requested) > total {
        true => Confidence::Sure,
        false => Confidence::Likely,
    };
    let summary = format!(
        "{} were requested, and {} of the GPU's {} were free, with {} in use by the program; the other {} are of other \
         processes and libraries, or free pieces of CUDA's pool",
        Bytes(requested),
        Bytes(free),
        Bytes(total),
        Bytes(in_use),
        Bytes(rest),
    );
    Some(Judgement::new(confidence, summary, facts.quote_request()))
}

/// The compiler says that arguments and outputs alone exceed what the pool may have.
fn arguments_exceed_limit(facts: &Facts<'_>) -> Option<Judgement> {
    let (event, (arguments, limit)) = facts.log.find(|message| match message {
        Message::ArgumentsExceedLimit { arguments, limit } => Some((*arguments, *limit)),
        _ => None,
    })?;
    facts.request()?;
    let than = limit.map_or(String::new(), |limit| format!(" of {}", Bytes(limit)));
    let summary = format!(
        "arguments and outputs of the program take {}, more than the limit{than} by themselves",
        Bytes(arguments)
    );
    Some(Judgement::sure(summary, facts.quote_with_request(event)))
}

/// XLA's budget for temporaries is negative: arguments and outputs alone exceed the limit.
fn nothing_left(facts: &Facts<'_>) -> Option<Judgement> {
    let (event, target) = facts.log.find(|message| match message {
        Message::Rematerialization { target, .. } if *target < 0 => Some(*target),
        _ => None,
    })?;
    if facts.request().is_none() && facts.goes_on_after(event) {
        return None;
    }
    let beyond = Bytes(scale_budget(target).unsigned_abs());
    let summary = match facts.figures.outputs_only {
        Some(only) => format!(
            "the outputs of the program alone take {}, {beyond} more than the pool's limit of {} (by default that \
             of a GPU with {}): there is nothing to recompute",
            Bytes(only.output_bytes),
            Bytes(only.limit_bytes),
            Bytes(only.limit_bytes / 3 * 4),
        ),
        None => format!(
            "arguments and outputs of the program alone exceed the limit of the pool by {beyond} or more, before \
             any temporary"
        ),
    };
    let confidence = match facts.request() {
        Some(_) => Confidence::Sure,
        // Whether the program was executed, the log does not show.
        None => Confidence::Likely,
    };
    Some(Judgement::new(confidence, summary, facts.quote_with_request(event)))
}

/// XLA could not rematerialize the program into its budget, and the block it needs is larger than all of that.
///
/// The budget that XLA prints is 95 % of what arguments and outputs leave of the limit; newer releases add the bytes
/// of the outputs to it.
fn beyond_the_budget(facts: &Facts<'_>) -> Option<Judgement> {
    let rounded = facts.rounded_bytes()?;
    let (event, (target, reached)) = facts.log.find(|message| match message {
        Message::Rematerialization { target, reached, .. } => Some((*target, *reached)),
        _ => None,
    })?;
    let most = facts.most_of_budget()?;
    let confidence = match rounded > most {
        // Outputs are less than the program takes in all, so this is the block of its temporaries.
        true if rounded > reached => Confidence::Sure,
        true => Confidence::Likely,
        false if i64::try_from(reached).is_ok_and(|reached| reached > target) => Confidence::Likely,
        false => return None,
    };
    let summary = format!(
        "XLA could not rematerialize the program below {}, and it may take about {}; {} were requested",
        Bytes(reached),
        Bytes(target.max(0).unsigned_abs()),
        Bytes(rounded),
    );
    Some(Judgement::new(confidence, summary, facts.quote_with_request(event)))
}

/// Without a request that failed, a program that is larger than the GPU can only fail, unless it takes memory of the host.
fn beyond_every_gpu(facts: &Facts<'_>) -> Option<Judgement> {
    if !facts.requests.is_empty() || facts.settings.unified_memory {
        return None;
    }
    let (most, of) = match facts.figures.gpu_total_bytes {
        Some(total) => (total, "the GPU has"),
        None => (max_plausible_gpu_bytes(), "any GPU has"),
    };
    let (event, bytes) = facts.log.find(|message| match message {
        // It counts what is shared in the end twice.
        Message::Rematerialization { reached, .. } => Some(*reached).filter(|it| it / 2 > most),
        Message::ArgumentsExceedLimit { arguments, .. } => Some(*arguments).filter(|it| *it > most),
        _ => None,
    })?;
    (!facts.goes_on_after(event)).then(|| {
        let summary = format!(
            "the compiler counts {} for one program, more than {of}; the log does not show the failure itself",
            Bytes(bytes)
        );
        let is_counted = |message: &Message| {
            matches!(
                message,
                Message::Rematerialization { .. } | Message::ArgumentsExceedLimit { .. }
            )
        };
        Judgement::likely(summary, facts.quote_all(facts.log.all(is_counted)))
    })
}

/// A routine of jaxlib found no room for its workspace, which is in the pool.
fn by_workspace(facts: &Facts<'_>) -> Option<Judgement> {
    let (event, routine) = facts.log.find(|message| match message {
        Message::Workspace { routine } => Some(routine.clone()),
        _ => None,
    })?;
    let summary = format!(
        "the pool has no room for the workspace of `{routine}`, which grows with the size of its matrices"
    );
    Some(Judgement::likely(summary, vec![facts.quote(event)]))
}

/// A dry run has measured it.
fn by_dryrun(facts: &Facts<'_>) -> Option<Judgement> {
    let (event, (short, program)) = facts.log.find(|message| match message {
        Message::Dryrun { fits: false, short, program, fragmented: false } => {
            Some((*short, program.clone()))
        }
        _ => None,
    })?;
    let short = short.map_or(String::new(), |size| format!(" by {}", Bytes(size.bytes)));
    let program = program.map_or(String::new(), |name| format!(" in `{name}`"));
    let summary = format!("a dry run has measured that the pool is too small{short}{program}");
    Some(Judgement::likely(summary, vec![facts.quote(event)]))
}

/// What XLA has dumped of a program exceeds what the pool of the GPU has by default.
fn by_dumped_program(facts: &Facts<'_>) -> Option<Judgement> {
    let total = facts.figures.gpu_total_bytes?;
    let limit = facts.figures.limit_bytes.unwrap_or(total / 4 * 3);
    let (event, need) = facts.log.find(|message| match message {
        Message::DumpedProgram { need } if need.total.bytes > limit => Some(*need),
        _ => None,
    })?;
    let summary = format!(
        "the program needs {} by itself, and the pool has {}",
        Bytes(need.total.bytes),
        Bytes(limit)
    );
    Some(Judgement::sure(summary, vec![facts.quote(event)]))
}

/// Only the request is known.
fn by_request(facts: &Facts<'_>, others: &[Cause]) -> Option<Judgement> {
    let of_pool = |request: &&Request| request.kind == RequestKind::Pool;
    let of_pool = facts.requests.iter().find(of_pool);
    // Without a pool none is too small.
    let is_explained = others.iter().any(|cause| cause.confidence > Confidence::Possible);
    let request = of_pool.or(facts.request().filter(|_| !is_explained))?;
    let explained = others.iter().any(|cause| {
        cause.confidence > Confidence::Possible
            && matches!(
                cause.id,
                CauseId::PoolNotObtained
                    | CauseId::MemoryTakenLater
                    | CauseId::Fragmentation
                    | CauseId::RequestLargerThanGpu
                    | CauseId::Recompilation
                    | CauseId::Leak
            )
    });
    // What follows from the pool's own figures leaves nothing to add.
    let of_the_pool = [CauseId::PoolNotObtained, CauseId::MemoryTakenLater, CauseId::Fragmentation];
    let is_certain =
        |cause: &Cause| cause.confidence == Confidence::Sure && of_the_pool.contains(&cause.id);
    if others.iter().any(is_certain) {
        return None;
    }
    // Where its limit left enough, something else is as likely.
    let is_open = explained || ReportedFreeMemory::find(facts).is_some();
    let confidence = if is_open { Confidence::Possible } else { Confidence::Likely };
    let by = match &request.program {
        Some(program) => format!(" by `{program}`"),
        None => String::new(),
    };
    let map = facts.log.map().map_or(String::new(), |map| {
        let free = map.bytes().filter(|cell| *cell == b'_').count();
        match facts.pool_limit().filter(|_| facts.exceeds_limit()) {
            _ if !facts.is_pool_empty() => {
                format!("; the map of the pool shows {} % free", free * 100 / map.len())
            }
            Some(limit) => {
                format!("; nothing of the pool was in use, and its limit is {}", Bytes(limit))
            }
            None => "; nothing of the pool was in use: the request exceeds all of it".to_owned(),
        }
    });
    let need = facts.log.program_need();
    let parts = need.map_or(String::new(), |(_, need)| {
        format!(
            "; the program takes {} in total: arguments {}, outputs {}, temporaries {}",
            Bytes(need.total.bytes),
            Bytes(need.arguments.bytes),
            Bytes(need.live_out.bytes),
            Bytes(need.temporaries.bytes),
        )
    });
    let at_end = in_use_at_end(facts).unwrap_or_default();
    let requested = Bytes(request.size.bytes);
    let summary = format!("{requested} were requested{by} and not available{map}{parts}{at_end}");
    let mut evidence = facts.quote_request();
    evidence.extend(need.map(|(event, _)| facts.quote(event)));
    Some(Judgement::new(confidence, summary, evidence))
}

/// Returns what the process says of its pool.
fn in_use_at_end(facts: &Facts<'_>) -> Option<String> {
    let figures = &facts.figures;
    let in_use = figures.in_use_bytes.filter(|_| figures.in_use_is_at_end)?;
    let limit = figures.limit_bytes?;
    let (in_use, limit) = (Bytes(in_use), Bytes(limit));
    Some(format!("; when the program ended, {in_use} of the pool's limit of {limit} were in use"))
}

/// Only the list of the largest buffers is there, which XLA prints when a program finds no memory.
fn by_buffers(facts: &Facts<'_>, others: &[Cause]) -> Option<Judgement> {
    let largest = facts.log.buffers.iter().min_by_key(|buffer| std::cmp::Reverse(buffer.bytes));
    let need = facts.log.program_need();
    let is_dump = |message: &Message| matches!(message, Message::DumpedProgram { .. });
    let only_dumped = facts.log.has(is_dump);
    if only_dumped || facts.request().is_some() || has(others, CauseId::Tpu) {
        return None;
    }
    let what = match (&need, largest) {
        (Some((_, need)), _) => format!("it takes {} in total", Bytes(need.total.bytes)),
        (None, Some(buffer)) => {
            let shape = match buffer.shape.as_str() {
                "" => String::new(),
                shape => format!(" ({shape})"),
            };
            format!(
                "the largest of {} listed buffers has {}{shape}",
                facts.log.buffers.len(),
                Bytes(buffer.bytes),
            )
        }
        (None, None) => return None,
    };
    let summary = format!("XLA lists the buffers of a program that found no memory: {what}");
    let evidence = match need {
        Some((event, _)) => vec![facts.quote(event)],
        None => facts.log.first_buffer.iter().cloned().collect(),
    };
    Some(Judgement::likely(summary, evidence))
}

/// The log ends inside of the message about the request.
fn by_cut_message(facts: &Facts<'_>, others: &[Cause]) -> Option<Judgement> {
    let event = facts.log.first(|message| *message == Message::CutOff)?;
    let is_known = facts.request().is_some() || !others.is_empty();
    let summary = "the log is cut off in the message about a request that failed: its size, and what else the log would \
                   tell, is not there";
    (!is_known).then(|| Judgement::possible(summary, vec![facts.quote(event)]))
}

/// Only the map of the pool is there, which XLA writes when a request fails.
fn by_memory_map(facts: &Facts<'_>) -> Option<Judgement> {
    let is_map = |message: &Message| matches!(message, Message::MemoryMap);
    let event = facts.log.first(is_map)?;
    let fits = &facts.figures.fits;
    let summary = format!(
        "the request that failed is not in the map: it was larger than the largest free block, {}, of {} free \
         total; the program's output names it",
        Bytes(fits.now?),
        Bytes(fits.without_fragmentation?)
    );
    let evidence = vec![facts.quote(event)];
    Some(Judgement::possible(summary, evidence))
}

/// Only the dump of a pool is there, which XLA logs when a request fails.
fn by_dump_alone(facts: &Facts<'_>, others: &[Cause]) -> Option<Judgement> {
    let dump = facts.log.dump()?;
    let (in_use, limit) = (dump.in_use_bytes()?, dump.limit()?);
    let refused = facts.log.driver_refusals().next().is_some();
    let evidence = dump.figures_at.clone()?;
    if facts.request().is_some() || refused || !others.is_empty() {
        return None;
    }
    let summary = format!(
        "a pool logs its state when a request fails, and the log does not show which: {} of its {} were in use",
        Bytes(in_use),
        Bytes(limit.bytes)
    );
    Some(Judgement::possible(summary, vec![evidence]))
}
