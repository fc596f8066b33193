//! Modules and assignments that contradict themselves: whatever is said of them, it is said soon, and
//! without a panic.

use proptest::prelude::*;
use vramfit_model::program::memory::Names;
use vramfit_model::program::proto::{
    AssignedProto, BufferAllocationProto, BufferAssignmentProto, FileLocation, HeapEvent,
    HeapSimulatorTrace, HloComputationProto, HloInstructionProto, HloModuleProto, LocationProto,
    LogicalBufferProto, OpMetadata, ShapeProto, StackFrame, StackFrameIndexProto,
};
use vramfit_model::program::{Alias, ElementType, HloGraph, Program, ProgramMemory, Shape};

use super::recorded::all;

/// Numbers that meet each other often, and some that nothing has.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![9 => -1i64..9, 1 => Just(i64::MAX), 1 => Just(i64::MIN), 1 => any::<i64>()]
}

fn numbers() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(number(), 0..4)
}

fn shape() -> impl Strategy<Value = ShapeProto> {
    let leaf = (0i32..20, numbers()).prop_map(|(element_type, dimensions)| ShapeProto {
        element_type,
        dimensions,
        ..ShapeProto::default()
    });
    leaf.prop_recursive(6, 24, 4, |inner| {
        let parts = prop::collection::vec(inner, 0..4);
        parts.prop_map(|tuple_shapes| ShapeProto {
            element_type: 13,
            tuple_shapes,
            ..ShapeProto::default()
        })
    })
}

fn opcode() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "parameter",
        "fusion",
        "while",
        "call",
        "conditional",
        "tuple",
        "get-tuple-element",
        "copy",
        "copy-start",
        "copy-done",
        "bitcast",
        "dynamic-update-slice",
        "add",
        "",
    ]);
    known.prop_map(str::to_owned)
}

fn metadata() -> impl Strategy<Value = Option<OpMetadata>> {
    let name = prop::sample::select(vec![
        "",
        "jit(f)/jvp()/tanh",
        "jit(f)/transpose(jvp())/mul",
        "jit(f)/add",
        "state['params']",
    ]);
    let metadata = (name, number()).prop_map(|(name, frame)| OpMetadata {
        op_name: name.to_owned(),
        source_file: name.to_owned(),
        source_line: frame as i32,
        stack_frame_id: frame as i32,
    });
    prop::option::of(metadata)
}

fn instruction() -> impl Strategy<Value = HloInstructionProto> {
    let links = (number(), numbers(), numbers(), number(), number());
    (opcode(), prop::option::of(shape()), metadata(), links).prop_map(
        |(opcode, shape, metadata, (id, operand_ids, called_computation_ids, part, parameter))| {
            HloInstructionProto {
                name: id.to_string(),
                opcode,
                shape,
                metadata,
                parameter_number: parameter,
                tuple_index: part,
                id,
                operand_ids,
                called_computation_ids,
                ..HloInstructionProto::default()
            }
        },
    )
}

fn stacks() -> impl Strategy<Value = Option<StackFrameIndexProto>> {
    let location = (number(), number()).prop_map(|(file, line)| FileLocation {
        file_name_id: file as i32,
        function_name_id: file as i32,
        line: line as i32,
    });
    let frame = (number(), number()).prop_map(|(location, parent)| StackFrame {
        file_location_id: location as i32,
        parent_frame_id: parent as i32,
    });
    let lists = (prop::collection::vec(location, 0..6), prop::collection::vec(frame, 0..9));
    let table = lists.prop_map(|(file_locations, stack_frames)| StackFrameIndexProto {
        file_names: vec!["train.py".to_owned(), "<string>".to_owned()],
        function_names: vec!["step".to_owned()],
        file_locations,
        stack_frames,
    });
    prop::option::of(table)
}

fn module() -> impl Strategy<Value = HloModuleProto> {
    let instructions = prop::collection::vec(instruction(), 0..8);
    let computation = (instructions, number(), number())
        .prop_map(|(instructions, id, root_id)| HloComputationProto { instructions, id, root_id });
    let computations = prop::collection::vec(computation, 0..4);
    (computations, stacks()).prop_map(|(computations, stack_frame_index)| HloModuleProto {
        computations,
        stack_frame_index,
        ..HloModuleProto::default()
    })
}

fn assignment() -> impl Strategy<Value = BufferAssignmentProto> {
    let value = (number(), number(), numbers(), number()).prop_map(
        |(id, size, shape_index, instruction_id)| LogicalBufferProto {
            id,
            size,
            defined_at: Some(LocationProto { shape_index, instruction_id }),
        },
    );
    let assigned = (number(), number(), number()).prop_map(|(logical_buffer_id, offset, size)| {
        AssignedProto { logical_buffer_id, offset, size }
    });
    let assigned = prop::collection::vec(assigned, 0..8);
    let flags = (0u8..32, prop::sample::select(vec![0i64, 1, 2, 5, -1]));
    let allocation = (number(), number(), assigned, flags).prop_map(
        |(size, parameter_number, assigned, (flags, color))| BufferAllocationProto {
            size,
            is_thread_local: flags == 31,
            is_entry_computation_parameter: flags & 1 != 0,
            parameter_number,
            maybe_live_out: flags & 2 != 0,
            is_tuple: flags & 4 != 0,
            is_constant: flags & 24 == 24,
            color,
            assigned,
            ..BufferAllocationProto::default()
        },
    );
    let event = (-1i32..5, number(), 0u8..4, number()).prop_map(
        |(kind, buffer_id, name, share_with_canonical_id)| HeapEvent {
            kind,
            buffer_id,
            instruction_name: name.to_string(),
            share_with_canonical_id,
        },
    );
    let heap = prop::collection::vec(event, 0..24).prop_map(|events| HeapSimulatorTrace { events });
    let lists = (
        prop::collection::vec(value, 0..9),
        prop::collection::vec(allocation, 0..6),
        prop::collection::vec(heap, 0..3),
    );
    lists.prop_map(|(logical_buffers, buffer_allocations, heap_simulator_traces)| {
        BufferAssignmentProto { logical_buffers, buffer_allocations, heap_simulator_traces }
    })
}

fn program() -> impl Strategy<Value = (Program, Names)> {
    let place = prop::option::of(0usize..9);
    let alias = (0usize..9, 0usize..9).prop_map(|(output, parameter)| Alias {
        output,
        parameter,
        must: false,
    });
    let lists = (
        prop::collection::vec(numbers(), 0..5),
        prop::collection::vec(place, 0..5),
        prop::collection::vec(alias, 0..3),
        prop::collection::vec("[a-z.\\[\\]']{0,6}", 0..6),
    );
    lists.prop_map(|(dims, output_allocations, aliases, names)| {
        let shapes: Vec<Shape> =
            dims.iter().map(|dims| Shape::dense(ElementType(11), dims)).collect();
        let program = Program {
            parameters: shapes.clone(),
            outputs: shapes,
            output_allocations,
            aliases,
            ..Program::default()
        };
        let names = Names { arguments: names.clone(), outputs: names, ..Names::default() };
        (program, names)
    })
}

/// Checks what holds of every answer, however damaged the question was.
fn check(memory: &ProgramMemory) {
    let blocks = memory.buffers.iter();
    let inside = blocks.filter(|one| one.end != u32::MAX);
    let inside = inside.fold(0u64, |sum, one| sum.saturating_add(one.peak_bytes));
    assert_eq!(inside.saturating_add(memory.padding_bytes), memory.temp_bytes);
    for buffer in &memory.buffers {
        assert!(buffer.peak_bytes <= buffer.bytes || buffer.bytes == 0);
        // Every stack ends.
        let _ = memory.stack(buffer.frame).count();
    }
    let stored = ProgramMemory::from_stored(&memory.to_stored());
    assert_eq!(stored.as_ref().ok(), Some(memory));
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn modules_that_make_no_sense_are_survived(
        module in module(),
        assignment in assignment(),
        (program, names) in program(),
    ) {
        check(&ProgramMemory::read(&program, &HloGraph::new(&module), &assignment, &names));
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn dumps_with_changed_bytes_are_survived(
        which in 0usize..64,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let recorded = &all()[which % all().len()];
        let mut dump = recorded.dump.clone();
        for (at, byte) in changes {
            let at = at.index(dump.len());
            dump[at] = byte;
        }
        if let Ok(memory) = ProgramMemory::from_dump(&recorded.program, &dump, &recorded.names) {
            check(&memory);
        }
    }
}

#[test]
fn dumps_that_end_too_soon_are_survived() {
    for recorded in all() {
        let whole = recorded.dump.len();
        for end in (0..whole).step_by(whole / 50 + 1) {
            let memory =
                ProgramMemory::from_dump(&recorded.program, &recorded.dump[..end], &recorded.names);
            if let Ok(memory) = memory {
                check(&memory);
            }
        }
    }
}

/// A tuple inside a tuple, and so on: protobuf messages may only be nested so deep, and then it is an
/// error like any other.
#[test]
fn shapes_that_are_nested_too_deep_are_refused() {
    let mut shape = Vec::new();
    for _ in 0..5000 {
        let mut outer = Vec::new();
        prost::encoding::encode_key(4, prost::encoding::WireType::LengthDelimited, &mut outer);
        prost::encoding::encode_varint(shape.len() as u64, &mut outer);
        outer.extend(shape);
        shape = outer;
    }
    let nest = |number: u32, inside: &[u8]| {
        let mut outer = Vec::new();
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut outer);
        prost::encoding::encode_varint(inside.len() as u64, &mut outer);
        outer.extend(inside);
        outer
    };
    // HloProto.hlo_module.computations.instructions.shape
    let dump = nest(1, &nest(3, &nest(2, &nest(3, &shape))));
    let read = ProgramMemory::from_dump(&Program::default(), &dump, &Names::default());
    assert!(read.is_err());
}

/// Sizes that no sum may hold.
#[test]
fn sizes_beyond_all_measure_are_survived() {
    let assignment = BufferAssignmentProto {
        buffer_allocations: (0..9)
            .map(|number| BufferAllocationProto {
                size: i64::MAX,
                maybe_live_out: number > 4,
                assigned: vec![AssignedProto {
                    logical_buffer_id: number,
                    offset: i64::MAX,
                    size: i64::MAX,
                }],
                ..BufferAllocationProto::default()
            })
            .collect(),
        ..BufferAssignmentProto::default()
    };
    let program = Program {
        outputs: vec![Shape::dense(ElementType(11), &[i64::MAX, i64::MAX])],
        ..Program::default()
    };
    let module = HloModuleProto::default();
    let memory =
        ProgramMemory::read(&program, &HloGraph::new(&module), &assignment, &Names::default());
    assert_eq!(memory.occupied_bytes(), u64::MAX);
}
