//! Where an instruction came from in the user's program: Python stacks, and which of their lines is
//! the user's own.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Frame;
use crate::program::hlo::{HloGraph, HloIndex};
use crate::program::proto::{HloModuleProto, OpMetadata, StackFrameIndexProto};

/// How far to look among operands and users for an instruction that says where it came from.
const MAX_DEPTH: usize = 6;
/// How many of them to look at in each round.
const MAX_WIDTH: usize = 32;

/// The stacks of a module, as far as they are used.
pub(in crate::program) struct Frames<'a> {
    table: Option<&'a StackFrameIndexProto>,
    pub(super) frames: Vec<Frame>,
    /// From the module's number to ours.
    known: FxHashMap<i32, u32>,
    /// The module's numbers that were looked at.
    begun: FxHashSet<i32>,
    /// Lines of releases that give no stack.
    lines: FxHashMap<(String, i32), u32>,
}

impl<'a> Frames<'a> {
    pub(in crate::program) fn new(module: &'a HloModuleProto) -> Self {
        Frames {
            table: module.stack_frame_index.as_ref(),
            frames: Vec::new(),
            known: FxHashMap::default(),
            begun: FxHashSet::default(),
            lines: FxHashMap::default(),
        }
    }

    /// Returns the innermost frame of an instruction, or of the nearest one that tells: XLA's own
    /// copies and fusions often do not.
    pub(super) fn of(&mut self, graph: &HloGraph<'_>, at: HloIndex) -> Option<u32> {
        let mut seen = vec![at];
        let mut ring = 0..1;
        for _ in 0..MAX_DEPTH {
            for &one in &seen[ring.clone()] {
                let origin = graph.op_metadata(one);
                if let Some(frame) = origin.and_then(|metadata| self.of_metadata(metadata)) {
                    return Some(frame);
                }
            }
            let next = seen.len();
            'ring: for one in ring {
                for neighbor in graph.neighbors(seen[one], MAX_WIDTH) {
                    if seen.len() - next == MAX_WIDTH {
                        break 'ring;
                    }
                    if !seen.contains(&neighbor) {
                        seen.push(neighbor);
                    }
                }
            }
            ring = next..seen.len();
        }
        None
    }

    /// Returns the innermost line of the user's own that an instruction comes from.
    pub(in crate::program) fn user_site(&mut self, metadata: &OpMetadata) -> Option<String> {
        let frame = self.of_metadata(metadata)?;
        self.user_site_of(frame)
    }

    /// Returns the innermost line of the user's own in a stack.
    pub(super) fn user_site_of(&self, frame: u32) -> Option<String> {
        let mut next = Some(frame);
        // A frame's parent is always made before it, so this ends.
        while let Some(frame) = next.and_then(|at| self.frames.get(at as usize)) {
            if !frame.library {
                return Some(frame.site.clone());
            }
            next = frame.parent;
        }
        None
    }

    fn of_metadata(&mut self, metadata: &OpMetadata) -> Option<u32> {
        if metadata.stack_frame_id > 0 {
            return self.of_number(metadata.stack_frame_id);
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

    /// Returns the innermost frame of a stack of the module.
    pub(super) fn of_number(&mut self, number: i32) -> Option<u32> {
        // From the innermost frame out, as far as nothing is known; then back in.
        let mut unknown: Vec<i32> = Vec::new();
        let mut next = number;
        let mut parent = None;
        while next > 0 {
            if let Some(known) = self.known.get(&next) {
                parent = Some(*known);
                break;
            }
            // What is on its way already is not known either: a stack that bites its tail ends there.
            if !self.begun.insert(next) {
                break;
            }
            unknown.push(next);
            let frame = at(&self.table?.stack_frames, next);
            next = frame.map_or(0, |frame| frame.parent_frame_id);
        }
        for number in unknown.into_iter().rev() {
            if let Some(made) = self.make(number, parent) {
                self.known.insert(number, made);
                parent = Some(made);
            }
        }
        self.known.get(&number).copied()
    }

    fn make(&mut self, number: i32, parent: Option<u32>) -> Option<u32> {
        let table = self.table?;
        let frame = at(&table.stack_frames, number)?;
        let place = at(&table.file_locations, frame.file_location_id)?;
        let file = at(&table.file_names, place.file_name_id).map_or("", String::as_str);
        let function = at(&table.function_names, place.function_name_id).map_or("", String::as_str);
        Some(self.push(file, place.line, function, parent))
    }

    fn push(&mut self, file: &str, line: i32, function: &str, parent: Option<u32>) -> u32 {
        let site = match function.is_empty() {
            true => format!("{file}:{line}"),
            false => format!("{file}:{line} ({function})"),
        };
        self.frames.push(Frame { site, library: is_library(file), parent });
        self.frames.len() as u32 - 1
    }
}

/// Returns whether a source file is a cell of a notebook, by the names that IPython, its kernel and
/// Colab compile cells under.
pub fn is_notebook_cell(file: &str) -> bool {
    file.contains("/ipykernel_") || file.contains("ipython-input-")
}

/// Returns whether a source file belongs to an installed package, to Python itself or to what vramfit puts between
/// a program and JAX.
pub fn is_library(file: &str) -> bool {
    file.contains("/site-packages/")
        || file.contains("/dist-packages/")
        || file.contains("/lib/python3")
        || file.contains("/vramfit/_")
        || (file.starts_with('<') && !is_notebook_cell(file))
        || file.is_empty()
}

/// Returns an element of a list that counts from 1.
fn at<T>(list: &[T], number: i32) -> Option<&T> {
    list.get(usize::try_from(number).ok()?.checked_sub(1)?)
}
