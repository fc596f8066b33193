//! The program that decides, over its course: every buffer of its temporary block.

use super::dryrun::section;
use super::picture::{Band, Bands};
use super::{Body, Section};
use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::program::ProgramMemory;
use crate::program::memory::Buffer;

/// The picture, and what it leaves out.
pub(super) fn details(answer: &RunSummary) -> Vec<Section> {
    let Some(known) = &answer.program_memory else {
        return Vec::new();
    };
    let memory = &known.memory;
    let Some(program) = answer.programs.get(known.program) else {
        return Vec::new();
    };
    if memory.moments.is_empty() {
        return Vec::new();
    }
    let title = format!(
        "the temporary block of `{}` over its course: {}, {} live at the fullest moment",
        program.name,
        Bytes(memory.temp_bytes),
        Bytes(memory.temp_bytes.saturating_sub(memory.padding_bytes)),
    );
    let bands = Body::Bands(bands(&program.name, memory));
    vec![Section {
        detail: true,
        ..section(&title, bands)
    }]
}

fn bands(name: &str, memory: &ProgramMemory) -> Bands {
    let last = memory.moments.len().saturating_sub(1) as u32;
    // Everything outside the block is there from the beginning to the end, and no picture.
    let inside = memory.buffers.iter().filter(|buffer| buffer.end <= last);
    Bands {
        label: name.to_owned(),
        height_bytes: memory.temp_bytes,
        moments: memory.moments.clone(),
        peak_at: memory.peak_at,
        live_bytes: memory.live_bytes.clone(),
        bands: inside.map(|buffer| band(memory, buffer)).collect(),
    }
}

fn band(memory: &ProgramMemory, buffer: &Buffer) -> Band {
    Band {
        label: match buffer.operation.rsplit('/').next() {
            Some(operation) if !operation.is_empty() => operation.to_owned(),
            _ => buffer.instruction.clone(),
        },
        kind: buffer.owner.id(),
        offset: buffer.offset,
        bytes: buffer.bytes,
        start: buffer.start,
        end: buffer.end,
        note: note(memory, buffer),
    }
}

/// Says what is to be known of a buffer when it is pointed at.
fn note(memory: &ProgramMemory, buffer: &Buffer) -> String {
    let mut words = vec![buffer.shape.as_str()];
    if buffer.stacked {
        words.push("one slice a round of a loop");
    }
    if buffer.rematerialized {
        words.push("computed a second time");
    }
    words.push(&buffer.operation);
    words.push(memory.user_site(buffer.frame).unwrap_or_default());
    words.retain(|word| !word.is_empty());
    words.join(" · ")
}
