//! Where an instruction came from in the user's program: Python stacks, and which of their lines is
//! the user's own.

use rustc_hash::FxHashMap;

use super::Frame;
use super::index::{At, ModuleIndex};
use crate::program::wire::{HloModuleProto, OpMetadata, StackFrameIndexProto};

/// How far to look among operands and users for an instruction that says where it came from.
const DEEPEST: usize = 6;
/// Longest stack that is followed; a longer one goes round in circles.
const LONGEST_STACK: usize = 256;

/// The stacks of a module, as far as they are used.
pub(super) struct Frames<'a> {
    table: Option<&'a StackFrameIndexProto>,
    pub(super) frames: Vec<Frame>,
    /// From the module's number to ours.
    known: FxHashMap<i32, Option<u32>>,
    /// Lines of releases that give no stack.
    lines: FxHashMap<(String, i32), u32>,
}

impl<'a> Frames<'a> {
    pub(super) fn new(module: &'a HloModuleProto) -> Self {
        Frames {
            table: module.stack_frame_index.as_ref(),
            frames: Vec::new(),
            known: FxHashMap::default(),
            lines: FxHashMap::default(),
        }
    }

    /// Returns the innermost frame of an instruction, or of the nearest one that tells: XLA's own
    /// copies and fusions often do not.
    pub(super) fn of(&mut self, index: &ModuleIndex<'_>, at: At) -> Option<u32> {
        let mut seen = vec![at];
        let mut ring = vec![at];
        for _ in 0..DEEPEST {
            for &one in &ring {
                if let Some(frame) = self.of_one(index, one) {
                    return Some(frame);
                }
            }
            // What it is made of first, then what it is made for.
            let operands = ring.iter().flat_map(|&one| {
                (0..index.get(one).operand_ids.len()).filter_map(move |n| index.operand(one, n))
            });
            let users = ring
                .iter()
                .flat_map(|&one| index.users(one).iter().copied());
            let next: Vec<At> = operands.chain(users).collect();
            ring = Vec::new();
            for one in next {
                if !seen.contains(&one) && ring.len() < 32 {
                    seen.push(one);
                    ring.push(one);
                }
            }
        }
        None
    }

    /// Returns the frame that an instruction itself gives, or one that is fused into it.
    fn of_one(&mut self, index: &ModuleIndex<'_>, at: At) -> Option<u32> {
        let own = index.get(at).metadata.as_ref();
        if let Some(frame) = own.and_then(|metadata| self.of_metadata(metadata)) {
            return Some(frame);
        }
        if index.get(at).opcode != "fusion" {
            return None;
        }
        let fused = index.callee(at, 0)?;
        let root = fused
            .instructions
            .iter()
            .find(|one| one.id == fused.root_id);
        let inside = root.into_iter().chain(fused.instructions.iter().rev());
        inside
            .filter_map(|one| one.metadata.as_ref())
            .find_map(|metadata| self.of_metadata(metadata))
    }

    fn of_metadata(&mut self, metadata: &OpMetadata) -> Option<u32> {
        if metadata.stack_frame_id > 0 {
            return self.of_number(metadata.stack_frame_id, LONGEST_STACK);
        }
        if metadata.source_file.is_empty() {
            return None;
        }
        let key = (metadata.source_file.clone(), metadata.source_line);
        if let Some(frame) = self.lines.get(&key) {
            return Some(*frame);
        }
        let frame = self.push(&metadata.source_file, metadata.source_line, "", None);
        self.lines.insert(key, frame);
        Some(frame)
    }

    fn of_number(&mut self, number: i32, left: usize) -> Option<u32> {
        if number <= 0 || left == 0 {
            return None;
        }
        if let Some(known) = self.known.get(&number) {
            return *known;
        }
        let table = self.table?;
        let frame = table.stack_frames.get(number as usize - 1)?;
        let place = at(&table.file_locations, frame.file_location_id)?;
        let parent = self.of_number(frame.parent_frame_id, left - 1);
        let file = at(&table.file_names, place.file_name_id).map_or("", String::as_str);
        let function = at(&table.function_names, place.function_name_id).map_or("", String::as_str);
        let made = self.push(file, place.line, function, parent);
        self.known.insert(number, Some(made));
        Some(made)
    }

    fn push(&mut self, file: &str, line: i32, function: &str, parent: Option<u32>) -> u32 {
        let site = match function.is_empty() {
            true => format!("{file}:{line}"),
            false => format!("{file}:{line} ({function})"),
        };
        self.frames.push(Frame {
            site,
            library: is_library(file),
            parent,
        });
        self.frames.len() as u32 - 1
    }
}

/// Says whether a file belongs to an installed package or to Python itself.
fn is_library(file: &str) -> bool {
    file.contains("/site-packages/")
        || file.contains("/dist-packages/")
        || file.contains("/lib/python3")
        || file.starts_with('<')
        || file.is_empty()
}

/// Returns an element of a list that counts from 1.
fn at<T>(list: &[T], number: i32) -> Option<&T> {
    list.get(usize::try_from(number).ok()?.checked_sub(1)?)
}
