//! Messages of XLA about one compiled program: its buffers, rematerialization, autotuning.

use super::{Match, Pattern, after_label, contains_any, head, labelled_size, lossy, until};
use crate::explain::ListedBuffer;
use crate::explain::message::{LoggedProgramNeed, Message};
use crate::explain::number::{Size, integer, signed, size};

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("bufferassignmentstats:", program_need),
    Pattern::new("buffer1:", peak_buffer),
    Pattern::new("buffer2:", peak_buffer),
    Pattern::new("buffer3:", peak_buffer),
    Pattern::new("buffer4:", peak_buffer),
    Pattern::new("buffer5:", peak_buffer),
    Pattern::new("buffer6:", peak_buffer),
    Pattern::new("buffer7:", peak_buffer),
    Pattern::new("buffer8:", peak_buffer),
    Pattern::new("buffer9:", peak_buffer),
    Pattern::new("buffer10:", peak_buffer),
    Pattern::new("buffer11:", peak_buffer),
    Pattern::new("buffer12:", peak_buffer),
    Pattern::new("buffer13:", peak_buffer),
    Pattern::new("buffer14:", peak_buffer),
    Pattern::new("buffer15:", peak_buffer),
    // With an apostrophe of either form in front.
    Pattern::new("treducememoryusebelow", rematerialization),
    Pattern::new("thebytesizeofinput/outputarguments(", arguments_exceed),
    Pattern::fixed("autotuningcandidatefailedwithoutofmemoryerror", autotuning(true)),
    Pattern::new("profilingfailureoncudnnengine", cudnn_engine),
    Pattern::fixed("failedtodeterminebestcudnnconvolutionalgorithm", autotuning(false)),
    Pattern::new("autotuningfailedforhlo", |at| Some(autotuning(names_memory(at.record())))),
    Pattern::fixed("scratchallocationfailed", autotuning(true)),
    Pattern::new("allalgorithmstriedfor", |at| Some(autotuning(names_memory(at.record())))),
    Pattern::new("algorithm_picker.cc:", picker),
    Pattern::new("gemm_fusion_autotuner.cc:", picker),
    Pattern::new("autotuner.cc:", picker),
    Pattern::new("novalidconfigfound", no_config),
    Pattern::new("unabletoallocateworkspacefor", workspace),
    Pattern::new("redzone_allocator.cc:", picker),
    Pattern::new("werecapturedduringlowering", captured_constants),
    Pattern::fixed("includesapmap.usingjit-of-pmap", Message::JitOfPmap),
];

const fn autotuning(out_of_memory: bool) -> Message {
    Message::Autotuning { out_of_memory }
}

fn names_memory(text: &[u8]) -> bool {
    let words = [
        "outofmemory",
        "resourceexhausted",
        "resource_exhausted",
        "alloc_failed",
        "failedtoallocate",
    ];
    contains_any(text, &words)
}

/// `A large amount of constants were captured during lowering (8.00GB total).`
fn captured_constants(at: &Match<'_>) -> Option<Message> {
    let text = at.record().strip_prefix(b"(")?;
    let (shown, rest) = size(text)?;
    let unit = text[..text.len() - rest.len()].iter().rev().nth(1).copied().unwrap_or_default();
    rest.starts_with(b"total").then_some(Message::CapturedConstants { size: decimal(shown, unit) })
}

/// Returns a size whose unit JAX means as one of 1000s, where it was read as one of 1024s.
fn decimal(read: Size, unit: u8) -> Size {
    let power = b"kmgt".iter().position(|letter| *letter == unit).map_or(0, |at| at as u32 + 1);
    let (thousands, binary) = (1000_u128.pow(power), 1024_u128.pow(power));
    let scaled = |bytes: u64| (u128::from(bytes) * thousands).div_ceil(binary) as u64;
    Size { bytes: scaled(read.bytes), tolerance: scaled(read.tolerance) }
}

/// The label and value lines of `BufferAssignment stats`.
fn program_need(at: &Match<'_>) -> Option<Message> {
    const MAX_STATS_BYTES: usize = 900;
    let text = head(at.after(), MAX_STATS_BYTES);
    let field = |label: &str| labelled_size(text, label);
    Some(Message::ProgramNeed(LoggedProgramNeed {
        arguments: field("parameterallocation:")?,
        live_out: field("maybe_live_outallocation:").unwrap_or_default(),
        temporaries: field("preallocatedtempallocation:").unwrap_or_default(),
        total: field("totalallocation:")?,
    }))
}

/// `Buffer 1:`, then `Size:`, `Operator:` or `Entry Parameter Subshape:`, `XLA Label:` and `Shape:` lines.
fn peak_buffer(at: &Match<'_>) -> Option<Message> {
    let after = at.after_up_to(MAX_BUFFER_BYTES);
    // Names of operations contain the sign, too; a row of them ends the entry.
    let text = &after[..memchr::memmem::find(after, b"==========").unwrap_or(after.len())];
    let value = skip_line_breaks(text).strip_prefix(b"size:")?;
    let (size, rest) = size(skip_line_breaks(value))?;
    let argument = after_label(rest, "entryparametersubshape:");
    let shape = argument.or_else(|| after_label(rest, "shape:")).unwrap_or_default();
    let shape = until(shape, b"\n=");
    let operation = after_label(rest, "op_name=\"").map(|name| until(name, b"\""));
    let file = after_label(rest, "source_file=\"").map(|name| until(name, b"\""));
    let line = after_label(rest, "source_line=").and_then(integer);
    let site = file.zip(line).map(|(file, (line, _))| {
        let file = at.original(file);
        let name = file.rsplit('/').next().unwrap_or(&file);
        format!("{name}:{line}")
    });
    Some(Message::PeakBuffer(ListedBuffer {
        bytes: size.bytes,
        shape: lossy(head(shape, 80)),
        operation: operation.map(|name| without_parameters(at, name)).unwrap_or_default(),
        site: site.unwrap_or_default(),
        is_argument: argument.is_some(),
    }))
}

/// The longest entry of a buffer: releases before JAX 0.4.36 write the parameters of operations into their names, whole
/// loop bodies among them, in front of the line of the program.
const MAX_BUFFER_BYTES: usize = 12 << 10;

/// Returns the name of an operation without parameters, which stand in brackets and have slashes of their own.
fn without_parameters(at: &Match<'_>, name: &[u8]) -> String {
    let mut depth = 0_usize;
    let mut kept = String::new();
    for part in name.split_inclusive(|byte| matches!(byte, b'[' | b']')) {
        let (outside, bracket) = match part.split_last() {
            Some((bracket @ (b'[' | b']'), outside)) => (outside, *bracket),
            _ => (part, 0),
        };
        if depth == 0 && !outside.is_empty() {
            kept.push_str(&at.original(outside));
        }
        match bracket {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    kept
}

/// Skips the marks and prefixes between a label and the line that follows it.
fn skip_line_breaks(text: &[u8]) -> &[u8] {
    const MAX_PREFIX_BYTES: usize = 48;
    let text = text.strip_prefix(b"\n").unwrap_or(text);
    if text.starts_with(b"size:") || text.first().is_some_and(u8::is_ascii_digit) {
        return text;
    }
    // A relay's source file stands in front of every line: `run_docker.py:247]`.
    let prefix = head(text, MAX_PREFIX_BYTES);
    match memchr::memchr(b']', prefix) {
        Some(end) if prefix[..end].contains(&b':') && prefix[..end].contains(&b'.') => {
            &text[end + 1..]
        }
        _ => text,
    }
}

/// `Can't reduce memory use below 22.27GiB (23917347918 bytes) by rematerialization; only reduced to 37.90GiB
/// (… bytes), down from …`
fn rematerialization(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 40;
    let text = at.record();
    let (target, rest) = bytes_in_both_forms(text)?;
    let (reached, rest) = bytes_in_both_forms(after_label(rest, "onlyreducedto")?)?;
    let before = after_label(head(rest, MAX_DISTANCE), "downfrom").and_then(bytes_in_both_forms);
    Some(Message::Rematerialization {
        target,
        reached: u64::try_from(reached).ok()?,
        before: before.and_then(|(bytes, _)| u64::try_from(bytes).ok()),
    })
}

/// Reads `5.43GiB (5830019491 bytes)`, which may be negative, or only the first figure.
fn bytes_in_both_forms(text: &[u8]) -> Option<(i64, &[u8])> {
    let negative = text.starts_with(b"-");
    let (shown, rest) = size(text.strip_prefix(b"-").unwrap_or(text))?;
    let exact = rest.strip_prefix(b"(").and_then(signed);
    if let Some((bytes, rest)) = exact {
        return Some((bytes, rest));
    }
    let bytes = i64::try_from(shown.bytes).ok()?;
    Some((if negative { -bytes } else { bytes }, rest))
}

/// `The byte size of input/output arguments (35562383856024) exceeds the base limit (14929633280). …`
fn arguments_exceed(at: &Match<'_>) -> Option<Message> {
    let (arguments, rest) = integer(at.record())?;
    let limit = rest.strip_prefix(b")exceedsthebaselimit")?;
    let limit = limit.strip_prefix(b"(").and_then(integer);
    Some(Message::ArgumentsExceedLimit { arguments, limit: limit.map(|(bytes, _)| bytes) })
}

/// `Profiling failure on cuDNN engine eng0{}: UNKNOWN: CUDNN_STATUS_ALLOC_FAILED`
fn cudnn_engine(at: &Match<'_>) -> Option<Message> {
    const MAX_STATUS_BYTES: usize = 120;
    let text = at.record();
    let text = match memchr::memmem::find(text, b"profilingfailure") {
        Some(next) => &text[..next],
        None => head(text, MAX_STATUS_BYTES),
    };
    Some(autotuning(names_memory(text)))
}

/// A line that the autotuner's own source file has logged, if it is about memory.
fn picker(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 300;
    let text = head(at.record(), MAX_TEXT_BYTES);
    names_memory(text).then_some(autotuning(true))
}

/// `NOT_FOUND: No valid config found!`, of XLA's autotuner; other programs have configurations, too.
fn no_config(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 400;
    let before = at.before_in_log(MAX_DISTANCE);
    contains_any(before, &["autotun", "not_found:"]).then_some(autotuning(false))
}

/// `Unable to allocate workspace for syevd`, of jaxlib's routines, which XLA's pool gives their workspace.
fn workspace(at: &Match<'_>) -> Option<Message> {
    const MAX_NAME_BYTES: usize = 32;
    let text = head(at.record(), MAX_NAME_BYTES);
    let text = text.strip_prefix(b"batched").unwrap_or(text);
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let length = text.iter().take_while(is_name).count();
    Some(Message::Workspace { routine: lossy(&text[..length]) })
}
