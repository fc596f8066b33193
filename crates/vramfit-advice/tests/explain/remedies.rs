//! What is offered depends on the settings, the command and the kind of program that a log shows.

use vramfit_advice::explain::{CauseId, Confidence, Explanation};
use vramfit_model::gpu::{self, Gpu};

use proptest::prelude::*;

use super::support::{explained_on, limit_of, remedy};

const GIB: u64 = 1 << 30;

fn first_ids(explanation: &Explanation) -> Vec<&'static str> {
    explanation.remedies.iter().take(4).map(|remedy| remedy.id).collect()
}

/// The status of a request that a pool has refused.
fn refused(bytes: u64) -> String {
    format!("RESOURCE_EXHAUSTED: Out of memory while trying to allocate {bytes} bytes.\n")
}

/// The dump of a full pool.
fn dump(requested: u64, in_use: u64, limit: u64) -> String {
    format!(
        "bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to \
         {requested})requested by op\nbfc_allocator.cc:1100] Stats: \nLimit: {limit}\nInUse: {in_use}\n\
         MaxInUse: {in_use}\nNumAllocs: 7\nLargestFreeBlock: 0\n\n"
    )
}

#[test]
fn a_larger_fraction_is_offered_where_the_settings_leave_room() {
    for (settings, is_offered) in [
        ("", true),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION=0.4\n", true),
        ("XLA_CLIENT_MEM_FRACTION=.95\n", false),
        ("os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = '0.95'\n", false),
        ("XLA_PYTHON_CLIENT_ALLOCATOR=platform\n", false),
        ("XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async\n", false),
        ("XLA_PYTHON_CLIENT_ALLOCATOR=default\n", true),
        ("TF_FORCE_UNIFIED_MEMORY=1\nXLA_CLIENT_MEM_FRACTION=3.2\n", false),
        // Releases whose default is 0.90.
        ("jax 0.4.13\n", false),
        ("jax 0.4.14\n", true),
        (
            "external/org_tensorflow/tensorflow/core/common_runtime/bfc_allocator.cc:457] Stats:\n",
            false,
        ),
    ] {
        let explanation = explained_on(&format!("{settings}{}", refused(3 * GIB)), None);
        assert_eq!(explanation.causes[0].id, CauseId::PoolTooSmall, "{settings}");
        assert_eq!(remedy(&explanation, "raise-fraction").is_some(), is_offered, "{settings}");
    }
}

proptest! {
    #[test]
    fn a_larger_fraction_gives_what_it_says(percent in 5_u32..150, requested in GIB / 4..16 * GIB) {
        let fraction = f64::from(percent) / 100.0;
        let gpu = gpu::find("t4").expect("a T4");
        let (before, after) = (limit_of(&gpu, fraction), limit_of(&gpu, 0.92));
        let in_use = before.saturating_sub(requested / 2);
        let setting = format!("jax 0.10.1\nXLA_CLIENT_MEM_FRACTION={fraction}\n");
        let log = format!("{setting}{}", dump(requested, in_use, before));
        let explanation = explained_on(&log, Some("t4"));
        let helps = before < after && in_use + requested <= after;
        let offered = remedy(&explanation, "raise-fraction");
        prop_assert_eq!(offered.map(|remedy| remedy.bytes), helps.then(|| Some(after - before)));
    }

    /// Every figure of these messages may be any number in a damaged log.
    #[test]
    fn no_figure_is_too_large(figures in proptest::collection::vec(prop_oneof![0_u64..3, 0..u64::MAX], 16)) {
        let mut figures = figures.iter();
        let mut next = || figures.next().copied().unwrap_or(u64::MAX);
        let log = format!(
            "XLA_CLIENT_MEM_FRACTION={}\nTF_FORCE_UNIFIED_MEMORY={}\nCreated device /job:x/device:GPU:0 with {} MB memory\n\
             captured during lowering ({}.5GB total)\nReported by CUDA: Free memory/Total memory: {}/{}\n\
             Can't reduce memory use below 1.00GiB ({} bytes) by rematerialization; only reduced to 1.00GiB ({} bytes)\n\
             CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of {} GiB of which {} bytes is free. \
             this process has {} bytes memory in use. Of the allocated memory {} GiB is allocated by PyTorch\n{}",
            next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(),
            dump(next(), next(), next()),
        );
        for gpu in [None, Some("t4")] {
            prop_assert!(!explained_on(&log, gpu).causes.is_empty());
        }
    }

    /// The same of what XLA lists: blocks of a pool, and what a program needs.
    #[test]
    fn no_list_is_too_large(
        figures in proptest::collection::vec(prop_oneof![0_u64..3, 0..u64::MAX], 14), units in "[KMG]i"
    ) {
        let mut figures = figures.iter();
        let mut next = || figures.next().copied().unwrap_or(u64::MAX);
        let log = format!(
            "BufferAssignment OOM Debugging.\nBufferAssignment stats:\n parameter allocation: {}{units}B\n \
             maybe_live_out allocation: {}{units}B\n preallocated temp allocation: {}{units}B\n total allocation: {}{units}B\n\
             Peak buffers:\n\tBuffer 1:\n\t\tSize: {}{units}B\n\t\tShape: f32[{}]\n\t\t==========================\n\n\
             \tBuffer 2:\n\t\tSize: {}B\n\t\tShape: f32[{}]\n\t\t==========================\n\n{}\
             bfc_allocator.cc:1453] Next region of size {}\nbfc_allocator.cc:1479] InUse at 10000 of size {} next 1\n\
             bfc_allocator.cc:1453] Next region of size {}\nbfc_allocator.cc:1479] Free  at 20000 of size {} next 1\n",
            next(), next(), next(), next(), next(), next(), next(), next(), refused(next()),
            next(), next(), next(), next(),
        );
        for gpu in [None, Some("t4")] {
            prop_assert!(!explained_on(&log, gpu).causes.is_empty());
        }
    }

    #[test]
    fn named_gpus_are_the_smallest_on_which_it_fits(in_use in GIB..150 * GIB, requested in GIB..20 * GIB) {
        let log = format!("jax 0.10.1\n{}", dump(requested, in_use, in_use + requested / 2));
        let explanation = explained_on(&log, None);
        let need = in_use + requested;
        let fits = |gpu: &&Gpu| {
            limit_of(gpu, 0.75) >= need && gpu.mig_parent.is_none() && !gpu.shares_host_memory
        };
        let smallest = gpu::all().iter().filter(fits).map(|gpu| gpu.total_memory_bytes).min();
        match (smallest, remedy(&explanation, "larger-gpu")) {
            (Some(smallest), Some(offered)) => {
                let name = offered.command.split(' ').nth(3).unwrap_or_default();
                let offered = gpu::find(name).expect("a GPU of the catalog");
                prop_assert!(limit_of(&offered, 0.75) >= need);
                prop_assert!(offered.total_memory_bytes - smallest < GIB);
            }
            (None, offered) => prop_assert!(offered.is_none_or(|it| it.text.contains(" at 0.92"))),
            (Some(_), None) => prop_assert!(false, "no GPU is offered"),
        }
    }
}

#[test]
fn what_speaks_against_a_cause_lowers_it_and_is_said() {
    let nccl = "NCCL WARN Cuda failure 'out of memory'\n";
    let cusolver = "operation cusolverDnCreate(&handle) failed: cuSolver internal error\n";
    let fraction = "XLA_PYTHON_CLIENT_MEM_FRACTION=0.4\n";
    for (log, id, confidence, is_lowered) in [
        (nccl.to_owned(), CauseId::OutsidePool, Confidence::Sure, false),
        (format!("{fraction}{nccl}"), CauseId::OutsidePool, Confidence::Likely, true),
        (cusolver.to_owned(), CauseId::OutsidePool, Confidence::Likely, false),
        (format!("{fraction}{cusolver}"), CauseId::OutsidePool, Confidence::Possible, true),
        // Without a pool there is no fraction of it.
        (
            format!("XLA_PYTHON_CLIENT_ALLOCATOR=platform\n{fraction}{nccl}"),
            CauseId::OutsidePool,
            Confidence::Sure,
            false,
        ),
    ] {
        let explanation = explained_on(&log, None);
        let cause = explanation.causes.iter().find(|cause| cause.id == id).expect(&log);
        assert_eq!(cause.confidence, confidence, "{log}");
        assert_eq!(cause.summary.contains("against it: "), is_lowered, "{log}");
        let is_offered = remedy(&explanation, "lower-fraction").is_some();
        assert_eq!(is_offered, !is_lowered && !log.contains("platform"), "{log}");
    }
}

/// The report of buffers that XLA prints, with operations of these names.
fn buffers(operations: &[&str], shape: &str) -> String {
    let entry = |(index, name): (usize, &&str)| {
        format!(
            "\tBuffer {}:\n\t\tSize: 2.00GiB\n\t\tOperator: op_name=\"{name}\" source_file=\"/home/user/model.py\" \
             source_line=33\n\t\tXLA Label: fusion\n\t\tShape: {shape}\n\t\t==========================\n",
            index + 1
        )
    };
    let entries: String = operations.iter().enumerate().map(entry).collect();
    format!("{}BufferAssignment OOM Debugging.\nPeak buffers:\n{entries}", refused(6 * GIB))
}

#[test]
fn activations_are_recomputed_only_where_there_is_a_backward_pass() {
    for (operations, is_training) in [
        (&["jit(step)/jit(main)/transpose(jvp(Net))/dense/dot_general"][..], true),
        (&["jit(f)/mul", "jit(f)/while/body/rematted_computation/tanh"], true),
        (&["jit(apply)/while/body/remat/mlp/dot_general", "jit(apply)/concatenate"], false),
        (&["jit(predict)/vmap(conv)/conv_general_dilated"], false),
    ] {
        let explanation = explained_on(&buffers(operations, "f32[8,4096]"), None);
        assert_eq!(remedy(&explanation, "plan").is_some(), is_training, "{operations:?}");
    }
    // The name of the program tells where no operation does; else nothing is claimed.
    for (name, said) in [
        ("jit_train_step", Some("recompute or offload activations, without")),
        ("jit_predict", None),
        ("jit_f", Some("if it trains: ")),
    ] {
        let status =
            refused(6 * GIB).replace(" bytes.", &format!(" bytes. [executable_name='{name}']"));
        let explanation = explained_on(&status, None);
        let plan = remedy(&explanation, "plan");
        assert_eq!(plan.is_some(), said.is_some(), "{name}");
        assert!(plan.is_none_or(|plan| plan.text.starts_with(said.unwrap_or_default())), "{name}");
    }
}

#[test]
fn arrays_of_16_bits_are_not_narrowed_again() {
    for (shape, is_offered) in [("bf16[8,4096]", false), ("f16[8]", false), ("f32[8,4096]", true)] {
        let explanation = explained_on(&buffers(&["jit(f)/mul"], shape), None);
        assert_eq!(remedy(&explanation, "narrow-types").is_some(), is_offered, "{shape}");
    }
}

#[test]
fn a_batch_is_made_smaller_where_there_is_one() {
    for (said, id, command) in [
        ("", "chunk", ""),
        (
            "$ python fit.py --batch-size 64 -n 2\n",
            "smaller-batch",
            "--vary batch=1..64 -- python fit.py --batch-size {batch} -n 2",
        ),
        (
            "batch_size: 256\n",
            "smaller-batch",
            "--vary batch=1..1024 -- python train.py --batch {batch}",
        ),
        ("I1: BatchNorm_0 in batched mode\n", "chunk", ""),
    ] {
        let explanation = explained_on(&format!("{said}{}", refused(6 * GIB)), None);
        let remedy = remedy(&explanation, id).expect(said);
        assert!(remedy.command.ends_with(command), "{}", remedy.command);
    }
}

#[test]
fn commands_name_the_script_and_the_gpu_of_the_log() {
    let log = format!(
        "NVIDIA A100-SXM4-80GB\nTraceback (most recent call last):\n  File \"/home/user/fit.py\", line 9, in <module>\n\
         {}",
        refused(30 * GIB)
    );
    let explanation = explained_on(&log, None);
    let plan = remedy(&explanation, "plan").expect("a plan");
    assert_eq!(plan.command, "vramfit plan --gpu a100-80g -- python /home/user/fit.py");
}

#[test]
fn the_figures_of_another_framework_tell_what_jax_has() {
    const MIB: u64 = 1 << 20;
    let old = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 40.00 GiB total \
               capacity; 1.00 GiB already allocated; 32.00 MiB free; 2.00 GiB reserved in total by PyTorch)\n";
    let new = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of \
               40.00 GiB of which 32.00 MiB is free. Including non-PyTorch memory, this process has 38.00 GiB memory in \
               use. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but \
               unallocated.\n";
    let typo = new.replace("total capacity", "total capacty");
    for (log, jax) in
        [(old.to_owned(), 38 * GIB - 32 * MIB), (new.to_owned(), 36 * GIB), (typo, 36 * GIB)]
    {
        let explanation = explained_on(&format!("jax 0.6.0\n{log}"), None);
        assert_eq!(explanation.causes[0].id, CauseId::OutsidePool, "{log}");
        let smaller = remedy(&explanation, "lower-fraction").expect("a smaller pool");
        assert_eq!(smaller.command, "vramfit run --limit 20GiB -- python train.py");
        assert_eq!(smaller.bytes, Some(jax - 20 * GIB));
    }
    // Most is of another process.
    let other = new.replace("this process has 38.00", "this process has 3.00");
    let explanation = explained_on(&format!("jax 0.6.0\n{other}"), None);
    assert_eq!(remedy(&explanation, "lower-fraction"), None);
    assert!(explanation.causes[0].summary.contains("of other processes"));
    assert!(remedy(&explanation, "free-gpu").is_some());
}

#[test]
fn tensorflow_that_has_memory_is_named() {
    let log = format!(
        "gpu_device.cc:1929] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 38367 MB memory:  -> \
         device: 0, name: NVIDIA A100-PCIE-40GB, pci bus id: 0000:3b:00.0\n{}",
        refused(GIB)
    );
    let explanation = explained_on(&log, None);
    assert_eq!(explanation.causes[0].id, CauseId::PoolNotObtained);
    let first = &explanation.remedies[0];
    assert_eq!((first.id, first.bytes), ("hide-from-tensorflow", Some(38367 << 20)));
}

#[test]
fn warnings_of_jax_before_the_failure_come_first() {
    let captured = "UserWarning: A large amount of constants were captured during lowering (8.25GB total). If this is \
                    intentional, disable this warning by setting JAX_CAPTURED_CONSTANTS_WARN_BYTES=-1.\n";
    let of_pmap = "UserWarning: The jitted function step includes a pmap. Using jit-of-pmap can lead to inefficient data \
                   movement, as the outer jit does not preserve sharded data representations\n";
    for (warning, id, bytes) in
        [(captured, "pass-as-arguments", Some(8_250_000_000)), (of_pmap, "no-jit-of-pmap", None)]
    {
        let explanation = explained_on(&format!("{warning}{}", refused(9 * GIB)), None);
        let first = &explanation.remedies[0];
        assert_eq!((first.id, first.bytes), (id, bytes));
    }
}

#[test]
fn an_operation_outside_of_jit_is_named() {
    for (program, is_single) in
        [("jit_concatenate", true), ("jit__where", true), ("jit_step", false)]
    {
        let status =
            refused(9 * GIB).replace(" bytes.", &format!(" bytes. [executable_name='{program}']"));
        let explanation = explained_on(&status, None);
        assert_eq!(first_ids(&explanation).contains(&"single-operation"), is_single, "{program}");
    }
}

#[test]
fn lines_of_code_are_kept_behind_long_parameters() {
    for length in [0, 300, 6000] {
        let parameters = "a:f32[3] b:i32[] = add c d\n\t\t\t".repeat(length / 30);
        let name = format!(
            "jit(step)/while[ body_jaxpr={{ {parameters} }} length=10 ]/body/scatter[mode=3]"
        );
        let explanation = explained_on(&buffers(&[&name], "f32[8]"), None);
        let buffer = &explanation.buffers[0];
        assert_eq!(buffer.site, "model.py:33", "{length}");
        assert_eq!(buffer.operation, "jit(step)/while/body/scatter", "{length}");
        assert_eq!(buffer.shape, "f32[8]", "{length}");
    }
}

#[test]
fn a_small_program_says_nothing_about_what_is_needed() {
    let program = |total: &str| {
        format!(
            "{}BufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:    6.00MiB\n\
             \x20       maybe_live_out allocation:    6.00MiB\n     preallocated temp allocation:         0B\n\
             \x20                total allocation:   {total}\n",
            refused(6 << 20)
        )
    };
    for (total, text) in [
        (
            "12.00MiB",
            "use a larger GPU, or shard over several; how much is needed, the log does not tell",
        ),
        (
            "24.50GiB",
            "use a GPU on which it fits: a100-40g at 0.75, rtx-5090 at 0.92, or shard over several: 24.5 GiB are \
                      needed by the program alone",
        ),
    ] {
        let explanation = explained_on(&program(total), None);
        let offered = remedy(&explanation, "larger-gpu").expect("a GPU");
        assert_eq!(offered.text, text);
    }
}

#[test]
fn what_unified_memory_has_room_for_is_not_larger_than_the_gpu() {
    let gpu = gpu::find("t4").expect("a T4").total_memory_bytes;
    let settings = "TF_FORCE_UNIFIED_MEMORY=true\nXLA_CLIENT_MEM_FRACTION=3.0\n";
    for (requested, is_larger) in [(gpu * 2, false), (gpu * 4, true)] {
        let explanation = explained_on(&format!("{settings}{}", refused(requested)), Some("t4"));
        let is_first = explanation.causes[0].id == CauseId::RequestLargerThanGpu;
        assert_eq!(is_first, is_larger, "{requested}");
    }
}

#[test]
fn unified_memory_is_offered_where_it_can_be_enough() {
    let gpu = gpu::find("t4").expect("a T4").total_memory_bytes;
    for (settings, requested, is_offered) in [
        ("", gpu * 2, true),
        ("", gpu / 2, false),
        ("", gpu * 4, false),
        ("TF_FORCE_UNIFIED_MEMORY=1\n", gpu * 2, true),
        ("TF_FORCE_UNIFIED_MEMORY=1\nXLA_CLIENT_MEM_FRACTION=4.0\n", gpu * 2, false),
        ("XLA_PYTHON_CLIENT_ALLOCATOR=platform\n", gpu * 2, false),
    ] {
        let explanation = explained_on(&format!("{settings}{}", refused(requested)), Some("t4"));
        let offered = remedy(&explanation, "unified-memory");
        assert_eq!(offered.is_some(), is_offered, "{settings}{requested}");
    }
}

#[test]
fn attention_without_scores_is_offered_where_the_largest_buffer_is_scores() {
    let log = |shape: &str, operation: &str| {
        format!(
            "BufferAssignment OOM Debugging.\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 32.00GiB\n\t\tOperator: \
             op_name=\"jit(step)/jvp(GPT)/h_0/{operation}\" source_file=\"model.py\" source_line=57\n\t\tXLA \
             Label: fusion\n\t\tShape: {shape}\n\t\t==========================\n\n{}",
            refused(34 * GIB)
        )
    };
    for (shape, operation, is_offered) in [
        ("f32[16,32,4096,4096]", "attn/div", true),
        ("bf16[8,2048,2048]", "SelfAttention_0/dot_general", true),
        ("f32[16,4096,4096]", "softmax/exp", true),
        // A product of two matrices, scores for one query, a matrix alone, few keys.
        ("f32[16,32,4096,4096]", "mlp/dot_general", false),
        ("f32[16,32,1,4096]", "attn/div", false),
        ("f32[65536,65536]", "attn/div", false),
        ("f32[65536,32,64,64]", "attn/div", false),
    ] {
        let explanation = explained_on(&log(shape, operation), None);
        let offered = remedy(&explanation, "blockwise");
        let names_it = offered.is_some_and(|remedy| remedy.text.contains(shape));
        assert_eq!(names_it, is_offered, "{shape} {operation}");
        assert!(!is_offered || first_ids(&explanation).contains(&"blockwise"), "{shape}");
    }
}
