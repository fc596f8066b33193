//! Times that were counted by hand, on an H100: 3,352.32 GB/s, 989.4 TFLOP/s in bfloat16 (1,070.5 at the
//! highest clock), a cache of 50 MiB.

use super::*;
use crate::program::proto::{DotDimensionNumbers, HloModuleProto, LayoutProto, ShapeProto};

const F32: i32 = 11;
const BF16: i32 = 16;

fn array(element_type: i32, dimensions: &[i64]) -> ShapeProto {
    ShapeProto::array(element_type, dimensions)
}

fn instruction(id: i64, opcode: &str, shape: &ShapeProto, operands: &[i64]) -> HloInstructionProto {
    HloInstructionProto {
        id,
        opcode: opcode.into(),
        shape: Some(shape.clone()),
        operand_ids: operands.to_vec(),
        parameter_number: id % 10,
        metadata: Some(OpMetadata {
            op_name: format!("jit(f)/{opcode}"),
            source_file: "train.py".into(),
            source_line: id as i32,
            ..OpMetadata::default()
        }),
        ..HloInstructionProto::default()
    }
}

/// A fusion of computation 2, with XLA's estimates as JSON.
fn fusion(shape: &ShapeProto, operands: &[i64], kind: &str, costs: &str) -> HloInstructionProto {
    HloInstructionProto {
        called_computation_ids: vec![2],
        fusion_kind: kind.into(),
        backend_config: format!(r#"{{"reification_cost":[{costs}]}}"#).into_bytes(),
        ..instruction(19, "fusion", shape, operands)
    }
}

fn computation(id: i64, instructions: Vec<HloInstructionProto>) -> HloComputationProto {
    HloComputationProto { id, root_id: instructions.last().map_or(0, |root| root.id), instructions }
}

fn time(computations: Vec<HloComputationProto>) -> ProgramTime {
    time_with(computations, None)
}

fn time_with(
    computations: Vec<HloComputationProto>,
    calibration: Option<&Calibration>,
) -> ProgramTime {
    time_on("h100-80g", computations, calibration)
}

fn time_on(
    gpu: &str,
    computations: Vec<HloComputationProto>,
    calibration: Option<&Calibration>,
) -> ProgramTime {
    let module =
        HloModuleProto { entry_computation_id: 1, computations, ..HloModuleProto::default() };
    let gpu = crate::gpu::find(gpu);
    estimate(&HloGraph::new(&module), gpu.as_ref().expect("known"), calibration)
}

#[track_caller]
fn assert_us(time: &ProgramTime, low: f64, model: f64, unknown: f64) {
    let pairs = [(time.low_us, low), (time.model_us, model), (time.unknown_us, unknown)];
    for (ours, expected) in pairs {
        assert!((ours - expected).abs() < 0.01, "{ours} for {expected} of {time:?}");
    }
}

/// 2,048 x 4,096 by 4,096 x 4,096 in bfloat16.
fn product(costs: &str) -> ProgramTime {
    time(product_module(costs))
}

fn product_module(costs: &str) -> Vec<HloComputationProto> {
    let (left, right) = (array(BF16, &[2048, 4096]), array(BF16, &[4096, 4096]));
    let dot = HloInstructionProto {
        dot_dimension_numbers: Some(DotDimensionNumbers { lhs_contracting_dimensions: vec![1] }),
        ..instruction(22, "dot", &left, &[20, 21])
    };
    let inner = |id, shape| instruction(id, "parameter", shape, &[]);
    vec![
        computation(2, vec![inner(20, &left), inner(21, &right), dot]),
        computation(
            1,
            vec![inner(10, &left), inner(11, &right), fusion(&left, &[10, 11], "kCustom", costs)],
        ),
    ]
}

#[test]
fn a_matrix_product_takes_the_sol_model_or_its_operations() {
    // 68,719,476,736 operations; 64.19 us at the highest clock, 69.46 us at the rate of the data sheet.
    assert_us(&product(""), 64.192, 69.456, 0.0);
    let general = r#"{"name":"","exec_time_us":2055.1}"#;
    assert_us(&product(general), 64.192, 69.456, 0.0);
    let sol = |us: f64| format!(r#"{general},{{"name":"sol","exec_time_us":{us}}}"#);
    assert_us(&product(&sol(91.344)), 64.192, 91.344, 0.0);
    for implausible in [0.01, 2000.0] {
        assert_us(&product(&sol(implausible)), 64.192, 69.456, 0.0);
    }
    let operations = product("").operations;
    assert_eq!((operations[0].site.as_str(), operations.len()), ("train.py:19", 1));
}

/// A sum of two arrays of 256 MiB: 805,306,368 bytes, 240.22 us; 208.95 us with a cache at both ends.
fn sum(costs: &str, kind: &str) -> ProgramTime {
    let shape = array(F32, &[8192, 8192]);
    let part = |id, opcode, operands: &[i64]| instruction(id, opcode, &shape, operands);
    let fused =
        vec![part(20, "parameter", &[]), part(21, "parameter", &[]), part(22, "add", &[20, 21])];
    let entry = vec![
        part(10, "parameter", &[]),
        part(11, "parameter", &[]),
        fusion(&shape, &[10, 11], kind, costs),
    ];
    time(vec![computation(2, fused), computation(1, entry)])
}

#[test]
fn a_sum_takes_the_general_model_or_its_bytes() {
    assert_us(&sum("", "kLoop"), 208.944, 240.223, 0.0);
    let general = r#"{"name":"","exec_time_us":240.25}"#;
    assert_us(&sum(general, "kLoop"), 208.944, 240.25, 0.0);
    assert!(sum(general, "kLoop").xla_us > 0.0);
    // A figure below the bound is not one.
    assert_us(&sum(r#"{"name":"","exec_time_us":3}"#, "kLoop"), 208.944, 208.944, 0.0);
}

/// Functions of an array of 256 MiB, one of the other: 536,870,912 bytes, 160.15 us. XLA says 1,000 us.
fn functions(
    opcodes: &[&str],
    element_type: i32,
    calibration: Option<&Calibration>,
) -> ProgramTime {
    let shape = array(element_type, &[8192, 8192]);
    let part = |id, opcode, operands: &[i64]| instruction(id, opcode, &shape, operands);
    let mut fused = vec![part(20, "parameter", &[])];
    for (id, opcode) in (21..).zip(opcodes) {
        fused.push(part(id, opcode, &[id - 1]));
    }
    let general = r#"{"name":"","exec_time_us":1000}"#;
    let entry = vec![part(10, "parameter", &[]), fusion(&shape, &[10], "kLoop", general)];
    time_with(vec![computation(2, fused), computation(1, entry)], calibration)
}

#[test]
fn functions_take_what_was_measured_of_them_and_not_less_than_their_bytes() {
    let model = |opcodes: &[&str], element_type| functions(opcodes, element_type, None).model_us;
    let is = |us: f64, expected: f64| assert!((us - expected).abs() < 0.01, "{us} for {expected}");
    // 67,108,864 elements, 5.0 of them in a cycle of each of 132 multiprocessors at 1.98 GHz: 51.35 us.
    is(model(&["tanh"], F32), 160.149);
    is(model(&["tanh"; 4], F32), 205.411);
    // Computed as 32-bit floats.
    is(model(&["tanh"; 4], BF16), 205.411);
    // XLA knows better of other operations, and of types whose rates were not measured.
    is(model(&["negate"; 4], F32), 1000.0);
    const F64: i32 = 12;
    is(model(&["tanh"; 4], F64), 1000.0);
    // It is not made longer than XLA says.
    is(model(&["power"; 16], F32), 1000.0);
    let calibration = Calibration {
        elementwise_ops_per_s: [("tanh".to_owned(), 1.0e12)].into(),
        ..Calibration::default()
    };
    is(functions(&["tanh"; 4], F32, Some(&calibration)).model_us, 268.435);
}

/// A loop over 6 slices of 64 MiB, each negated.
fn slices(config: &str) -> ProgramTime {
    let (stack, slice) = (array(F32, &[6, 4096, 4096]), array(F32, &[4096, 4096]));
    let state = tuple([&stack]);
    let fused = vec![
        instruction(20, "parameter", &stack, &[]),
        instruction(22, "dynamic-slice", &slice, &[20]),
        instruction(23, "negate", &slice, &[22]),
    ];
    let body = vec![
        instruction(30, "parameter", &state, &[]),
        instruction(31, "get-tuple-element", &stack, &[30]),
        fusion(&slice, &[31], "kLoop", ""),
    ];
    let entry = vec![
        instruction(10, "parameter", &stack, &[]),
        instruction(12, "tuple", &state, &[10]),
        HloInstructionProto {
            called_computation_ids: vec![3],
            backend_config: config.into(),
            ..instruction(13, "while", &state, &[12])
        },
    ];
    time(vec![computation(2, fused), computation(3, body), computation(1, entry)])
}

#[test]
fn a_loop_counts_as_often_as_it_runs_and_reads_one_slice_each_time() {
    // 134,217,728 bytes, 40.037 us each time.
    let known = slices(r#"{"known_trip_count":{"n":"6"}}"#);
    assert_us(&known, 0.0, 240.223, 0.0);
    let unknown = slices("");
    assert_us(&unknown, 0.0, 40.037, 40.037);
    assert!(unknown.unknown_share() > MAX_UNKNOWN_SHARE && !unknown.operations[0].known);
}

#[test]
fn sorts_collectives_and_foreign_calls_are_unknown() {
    let shape = array(F32, &[1 << 24]);
    for opcode in ["sort", "all-reduce", "custom-call", "fft"] {
        let entry =
            vec![instruction(10, "parameter", &shape, &[]), instruction(11, opcode, &shape, &[10])];
        assert_us(&time(vec![computation(1, entry)]), 0.0, 40.037, 40.037);
    }
}

#[test]
fn what_a_gather_skips_is_not_in_the_bound() {
    let (table, rows) = (array(F32, &[1 << 20, 1024]), array(F32, &[16, 1024]));
    let entry = vec![instruction(10, "parameter", &table, &[]), fusion(&rows, &[10], "kLoop", "")];
    let fused = vec![
        instruction(20, "parameter", &table, &[]),
        instruction(22, "negate", &table, &[20]),
        instruction(23, "gather", &rows, &[22]),
    ];
    // 2 x 64 KiB.
    assert_us(&time(vec![computation(2, fused), computation(1, entry)]), 0.0, 0.039, 0.0);
}

#[test]
fn times_of_a_sequence_are_added() {
    let mut total = product("");
    total.add(&sum("", "kLoop"), 2);
    assert_us(&total, 64.192 + 2.0 * 208.944, 69.456 + 2.0 * 240.223, 0.0);
    assert_eq!(ProgramTime::from_stored(&total.to_stored()), Some(total.clone()));
    assert_eq!(total.operations.len(), 1, "both are `fusion` at one line");
}

/// An array in pinned host memory.
fn on_host(mut shape: ShapeProto) -> ShapeProto {
    shape.layout = Some(LayoutProto { memory_space: 5, ..LayoutProto::default() });
    shape
}

fn tuple<const N: usize>(parts: [&ShapeProto; N]) -> ShapeProto {
    ShapeProto::tuple(&parts.map(Clone::clone))
}

/// 256 MiB go to the host and come back, while two sums of 240.22 us run between start and end of the first.
fn offloaded(gpu: &str) -> ProgramTime {
    let device = array(F32, &[8192, 8192]);
    let host = on_host(device.clone());
    let part = instruction;
    let entry = vec![
        part(10, "parameter", &device, &[]),
        part(11, "copy-start", &tuple([&host, &device]), &[10]),
        part(12, "add", &device, &[10, 10]),
        part(13, "add", &device, &[12, 10]),
        part(14, "copy-done", &host, &[11]),
        part(15, "copy-start", &tuple([&device, &host]), &[14]),
        part(16, "copy-done", &device, &[15]),
        part(17, "add", &device, &[13, 16]),
    ];
    time_on(gpu, vec![computation(1, entry)], None)
}

#[test]
fn kernels_run_beside_a_transfer_until_its_end_is_awaited() {
    // PCIe 5.0: 268,435,456 bytes take 4,259.8 us at 63.0 GB/s, 5,324.8 us at four fifths of it. The first
    // is waited for after two sums, the second at once.
    let time = offloaded("h100-80g");
    assert_eq!(time.host_bytes, 2 * 268_435_456);
    let wait = 2.0 * 5324.8 - 2.0 * 240.223;
    assert!((time.host_wait_us - wait).abs() < 0.1, "{time:?}");
    assert_us(&time, 4259.844, 3.0 * 240.223 + wait, 0.0);
    // NVLink-C2C: 745.7 us each.
    let time = offloaded("gh200-96g");
    let wait = 2.0 * 745.654 - 2.0 * 268_435_456.0 * 3.0 / 4022.784e3;
    assert!((time.host_wait_us - wait).abs() < 0.1, "{time:?}");
    // A GPU whose link is not known.
    let time = offloaded("orin");
    assert_eq!((time.host_bytes, time.host_wait_us), (0, 0.0));
    assert!(time.unknown_us > 0.0);
}

#[test]
fn a_loop_transfers_one_slice_in_each_iteration() {
    let (stack, slice) = (array(F32, &[8, 1024, 1024]), array(F32, &[1, 1024, 1024]));
    let stack = on_host(stack);
    let index = array(4, &[]);
    let part = instruction;
    let update = vec![
        part(20, "parameter", &stack, &[]),
        part(21, "parameter", &slice, &[]),
        part(22, "parameter", &index, &[]),
        part(23, "dynamic-update-slice", &stack, &[20, 21, 22]),
    ];
    let start = HloInstructionProto {
        called_computation_ids: vec![2],
        ..part(33, "async-start", &tuple([&stack]), &[30, 31, 32])
    };
    let body = vec![
        part(30, "parameter", &stack, &[]),
        part(31, "parameter", &slice, &[]),
        part(32, "parameter", &index, &[]),
        start,
        part(34, "async-done", &stack, &[33]),
    ];
    let run = HloInstructionProto {
        called_computation_ids: vec![3],
        backend_config: br#"{"known_trip_count":{"n":"8"}}"#.to_vec(),
        ..part(12, "while", &tuple([&stack]), &[10])
    };
    let time = time(vec![
        computation(2, update),
        computation(3, body),
        computation(1, vec![part(10, "parameter", &stack, &[]), run]),
    ]);
    assert_eq!(time.host_bytes, 8 * 4 * 1024 * 1024);
    assert!((time.host_wait_us - 8.0 * 83.2).abs() < 0.1, "{time:?}");
}

#[test]
fn measured_rates_replace_those_of_the_data_sheet() {
    let rates = |key: &str, rate: f64| [(key.to_owned(), rate)].into();
    let calibration = Calibration {
        elementwise_bytes_per_s: Some(3.0e12),
        copy_bytes_per_s: Some(2.0e12),
        matmul_flops_per_s: rates("bf16", 7.0e14),
        collective_bytes_per_s: rates("all-reduce", 2.0e11),
        ..Calibration::default()
    };
    let calibrated = |computations| time_with(computations, Some(&calibration));
    // The bound stays that of the data sheet.
    let product = calibrated(product_module(""));
    assert_us(&product, 64.192, 98.171, 0.0);
    assert!(product.calibrated);
    let large = array(F32, &[16384, 16384]);
    let one = |opcode: &str| {
        let parameter = instruction(10, "parameter", &large, &[]);
        vec![computation(1, vec![parameter, instruction(11, opcode, &large, &[10])])]
    };
    // 2^30 bytes each way, at 3, 2 and 0.2 TB/s.
    for (opcode, us) in [("negate", 715.828), ("copy", 1073.742), ("all-reduce", 5368.709)] {
        let time = calibrated(one(opcode));
        assert!((time.model_us - us).abs() < 0.01, "{opcode}: {time:?}");
        assert!(time.unknown_us.abs() < 1e-9, "{opcode}: {time:?}");
    }
    assert!(calibrated(one("all-gather")).unknown_us > 0.0);
}
