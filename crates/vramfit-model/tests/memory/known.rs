//! A module made by hand, of which every owner is known.

use vramfit_model::program::memory::{Names, Owner};
use vramfit_model::program::proto::{
    AliasEntryProto, AssignedProto, BufferAllocationProto, BufferAssignmentProto, FileLocation,
    HeapEvent, HeapSimulatorTrace, HloComputationProto, HloInputOutputAliasProto,
    HloInstructionProto, HloModuleProto, LocationProto, LogicalBufferProto, OpMetadata,
    ProgramShapeProto, ShapeProto, StackFrame, StackFrameIndexProto,
};
use vramfit_model::program::{HloGraph, ProgramMemory};

use super::recorded::program;

const F32: i32 = 11;
const TUPLE: i32 = 13;
/// Elements of every array; each takes 256 bytes.
const SIZE: i64 = 64;

fn array() -> ShapeProto {
    ShapeProto { element_type: F32, dimensions: vec![SIZE], ..ShapeProto::default() }
}

fn pair() -> ShapeProto {
    ShapeProto {
        element_type: TUPLE,
        tuple_shapes: vec![array(), array()],
        ..ShapeProto::default()
    }
}

/// An instruction that came from a line of the script, unless it is a parameter.
fn instruction(id: i64, opcode: &str, operands: &[i64], operation: &str) -> HloInstructionProto {
    HloInstructionProto {
        name: format!("{opcode}.{id}"),
        opcode: opcode.to_owned(),
        shape: Some(array()),
        metadata: Some(OpMetadata {
            op_name: operation.to_owned(),
            stack_frame_id: i32::from(opcode != "parameter"),
            ..OpMetadata::default()
        }),
        id,
        operand_ids: operands.to_vec(),
        ..HloInstructionProto::default()
    }
}

fn parameter(number: i64) -> HloInstructionProto {
    HloInstructionProto {
        parameter_number: number,
        ..instruction(number + 1, "parameter", &[], "")
    }
}

/// A step: parameters 1 (`p`), its momentum 2 (`m`), a batch 3 (`x`).
///
/// | value | made of | phase | read by |
/// | --- | --- | --- | --- |
/// | 4 | p x | forward | backward 6, so it is an activation |
/// | 5 | 4 | forward | forward 10, so a temporary |
/// | 10 | 5 | forward | backward 6, so an activation |
/// | 6 | 4, 10 | backward | the update, so a gradient |
/// | 7 | m, 6 | update | output, in the momentum's memory |
/// | 8 | p, 7 | update | output with memory of its own |
fn module() -> HloModuleProto {
    let root = HloInstructionProto { shape: Some(pair()), ..instruction(9, "tuple", &[8, 7], "") };
    let entry = HloComputationProto {
        instructions: vec![
            parameter(0),
            parameter(1),
            parameter(2),
            instruction(4, "multiply", &[1, 3], "jit(step)/jvp()/mul"),
            instruction(5, "tanh", &[4], "jit(step)/jvp()/tanh"),
            instruction(10, "sine", &[5], "jit(step)/jvp()/sin"),
            instruction(6, "multiply", &[4, 10], "jit(step)/transpose(jvp())/mul"),
            instruction(7, "add", &[2, 6], "jit(step)/add"),
            instruction(8, "subtract", &[1, 7], "jit(step)/sub"),
            root,
        ],
        id: 1,
        root_id: 9,
    };
    HloModuleProto {
        name: "jit_step".to_owned(),
        computations: vec![entry],
        entry_computation_id: 1,
        host_program_shape: Some(ProgramShapeProto {
            parameters: vec![array(), array(), array()],
            result: Some(pair()),
        }),
        input_output_alias: Some(HloInputOutputAliasProto {
            entries: vec![AliasEntryProto {
                output_shape_index: vec![1],
                parameter_number: 1,
                ..AliasEntryProto::default()
            }],
        }),
        stack_frame_index: Some(StackFrameIndexProto {
            file_names: vec![
                "/env/lib/python3.11/site-packages/optax/sgd.py".to_owned(),
                "train.py".to_owned(),
            ],
            function_names: vec!["update".to_owned(), "step".to_owned()],
            file_locations: vec![
                FileLocation { file_name_id: 1, function_name_id: 1, line: 7 },
                FileLocation { file_name_id: 2, function_name_id: 2, line: 21 },
            ],
            stack_frames: vec![
                StackFrame { file_location_id: 1, parent_frame_id: 2 },
                StackFrame { file_location_id: 2, parent_frame_id: 0 },
            ],
        }),
        ..HloModuleProto::default()
    }
}

/// An allocation that holds values at offsets; all have 256 bytes.
fn allocation(size: i64, values: &[(i64, i64)]) -> BufferAllocationProto {
    BufferAllocationProto {
        size,
        assigned: values
            .iter()
            .map(|(id, offset)| AssignedProto {
                logical_buffer_id: *id,
                offset: *offset,
                size: 256,
            })
            .collect(),
        ..BufferAllocationProto::default()
    }
}

fn argument(number: i64, values: &[(i64, i64)]) -> BufferAllocationProto {
    BufferAllocationProto {
        is_entry_computation_parameter: true,
        parameter_number: number,
        ..allocation(256, values)
    }
}

fn value(id: i64, instruction_id: i64, part: &[i64]) -> LogicalBufferProto {
    LogicalBufferProto {
        id,
        size: 256,
        defined_at: Some(LocationProto { shape_index: part.to_vec(), instruction_id }),
    }
}

fn event(kind: i32, id: i64, name: &str, shared: i64) -> HeapEvent {
    HeapEvent {
        kind,
        buffer_id: id,
        instruction_name: name.to_owned(),
        share_with_canonical_id: shared,
    }
}

fn assignment() -> BufferAssignmentProto {
    let event = |kind, id: i64| event(kind, id, &id.to_string(), 0);
    BufferAssignmentProto {
        // Every value has the number of the instruction that makes it.
        logical_buffers: (1..=10).map(|id| value(id, id, &[])).collect(),
        buffer_allocations: vec![
            argument(0, &[(1, 0)]),
            BufferAllocationProto { maybe_live_out: true, ..argument(1, &[(2, 0), (7, 0)]) },
            argument(2, &[(3, 0)]),
            BufferAllocationProto { maybe_live_out: true, ..allocation(256, &[(8, 0)]) },
            BufferAllocationProto {
                maybe_live_out: true,
                is_tuple: true,
                ..allocation(16, &[(9, 0)])
            },
            // 5 and 6 are at one place, one after the other; 512 to 1000 is the place of 10.
            allocation(1000, &[(4, 0), (5, 256), (6, 256), (10, 512)]),
        ],
        heap_simulator_traces: vec![HeapSimulatorTrace {
            events: vec![
                event(0, 4),
                event(0, 5),
                event(0, 10),
                event(1, 5),
                event(0, 6),
                event(1, 4),
                event(1, 10),
                event(1, 6),
            ],
        }],
    }
}

fn memory(names: &Names) -> ProgramMemory {
    let (module, assignment) = (module(), assignment());
    ProgramMemory::read(&program(&module, &assignment), &HloGraph::new(&module), &assignment, names)
}

fn named(arguments: [&str; 3], outputs: [&str; 2]) -> Names {
    Names {
        arguments: arguments.map(str::to_owned).to_vec(),
        outputs: outputs.map(str::to_owned).to_vec(),
        ..Names::default()
    }
}

fn names() -> Names {
    named(["p", "m", "x"], ["result[0]", "result[1]"])
}

/// Names of which those of the results are like those of the arguments.
fn matching_names() -> Names {
    named(["w['p']", "w['m']", "x"], ["result['p']", "result['m']"])
}

#[test]
fn owners_are_those_that_were_built_in() {
    let memory = memory(&names());
    for (owner, bytes) in [
        // Both are updated by a gradient; one nameless array and data of its size are no evidence of a
        // model that is trained.
        (Owner::Parameters, 0),
        (Owner::OptimizerState, 0),
        (Owner::OtherState, 512),
        (Owner::Batch, 256),
        (Owner::Activations, 512),
        (Owner::Gradients, 0),
        (Owner::Temporaries, 256),
        (Owner::Outputs, 256 + 16),
        (Owner::Constants, 0),
        (Owner::Padding, 1000 - 768),
    ] {
        assert_eq!(memory.bytes_of(owner), bytes, "{owner:?}");
    }
    assert_eq!(memory.occupied_bytes(), 4 * 256 + 16 + 1000);
}

#[test]
fn paths_that_match_make_state_of_an_argument() {
    let memory = memory(&matching_names());
    assert_eq!(memory.bytes_of(Owner::Parameters), 256);
    assert_eq!(memory.bytes_of(Owner::OptimizerState), 256);
    assert_eq!(memory.bytes_of(Owner::Batch), 256);
    let kept: Vec<_> = memory
        .undonated
        .iter()
        .map(|one| (one.argument.as_str(), one.output.as_str(), one.bytes))
        .collect();
    assert_eq!(kept, [("w['p']", "result['p']", 256)]);
}

/// The new parameter is often computed in the place of its gradient.
#[test]
fn an_output_in_the_place_of_a_gradient_is_no_gradient() {
    let (module, mut assignment) = (module(), assignment());
    let output = &mut assignment.buffer_allocations[3];
    output.assigned.push(output.assigned[0].clone());
    output.assigned[1].logical_buffer_id = 6;
    let names = matching_names();
    let program = program(&module, &assignment);
    let memory = ProgramMemory::read(&program, &HloGraph::new(&module), &assignment, &names);
    assert_eq!(memory.bytes_of(Owner::Parameters), 256);
    let mut buffers = memory.buffers.iter();
    let output = buffers.find(|buffer| buffer.path == "result['p']");
    let made_by = output.map(|buffer| buffer.instruction.as_str());
    assert_eq!(made_by, Some("subtract.8"));
}

#[test]
fn tenants_have_their_moments_and_lines() {
    let memory = memory(&matching_names());
    let block: Vec<_> = memory
        .buffers
        .iter()
        .filter(|buffer| buffer.allocation == 5)
        .map(|one| (one.instruction.as_str(), one.owner, one.start, one.end))
        .collect();
    assert_eq!(
        block,
        [
            ("multiply.4", Owner::Activations, 0, 3),
            ("tanh.5", Owner::Temporaries, 1, 2),
            ("sine.10", Owner::Activations, 2, 3),
            ("multiply.6", Owner::Gradients, 3, 3),
        ]
    );
    assert_eq!(memory.instructions, ["4", "5", "10", "6"]);
    assert_eq!(memory.live_bytes, [256, 512, 768, 768]);
    assert_eq!(memory.peak_at, 2);
    let made = memory.buffers.iter().filter(|one| one.parameter.is_none());
    for buffer in made {
        let site = memory.user_site(buffer.frame);
        assert_eq!(site, Some("train.py:21 (step)"), "{}", buffer.instruction);
        assert_eq!(memory.stack(buffer.frame).count(), 2);
    }
}

/// A loop over one array: what goes in, what goes round and what comes out lie at one place, and a
/// value of the body is there while the loop runs.
#[test]
fn what_goes_round_in_a_loop_is_one_tenant() {
    let named = |id, opcode: &str, operands: &[i64], operation: &str| HloInstructionProto {
        shape: Some(pair()),
        ..instruction(id, opcode, operands, operation)
    };
    let part = |id, of, number| HloInstructionProto {
        tuple_index: number,
        ..instruction(id, "get-tuple-element", &[of], "")
    };
    let name = "jit(step)/jvp()/while";
    let body = HloComputationProto {
        instructions: vec![
            named(20, "parameter", &[], ""),
            part(21, 20, 0),
            part(22, 20, 1),
            instruction(23, "sine", &[21], "jit(step)/jvp()/while/body/sin"),
            instruction(
                24,
                "dynamic-update-slice",
                &[22, 23],
                "jit(step)/jvp()/while/body/dynamic_update_slice",
            ),
            named(25, "tuple", &[23, 24], ""),
        ],
        id: 2,
        root_id: 25,
    };
    let entry = HloComputationProto {
        instructions: vec![
            parameter(0),
            instruction(2, "broadcast", &[], name),
            named(3, "tuple", &[1, 2], ""),
            HloInstructionProto {
                called_computation_ids: vec![2],
                ..named(4, "while", &[3], name)
            },
            part(5, 4, 1),
            instruction(6, "negate", &[5], "jit(step)/transpose(jvp())/neg"),
        ],
        id: 1,
        root_id: 6,
    };
    let module = HloModuleProto {
        computations: vec![body, entry],
        entry_computation_id: 1,
        host_program_shape: Some(ProgramShapeProto {
            parameters: vec![array()],
            result: Some(array()),
        }),
        ..HloModuleProto::default()
    };
    let assignment = BufferAssignmentProto {
        logical_buffers: vec![
            value(1, 1, &[]),
            value(2, 2, &[]),
            value(3, 20, &[1]),
            value(4, 24, &[]),
            value(5, 4, &[1]),
            value(6, 6, &[]),
        ],
        buffer_allocations: vec![
            argument(0, &[(1, 0)]),
            BufferAllocationProto { maybe_live_out: true, ..allocation(256, &[(6, 0)]) },
            allocation(256, &[(2, 0), (3, 0), (4, 0), (5, 0)]),
        ],
        heap_simulator_traces: vec![HeapSimulatorTrace {
            events: vec![
                event(0, 2, "broadcast.2", 0),
                event(2, 3, "parameter.20", 2),
                event(2, 4, "dynamic-update-slice.24", 2),
                event(2, 5, "while.4", 2),
                event(1, 2, "broadcast.2", 0),
                event(1, 3, "parameter.20", 0),
                event(1, 4, "dynamic-update-slice.24", 0),
                event(1, 5, "while.4", 0),
            ],
        }],
    };
    let memory = ProgramMemory::read(
        &program(&module, &assignment),
        &HloGraph::new(&module),
        &assignment,
        &Names::default(),
    );
    let tenants: Vec<_> = memory.buffers.iter().filter(|buffer| buffer.allocation == 2).collect();
    assert_eq!(tenants.len(), 1);
    assert_eq!(tenants[0].instruction, "dynamic-update-slice.24");
    assert_eq!(tenants[0].owner, Owner::Activations);
    assert!(tenants[0].stacked);
    assert_eq!((tenants[0].start, tenants[0].end), (0, 3));
    assert_eq!(memory.padding_bytes, 0);
}
