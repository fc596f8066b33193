//! Promotions to a wider type: which operation makes `float64` of `float32` only because another of its operands is
//! that wide, and how much of the peak is computed from that.
//!
//! Read from the module before XLA's passes, where a promotion and its operation have one place in the source. It may
//! be that of a cast, which the text says, and functions that widen for themselves (`jnp.var`) compute more than
//! arithmetic at theirs.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::frames::Frames;
use super::{Buffer, Frame, Owner, ProgramMemory};
use crate::program::hlo::{HloGraph, HloIndex, HloPosition, WHOLE, arrays};
use crate::program::phase::Phase;
use crate::program::proto::HloInstructionProto;
use crate::program::{ElementType, OptimizedModule, parse_dimensions};

/// Operations for which JAX promotes one operand to the type of another.
const PROMOTING: [&str; 14] = [
    "add",
    "atan2",
    "clamp",
    "concatenate",
    "convolution",
    "divide",
    "dot",
    "dynamic-update-slice",
    "maximum",
    "minimum",
    "multiply",
    "power",
    "select",
    "subtract",
];
/// What else may be computed at one place where a promotion is certain: terms of one expression.
const ARITHMETIC: [&str; 6] = ["add", "divide", "dot", "multiply", "negate", "subtract"];
/// The operation that JAX converts with, except inside of others.
const CONVERSION: &str = "convert_element_type";
/// What a statement contains that asks for a type.
const CASTS: [&str; 6] = ["astype", CONVERSION, "array(", "dtype", "jnp.float", "jax.numpy.float"];
/// What only brings a value into another shape.
const RESHAPING: [&str; 4] = ["bitcast", "broadcast", "reshape", "transpose"];
/// What computes nothing.
const SOURCES: [&str; 7] =
    ["call", "constant", "convert", "get-tuple-element", "iota", "parameter", "tuple"];
/// Begins the name of flax's function that promotes the arguments of a layer, in [`Frame::site`].
const PROMOTING_FUNCTION: &str = "(promote_dtype";
/// What takes less than one in this many of the peak is not looked for.
const MIN_PEAK_FRACTION: u64 = 20;
/// Lines that are looked at, …
const MAX_LINES: usize = 16;
/// … and values that are followed from each.
const MAX_FOLLOWED: usize = 1 << 16;
/// Instructions between a promotion and its operation.
const MAX_RESHAPES: usize = 4;

/// A line that makes values wider without being asked to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Promotion {
    /// The line, in [`ProgramMemory::frames`].
    pub frame: u32,
    /// XLA's name of the type, such as `bf16`.
    pub from: String,
    /// XLA's name of the wider type.
    pub to: String,
    /// What has the wider type: the pytree path of an argument, `a constant`, or empty.
    pub operand: String,
    /// Bytes of the wider type at the peak that are computed from it.
    pub bytes: u64,
}

impl Promotion {
    /// Returns how many bytes fewer the narrower type would take at the peak.
    pub fn excess_bytes(&self) -> u64 {
        let bits = |name: &str| ElementType::from_name(name).map_or(0, ElementType::bits);
        let (from, to) = (u64::from(bits(&self.from)), u64::from(bits(&self.to)));
        (self.bytes / to.max(1)).saturating_mul(to.saturating_sub(from))
    }
}

/// A value in a line: its place and its number of elements.
type LineValue = (u32, u64);

impl ProgramMemory {
    /// Finds the line whose promotion costs most at the peak. `original` is XLA's dump of the module before its passes;
    /// nothing is found in anything else. `statement` returns the text of a statement that begins at a line, given as
    /// `file:line (function)`.
    pub fn find_promotion(&mut self, original: &[u8], statement: impl Fn(&str) -> Option<String>) {
        let wide = self.buffers.iter().filter(|buffer| {
            let is_wide = ["f32[", "f64[", "c128["].iter().any(|it| buffer.shape.starts_with(it));
            is_wide && is_computed(buffer.owner, false)
        });
        let bytes: u64 = wide.map(|buffer| buffer.peak_bytes).sum();
        if bytes < (self.occupied_bytes() / MIN_PEAK_FRACTION).max(1) {
            return;
        }
        let Ok(original) = OptimizedModule::from_dump(original) else {
            return;
        };
        let graph = original.graph();
        let mut reader = Reader::new(&graph);
        let measured = reader.promotions(statement).into_iter().map(|found| {
            let bytes = reader.bytes_of(self, &found);
            (Promotion { bytes, ..found.promotion }, found.site)
        });
        let largest = measured.max_by_key(|(promotion, _)| promotion.bytes);
        if let Some((promotion, site)) = largest.filter(|(promotion, _)| promotion.bytes > 0) {
            let frame = self.frames.len() as u32;
            self.frames.push(Frame { site, library: false, parent: None });
            self.promotion = Some(Promotion { frame, ..promotion });
        }
    }
}

/// Returns `true` if buffers of an owner are what a program computes. What a training step returns is as wide as the
/// state is.
fn is_computed(owner: Owner, is_differentiated: bool) -> bool {
    match owner {
        Owner::Activations | Owner::Temporaries => true,
        Owner::Outputs => !is_differentiated,
        _ => false,
    }
}

/// The promotions of one line.
struct Found {
    promotion: Promotion,
    site: String,
    converts: Vec<HloIndex>,
}

struct Reader<'a> {
    graph: &'a HloGraph<'a>,
    frames: Frames<'a>,
    /// For each instruction with one, the number of the stack that it comes from, and its line in `lines`.
    sources: Vec<Option<(i32, u32)>>,
    lines: FxHashMap<String, u32>,
    /// What is computed at each place, backward passes left out.
    opcodes: FxHashMap<i32, FxHashSet<&'a str>>,
}

impl<'a> Reader<'a> {
    fn new(graph: &'a HloGraph<'a>) -> Self {
        let mut reader = Reader {
            graph,
            frames: Frames::new(graph.module()),
            sources: Vec::new(),
            lines: FxHashMap::default(),
            opcodes: FxHashMap::default(),
        };
        for at in 0..graph.len() as HloIndex {
            let source = reader.find_source(at);
            reader.sources.push(source);
            let opcode = graph.get(at).opcode.as_str();
            let source = source.filter(|_| computes(opcode) && graph.phase(at) != Phase::Backward);
            if let Some((stack, _)) = source {
                reader.opcodes.entry(stack).or_default().insert(opcode);
            }
        }
        reader
    }

    /// Finds out where an instruction comes from; one of JAX's own functions from where that is called.
    fn find_source(&mut self, mut at: HloIndex) -> Option<(i32, u32)> {
        let stack = loop {
            let metadata = self.graph.get(at).metadata.as_ref();
            match metadata.map_or(0, |metadata| metadata.stack_frame_id) {
                stack if stack > 0 => break stack,
                _ => match self.graph.callers_of_parent(at) {
                    [caller] if self.graph.get(*caller).opcode == "call" => at = *caller,
                    _ => return None,
                },
            }
        };
        let frame = self.frames.of_number(stack)?;
        let site = &self.frames.frames.get(frame as usize)?.site;
        let next = self.lines.len() as u32;
        let line = match self.lines.get(site) {
            Some(line) => *line,
            None => *self.lines.entry(site.clone()).or_insert(next),
        };
        Some((stack, line))
    }

    /// Returns the promotions of the program, by line and types.
    fn promotions(&mut self, statement: impl Fn(&str) -> Option<String>) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        for at in 0..self.graph.len() as HloIndex {
            let Some((from, to)) = widening(self.graph, at) else { continue };
            let Some((stack, _)) = self.sources[at as usize] else { continue };
            let Some(operand) = self.wide_operand(at, stack, to, 0) else { continue };
            let Some(frame) = self.frames.of_number(stack) else { continue };
            let Some(site) = self.frames.user_site_of(frame) else { continue };
            let is_own = self.graph.get(at).metadata.as_ref().is_some_and(|metadata| {
                metadata.stack_frame_id == stack && metadata.op_name.ends_with(CONVERSION)
            });
            if is_own && !self.is_promoted_by_flax(stack) {
                let text = statement(&self.frames.frames[frame as usize].site);
                if text.is_none_or(|text| CASTS.iter().any(|cast| text.contains(cast))) {
                    continue;
                }
            }
            let (from, to) = (from.name().to_owned(), to.name().to_owned());
            let same =
                |it: &Found| it.site == site && it.promotion.from == from && it.promotion.to == to;
            match found.iter().position(same) {
                Some(known) => found[known].converts.push(at),
                None if found.len() == MAX_LINES => {}
                None => found.push(Found {
                    promotion: Promotion { from, to, operand, ..Promotion::default() },
                    site,
                    converts: vec![at],
                }),
            }
        }
        found
    }

    /// Returns what the wider operand is called for which a value is converted; `None` where it may be for another
    /// reason. `stack` is where the conversion comes from.
    fn wide_operand(
        &mut self,
        value: HloIndex,
        stack: i32,
        to: ElementType,
        reshapes: usize,
    ) -> Option<String> {
        let graph = self.graph;
        graph.users(value).iter().find_map(|&(user, number)| {
            let opcode = graph.get(user).opcode.as_str();
            if RESHAPING.contains(&opcode) && reshapes < MAX_RESHAPES {
                return self.wide_operand(user, stack, to, reshapes + 1);
            }
            let (users, _) = self.sources[user as usize]?;
            let is_promoted = PROMOTING.contains(&opcode)
                && graph.phase(user) != Phase::Backward
                && self.opcodes.get(&users).is_some_and(|all| {
                    all.len() == 1 || all.iter().all(|one| ARITHMETIC.contains(one))
                })
                && (users == stack || self.is_promoted_by_flax(stack));
            let others = (0..graph.get(user).operand_ids.len()).filter(|it| *it != number as usize);
            let mut others = others.filter_map(|other| graph.operand(user, other));
            others.find_map(|other| self.describe(other, to)).filter(|_| is_promoted)
        })
    }

    /// Returns what a wide operand is called; `None` if it is not one, or was made one.
    fn describe(&self, mut at: HloIndex, to: ElementType) -> Option<String> {
        (element_type(self.graph.get(at))? == to).then_some(())?;
        for _ in 0..MAX_RESHAPES {
            if !RESHAPING.contains(&self.graph.get(at).opcode.as_str()) {
                break;
            }
            at = self.graph.operand(at, 0)?;
        }
        let leaf = self.graph.get(at);
        match leaf.opcode.as_str() {
            "convert" if widening(self.graph, at).is_some() => None,
            "constant" => Some("a constant".to_owned()),
            "parameter" if self.graph.callers_of_parent(at).is_empty() => {
                Some(format!("`{}`", self.graph.name(at)))
            }
            _ => Some(String::new()),
        }
    }

    /// Returns `true` if a stack goes through flax's own function that promotes.
    fn is_promoted_by_flax(&mut self, stack: i32) -> bool {
        let mut next = self.frames.of_number(stack);
        while let Some(frame) = next.and_then(|at| self.frames.frames.get(at as usize)) {
            if frame.library && frame.site.contains(PROMOTING_FUNCTION) {
                return true;
            }
            next = frame.parent.filter(|_| frame.library);
        }
        false
    }

    /// Returns the bytes at the peak that are computed from a promotion, as far as it is certain.
    fn bytes_of(&self, memory: &ProgramMemory, found: &Found) -> u64 {
        let wide = found.promotion.to.as_str();
        let is_wide = |instruction: &HloInstructionProto| {
            element_type(instruction).is_some_and(|it| it.name() == wide)
        };
        let reached = self.follow(&found.converts, is_wide);
        let mut computed: FxHashSet<LineValue> = FxHashSet::default();
        let mut others: FxHashSet<LineValue> = FxHashSet::default();
        for at in 0..self.graph.len() as HloIndex {
            let is_reached = reached.contains(&(at, WHOLE));
            let instruction = self.graph.get(at);
            if is_wide(instruction) && (is_reached || computes(&instruction.opcode)) {
                let set = if is_reached { &mut computed } else { &mut others };
                set.extend(self.line_value(at));
            }
        }
        // XLA writes what is only converted in the wider type at once.
        for &convert in &found.converts {
            let narrow = self.graph.operand(convert, 0);
            let narrow = narrow.filter(|&narrow| self.graph.users(narrow).len() == 1);
            computed.extend(narrow.and_then(|narrow| self.line_value(narrow)));
        }
        let value_of = |buffer: &Buffer| {
            let site = &memory.frames.get(buffer.frame? as usize)?.site;
            let elements = parse_dimensions(&buffer.shape)?;
            Some((*self.lines.get(site)?, elements.into_iter().product()))
        };
        let is_differentiated = memory.is_differentiated();
        let buffers = memory.buffers.iter().filter(|buffer| {
            is_computed(buffer.owner, is_differentiated)
                && buffer.shape.split('[').next() == Some(wide)
                && value_of(buffer)
                    .is_some_and(|it| computed.contains(&it) && !others.contains(&it))
        });
        buffers.fold(0, |sum, buffer| sum.saturating_add(buffer.peak_bytes))
    }

    fn line_value(&self, at: HloIndex) -> Option<LineValue> {
        let (_, line) = self.sources[at as usize]?;
        Some((line, u64::try_from(self.graph.elements((at, WHOLE))?).ok()?))
    }

    /// Returns what is computed from some values as long as it is wide.
    fn follow(
        &self,
        starts: &[HloIndex],
        is_wide: impl Fn(&HloInstructionProto) -> bool,
    ) -> FxHashSet<HloPosition> {
        let graph = self.graph;
        let mut reached: FxHashSet<HloPosition> = FxHashSet::default();
        let mut open: Vec<HloPosition> = starts.iter().map(|&at| (at, WHOLE)).collect();
        // A function returns to those that have called it with something that was reached, whichever was first.
        let mut entered: FxHashSet<HloIndex> = FxHashSet::default();
        let mut returned: FxHashMap<HloIndex, Vec<i64>> = FxHashMap::default();
        while let Some(place) = open.pop() {
            if reached.len() >= MAX_FOLLOWED || !reached.insert(place) {
                continue;
            }
            for &(user, number) in graph.users(place.0) {
                let (called, parameter) = match graph.get(user).opcode.as_str() {
                    "tuple" => {
                        open.push((user, i64::from(number)));
                        continue;
                    }
                    "optimization-barrier" => {
                        open.push((user, place.1));
                        continue;
                    }
                    "while" => {
                        open.push((user, place.1));
                        (0, 0)
                    }
                    "call" => (0, i64::from(number)),
                    "conditional" if number > 0 => (number as usize - 1, 0),
                    _ if is_wide(graph.get(user)) => {
                        open.push((user, WHOLE));
                        continue;
                    }
                    _ => continue,
                };
                open.extend(graph.parameter(user, called, parameter).map(|it| (it, place.1)));
                entered.insert(user);
                let root = graph.root_of(user, called);
                let parts = root.and_then(|root| returned.get(&root)).into_iter().flatten();
                open.extend(parts.map(|part| (user, *part)));
            }
            open.extend(graph.readers(place.0, place.1).map(|reader| (reader, WHOLE)));
            if graph.is_root(place.0) {
                returned.entry(place.0).or_default().push(place.1);
                let callers = graph.callers_of_parent(place.0).iter();
                let callers = callers.filter(|&caller| entered.contains(caller));
                open.extend(callers.map(|&caller| (caller, place.1)));
            }
        }
        reached
    }
}

fn computes(opcode: &str) -> bool {
    !SOURCES.contains(&opcode) && !RESHAPING.contains(&opcode)
}

fn element_type(instruction: &HloInstructionProto) -> Option<ElementType> {
    match arrays(instruction).as_slice() {
        [one] => Some(one.element_type),
        _ => None,
    }
}

/// Returns from which type to which wider one an instruction converts floating-point numbers, outside of a backward pass.
fn widening(graph: &HloGraph<'_>, at: HloIndex) -> Option<(ElementType, ElementType)> {
    let instruction = graph.get(at);
    if instruction.opcode != "convert" || graph.phase(at) == Phase::Backward {
        return None;
    }
    let from = element_type(graph.get(graph.operand(at, 0)?))?;
    let to = element_type(instruction)?;
    let is_complex = |it: ElementType| it.name().starts_with('c');
    let are_numbers = from.is_float() && to.is_float() && is_complex(from) == is_complex(to);
    (are_numbers && (16..to.bits()).contains(&from.bits())).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excess_is_what_the_narrower_type_would_not_take() {
        let excess = |from: &str, to: &str| {
            let [from, to] = [from, to].map(str::to_owned);
            Promotion { from, to, bytes: 64, ..Promotion::default() }.excess_bytes()
        };
        assert_eq!(excess("bf16", "f32"), 32);
        assert_eq!(excess("f32", "f64"), 32);
        assert_eq!(excess("f16", "f64"), 48);
        // A damaged trace.
        assert_eq!(excess("f64", "f32"), 0);
        assert_eq!(excess("", ""), 0);
    }
}
