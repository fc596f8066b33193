//! How long it takes to find out where the memory of a large program goes.
//!
//! The program is made here: 50,000 instructions that differentiate a chain, with stacks of 30 frames
//! and half of the values in the temporary block. Goal: at most 0.5 s, and 500 MB for the process.

#![allow(missing_docs, reason = "the macro makes a public function")]
#![allow(clippy::print_stdout, reason = "a benchmark tells what it measured")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prost::Message;
use vramfit_model::program::memory::Names;
use vramfit_model::program::proto::{
    AssignedProto, BufferAllocationProto, BufferAssignmentProto, FileLocation, HeapEvent,
    HeapSimulatorTrace, HloComputationProto, HloInstructionProto, HloModuleProto, HloProto,
    LocationProto, LogicalBufferProto, OpMetadata, ShapeProto, StackFrame, StackFrameIndexProto,
};
use vramfit_model::program::{ElementType, Program, ProgramMemory, Shape};

const INSTRUCTIONS: i64 = 50_000;
const ARGUMENTS: i64 = 5_000;
const STACK: i32 = 30;
/// Every value has 1 KiB.
const BYTES: i64 = 1024;

/// Returns a step of `INSTRUCTIONS`: arguments, a forward part, a backward part that reads it in
/// reverse order, an update for each argument, and a tuple of all new ones.
fn dump() -> Vec<u8> {
    let half = (INSTRUCTIONS - 2 * ARGUMENTS - 1) / 2;
    let (first, middle) = (ARGUMENTS, ARGUMENTS + half);
    let update = middle + half;
    let root = update + ARGUMENTS;
    let instruction = |id: i64| {
        let (opcode, operands, name) = match id {
            id if id < first => ("parameter", vec![], format!("state['layer_{id}']['kernel']")),
            id if id < middle => (
                "fusion",
                vec![id - 1, id % ARGUMENTS],
                format!("jit(step)/jvp(layer_{})/dot_general", id % 97),
            ),
            id if id < update => (
                "fusion",
                vec![id - 1, 2 * middle - 1 - id],
                format!("jit(step)/transpose(jvp(layer_{}))/dot_general", id % 97),
            ),
            id if id < root => {
                ("fusion", vec![id - update, id - ARGUMENTS], "jit(step)/sub".to_owned())
            }
            _ => ("tuple", (update..root).collect(), String::new()),
        };
        HloInstructionProto {
            name: format!("{opcode}.{id}"),
            opcode: opcode.to_owned(),
            shape: Some(shape(id == root)),
            metadata: Some(OpMetadata {
                op_name: name,
                stack_frame_id: STACK * (1 + (id % 500) as i32),
                ..OpMetadata::default()
            }),
            parameter_number: id,
            id,
            operand_ids: operands,
            ..HloInstructionProto::default()
        }
    };
    let module = HloModuleProto {
        name: "jit_step".to_owned(),
        computations: vec![HloComputationProto {
            instructions: (0..=root).map(instruction).collect(),
            id: 1,
            root_id: root,
        }],
        entry_computation_id: 1,
        stack_frame_index: Some(stacks()),
        ..HloModuleProto::default()
    };
    let proto = HloProto {
        hlo_module: Some(module),
        buffer_assignment: Some(assignment(first, middle, update, root)),
    };
    proto.encode_to_vec()
}

fn shape(tuple: bool) -> ShapeProto {
    let array =
        ShapeProto { element_type: 11, dimensions: vec![BYTES / 4], ..ShapeProto::default() };
    match tuple {
        false => array,
        true => ShapeProto {
            element_type: 13,
            tuple_shapes: vec![array; ARGUMENTS as usize],
            ..ShapeProto::default()
        },
    }
}

fn stacks() -> StackFrameIndexProto {
    StackFrameIndexProto {
        file_names: vec![
            "/env/lib/python3.11/site-packages/flax/linen.py".to_owned(),
            "/home/someone/train.py".to_owned(),
        ],
        function_names: vec!["__call__".to_owned()],
        file_locations: (0..500)
            .map(|line| FileLocation { file_name_id: 1 + line % 2, function_name_id: 1, line })
            .collect(),
        stack_frames: (0..500 * STACK + STACK)
            .map(|number| StackFrame {
                file_location_id: 1 + number % 500,
                // The outermost frame of each stack has none.
                parent_frame_id: if number % STACK == 0 { 0 } else { number },
            })
            .collect(),
    }
}

/// Forward values live until the backward part reads them, backward ones for a moment.
fn assignment(first: i64, middle: i64, update: i64, root: i64) -> BufferAssignmentProto {
    let assigned =
        |id: i64, offset: i64| AssignedProto { logical_buffer_id: id, offset, size: BYTES };
    let one = |id: i64| BufferAllocationProto {
        size: BYTES,
        assigned: vec![assigned(id, 0)],
        ..BufferAllocationProto::default()
    };
    let arguments = (0..first).map(|id| BufferAllocationProto {
        is_entry_computation_parameter: true,
        parameter_number: id,
        ..one(id)
    });
    let outputs =
        (update..root).map(|id| BufferAllocationProto { maybe_live_out: true, ..one(id) });
    let count = middle - first;
    let block = BufferAllocationProto {
        size: 2 * count * BYTES,
        assigned: (first..update).map(|id| assigned(id, (id - first) * BYTES)).collect(),
        ..BufferAllocationProto::default()
    };
    let event = |kind: i32, id: i64| HeapEvent {
        kind,
        buffer_id: id,
        instruction_name: format!("fusion.{id}"),
        ..HeapEvent::default()
    };
    let forward = (first..middle).map(|id| event(0, id));
    let backward = (middle..update).flat_map(|id| [event(0, id), event(1, 2 * middle - 1 - id)]);
    BufferAssignmentProto {
        logical_buffers: (0..=root)
            .map(|id| LogicalBufferProto {
                id,
                size: BYTES,
                defined_at: Some(LocationProto { shape_index: Vec::new(), instruction_id: id }),
            })
            .collect(),
        buffer_allocations: arguments.chain(outputs).chain([block]).collect(),
        heap_simulator_traces: vec![HeapSimulatorTrace {
            events: forward.chain(backward).collect(),
        }],
    }
}

/// Returns the most memory that this process ever had, in MB, where the system tells it.
fn highest_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024 / 1_000_000)
}

fn reading(criterion: &mut Criterion) {
    let dump = dump();
    let names = |first: &str| -> Vec<String> {
        let names = 0..ARGUMENTS;
        names.map(|id| format!("{first}['layer_{id}']['kernel']")).collect()
    };
    let names = Names { arguments: names("state"), outputs: names("result"), ..Names::default() };
    let shapes = vec![Shape::dense(ElementType(11), &[BYTES / 4]); ARGUMENTS as usize];
    let program = Program {
        parameters: shapes.clone(),
        outputs: shapes,
        output_allocations: (0..ARGUMENTS as usize)
            .map(|output| Some(ARGUMENTS as usize + output))
            .collect(),
        ..Program::default()
    };
    let read = || ProgramMemory::from_dump(&program, &dump, &names).expect("a dump");
    println!(
        "{INSTRUCTIONS} instructions, {} bytes of dump, {} buffers",
        dump.len(),
        read().buffers.len()
    );
    let mut group = criterion.benchmark_group("memory");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(4))
        .throughput(Throughput::Elements(INSTRUCTIONS as u64));
    group.bench_function("parse and analyze", |bencher| {
        bencher.iter(|| black_box(read()));
    });
    let memory = read();
    group.bench_function("store", |bencher| bencher.iter(|| memory.to_stored()));
    group.finish();
    if let Some(megabytes) = highest_memory() {
        println!("most memory of this process: {megabytes} MB");
    }
}

criterion_group!(benches, reading);
criterion_main!(benches);
