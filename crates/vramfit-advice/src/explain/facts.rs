//! What every cause is judged by: the events of a log, the request that failed first, its figures.

use super::ExplainOptions;
use super::cause::Evidence;
use super::figures::{Figures, scale_budget};
use super::log::{Event, Log};
use super::message::{HostFailure, Message, Subject};
use super::recovery::Recovery;
use super::request::Request;
use super::settings::PoolSettings;

/// Lines that a cause shows.
const MAX_EVIDENCE: usize = 4;

/// A log and what was joined from it.
pub(super) struct Facts<'a> {
    pub(super) log: &'a Log,
    /// The requests that failed, without `handled_requests`.
    pub(super) requests: Vec<Request>,
    /// Those that the program handled before: it went on with its steps.
    pub(super) handled_requests: Vec<Request>,
    /// What became of the program after the last failure.
    pub(super) recovery: Option<Recovery>,
    pub(super) figures: Figures,
    /// The settings of the pool.
    pub(super) settings: PoolSettings,
    /// How the program is started, for commands to go on with.
    pub(super) command: String,
}

/// Returns how many of the first requests the program handled, as one that tries a smaller batch does: it made steps before
/// the next one failed, and raised no error about memory in between. With the dump of a pool, that of the first counts.
fn count_handled_requests(log: &Log, requests: &[Request]) -> usize {
    if log.dump().is_some() {
        return 0;
    }
    let raised = |first: &Event, next: &Event| {
        let is_memory_error = |message: &Message| {
            matches!(message, Message::Exception { subject: Subject::Memory, .. })
        };
        log.all(is_memory_error).any(|error| first.order < error.order && error.order < next.order)
    };
    let is_handled = |pair: &&[Request]| {
        let (first, next) = (&log.events[pair[0].event], &log.events[pair[1].event]);
        first.source == next.source
            && first.writer == next.writer
            && first.step_lines_before < next.step_lines_before
            && !raised(first, next)
    };
    requests.windows(2).take_while(is_handled).count()
}

impl<'a> Facts<'a> {
    /// Joins what a log says with what the user and the process say.
    pub(super) fn new(log: &'a Log, options: &ExplainOptions) -> Facts<'a> {
        let mut requests = log.requests();
        let handled = count_handled_requests(log, &requests);
        let handled_requests = requests.drain(..handled).collect();
        let figures = Figures::join(log, requests.first(), options);
        let settings = PoolSettings::read(log, options.process.as_ref(), figures.jax);
        let command = match options.command.as_str() {
            "" => log.command(),
            command => command.to_owned(),
        };
        let recovery = log.recovery();
        let mut facts =
            Facts { log, requests, handled_requests, recovery, figures, settings, command };
        let need = facts.need();
        facts.figures.needed_bytes = need.map(|need| need.bytes);
        facts.figures.needed_is_least = need.is_some_and(|need| need.is_least);
        facts.figures.needed_is_of_program = need.is_some_and(|need| need.is_of_program);
        facts.figures.needed_is_most = need.is_some_and(|need| need.is_most());
        facts
    }

    /// Returns the request that failed first.
    pub(super) fn request(&self) -> Option<&Request> {
        self.requests.first()
    }

    /// Returns the event of the request that failed first.
    pub(super) fn request_event(&self) -> Option<&'a Event> {
        Some(&self.log.events[self.request()?.event])
    }

    /// Returns the bytes that the pool had to find.
    pub(super) fn rounded_bytes(&self) -> Option<u64> {
        let request = self.request()?;
        Some(request.rounded.unwrap_or(request.size.bytes))
    }

    /// Returns `true` if the map of the pool shows that nothing of it is in use.
    pub(super) fn is_pool_empty(&self) -> bool {
        self.log.map().is_some_and(|map| map.bytes().all(|cell| cell == b'_'))
    }

    /// Returns the most that the pool may have, where the log tells: as its limit, by what the compiler plans with, or
    /// as a part of the GPU.
    pub(super) fn pool_limit(&self) -> Option<u64> {
        let of_gpu = || {
            let total = self.figures.gpu_total_bytes.filter(|_| self.settings.has_pool())?;
            Some(self.settings.limit_bytes(total, self.settings.fraction_in_force()))
        };
        self.figures.limit_bytes.or_else(|| self.most_of_budget()).or_else(of_gpu)
    }

    /// Returns `true` if the request is larger than all that the pool may have.
    pub(super) fn exceeds_limit(&self) -> bool {
        self.rounded_bytes().zip(self.pool_limit()).is_some_and(|(bytes, limit)| bytes > limit)
    }

    /// Returns what the compiler could not bring the program below, where its log tells: at least what arguments and
    /// outputs leave of the pool's limit.
    pub(super) fn most_of_budget(&self) -> Option<u64> {
        let (_, target) = self.log.find(|message| match message {
            Message::Rematerialization { target, .. } => Some(*target),
            _ => None,
        })?;
        Some(scale_budget(target).max(0).unsigned_abs())
    }

    /// Returns what the compiler brought the program down to, where its log tells.
    pub(super) fn reached_by_compiler(&self) -> Option<u64> {
        let (_, reached) = self.log.find(|message| match message {
            Message::Rematerialization { reached, .. } => Some(*reached),
            _ => None,
        })?;
        Some(reached)
    }

    /// Returns `true` if a request was refused before this event, by a pool or to a pool.
    pub(super) fn is_after_failure(&self, event: &Event) -> bool {
        let requests = self.requests.iter().map(|request| &self.log.events[request.event]);
        let to_pools = self.log.driver_refusals().map(|(refused, _)| refused);
        requests
            .chain(to_pools)
            .any(|failed| failed.source == event.source && failed.order < event.order)
    }

    /// Returns how many lines of progress the log shows before the first failure.
    pub(super) fn steps_before_failure(&self) -> u64 {
        self.request_event().map_or(0, |event| event.steps_before)
    }

    /// Returns `true` if the program went on with its steps after this event.
    pub(super) fn goes_on_after(&self, event: &Event) -> bool {
        self.log.steps.count > event.step_lines_before
    }

    /// Returns `true` if it did so, and no error ended it later.
    pub(super) fn goes_on_well_after(&self, event: &Event) -> bool {
        let is_error = |message: &Message| {
            matches!(message, Message::Exception { .. } | Message::PeerFailure | Message::Abort)
        };
        let fails = self.log.all(is_error).any(|error| error.order > event.order);
        self.log.sources.len() == 1 && self.goes_on_after(event) && !fails
    }

    /// Returns `true` if the program says before this event that it has come to its end.
    pub(super) fn has_ended_before(&self, event: &Event) -> bool {
        let last = self.log.ended.filter(|_| self.log.sources.len() == 1);
        last.is_some_and(|(order, _)| order < event.order) && !self.goes_on_after(event)
    }

    /// Quotes an event.
    pub(super) fn quote(&self, event: &Event) -> Evidence {
        Evidence {
            source: self.log.source(event.source),
            line: event.line,
            process: event.process.clone(),
            text: event.text.clone(),
        }
    }

    /// Quotes events, the first few of each text.
    pub(super) fn quote_all<'e>(&self, events: impl Iterator<Item = &'e Event>) -> Vec<Evidence> {
        let mut quotes: Vec<Evidence> = Vec::new();
        for event in events {
            let beginning = |text: &str| text.chars().take(48).collect::<String>();
            let next = self.quote(event);
            let is_new = quotes.iter().all(|quote| {
                let is_same_line = (quote.line, &quote.source) == (next.line, &next.source);
                !is_same_line && beginning(&quote.text) != beginning(&next.text)
            });
            if is_new && quotes.len() < MAX_EVIDENCE {
                quotes.push(next);
            }
        }
        quotes
    }

    /// Quotes the messages about the request that failed first, and the pool's own figures.
    pub(super) fn quote_request(&self) -> Vec<Evidence> {
        let request = self.request_event().map(|event| self.quote(event));
        let mut quotes = Vec::from_iter(request);
        let dump = self.log.dump();
        quotes.extend(dump.and_then(|dump| {
            Some(Evidence { source: self.log.source(dump.source), ..dump.figures_at.clone()? })
        }));
        quotes
    }

    /// Quotes an event, and that of the request that failed first.
    pub(super) fn quote_with_request(&self, event: &Event) -> Vec<Evidence> {
        self.quote_all([Some(event), self.request_event()].into_iter().flatten())
    }

    /// Returns `true` if the host's memory that ran out is what processes share.
    pub(super) fn is_shared_segment(&self) -> bool {
        let first = self.log.find(|message| match message {
            Message::Host { how, .. } => Some(*how),
            _ => None,
        });
        let shared = [HostFailure::SharedSegment, HostFailure::SharedSegmentProbably];
        first.is_some_and(|(_, how)| shared.contains(&how))
    }

    /// Returns how much the process around the request has of the GPU beside JAX, by TensorFlow's own message.
    pub(super) fn tensorflow_bytes(&self) -> Option<u64> {
        let (_, bytes) = self.log.find(|message| match message {
            Message::TensorflowPool { bytes } => Some(*bytes),
            _ => None,
        })?;
        Some(bytes)
    }

    /// Returns the GPUs for a dry run: those of the log, or a placeholder.
    pub(super) fn gpu_label(&self) -> String {
        self.figures.gpu_label().unwrap_or_else(|| "GPU".to_owned())
    }

    /// Returns the memory of the GPU, where it is known or follows from the limit of the pool and the fraction in force.
    pub(super) fn gpu_bytes(&self) -> Option<u64> {
        let limit = || self.figures.limit_bytes.or(self.most_of_budget());
        let by_limit = || Some((limit()? as f64 / self.settings.fraction_in_force()) as u64);
        self.figures.gpu_total_bytes.or_else(by_limit)
    }
}
