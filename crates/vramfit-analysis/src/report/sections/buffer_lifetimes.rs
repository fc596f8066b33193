//! Every buffer in the temporary allocation of the critical program, over its instructions.

use crate::analysis::{Cause, RunSummary};
use crate::bytes::Bytes;
use crate::program::ProgramMemory;
use crate::program::memory::Buffer;
use crate::report::phrases::file_name;
use crate::report::{BufferLifetime, BufferLifetimes, Content, Section};

/// XLA aligns buffers to 128 or 256 bytes.
const MAX_ALIGNMENT_BITS: u32 = 8;
/// Lines of a stack that are kept.
const MAX_FRAMES: usize = 8;
/// Between a line and the one that called it.
const STACK_SEPARATOR: &str = " < ";

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let known = summary.program_memory.as_ref()?;
    let memory = &known.memory;
    let program = &summary.programs.get(known.program)?.name;
    let title = format!(
        "buffer lifetimes in `{program}`: {} of temporaries, {} live at the peak",
        Bytes(memory.temp_bytes),
        Bytes(memory.temp_bytes.saturating_sub(memory.padding_bytes)),
    );
    let next_peak = Cause::of(summary).and_then(|cause| cause.next_peak);
    let next_peak_index = next_peak.map(|peak| peak.at).filter(|at| *at != memory.peak_at);
    let content = || Content::BufferLifetimes(lifetimes(program, memory, next_peak_index));
    (!memory.instructions.is_empty()).then(|| Section::detail(title, content()))
}

fn lifetimes(
    program: &str,
    memory: &ProgramMemory,
    next_peak_index: Option<u32>,
) -> BufferLifetimes {
    let last = memory.instructions.len().saturating_sub(1) as u32;
    // Everything outside the temporary allocation lives from beginning to end.
    let buffers = memory.buffers.iter().filter(|buffer| buffer.end <= last);
    let alignment = alignment(buffers.clone());
    BufferLifetimes {
        program: program.to_owned(),
        height_bytes: memory.temp_bytes,
        instructions: memory.instructions.clone(),
        peak_index: memory.peak_at,
        next_peak_index,
        live_bytes: memory.live_bytes.clone(),
        buffers: buffers.map(|buffer| lifetime(memory, buffer, alignment)).collect(),
    }
}

/// Returns the power of two that every buffer begins at a multiple of, as XLA's buffer assignment aligns
/// them; 1 where that cannot be told.
fn alignment<'a>(buffers: impl Iterator<Item = &'a Buffer>) -> u64 {
    let offsets = buffers.map(|buffer| buffer.offset);
    let zeros = offsets.filter(|offset| *offset > 0).map(u64::trailing_zeros);
    zeros.min().map_or(1, |zeros| 1 << zeros.min(MAX_ALIGNMENT_BITS))
}

fn lifetime(memory: &ProgramMemory, buffer: &Buffer, alignment: u64) -> BufferLifetime {
    BufferLifetime {
        label: match buffer.operation.rsplit('/').next() {
            Some(operation) if !operation.is_empty() => operation.to_owned(),
            _ => buffer.instruction.clone(),
        },
        kind: buffer.owner.id(),
        offset: buffer.offset,
        bytes: buffer.bytes,
        start: buffer.start,
        end: buffer.end,
        note: note(buffer, alignment),
        stack: stack(memory, buffer),
    }
}

/// The user's lines that led to a buffer, the innermost first.
fn stack(memory: &ProgramMemory, buffer: &Buffer) -> String {
    let frames = memory.stack(buffer.frame).filter(|frame| !frame.library);
    let lines = frames.take(MAX_FRAMES).map(|frame| file_name(&frame.site));
    lines.collect::<Vec<_>>().join(STACK_SEPARATOR)
}

/// Shape, what a loop or rematerialization does to it, and operation.
fn note(buffer: &Buffer, alignment: u64) -> String {
    let padding = match buffer.bytes.next_multiple_of(alignment) - buffer.bytes {
        0 => String::new(),
        bytes => format!("{bytes} bytes of padding behind it"),
    };
    let parts = [
        buffer.shape.as_str(),
        if buffer.stacked { "one slice per loop iteration" } else { "" },
        if buffer.rematerialized { "rematerialized" } else { "" },
        &padding,
        &buffer.operation,
    ];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" · ")
}
