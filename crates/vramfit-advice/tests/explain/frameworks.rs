//! GPU memory that another framework did not get: for its own need, or for what JAX and others have.

use vramfit_advice::explain::{CauseId, Confidence, Explanation};

use super::support::{explained, first, ids};

const OLD: &str = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total \
                   capacity; 6.10 GiB already allocated;";
const NEW: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of";

fn title(explanation: &Explanation) -> &'static str {
    explanation.causes[0].title
}

/// PyTorch's own figures, in the wordings of its releases: who has the GPU, and how much.
#[test]
fn a_framework_that_fills_the_gpu_itself_is_short_by_its_own_need() {
    use Confidence::{Likely, Sure};
    for (log, confidence, says) in [
        (
            format!("{OLD} 100.00 MiB free; 6.50 GiB reserved in total by PyTorch)"),
            Sure,
            "for 2.0 GiB: its own allocator holds 6.5 GiB of the GPU's 8.0 GiB, and 100.0 MiB are free",
        ),
        (
            format!("{OLD} 0 bytes free; 6.50 GiB reserved in total by PyTorch)"),
            Sure,
            "holds 6.5 GiB of the GPU's 8.0 GiB, and 0 B are free",
        ),
        // Before 1.4.
        (format!("{OLD} 100.00 MiB free; 409.60 MiB cached)"), Sure, "holds 6.5 GiB of the GPU's 8.0 GiB"),
        (
            format!("{OLD} 100.00 MiB free; 409.60 MiB cached; 0 bytes inactive)"),
            Sure,
            "holds 6.5 GiB of the GPU's 8.0 GiB",
        ),
        (
            format!("{OLD} 100.00 MiB free; 7.00 GiB allowed; 6.50 GiB reserved in total by PyTorch)"),
            Sure,
            "the program allows it 7.0 GiB",
        ),
        // The driver does not know what the process has.
        (
            format!(
                "{NEW} 8.00 GiB of which 0 bytes is free. Including non-PyTorch memory, this process has \
                 17179869184.00 GiB memory in use. Of the allocated memory 6.1 GiB is allocated by PyTorch, and 200 MiB \
                 is reserved by PyTorch but unallocated."
            ),
            Sure,
            "holds 6.3 GiB of the GPU's 8.0 GiB",
        ),
        (
            format!(
                "{NEW} 8.00 GiB of which 10.00 MiB is free. Process 123 has 1.20 GiB memory in use. Including \
                 non-PyTorch memory, this process has 6.79 GiB memory in use. 7.00 GiB allowed; Of the allocated memory \
                 6.00 GiB is allocated by PyTorch, with 120.00 MiB allocated in private pools (e.g., CUDA Graphs), and \
                 512.00 MiB is reserved by PyTorch but unallocated."
            ),
            Sure,
            "holds 6.5 GiB of the GPU's 8.0 GiB, and 10.0 MiB are free; the program allows it 7.0 GiB; other processes \
             have 1.2 GiB",
        ),
        // What is free to the allocator would have been enough in one piece.
        (
            format!(
                "{NEW} 23.69 GiB of which 16.00 MiB is free. Of the allocated memory 19.00 GiB is allocated by PyTorch, \
                 and 3.50 GiB is reserved by PyTorch but unallocated."
            ).replace("capacity", "capacty"),
            Sure,
            "3.5 GiB of what it holds are not in use, in pieces that are too small for the request",
        ),
        (
            format!(
                "{NEW} 23.98 GiB of which 1.00 GiB is free. Of the allocated memory 12.10 GiB is allocated by PyTorch, \
                 and 1.50 GiB is reserved by PyTorch but unallocated."
            ).replace("CUDA", "HIP"),
            Likely,
            "holds 13.6 GiB of the GPU's 24.0 GiB",
        ),
        // What is rounding, or the driver's own, is not worth a word.
        (
            format!(
                "{NEW} 23.64 GiB of which 300.00 MiB is free. Including non-PyTorch memory, this process has 23.30 GiB \
                 memory in use. Of the allocated memory 21.80 GiB is allocated by PyTorch, and 100.00 MiB is reserved by \
                 PyTorch but unallocated."
            ),
            Sure,
            "holds 21.9 GiB of the GPU's 23.6 GiB, and 300.0 MiB are free",
        ),
        // Of GPUs of Apple.
        (
            "RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GiB, other allocations: 2.50 GiB, max allowed: \
             9.07 GiB). Tried to allocate 256.00 MiB on private pool."
                .to_owned(),
            Likely,
            "for 256.0 MiB: its own allocator holds 5.0 GiB; the program allows it 9.1 GiB",
        ),
        // On top of CUDA's own pool.
        (
            "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n\
             Currently allocated     : 22.50 GiB\nRequested               : 2.00 GiB\nDevice limit            : 23.99 GiB\n\
             Free (according to CUDA): 0 bytes\nPyTorch limit (set by user-supplied memory fraction)\n\
             \x20                       : 17179869184.00 GiB\n"
                .to_owned(),
            Sure,
            "for 2.0 GiB: its own allocator holds 22.5 GiB of the GPU's 24.0 GiB",
        ),
        // JAX in the process may have part of what is missing.
        (
            format!("jax 0.5.0\n{OLD} 100.00 MiB free; 6.50 GiB reserved in total by PyTorch)"),
            Likely,
            "holds 6.5 GiB of the GPU's 8.0 GiB",
        ),
    ] {
        let explanation = explained(&log);
        assert_eq!(first(&explanation), Some((CauseId::OutsidePool, confidence)), "{log}");
        let cause = &explanation.causes[0];
        assert_eq!(cause.title, "PyTorch found no GPU memory", "{log}");
        assert!(cause.summary.contains(says), "{}\n{log}", cause.summary);
        let names_others = cause.summary.contains("other processes");
        assert_eq!(names_others, says.contains("other processes"), "{}", cause.summary);
        assert!(!cause.summary.contains("JAX") && !cause.falsified_by.contains("fraction"), "{log}");
        assert!(!ids(&explanation).iter().any(|id| ["lower-fraction", "no-preallocation"].contains(id)));
        let joins = ids(&explanation).contains(&"expandable-segments");
        assert_eq!(joins, says.contains("pieces"), "{log}");
    }
}

/// A refusal without figures says that PyTorch ran out of memory, and not who has it.
#[test]
fn a_refusal_of_pytorch_is_explained_without_figures() {
    for log in [
        "RuntimeError: CUDA out of memory.",
        "12:00:01 [ERROR] CUDA out of memory.",
        "RuntimeError('CUDA out of memory.')",
        "{\"level\":\"error\",\"msg\":\"CUDA out of memory\"}",
        "training failed with CUDA out of memory",
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
        &format!("{NEW} 23.64 GiB of which 1.21 GiB is free."),
    ] {
        let explanation = explained(log);
        assert_eq!(first(&explanation), Some((CauseId::OutsidePool, Confidence::Likely)), "{log}");
        assert_eq!(title(&explanation), "PyTorch found no GPU memory", "{log}");
        assert!(explanation.causes[0].summary.contains("does not tell who has the rest"), "{log}");
        assert!(!explanation.speaks_of_memory, "{log}");
    }
}

#[test]
fn words_in_code_and_advice_are_no_refusal() {
    for log in [
        "print('CUDA out of memory. Try a smaller batch')\n",
        "    raise RuntimeError('CUDA out of memory')\n",
        "    if 'CUDA out of memory' in str(error):\n",
        "# If you get CUDA out of memory errors, set XLA_PYTHON_CLIENT_PREALLOCATE=false\nKeyError: 'labels'\n",
    ] {
        assert_eq!(explained(log).causes, [], "{log}");
    }
}

/// In a container the list has the process under another number.
#[test]
fn the_process_is_found_in_the_list_by_its_size() {
    let refusal = |processes: &str| {
        format!(
            "{NEW} 79.15 GiB of which 632.94 MiB is free. {processes} Of the allocated memory 18.22 GiB is allocated by \
             PyTorch, and 121.55 MiB is reserved by PyTorch but unallocated."
        )
    };
    for (processes, others) in [
        (
            "Process 2208 has 59.41 GiB memory in use. Process 9182 has 19.10 GiB memory in use.",
            "and 59.4 GiB of other processes",
        ),
        // Which of both it is, nobody knows.
        (
            "Process 2208 has 19.41 GiB memory in use. Process 9182 has 19.10 GiB memory in use.",
            "or of other processes",
        ),
    ] {
        let explanation = explained(&refusal(processes));
        assert_eq!(first(&explanation), Some((CauseId::OutsidePool, Confidence::Likely)));
        assert!(
            explanation.causes[0].summary.ends_with(others),
            "{}",
            explanation.causes[0].summary
        );
    }
}

#[test]
fn the_pool_of_jax_is_the_reason_only_where_others_have_the_gpu() {
    let refusal = |reserved: &str| {
        format!("{OLD} 100.00 MiB free; {reserved} reserved in total by PyTorch)")
            .replace("6.10 GiB", "1.00 GiB")
    };
    for (log, says) in [
        (
            format!("jax 0.5.0\n{}", refusal("1.50 GiB")),
            "the other 6.4 GiB are JAX's pool, unless other processes",
        ),
        // Nothing shows that JAX runs there.
        (
            refusal("1.50 GiB"),
            "the other 6.4 GiB are of what else allocates in this process, such as JAX's pool",
        ),
    ] {
        let explanation = explained(&log);
        assert_eq!(first(&explanation), Some((CauseId::OutsidePool, Confidence::Likely)), "{log}");
        let named = match log.starts_with("jax") {
            true => "GPU memory outside JAX's pool ran out",
            false => "PyTorch found no GPU memory",
        };
        assert_eq!(title(&explanation), named, "{log}");
        assert!(explanation.causes[0].summary.contains(says), "{}", explanation.causes[0].summary);
        assert!(ids(&explanation).contains(&"lower-fraction"), "{log}");
    }
    // What JAX was refused before is the first failure.
    let jax = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.";
    let explanation = explained(&format!("{jax}\n{}", refusal("6.50 GiB")));
    assert_eq!(explanation.causes[0].id, CauseId::PoolTooSmall);
}

/// Only TensorFlow's pool knows the operation that a request is for; in JAX's lines nothing follows.
#[test]
fn a_pool_that_names_the_operation_is_tensorflows() {
    let refused = |operation: &str| {
        format!(
            "W bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB (rounded to \
             2415919104)requested by op {operation}\n\
             If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will \
             improve the situation. \n"
        )
    };
    let has_note = |explanation: &Explanation| {
        explanation.notes.iter().any(|note| note.contains("TF_GPU_ALLOCATOR"))
    };
    for operation in ["AddV2", "model/conv2d_1/Conv2D", "SameWorkerRecvDone"] {
        let explanation = explained(&refused(operation));
        assert_eq!(first(&explanation), Some((CauseId::OutsidePool, Confidence::Likely)));
        assert_eq!(title(&explanation), "TensorFlow found no GPU memory", "{operation}");
        assert!(explanation.causes[0].summary.contains("for 2.2 GiB"), "{operation}");
        // Of TensorFlow's own setting.
        assert!(!has_note(&explanation), "{operation}");
    }
    for nothing in ["", " ", "\\n", "If the cause is memory fragmentation"] {
        let explanation = explained(&refused(nothing));
        assert_eq!(first(&explanation), Some((CauseId::PoolTooSmall, Confidence::Likely)));
        assert!(has_note(&explanation), "{nothing}");
    }
}
