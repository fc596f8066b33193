//! How long a program takes on a GPU, without one: what XLA's cost model says of each kernel, and a
//! bound that no execution stays below.
//!
//! With `xla_gpu_collect_cost_model_stats` XLA writes its estimates into the fusions of the optimized
//! module. They are added up over the schedule, the bodies of loops as often as they run. Loops, reductions
//! and transpositions take XLA's general model. Matrix products take its `sol` model: the others price the
//! default tiles, which the autotuner replaces on a GPU, and come out up to a hundred times too slow. Where
//! there is no estimate, the roofline takes its place: the bytes and operations of the kernel at the GPU's
//! rates. Library calls, sorts, collectives and what a loop of unknown length runs are added in the same
//! way, and marked as unknown. Transfers to and from pinned host memory run beside the kernels, at the
//! rate of the GPU's link; what the schedule waits for them is added.
//!
//! | file | subject |
//! | --- | --- |
//! | `backend_config` | what XLA says of an instruction |
//! | `traffic` | bytes that a kernel reads and writes |
//! | `arithmetic` | matrix products and convolutions |
//! | `elementwise` | exponentials, `tanh` and other functions of elements |
//! | `host_transfer` | offloaded values |
//! | `program_time` | how long a program takes, and what takes it |
//! | `rates` | rates of the GPU, by its data sheet or measured |

mod arithmetic;
mod backend_config;
mod elementwise;
mod host_transfer;
mod program_time;
mod rates;
mod traffic;

use rustc_hash::FxHashMap;

use self::arithmetic::Arithmetic;
use self::backend_config::BackendConfig;
use self::host_transfer::{Clock, HostTransfer};
pub use self::program_time::{MAX_UNKNOWN_SHARE, OperationTime, ProgramTime};
use self::rates::{Rates, min_transfer_us};
use super::hlo::{HloGraph, arrays};
use super::memory::Frames;
use super::proto::{HloComputationProto, HloInstructionProto, OpMetadata};
use super::shape::Shape;
use super::{MemorySpace, Program};
use crate::gpu::{Calibration, Gpu};

/// How deep calls in a module are followed; XLA nests them a few levels.
const MAX_DEPTH: usize = 32;
/// Where XLA's tables lack a shape, `sol` is 30 times the roofline and more. It is 1.2 to 3 times the
/// roofline where they have it.
const MAX_SLOWDOWN: f64 = 4.0;

impl Program {
    /// Returns how long one execution takes on a GPU.
    pub fn time(
        &self,
        graph: &HloGraph<'_>,
        gpu: &Gpu,
        calibration: Option<&Calibration>,
    ) -> ProgramTime {
        ProgramTime {
            host_memory_bytes: self.host_sizes.temp_bytes,
            ..estimate(graph, gpu, calibration)
        }
    }
}

/// Returns how long one execution of an optimized module takes.
fn estimate(graph: &HloGraph<'_>, gpu: &Gpu, calibration: Option<&Calibration>) -> ProgramTime {
    let rates = Rates { gpu, calibration };
    let mut walk = Walk {
        graph,
        rates,
        frames: Frames::new(graph.module()),
        time: ProgramTime { calibrated: calibration.is_some(), ..ProgramTime::default() },
        certain_transfers: [0.0; 2],
        operations: FxHashMap::default(),
    };
    let Some(entry) = graph.entry() else {
        return walk.time;
    };
    walk.add(entry, 1.0, true, MAX_DEPTH);
    let bytes = traffic::certain_bytes(graph, entry);
    // The cache may hold that much of the arguments before, and of the results after the execution.
    let bytes = bytes.saturating_sub(2 * gpu.l2_bytes);
    let mut time = walk.time;
    time.low_us = time.low_us.max(rates.min_memory_us(bytes));
    if let Some(link) = gpu.host_link {
        let transfers = walk.certain_transfers.map(|bytes| min_transfer_us(link, bytes as u64));
        time.low_us = transfers.into_iter().fold(time.low_us, f64::max);
    }
    // XLA's model may be faster than its own limits, for what fits into a cache.
    time.model_us = time.model_us.max(time.low_us);
    let operations = walk.operations.into_iter();
    time.operations = operations
        .filter(|(_, model_us)| *model_us > 0.0)
        .map(|((site, operation, known), model_us)| OperationTime {
            site,
            operation,
            model_us,
            known,
        })
        .collect();
    time.sort_operations();
    time
}

/// Returns `true` if an instruction is no work for the GPU.
fn is_free(opcode: &str) -> bool {
    const FREE: &[&str] = &[
        "add-dependency",
        "after-all",
        "bitcast",
        "constant",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "partition-id",
        "replica-id",
        "tuple",
    ];
    FREE.contains(&opcode) || opcode.ends_with("-done") || opcode.ends_with("-update")
}

/// The schedule of a module, added up.
struct Walk<'a> {
    graph: &'a HloGraph<'a>,
    rates: Rates<'a>,
    frames: Frames<'a>,
    time: ProgramTime,
    /// Bytes that certainly are transferred to host memory, and from it.
    certain_transfers: [f64; 2],
    /// Microseconds by line, name, and whether they are known.
    operations: FxHashMap<(String, String, bool), f64>,
}

impl<'a> Walk<'a> {
    /// Adds a computation that runs this many times; `is_certain` says whether it does. Returns the
    /// microseconds of one run.
    fn add(
        &mut self,
        computation: &HloComputationProto,
        times: f64,
        is_certain: bool,
        depth: usize,
    ) -> f64 {
        let Some(depth) = depth.checked_sub(1) else {
            return 0.0;
        };
        let mut clock = Clock::default();
        for instruction in &computation.instructions {
            if instruction.opcode.ends_with("-done")
                && let Some(start) = instruction.operand_ids.first()
            {
                let wait = clock.wait_for(*start);
                self.add_wait(instruction, times * wait);
            }
            if is_free(&instruction.opcode) {
                continue;
            }
            let transfer = HostTransfer::new(self.graph, instruction);
            if let Some(link) = self.rates.gpu.host_link.filter(|_| !transfer.is_none()) {
                let both = [transfer.to_host, transfer.from_host];
                clock.start(instruction.id, self.rates.transfer_us(link, both));
                let both = both.map(|bytes| times * bytes as f64);
                self.time.host_bytes += both.iter().sum::<f64>() as u64;
                if is_certain {
                    self.certain_transfers[0] += both[0];
                    self.certain_transfers[1] += both[1];
                }
                if !instruction.opcode.ends_with("-start") {
                    let wait = clock.wait_for(instruction.id);
                    self.add_wait(instruction, times * wait);
                }
                continue;
            }
            let called: Vec<_> = self.graph.called(instruction).collect();
            // How often each of the called computations runs.
            let (runs, is_certain) = match instruction.opcode.as_str() {
                "while" => match BackendConfig::read(instruction).trip_count() {
                    Some(trips) => (trips, is_certain),
                    None => (1.0, false),
                },
                // One of the branches runs: as long as they take on average.
                "conditional" => (1.0 / called.len().max(1) as f64, false),
                "call" | "async-start" => (1.0, is_certain),
                _ => {
                    clock.now += self.add_kernel(instruction, times, is_certain);
                    continue;
                }
            };
            for computation in called {
                clock.now += runs * self.add(computation, runs * times, is_certain, depth);
            }
        }
        clock.now
    }

    /// Adds the time that kernels wait for a transfer.
    fn add_wait(&mut self, instruction: &HloInstructionProto, us: f64) {
        if us > 0.0 {
            self.time.model_us += us;
            self.time.host_wait_us += us;
            let (site, _) = self.origin(instruction);
            let operation = "wait for host memory".to_owned();
            *self.operations.entry((site, operation, true)).or_default() += us;
        }
    }

    /// Adds a kernel that runs this many times; returns the microseconds of one run.
    fn add_kernel(
        &mut self,
        instruction: &HloInstructionProto,
        times: f64,
        is_certain: bool,
    ) -> f64 {
        let arithmetic = Arithmetic::new(self.graph, self.rates, instruction);
        let reads = traffic::reads(self.graph, instruction).into_iter();
        let accesses = reads.chain(traffic::writes(self.graph, instruction));
        let bytes = accesses.fold(0, |sum: u64, access| sum.saturating_add(access.bytes));
        let is_copy = matches!(instruction.opcode.as_str(), "copy" | "transpose");
        let memory_us = self.rates.memory_us(bytes, is_copy);
        let roofline = arithmetic.time_us.max(memory_us);
        let collective_us = self.collective_us(instruction);
        let config = BackendConfig::read(instruction);
        let model = match instruction.fusion_kind.as_str() {
            // XLA's own loops, reductions and transpositions.
            "kLoop" | "kInput" => config.time_us("").map(|us| {
                let functions_us = elementwise::functions_us(self.graph, self.rates, instruction);
                // XLA prices functions too high; where there are none it knows better how memory is accessed.
                let us = functions_us.map_or(us, |functions| us.min(functions.max(memory_us)));
                match self.time.calibrated {
                    // No such kernel was faster than what was measured.
                    true => us.max(memory_us),
                    false => us,
                }
            }),
            _ if arithmetic.is_matrix => {
                let plausible = roofline..=MAX_SLOWDOWN * roofline;
                config.time_us("sol").filter(|us| plausible.contains(us))
            }
            _ => None,
        };
        let run_us = collective_us.or(model).unwrap_or(roofline);
        let us = times * run_us;
        let is_priced = collective_us.is_some() || !arithmetic.is_unknown;
        let is_known = is_certain && is_priced && !self.is_on_host(instruction);
        self.time.model_us += us;
        self.time.xla_us += model.map_or(0.0, |_| us);
        if !is_known {
            self.time.unknown_us += us;
        }
        // The pass names its copies after what it copies.
        if instruction.name.contains(".remat") {
            self.time.xla_remat_us += us;
        }
        if is_certain {
            self.time.low_us += times * arithmetic.low_us;
        }
        let (site, operation) = self.origin(instruction);
        *self.operations.entry((site, operation, is_known)).or_default() += us;
        run_us
    }

    /// Returns the microseconds of a collective whose rate was measured: for the bytes of its operands or
    /// of its results, whichever are more.
    fn collective_us(&self, instruction: &HloInstructionProto) -> Option<f64> {
        let operands = self.graph.operands_of(instruction);
        let sum = |shapes: Vec<Shape>| shapes.iter().map(Shape::bytes).sum::<u64>();
        let operand_bytes = sum(operands.flat_map(arrays).collect());
        let result_bytes = sum(arrays(instruction));
        let result_bytes = match instruction.opcode.as_str() {
            // The operands are among the results of these.
            "all-gather-start" | "collective-permute-start" => {
                result_bytes.saturating_sub(operand_bytes)
            }
            _ => result_bytes,
        };
        let bytes = operand_bytes.max(result_bytes);
        self.rates.collective_us(&instruction.opcode, bytes)
    }

    /// Returns `true` if an instruction reads or writes host memory, whose speed is not known.
    fn is_on_host(&self, instruction: &HloInstructionProto) -> bool {
        let operands = self.graph.operands_of(instruction);
        let mut shapes = operands.chain([instruction]).flat_map(arrays);
        shapes.any(|shape| shape.space == MemorySpace::Host)
    }

    /// Returns the user's line of an instruction, and what it is called: from itself, or else from
    /// what is fused into it.
    fn origin(&mut self, instruction: &HloInstructionProto) -> (String, String) {
        let called: Vec<_> = self.graph.called(instruction).collect();
        let fused = called.iter().flat_map(|it| it.instructions.iter().rev());
        let all = [instruction].into_iter().chain(fused);
        let mut all: Vec<&OpMetadata> = all.filter_map(|it| it.metadata.as_ref()).collect();
        all.truncate(100);
        let site = all.iter().find_map(|metadata| self.frames.user_site(metadata));
        let name = all.iter().find(|metadata| !metadata.op_name.is_empty());
        let name = name.and_then(|metadata| metadata.op_name.rsplit('/').next());
        let name = name.unwrap_or(&instruction.opcode);
        (site.unwrap_or_default(), name.to_owned())
    }
}

#[cfg(test)]
mod tests;
