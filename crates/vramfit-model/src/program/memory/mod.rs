//! Where the memory of one compiled program goes: every byte it takes, by owner, pytree path and line.
//!
//! Read from the optimized module and XLA's buffer assignment. Two totals are told apart: what the run
//! time *takes* (each buffer allocation whole, for the length of the call), and what is *live* at the
//! peak of the temporary block. The difference is [`Owner::Padding`].
//!
//! | file | subject |
//! | --- | --- |
//! | `frames` | Python stacks, and which line is the user's |
//! | `liveness` | when each value is needed |
//! | `users` | who uses a value |
//! | `owner` | who owns a buffer |
//! | `path` | what the path of an argument says of it |
//! | `update` | how an output is computed: of which arguments, with a gradient or not |
//! | `promotions` | which line makes values wider without being asked to |
//! | `counterpart` | which output replaces which argument |
//! | `arguments` | whose the arguments are |
//! | `value` | shape of a value, and which of its producers describes it best |
//! | `block` | the temporary block: its buffers, its peak, its padding |
//! | `read` | from XLA's messages to [`ProgramMemory`] |
//! | `stored` | how it is kept in a trace |

mod arguments;
mod block;
mod counterpart;
mod frames;
mod liveness;
mod owner;
mod path;
mod promotions;
mod read;
mod stored;
mod update;
mod users;
mod value;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

pub(super) use frames::Frames;
pub use frames::{is_library, is_notebook_cell};
pub use owner::Owner;
pub use promotions::Promotion;
pub use read::Names;

pub use super::phase::{Pass, Phase};

/// Where the memory of one program goes, on each of its devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramMemory {
    /// Everything that takes device memory, in the order of XLA's allocations; inside the temporary
    /// block by the start of its live range.
    pub buffers: Vec<Buffer>,
    /// The times of live ranges in the temporary block: names of the instructions that start one, in
    /// execution order. An instruction occurs again when something was freed in between.
    pub instructions: Vec<String>,
    /// The time at which most of the temporary block is live.
    pub peak_at: u32,
    /// Live bytes of the temporary block at each time.
    pub live_bytes: Vec<u64>,
    /// Bytes of the temporary block that are not live at [`ProgramMemory::peak_at`].
    pub padding_bytes: u64,
    /// Size of the temporary block.
    pub temp_bytes: u64,
    /// Python frames that the buffers refer to.
    pub frames: Vec<Frame>,
    /// Arguments whose memory could be reused by an output and is not, by index.
    pub undonated: Vec<Undonated>,
    /// The line whose promotion to a wider type costs most at the peak, where one is certain.
    pub promotion: Option<Promotion>,
}

/// A buffer: a value, or values that follow each other at one place without a gap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Buffer {
    /// Who owns it.
    pub owner: Owner,
    /// Its size.
    pub bytes: u64,
    /// How many of its bytes are its alone at the peak; 0 when it is not live then. For
    /// anything outside the temporary block its whole size.
    pub peak_bytes: u64,
    /// Index of XLA's allocation that it lies in.
    pub allocation: u32,
    /// Where in the allocation it begins.
    pub offset: u64,
    /// Index of the moment that begins it.
    pub start: u32,
    /// Index of the last moment that needs it.
    pub end: u32,
    /// Pytree path of the argument or output; empty for what is neither.
    pub path: String,
    /// Number of the entry parameter, for arguments.
    pub parameter: Option<u32>,
    /// For an output with memory of its own, number of the entry parameter that it replaces.
    pub replaces: Option<u32>,
    /// Shape in XLA's notation, such as `f32[256,1024]`.
    pub shape: String,
    /// Name of the instruction that makes it.
    pub instruction: String,
    /// Name of the operation it stands for, as JAX nests it; may be empty.
    pub operation: String,
    /// Innermost Python frame of that, in [`ProgramMemory::frames`].
    pub frame: Option<u32>,
    /// The part of a differentiated program that makes it.
    pub phase: Phase,
    /// Whether it is computed a second time to save memory.
    pub rematerialized: bool,
    /// Whether a loop writes one slice of it in each round, as `jax.lax.scan` does.
    pub stacked: bool,
    /// Whether a collective makes it.
    pub collective: bool,
}

impl Buffer {
    /// Returns `true` if its values are of `bfloat16` or `float16`.
    pub fn holds_16_bit_floats(&self) -> bool {
        ["bf16[", "f16["].iter().any(|narrow| self.shape.starts_with(narrow))
    }

    /// Returns `true` if it is an output that is kept for the backward pass, which is another program: `jax.grad` of
    /// a function with `jax.jit`. The name is vramfit's, since JAX gives none.
    pub fn is_residual(&self) -> bool {
        self.owner == Owner::Outputs && self.path.starts_with("residuals[")
    }

    /// Returns `true` if it is an output of such a backward pass: the gradient of what the function was given.
    pub fn is_cotangent(&self) -> bool {
        self.owner == Owner::Outputs && self.path.starts_with("cotangents[")
    }
}

/// A line of Python that led to an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// `file:line (function)`.
    pub site: String,
    /// Whether the file belongs to an installed package.
    pub library: bool,
    /// The frame that called it.
    pub parent: Option<u32>,
}

/// An argument whose memory no output reuses although it could have been so, or was meant to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Undonated {
    /// Pytree path of the argument.
    pub argument: String,
    /// Pytree path of the output of the same shape that replaces it. Empty when the argument was donated,
    /// and no output can take its place.
    pub output: String,
    /// Its size.
    pub bytes: u64,
    /// Index of the argument in the program; `None` when JAX has found no output for it, and left it out.
    pub parameter: Option<u32>,
}

impl Undonated {
    /// Returns the name of the function's argument, which is donated as a whole: `state` of `state.params['w']`.
    pub fn argument_name(&self) -> &str {
        let end = self.argument.find(['[', '.']);
        &self.argument[..end.unwrap_or(self.argument.len())]
    }

    /// Returns `true` if it was donated, and no output can take its place.
    pub fn is_donated(&self) -> bool {
        self.output.is_empty()
    }

    /// Returns its path in backticks; the number of one without a name.
    pub fn label(&self) -> String {
        match self.parameter {
            Some(parameter) if self.argument.is_empty() => format!("argument {parameter}"),
            _ => format!("`{}`", self.argument),
        }
    }
}

impl ProgramMemory {
    /// Leaves out what could not be donated, because these parameters are read again after a call.
    pub fn retain_donatable(&mut self, read_again: &FxHashSet<u32>) {
        let is_read_again =
            |one: &Undonated| one.parameter.is_some_and(|it| read_again.contains(&it));
        let kept = self.undonated.iter().filter(|one| is_read_again(one));
        let kept: Vec<Undonated> = kept.cloned().collect();
        self.undonated.retain(|one| {
            let mut kept = kept.iter();
            !kept.any(|kept| kept.argument_name() == one.argument_name())
        });
    }

    /// Returns the bytes that the run time takes for a call: every allocation whole. Constants are not
    /// among them; they lie outside the pool.
    pub fn occupied_bytes(&self) -> u64 {
        self.live_bytes_at_peak().saturating_add(self.padding_bytes)
    }

    /// Returns the bytes that are live at the peak, constants left out.
    pub fn live_bytes_at_peak(&self) -> u64 {
        self.bytes_where(|buffer| buffer.owner != Owner::Constants)
    }

    /// Returns the bytes of an owner at the peak.
    pub fn bytes_of(&self, owner: Owner) -> u64 {
        match owner {
            Owner::Padding => self.padding_bytes,
            owner => self.bytes_where(|buffer| buffer.owner == owner),
        }
    }

    fn bytes_where(&self, keep: impl Fn(&Buffer) -> bool) -> u64 {
        let kept = self.buffers.iter().filter(|buffer| keep(buffer));
        kept.fold(0, |sum, buffer| sum.saturating_add(buffer.peak_bytes))
    }

    /// Returns the indices of the arguments that an output replaces and that are not donated.
    pub fn replaced_arguments(&self) -> Vec<u32> {
        let kept = self.undonated.iter().filter(|one| !one.output.is_empty());
        kept.filter_map(|one| one.parameter).collect()
    }

    /// Returns the argument that an output replaces: what its next call takes in the place of that. A batch is not
    /// replaced by what is made of it.
    pub fn replaced_by(&self, output: &Buffer) -> Option<&Buffer> {
        let number = output.replaces?;
        let mut buffers = self.buffers.iter();
        buffers.find(|one| one.parameter == Some(number) && one.owner != Owner::Batch)
    }

    /// Returns `true` if the program has a backward pass, or is the forward pass for one.
    pub fn is_differentiated(&self) -> bool {
        let mut buffers = self.buffers.iter();
        buffers.any(|buffer| buffer.phase == Phase::Backward) || self.pass().is_some()
    }

    /// Returns which pass of a differentiated function the program is; `None` where it has both, or none.
    pub fn pass(&self) -> Option<Pass> {
        self.buffers.iter().find_map(|buffer| match buffer {
            buffer if buffer.is_residual() => Some(Pass::Forward),
            buffer if buffer.is_cotangent() => Some(Pass::Backward),
            _ => None,
        })
    }

    /// Returns `true` if the program is one operation that the line `site` of the user's calls outside of `jit`,
    /// itself or through a library: everything in it is of one line. (JAX's own lines are in no stack.)
    pub fn is_eager_operation(&self, site: &str) -> bool {
        let frames = self.buffers.iter().filter_map(|buffer| buffer.frame);
        let mut lines = frames.filter_map(|frame| Some((frame, self.stack(Some(frame)).next()?)));
        let Some((frame, line)) = lines.next() else {
            return false;
        };
        self.user_site(Some(frame)) == Some(site) && lines.all(|(_, other)| other.site == line.site)
    }

    /// Returns the innermost line of a stack that is the user's own, if there is one.
    pub fn user_site(&self, frame: Option<u32>) -> Option<&str> {
        self.stack(frame).find(|frame| !frame.library).map(|frame| frame.site.as_str())
    }

    /// Renames the source lines of all stacks, as `file:line (function)`.
    pub fn rename_sites(&mut self, rename: impl Fn(&str) -> Option<String>) {
        for frame in &mut self.frames {
            if let Some(name) = rename(&frame.site) {
                frame.site = name;
            }
        }
    }

    /// Returns the frames of a stack, the innermost first.
    pub fn stack(&self, frame: Option<u32>) -> impl Iterator<Item = &Frame> {
        // A frame's parent is always made before it, so this ends.
        let next = |frame: &&Frame| self.frames.get(frame.parent? as usize);
        std::iter::successors(frame.and_then(|at| self.frames.get(at as usize)), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undonated(argument: &str, parameter: u32) -> Undonated {
        Undonated {
            argument: argument.to_owned(),
            output: "result".to_owned(),
            bytes: 8,
            parameter: Some(parameter),
        }
    }

    #[test]
    fn an_argument_of_which_a_leaf_is_read_again_is_not_to_be_donated() {
        let mut memory = ProgramMemory {
            undonated: vec![
                undonated("state.params['w']", 0),
                undonated("state.step", 1),
                undonated("cache[0]", 2),
                undonated("stateless", 3),
            ],
            ..ProgramMemory::default()
        };
        assert_eq!(memory.replaced_arguments(), [0, 1, 2, 3]);
        memory.retain_donatable(&FxHashSet::from_iter([1, 9]));
        assert_eq!(memory.replaced_arguments(), [2, 3]);
    }

    #[test]
    fn an_output_replaces_an_argument_that_is_no_batch() {
        let argument =
            |owner, number| Buffer { owner, parameter: Some(number), ..Buffer::default() };
        let memory = ProgramMemory {
            buffers: vec![argument(Owner::OptimizerState, 0), argument(Owner::Batch, 1)],
            ..ProgramMemory::default()
        };
        for (replaces, owner) in
            [(Some(0), Some(Owner::OptimizerState)), (Some(1), None), (Some(2), None), (None, None)]
        {
            let output = Buffer { owner: Owner::Outputs, replaces, ..Buffer::default() };
            let replaced = memory.replaced_by(&output);
            assert_eq!(replaced.map(|argument| argument.owner), owner, "{replaces:?}");
        }
    }

    #[test]
    fn an_operation_is_of_one_line() {
        let frame = |site: &str, library| Frame {
            site: site.to_owned(),
            library,
            parent: library.then_some(0),
        };
        let memory = |frames: &[u32]| ProgramMemory {
            frames: vec![
                frame("a.py:1", false),
                frame("b.py:2", false),
                frame("optax.py:3", true),
                frame("optax.py:4", true),
            ],
            buffers: frames
                .iter()
                .map(|&frame| Buffer { frame: Some(frame), ..Buffer::default() })
                .collect(),
            ..ProgramMemory::default()
        };
        assert!(memory(&[0, 0]).is_eager_operation("a.py:1"));
        assert!(memory(&[2, 2]).is_eager_operation("a.py:1"));
        assert!(!memory(&[0, 1]).is_eager_operation("a.py:1"));
        assert!(!memory(&[0]).is_eager_operation("b.py:2"));
        // What a library computes in a program of its own.
        assert!(!memory(&[2, 3]).is_eager_operation("a.py:1"));
        // Without a line nothing is known.
        assert!(!memory(&[]).is_eager_operation("a.py:1"));
    }
}
