//! Recognition by name and shape, and the figures that were published of real GPUs.

mod recorded;

use super::super::proto::{
    HloComputationProto, HloInstructionProto, HloModuleProto, OpMetadata, ShapeProto,
    WindowDimensionProto, WindowProto,
};
use super::*;
use crate::program::shape::ElementType;

const S32: i32 = 4;
const F32: i32 = 11;
const F64: i32 = 12;
const C64: i32 = 15;
const C128: i32 = 18;

fn array(element_type: i32, dimensions: &[i64]) -> ShapeProto {
    ShapeProto::array(element_type, dimensions)
}

fn tuple(shapes: &[ShapeProto]) -> ShapeProto {
    ShapeProto::tuple(shapes)
}

/// A module in which one instruction takes parameters of these shapes, at `train.py:12`.
fn module(operands: &[ShapeProto], instruction: HloInstructionProto) -> HloModuleProto {
    let mut instructions: Vec<HloInstructionProto> = (1..)
        .zip(operands)
        .map(|(id, shape)| HloInstructionProto {
            id,
            opcode: "parameter".into(),
            shape: Some(shape.clone()),
            ..HloInstructionProto::default()
        })
        .collect();
    instructions.push(HloInstructionProto {
        id: 100,
        operand_ids: instructions.iter().map(|operand| operand.id).collect(),
        metadata: Some(OpMetadata {
            source_file: "train.py".into(),
            source_line: 12,
            ..OpMetadata::default()
        }),
        ..instruction
    });
    HloModuleProto::of(instructions)
}

/// The needs of one kind of phase of one instruction.
fn need(operands: &[ShapeProto], instruction: HloInstructionProto) -> Option<ScratchNeed> {
    let needs = needs(&HloGraph::new(&module(operands, instruction)));
    let mut needs = needs.into_iter();
    needs.find(|need| need.phase != ScratchPhase::Compilation)
}

fn call(target: &str, operands: &[ShapeProto], result: ShapeProto) -> Option<ScratchNeed> {
    let instruction = HloInstructionProto {
        opcode: "custom-call".into(),
        custom_call_target: target.into(),
        shape: Some(result),
        ..HloInstructionProto::default()
    };
    need(operands, instruction)
}

/// A call whose only operand and result are alike.
fn plain_call(target: &str, shape: &ShapeProto) -> Option<ScratchNeed> {
    call(target, std::slice::from_ref(shape), shape.clone())
}

fn fft(kind: i32, lengths: &[i64], operand: ShapeProto, result: ShapeProto) -> ScratchNeed {
    let instruction = HloInstructionProto {
        opcode: "fft".into(),
        fft_type: kind,
        fft_length: lengths.to_vec(),
        shape: Some(result),
        ..HloInstructionProto::default()
    };
    need(&[operand], instruction).expect("an FFT")
}

fn holds(need: &ScratchNeed, bytes: u64) -> bool {
    (need.low_bytes..=need.high_bytes).contains(&bytes)
}

#[test]
fn the_work_area_of_a_published_rfft_is_the_lower_end() {
    // exojax#277: rfft of f64[10, 1e8] on an A100 asked for 8,000,000,160 bytes beside the plan.
    let need =
        fft(2, &[100_000_000], array(F64, &[10, 100_000_000]), array(C128, &[10, 50_000_001]));
    assert_eq!(need.low_bytes, 8_000_000_160);
    assert_eq!(need.high_bytes, 2 * 8_000_000_256);
    assert_eq!(need.library, "cuFFT");
    assert_eq!(need.routine, "rfft f64[10,100000000]");
    assert_eq!(need.site, "train.py:12");
    assert_eq!(need.source, EstimateSource::Published);
    assert_eq!(need.phase, ScratchPhase::Execution);
}

#[test]
fn work_areas_of_published_two_dimensional_transforms_are_in_the_range() {
    // arrayfire#1443: fft2 of 100 x 100 to 100 x 1500 in single precision, 80 to 1200 KB.
    for columns in (100..=1500).step_by(100) {
        let shape = array(C64, &[100, columns]);
        let need = fft(0, &[100, columns], shape.clone(), shape);
        assert!(holds(&need, 800 * columns as u64), "{columns}: {need:?}");
    }
}

#[test]
fn lengths_with_large_prime_factors_may_take_the_documented_eight_times() {
    let shape = array(C64, &[4, 100_003]);
    let need = fft(0, &[100_003], shape.clone(), shape);
    assert_eq!(need.low_bytes, 4 * 100_003 * 8);
    assert_eq!(need.high_bytes, 8 * 4 * 100_003 * 8);
    assert_eq!(need.source, EstimateSource::Documented);
    // Real transforms count elements of the full length: 8 * batch * n complex elements.
    let need = fft(2, &[100_003], array(F32, &[100_003]), array(C64, &[50_002]));
    assert_eq!(need.high_bytes, 8 * 100_003 * 8);
}

#[test]
fn short_transforms_may_need_nothing() {
    let shape = array(C64, &[1 << 20, 256]);
    let need = fft(1, &[256], shape.clone(), shape);
    assert_eq!((need.low_bytes, need.high_bytes), (0, 2 << 31));
    assert_eq!(need.routine, "ifft c64[1048576,256]");
}

#[test]
fn eigh_of_f64_passes_two_to_the_31_elements_where_it_was_published() {
    // jax#23413: 26,732 is the largest that a 32-bit size of the workspace can hold.
    let eigh = |n: i64| {
        let result = tuple(&[array(F64, &[n, n]), array(F64, &[n]), array(S32, &[])]);
        call("cusolver_syevd_ffi", &[array(F64, &[n, n])], result).expect("eigh")
    };
    let elements = |need: &ScratchNeed| (need.low_bytes / 8, need.high_bytes / 8);
    let (low, _) = elements(&eigh(26_732));
    assert!(low < 1 << 31, "3 n² of 26,732 fit");
    let (_, high) = elements(&eigh(26_733));
    assert!(high >= 1 << 31, "and those of 26,733 with what comes on top do not");
    assert_eq!(eigh(10_000).low_bytes, 3 * 8 * 100_000_000);
    assert_eq!(eigh(10_000).routine, "syevd f64[10000,10000]");
}

#[test]
fn batches_of_small_matrices_take_what_was_published() {
    // cupy#7261: elements that `cheevjBatched` asks for 4 x 4 matrices.
    let published = [
        (1, 2077),
        (2, 3126),
        (4, 5224),
        (8, 9420),
        (16, 17_812),
        (32, 34_596),
        (64, 68_164),
        (128, 135_300),
        (256, 269_572),
    ];
    for (batch, elements) in published {
        let matrices = array(C64, &[batch, 4, 4]);
        let result = tuple(&[matrices.clone(), array(F32, &[batch, 4])]);
        let need = call("cusolver_syevd_ffi", &[matrices], result).expect("eigh");
        assert!(holds(&need, 8 * elements), "{batch}: {need:?}");
    }
}

#[test]
fn applying_reflectors_takes_rows_times_reflectors() {
    // CUDA.jl#3258: the workspace of `ormqr` scales so; MatrixAlgebraKit.jl#267: about 2 m n.
    let operands = [array(F32, &[40_000, 1000]), array(F32, &[1000]), array(F32, &[40_000, 1])];
    let result = array(F32, &[40_000, 1]);
    let need = call("cusolver_ormqr_ffi", &operands, result).expect("ormqr");
    assert_eq!(need.low_bytes, 4 * 40_000 * 1000);
    assert!(holds(&need, 2 * 4 * 40_000 * 1000));
    // CUDA.jl#3258: the query of `orgqr` passes 2³¹ elements at 16 M rows, so it takes 128 a row.
    let operands = [array(F32, &[1 << 24, 4]), array(F32, &[4])];
    let need = call("cusolver_orgqr_ffi", &operands, array(F32, &[1 << 24, 4])).expect("orgqr");
    assert!(need.high_bytes >= 4 << 31);
}

#[test]
fn singular_values_hold_the_size_at_which_a_published_case_fails() {
    // cupy#7611: 18,900² works and 19,000² does not: 6 n² passes 2³¹ between them.
    let svd = |n: i64| {
        let square = array(F64, &[n, n]);
        let result = tuple(&[square.clone(), array(F64, &[n]), square.clone(), square.clone()]);
        call("cusolver_gesvd_ffi", &[square], result).expect("svd")
    };
    assert!(holds(&svd(18_900), 8 * 6 * 18_900 * 18_900));
    assert!(holds(&svd(19_000), 8 << 31));
}

#[test]
fn batched_factorisations_take_pointers_only() {
    let matrices = array(F32, &[1000, 64, 64]);
    let result = tuple(&[matrices.clone(), array(F32, &[1000, 64])]);
    let exact = |name: &str| {
        let need = call(name, std::slice::from_ref(&matrices), result.clone()).expect(name);
        assert_eq!(need.low_bytes, need.high_bytes);
        (need.library, need.low_bytes)
    };
    assert_eq!(exact("cusolver_geqrf_ffi"), ("cuBLAS".to_owned(), 16_000));
    assert_eq!(exact("cusolver_getrf_ffi"), ("cuBLAS".to_owned(), 8000));
}

#[test]
fn names_of_older_releases_are_recognized() {
    for name in ["cusolver_syevd_ffi", "cusolver_syevd", "cusolver_syevj"] {
        let matrix = array(F32, &[100, 100]);
        assert!(plain_call(name, &matrix).is_some(), "{name}");
    }
    let matrices = array(F32, &[100, 8, 8]);
    for name in ["cublas_getrf_batched_ffi", "cublas_getrf_batched", "cusolver_getrf"] {
        let need = plain_call(name, &matrices).expect(name);
        assert_eq!(need.library, "cuBLAS", "{name}");
    }
}

#[test]
fn convolutions_and_sorts_are_bounded_where_the_plan_has_no_workspace() {
    let conv = |workspace: i64| HloInstructionProto {
        opcode: "custom-call".into(),
        custom_call_target: "__cudnn$convBackwardFilter".into(),
        shape: Some(tuple(&[array(F32, &[64, 3, 3, 64]), array(ElementType::U8.0, &[workspace])])),
        window: Some(WindowProto { dimensions: vec![WindowDimensionProto { size: 3 }; 2] }),
        ..HloInstructionProto::default()
    };
    let images = [array(F32, &[32, 56, 56, 64]), array(F32, &[32, 56, 56, 64])];
    let need = self::need(&images, conv(0)).expect("a convolution");
    assert_eq!((need.low_bytes, need.phase), (0, ScratchPhase::Plan));
    assert!(need.high_bytes > 9 * 4 * 32 * 56 * 56 * 64);
    assert_eq!(self::need(&images, conv(1 << 20)), None, "it is in the plan");

    let sort = |elements: i64| {
        let keys = array(F32, &[elements]);
        let instruction = HloInstructionProto {
            opcode: "sort".into(),
            shape: Some(keys.clone()),
            ..HloInstructionProto::default()
        };
        super::tests::need(&[keys], instruction)
    };
    assert_eq!(sort(16_384), None, "XLA sorts that itself");
    let need = sort(1 << 24).expect("a sort");
    assert_eq!((need.library.as_str(), need.low_bytes), ("CUB", 0));
    assert!(need.high_bytes > (2 * 4) << 24);
}

#[test]
fn the_filter_gradient_measured_on_an_a800_is_within_the_bound() {
    // Temporaries of 19.25 MiB where 9.00 MiB were planned: at least 10.25 MiB of workspace. The
    // thread does not give the shapes; no convolution has a lower bound than this.
    let images = [array(F32, &[1, 8, 8, 1]), array(F32, &[1, 8, 8, 1])];
    let filter = tuple(&[array(F32, &[1, 1, 1, 1]), array(ElementType::U8.0, &[0])]);
    let need = call("__cudnn$convBackwardFilter", &images, filter).expect("a convolution");
    assert!(holds(&need, (1925 - 900) * (1 << 20) / 100));
}

#[test]
fn calls_of_other_packages_are_reported_and_known_ones_are_not() {
    let x = array(F32, &[8]);
    let foreign = plain_call("my_kernel", &x).expect("a foreign call");
    assert_eq!(foreign.source, EstimateSource::Unknown);
    assert_eq!((foreign.low_bytes, foreign.high_bytes), (0, 0));
    for name in [
        "cusolver_syrk_ffi",
        "__cublas$gemm",
        "cu_threefry2x32_ffi",
        "Sharding",
        "xla_ffi_python_gpu_callback",
    ] {
        assert_eq!(plain_call(name, &x), None, "{name}");
    }
}

#[test]
fn routines_of_later_releases_are_reported_as_unknown() {
    let x = array(F32, &[8, 8]);
    let unknown = [
        ("cusolver_gesvdnew_ffi", ScratchPhase::Execution),
        ("cusolver_csrlsvqr_ffi", ScratchPhase::OutsidePool),
        ("__cudnn$fmhaScaleBiasSoftmax", ScratchPhase::Plan),
        ("__cudnn$fmhaSoftmaxDropoutBackward", ScratchPhase::Plan),
    ];
    for (name, phase) in unknown {
        let need = plain_call(name, &x).expect(name);
        assert_eq!((need.source, need.phase), (EstimateSource::Unknown, phase), "{name}");
    }
}

#[test]
fn the_largest_kernel_decides_what_autotuning_takes() {
    let x = array(F32, &[1024, 1024]);
    let gemm = HloInstructionProto {
        opcode: "custom-call".into(),
        custom_call_target: "__cublas$gemm".into(),
        shape: Some(tuple(&[x.clone(), array(ElementType::U8.0, &[4 << 20])])),
        ..HloInstructionProto::default()
    };
    let found = needs(&HloGraph::new(&module(&[x.clone(), x], gemm)));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].phase, ScratchPhase::Compilation);
    // Two inputs of 4 MiB and the output, each with two red zones of 8 MiB, and output and workspace twice.
    assert_eq!(found[0].high_bytes, (8 + 48 + 2 * (4 + 4)) << 20);
}

#[test]
fn shapes_of_a_damaged_file_do_not_overflow() {
    let huge = array(F64, &[i64::MAX, i64::MAX, i64::MAX]);
    for name in
        ["cusolver_syevd_ffi", "cusolver_gesvd_ffi", "__cudnn$convForward", "cusparse_gtsv2_ffi"]
    {
        let found = plain_call(name, &huge);
        assert!(found.is_some(), "{name}");
    }
    let _ = fft(0, &[i64::MAX], huge.clone(), huge);
}

/// A fusion of a product of 8,192 x 4,096 by 4,096 x 4,096.
fn fused_product(kind: &str, opcode: &str) -> HloModuleProto {
    let (left, right) = (array(F32, &[8192, 4096]), array(F32, &[4096, 4096]));
    let parameter = |id, shape: &ShapeProto| HloInstructionProto {
        id,
        opcode: "parameter".into(),
        shape: Some(shape.clone()),
        ..HloInstructionProto::default()
    };
    let fused = vec![
        parameter(1, &left),
        parameter(2, &right),
        HloInstructionProto {
            id: 3,
            opcode: opcode.into(),
            shape: Some(left.clone()),
            operand_ids: vec![1, 2],
            ..HloInstructionProto::default()
        },
    ];
    let fusion = HloInstructionProto {
        opcode: "fusion".into(),
        fusion_kind: kind.into(),
        called_computation_ids: vec![7],
        shape: Some(left.clone()),
        ..HloInstructionProto::default()
    };
    let mut module = module(&[left, right], fusion);
    // Numbers are those of the whole module.
    for instruction in &mut module.computations[0].instructions {
        instruction.id += 1000;
        instruction.operand_ids = instruction.operand_ids.iter().map(|id| id + 1000).collect();
    }
    let fused = HloModuleProto::of(fused).computations.remove(0);
    module.computations.push(HloComputationProto { id: 7, ..fused });
    module
}

#[test]
fn a_fused_product_is_autotuned() {
    const MIB: u64 = 1 << 20;
    let needs = needs(&HloGraph::new(&fused_product("kCustom", "dot")));
    let [autotuner] = &needs[..] else {
        panic!("{needs:?}");
    };
    // Operands of 128, 64 and 128 MiB, a result of 128 MiB, red zones around each, reference and workspace: an H100
    // took 704,643,072 bytes for it, and 256 for a number.
    let bytes = (320 + 2 * 128 + 4 * 16 + 32) * MIB;
    assert_eq!(bytes, 704_643_072);
    assert_eq!((autotuner.low_bytes, autotuner.high_bytes), (0, bytes));
    assert_eq!(autotuner.phase, ScratchPhase::Compilation);
}

#[test]
fn other_fusions_are_no_products() {
    for (kind, opcode) in [("kLoop", "dot"), ("kCustom", "add"), ("kInput", "dot")] {
        assert_eq!(needs(&HloGraph::new(&fused_product(kind, opcode))), [], "{kind} {opcode}");
    }
}

#[test]
fn a_fusion_with_a_reduction_is_autotuned_where_emitters_are_chosen() {
    // `chunked_vmap` on an H200: 2,048 points of three numbers in each of 256 sets, and the distances
    // between them. The autotuner took 8,629,780,480 bytes for it.
    let fusion = |opcode: &str, config: &str| {
        let (sets, distances) = (array(F32, &[256, 2048, 3]), array(F32, &[256, 2048, 2048]));
        let mut module = fused_product("kLoop", opcode);
        let [first, .., last] = &mut module.computations[0].instructions[..] else {
            panic!("an operand and a fusion");
        };
        first.shape = Some(sets);
        last.operand_ids = vec![first.id];
        last.shape = Some(distances);
        last.backend_config = config.as_bytes().to_vec();
        needs(&HloGraph::new(&module))
    };
    let chosen = r#"{"native_emitter_backend_config":{"unroll_factor":0}}"#;
    let found = fusion("reduce", chosen);
    let [autotuner] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(autotuner.high_bytes, 8_629_780_480);
    assert_eq!(autotuner.phase, ScratchPhase::Compilation);
    assert_eq!(fusion("reduce", r#"{"operation_queue_id":"0"}"#), []);
    assert_eq!(fusion("add", chosen), []);
}
