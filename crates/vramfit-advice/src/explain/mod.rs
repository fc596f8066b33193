//! Why a program ran out of memory, from what it logged.
//!
//! `bytes → normalized text → messages → facts → causes → remedies`. Everything before the facts reads a log
//! of any size once, in bounded memory.
//!
//! | file | what it is |
//! | --- | --- |
//! | `scan.rs` | reads a log piece by piece |
//! | `block.rs`, `normal.rs`, `line_prefix.rs`, `number.rs` | a stretch of it without layout; prefixes of lines; sizes |
//! | `quote.rs` | lines as evidence |
//! | `patterns/`, `message.rs`, `other_allocator.rs`, `dump_line.rs` | the messages of XLA, CUDA and JAX, by version |
//! | `log.rs`, `request.rs`, `pool_dump.rs`, `memory_dump.rs` | what the messages add up to; requests that failed; the dump of a pool, as text and in binary form |
//! | `recorded_run.rs`, `program_dump.rs` | the same from a recorded run, and from what XLA dumps of a program |
//! | `fit.rs`, `figures.rs` | the largest requests that would have fitted; all figures |
//! | `settings.rs`, `start.rs` | the pool's settings, and how the program was started |
//! | `process_state.rs` | what the process that failed knows beside its log |
//! | `recovery.rs`, `later_error.rs` | whether the program handled the failure; the error that ended it later |
//! | `shares.rs` | who has how much of the GPU, by the message of another framework |
//! | `need.rs`, `workload.rs` | how much the program needs, and what kind of program it is |
//! | `facts.rs`, `causes/`, `cause.rs` | the causes, one file each |
//! | `remedy.rs`, `remedy/` | what to do |
//! | `page.rs` | the pages of the causes, checked against the code |

mod block;
mod cause;
mod causes;
mod dump_line;
mod facts;
mod figures;
mod fit;
mod later_error;
mod line_prefix;
mod log;
mod memory_dump;
mod message;
mod need;
mod normal;
mod number;
mod other_allocator;
mod page;
mod patterns;
mod pool_dump;
mod process_state;
mod program_dump;
mod quote;
mod recorded_run;
mod recovery;
mod remedy;
mod request;
mod scan;
mod settings;
mod shares;
mod start;
mod workload;

pub use cause::{Cause, CauseId, Confidence, Evidence};
pub use dump_line::BinFigures;
pub use figures::{Figures, FitFigures, NeedFigures, OutputsOnly};
pub use later_error::LaterError;
pub use log::Log;
pub use page::page_head;
pub use process_state::ProcessState;
pub use recorded_run::{RecordedFailure, RecordedLeak, RecordedPool, RecordedRun};
pub use recovery::Recovery;
pub use remedy::{Basis, Remedy};
pub use scan::LogScanner;
pub use start::{BatchOption, batch_option};

use crate::allocator::{ChunkTag, JaxVersion};
use crate::gpu::GpuSelection;
use crate::trace::ArrayHolder;
use facts::Facts;
use message::Message;
use other_allocator::AllocatorOwner;

/// What is known beside the log.
#[derive(Clone, Debug, Default)]
pub struct ExplainOptions {
    /// The GPUs, where the log does not name them or names them wrong.
    pub gpus: Option<GpuSelection>,
    /// The release of JAX.
    pub jax: Option<JaxVersion>,
    /// How the program is started, for the commands of remedies; empty for a placeholder.
    pub command: String,
    /// Settings and pool, where the process that failed was asked.
    pub process: Option<ProcessState>,
}

/// What a log is explained by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The causes, the likeliest first; none where nothing in the log was recognized.
    pub causes: Vec<Cause>,
    /// The figures of the log.
    pub figures: Figures,
    /// What to do, that about most bytes first.
    pub remedies: Vec<Remedy>,
    /// What else to know, such as advice in the log that has no effect.
    pub notes: Vec<String>,
    /// Whether the log speaks of memory in words that are not known, and nothing in it explains the failure.
    pub speaks_of_memory: bool,
    /// The error that the program ended with, where it went on after the failure.
    pub later_error: Option<LaterError>,
    /// What became of the program after the last failure, where the log shows it.
    pub recovery: Option<Recovery>,
    /// The variables that held arrays, where the process that failed was asked.
    pub array_holders: Vec<ArrayHolder>,
    /// The pool by address, where the log has it whole.
    pub regions: Vec<LoggedRegion>,
    /// The largest buffers of the program, as the log lists them.
    pub buffers: Vec<ListedBuffer>,
}

/// A region of the pool at the failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRegion {
    /// Its size.
    pub bytes: u64,
    /// Its chunks, end to end.
    pub chunks: Vec<LoggedChunk>,
}

/// A stretch of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedChunk {
    /// Address of its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Whether it was allocated.
    pub in_use: bool,
    /// The end of a partitioned pool that it belongs to; `Lower` in all others.
    pub tag: ChunkTag,
}

/// A buffer in the list of an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBuffer {
    /// Its size, as precise as the log shows it.
    pub bytes: u64,
    /// Its shape in XLA's notation.
    pub shape: String,
    /// JAX's name of the operation that makes it; empty for arguments.
    pub operation: String,
    /// `file:line`; empty where the log has none.
    pub site: String,
    /// Whether it is an argument of the program.
    pub is_argument: bool,
}

/// How a log was explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Memory ran out.
    Memory,
    /// Something else failed, or nothing did.
    NotMemory,
    /// Nothing in the log was recognized.
    Unrecognized,
}

impl Explanation {
    /// Returns whether memory is the reason, by the likeliest cause.
    pub fn verdict(&self) -> Verdict {
        match self.causes.first().map(|cause| cause.id) {
            None => Verdict::Unrecognized,
            Some(CauseId::NotMemory) => Verdict::NotMemory,
            Some(_) => Verdict::Memory,
        }
    }

    /// Adds a remedy whose effect was measured; it takes the place of the same one that was not.
    pub fn add_measured(&mut self, measured: Remedy) {
        self.remedies.retain(|remedy| remedy.id != measured.id);
        self.remedies.push(measured);
        remedy::sort(&mut self.remedies);
    }

    /// Returns the diagnosis in one line.
    pub fn headline(&self) -> String {
        let Some(first) = self.causes.first() else {
            return match self.speaks_of_memory {
                true => {
                    "not explained: the log speaks of memory in words that vramfit does not know"
                }
                false => "not explained: the log has no message about memory that vramfit knows",
            }
            .to_owned();
        };
        let handled = self.recovery.and_then(Recovery::handled_by_line);
        let what = match first.id {
            CauseId::NotMemory | CauseId::WrongSetting => "",
            _ if handled.is_some() => "out of memory, but handled: ",
            _ => "out of memory: ",
        };
        let later = self.later_error.as_ref().map_or_else(String::new, |error| {
            let line = error.evidence.line;
            format!("; the program went on, and line {line} has its last error, `{}`", error.class)
        });
        format!("{what}{} ({}){later}", first.title, first.confidence.label())
    }
}

/// Explains a log.
///
/// ```
/// use vramfit_advice::explain::{CauseId, ExplainOptions, LogScanner, explain};
///
/// let mut scanner = LogScanner::new("");
/// scanner.push(b"RuntimeError: Resource exhausted: Out of memory while trying to allocate 5361560685824 bytes.");
/// let explanation = explain(&scanner.finish(), &ExplainOptions::default());
/// assert_eq!(explanation.causes[0].id, CauseId::RequestLargerThanGpu);
/// ```
pub fn explain(log: &Log, options: &ExplainOptions) -> Explanation {
    let facts = Facts::new(log, options);
    let (causes, setting) = causes::find(&facts);
    let remedies = remedy::remedies(&facts, &causes);
    let regions = log.dump().map(|dump| dump.regions.clone());
    let unknown = log.first(speaks_of_memory).filter(|_| causes.is_empty());
    let mut notes = notes(log);
    notes.extend(facts.handled_requests.iter().map(|request| {
        let quote = facts.quote(&log.events[request.event]);
        format!(
            "the program handled an earlier failure, and went on: line {}: {}",
            quote.line, quote.text
        )
    }));
    notes.extend(facts.platform().map(|platform| {
        format!(
            "vramfit models NVIDIA GPUs: what it computes and starts is not for {}",
            platform.label()
        )
    }));
    notes.extend(facts.recovery.map(Recovery::note));
    notes.extend(setting);
    notes.extend(unknown.map(|event| {
        let quote = facts.quote(event);
        format!("line {} speaks of memory: {}", quote.line, quote.text)
    }));
    Explanation {
        speaks_of_memory: unknown.is_some(),
        notes,
        causes,
        remedies,
        later_error: later_error::find(&facts),
        recovery: facts.recovery,
        array_holders: options
            .process
            .as_ref()
            .map_or_else(Vec::new, |it| it.array_holders.clone()),
        regions: regions.unwrap_or_default(),
        buffers: log.buffers.clone(),
        figures: facts.figures,
    }
}

/// Explains a text, in tests.
#[cfg(test)]
fn explain_text(text: &str) -> Explanation {
    let mut scanner = LogScanner::new("");
    scanner.push(text.as_bytes());
    explain(&scanner.finish(), &ExplainOptions::default())
}

/// Returns `true` if a message is about memory, or names an error that may be.
fn speaks_of_memory(message: &Message) -> bool {
    matches!(message, Message::MemoryNamed | Message::OtherAllocator(_))
}

fn notes(log: &Log) -> Vec<String> {
    let mut notes = Vec::new();
    let is_of_tensorflow = |message: &Message| match message {
        Message::OtherAllocator(refused) => refused.owner == AllocatorOwner::TensorFlow,
        _ => false,
    };
    if log.has(|message| *message == Message::AllocatorHint) && !log.has(is_of_tensorflow) {
        notes.push(
            "the advice in the log, `TF_GPU_ALLOCATOR=cuda_malloc_async`, has no effect: no release of JAX's \
             CUDA plugin reads it; the setting is `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async`"
                .to_owned(),
        );
    }
    if log.has(|message| *message == Message::PeerFailure) && log.has_memory_failure() {
        notes.push(
            "errors about other processes that are gone or do not answer follow from the failure above"
                .to_owned(),
        );
    }
    notes
}
