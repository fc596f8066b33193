//! Copies between a GPU and pinned host memory, which run beside kernels.
//!
//! XLA begins each at a `copy-start` or `async-start` and waits for it at the `-done`. Both directions of
//! the link are independent of each other; copies of one direction run one after the other.

use rustc_hash::FxHashMap;

use super::MAX_DEPTH;
use crate::program::MemorySpace;
use crate::program::hlo::{HloGraph, arrays};
use crate::program::proto::HloInstructionProto;
use crate::program::shape::Shape;

/// Bytes that an instruction moves between the GPU and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HostTransfer {
    pub(super) to_host: u64,
    pub(super) from_host: u64,
}

impl HostTransfer {
    /// Returns what an instruction moves, or what the computation that it starts does.
    pub(super) fn new(graph: &HloGraph<'_>, instruction: &HloInstructionProto) -> Self {
        let mut sum = HostTransfer::default();
        sum.add(graph, instruction, MAX_DEPTH);
        sum
    }

    fn add(&mut self, graph: &HloGraph<'_>, it: &HloInstructionProto, depth: usize) {
        match it.opcode.as_str() {
            "async-start" if depth > 0 => {
                let called = graph.called(it).flat_map(|inner| &inner.instructions);
                called.for_each(|inner| self.add(graph, inner, depth - 1));
            }
            opcode if super::is_free(opcode) => {}
            "while" | "conditional" | "call" => {}
            "copy-start" => {
                // Its result is the copy, the original and a context.
                let source = graph.operand_of(it, 0).and_then(single_array);
                let copy = arrays(it).into_iter().next();
                if let (Some(source), Some(copy)) = (source, copy) {
                    match (is_on_host(&source), is_on_host(&copy)) {
                        (false, true) => self.to_host += source.bytes(),
                        (true, false) => self.from_host += source.bytes(),
                        _ => {}
                    }
                }
            }
            "fusion" => {
                let root = graph.called(it).next().and_then(|fused| graph.root_instruction(fused));
                self.add_access(graph, it, root.unwrap_or(it));
            }
            _ => self.add_access(graph, it, it),
        }
    }

    /// Adds what an instruction reads and writes; `root` is what computes its result.
    fn add_access(
        &mut self,
        graph: &HloGraph<'_>,
        it: &HloInstructionProto,
        root: &HloInstructionProto,
    ) {
        let results: u64 = arrays(it).iter().map(Shape::bytes).sum();
        let operands: Vec<Shape> = graph.operands_of(it).flat_map(arrays).collect();
        if arrays(it).iter().any(is_on_host) {
            // What is updated in place lies there already.
            let update = (root.opcode == "dynamic-update-slice")
                .then(|| graph.operand_of(root, 1).and_then(single_array))
                .flatten();
            self.to_host += update.map_or(results, |update| update.bytes());
        } else {
            let read = operands.iter().filter(|shape| is_on_host(shape));
            self.from_host += read.map(|shape| shape.bytes().min(results)).sum::<u64>();
        }
    }

    pub(super) fn is_none(&self) -> bool {
        *self == HostTransfer::default()
    }
}

/// Returns the array that an instruction makes; `None` for a tuple.
fn single_array(instruction: &HloInstructionProto) -> Option<Shape> {
    let mut arrays = arrays(instruction).into_iter();
    arrays.next().filter(|_| arrays.next().is_none())
}

fn is_on_host(shape: &Shape) -> bool {
    shape.space == MemorySpace::Host
}

/// The kernels and transfers of one computation, in the order of its schedule; times in microseconds.
#[derive(Default)]
pub(super) struct Clock {
    /// Since the computation began.
    pub(super) now: f64,
    /// When the link to the host, and that from it, are free again.
    link_free: [f64; 2],
    /// When transfers end, by the number of the instruction that began them.
    ends: FxHashMap<i64, f64>,
}

impl Clock {
    /// Begins a transfer that takes so long to the host, and from it.
    pub(super) fn start(&mut self, id: i64, transfer_us: [f64; 2]) {
        let mut end = self.now;
        for (free, us) in self.link_free.iter_mut().zip(transfer_us) {
            if us > 0.0 {
                *free = free.max(self.now) + us;
                end = end.max(*free);
            }
        }
        self.ends.insert(id, end);
    }

    /// Waits for a transfer; returns how long. 0 for one that is not known.
    pub(super) fn wait_for(&mut self, id: i64) -> f64 {
        let end = self.ends.remove(&id).unwrap_or(self.now);
        let wait = (end - self.now).max(0.0);
        self.now += wait;
        wait
    }
}
