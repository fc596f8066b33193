//! Messages of NVIDIA's and AMD's libraries beside XLA: what did not start, and why.

use super::driver::{names_memory, reason};
use super::{Match, Pattern, after_label, contains, contains_any, head};
use crate::explain::message::{Library, Message, Reason};
use crate::explain::number::integer;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("couldnotcreatecudnnhandle", cudnn),
    Pattern::new("therewasanerrorbeforecreatingcudnnhandle", cudnn),
    Pattern::new("dnnlibraryinitializationfailed", cudnn),
    Pattern::new("dnnlibraryisnotfound", cudnn),
    Pattern::new("dnn!=nullptr", cudnn),
    Pattern::new("failedtocreatecublashandle", cublas),
    Pattern::new("unabletocreatecublashandle", cublas),
    Pattern::new("failedtoinitializeblassupport", cublas),
    Pattern::new("withoutblassupport", cublas),
    Pattern::new("failedtocreatecufft", cufft),
    Pattern::new("failedtomakecufft", cufft),
    Pattern::new("failedtoinitializebatchedcufftplan", cufft),
    Pattern::new("cufftplanisnull", |at| library(at, Library::Cufft)),
    Pattern::new("failedtocreatecusolver", cusolver),
    Pattern::new("gpusolverdncreate(", cusolver),
    Pattern::new("gpublascreate(", cublas),
    Pattern::new("gpusparsecreate(", cusparse),
    // The names of statuses; what follows says which.
    Pattern::new("cudnn_status_", |at| status(at, Library::Cudnn)),
    Pattern::new("cublas_status_", |at| status(at, Library::Cublas)),
    Pattern::new("cusolver_status_", |at| status(at, Library::Cusolver)),
    Pattern::new("cusparse_status_", |at| status(at, Library::Cusparse)),
    Pattern::new("curand_status_", |at| status(at, Library::Curand)),
    Pattern::new("hipblas_status_", |at| status(at, Library::Rocm)),
    Pattern::new("hipsolver_status_", |at| status(at, Library::Rocm)),
    Pattern::new("rocblas_status_", |at| status(at, Library::Rocm)),
    Pattern::new("miopenstatus", |at| status(at, Library::Rocm)),
    Pattern::new("cufft_", |at| status(at, Library::Cufft)),
    Pattern::new("cusolvererror:", |at| status(at, Library::Cusolver)),
    // The words of cuBLAS for the same, which may be all that there is.
    Pattern::new("thelibrarywasnotinitialized", cublas_words),
    Pattern::new("theresourceallocationfailed", cublas_words),
    // The words of jaxlib for the same.
    Pattern::new("cudnn", |at| words(at, Library::Cudnn)),
    Pattern::new("cublas", |at| words(at, Library::Cublas)),
    Pattern::new("cusolver", |at| words(at, Library::Cusolver)),
    Pattern::new("cusparse", |at| words(at, Library::Cusparse)),
    Pattern::new("cufft", |at| words(at, Library::Cufft)),
    Pattern::new("hipsolver", |at| words(at, Library::Rocm)),
    Pattern::new("hipblas", |at| words(at, Library::Rocm)),
    Pattern::new("hipsparse", |at| words(at, Library::Rocm)),
    Pattern::new("rocblas", |at| words(at, Library::Rocm)),
    Pattern::new("ncclwarn", nccl),
    Pattern::new("nccloperation", nccl_operation),
    Pattern::new("cudafailure", nccl),
    Pattern::new("ncclunhandledcudaerror", |at| library(at, Library::Nccl)),
    Pattern::new("unhandledcudaerror", |at| library(at, Library::Nccl)),
    Pattern::new("unhandledsystemerror", |at| library(at, Library::Nccl)),
    // Of JAX, cuDNN's loader and Python packages, about two versions.
    Pattern::new("wascompiledwith:", mismatch),
    Pattern::new("wascompiledagainst", mismatch),
    Pattern::new("wasbuiltagainst", mismatch),
    Pattern::new("wasbuiltwithcudnn", mismatch),
    Pattern::new("incompatiblewithjaxversion", mismatch),
    // jaxlib and its plugin, which are of one release.
    Pattern::fixed("isnotcompatiblewiththeinstalledjaxlib", Message::PluginMismatch),
    Pattern::fixed("isnotcompatiblewithplugin", Message::PluginMismatch),
    Pattern::fixed("incompatiblewithplugin", Message::PluginMismatch),
    Pattern::new("version_mismatch", mismatch),
    Pattern::new("versionmismatch", mismatch),
];

fn cudnn(at: &Match<'_>) -> Option<Message> {
    library(at, Library::Cudnn)
}

fn cublas(at: &Match<'_>) -> Option<Message> {
    library(at, Library::Cublas)
}

fn cusolver(at: &Match<'_>) -> Option<Message> {
    library(at, Library::Cusolver)
}

fn cusparse(at: &Match<'_>) -> Option<Message> {
    library(at, Library::Cusparse)
}

/// Returns `true` if NCCL failed to reach another process.
fn of_network(text: &[u8]) -> bool {
    let words = ["socket", "connectionrefused", "connectto", "noroutetohost", "timedout", "ibv_"];
    contains_any(text, &words)
}

/// Returns `true` if NCCL failed to share memory of the host with another process, which is a message of its own.
fn of_shared_memory(text: &[u8]) -> bool {
    contains_any(text, &["sharedmemory", "shm", "posix_fallocate", "nospaceleft"])
}

fn library(at: &Match<'_>, library: Library) -> Option<Message> {
    if library == Library::Nccl && of_shared_memory(reason(at)) {
        return None;
    }
    if library == Library::Nccl && of_network(reason(at)) {
        return Some(Message::PeerFailure);
    }
    let reason = library_reason(reason(at));
    Some(Message::Library { library, reason })
}

/// What the libraries return, and jaxlib says, where they got no memory.
const MEMORY: [&[u8]; 5] = [
    b"alloc_failed",
    b"allocation_failed",
    b"allocationfailed",
    b"memory_error",
    b"insufficient_resources",
];
/// What they also return for want of memory, and for other reasons.
const AMBIGUOUS: [&[u8]; 8] = [
    b"not_initialized",
    b"notinitialized",
    b"hasnotbeeninitialized",
    b"initialization_failed",
    b"setup_failed",
    b"internal_error",
    b"internalerror",
    b"unknownerror",
];
/// What they return where a kernel of theirs failed: they had started.
const EXECUTION: [&[u8]; 4] =
    [b"execution_failed", b"executionfailed", b"exec_failed", b"launch_failure"];

/// Returns the reason of a library's failure, by the status in its message.
fn library_reason(text: &[u8]) -> Reason {
    if names_memory(text) || contains_any(text, &["allocationfailed", "allocation_failed"]) {
        return Reason::Memory;
    }
    match after_label(text, "_status_") {
        Some(status) => status_reason(status).unwrap_or(Reason::Other),
        None => Reason::Unknown,
    }
}

/// Returns the reason that the name of a status says; `None` where it is another than memory.
fn status_reason(status: &[u8]) -> Option<Reason> {
    let begins = |names: &[&[u8]]| names.iter().any(|name| status.starts_with(name));
    if begins(&MEMORY) {
        return Some(Reason::Memory);
    }
    if begins(&EXECUTION) {
        return Some(Reason::Execution);
    }
    // What is cut off says nothing.
    (begins(&AMBIGUOUS) || status.is_empty()).then_some(Reason::Unknown)
}

/// `CUSOLVER_STATUS_ALLOC_FAILED`, also where nothing in front of it was a message. Other statuses than these are
/// in logs of programs that go on, too.
fn status(at: &Match<'_>, library: Library) -> Option<Message> {
    const MAX_DISTANCE: usize = 160;
    let status = at.record();
    // `Failed to determine cuDNN version (Note that this is expected if …): CUDNN_STATUS_INTERNAL_ERROR`
    if contains(at.before(MAX_DISTANCE), "thisisexpected") {
        return None;
    }
    let reason = match status_reason(status) {
        Some(reason) if !status.is_empty() => reason,
        _ if status.starts_with(b"alloc:") => Reason::Memory,
        _ if status.starts_with(b"arch_mismatch") => Reason::Other,
        _ => return None,
    };
    Some(Message::Library { library, reason })
}

/// `cuSolver has not been initialized`, `cuSparse allocation failed`, `cuBLAS internal error`.
fn words(at: &Match<'_>, library: Library) -> Option<Message> {
    let text = at.record();
    let reason = match status_reason(text) {
        Some(reason) if !text.is_empty() => reason,
        _ if text.starts_with(b"architecturemismatcherror") => Reason::Other,
        _ => return None,
    };
    Some(Message::Library { library, reason })
}

/// `INTERNAL: the library was not initialized`, with the status of XLA in front.
fn cublas_words(at: &Match<'_>) -> Option<Message> {
    const MAX_STATUS_BYTES: usize = 12;
    let (library, status) = (Library::Cublas, at.before(MAX_STATUS_BYTES));
    let reason = match contains(at.pattern(), "allocationfailed") {
        true => Reason::Memory,
        false => Reason::Unknown,
    };
    (status.ends_with(b"internal:")).then_some(Message::Library { library, reason })
}

/// `Failed to create cuFFT batched plan: 2`, with the number of cuFFT's status.
fn cufft(at: &Match<'_>) -> Option<Message> {
    const ALLOC_FAILED: u64 = 2;
    const INTERNAL_ERROR: u64 = 5;
    const EXEC_FAILED: u64 = 6;
    const SETUP_FAILED: u64 = 7;
    const MAX_STATUS_BYTES: usize = 24;
    let text = reason(at);
    let status = after_label(head(text, MAX_STATUS_BYTES), "plan:").and_then(integer);
    let reason = match status {
        Some((ALLOC_FAILED, _)) => Reason::Memory,
        Some((INTERNAL_ERROR | SETUP_FAILED, _)) => Reason::Unknown,
        Some((EXEC_FAILED, _)) => Reason::Execution,
        None => library_reason(text),
        Some(_) => Reason::Other,
    };
    let library = Library::Cufft;
    Some(Message::Library { library, reason })
}

/// `NCCL WARN Cuda failure 'out of memory'`, `NCCL WARN Failed to CUDA malloc 4194304 bytes`
fn nccl(at: &Match<'_>) -> Option<Message> {
    let text = reason(at);
    if of_shared_memory(text) {
        return None;
    }
    if of_network(text) {
        return Some(Message::PeerFailure);
    }
    let library = Library::Nccl;
    let found = |reason| Message::Library { library, reason };
    if names_memory(text) || contains(text, "failedtocudamalloc") {
        return Some(found(Reason::Memory));
    }
    // The driver's own words for the failure follow in quotation marks.
    let words = match after_label(text, "failure") {
        Some(words) => words,
        None if at.pattern().ends_with(b"failure") => text,
        None => {
            return contains(text, "failedto").then_some(found(Reason::Unknown));
        }
    };
    let quoted = words.iter().find(|byte| !byte.is_ascii_digit());
    Some(found(match quoted {
        Some(b'\'') => Reason::Other,
        _ => Reason::Unknown,
    }))
}

/// `NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: internal error - please report this issue to the
/// NCCL developers`: the results that are not about CUDA or the system, which are matched by their own words.
fn nccl_operation(at: &Match<'_>) -> Option<Message> {
    let result = after_label(reason(at), "failed:")?;
    let (library, reason) = (Library::Nccl, Reason::Other);
    match result {
        _ if result.starts_with(b"remoteprocess") => Some(Message::PeerFailure),
        _ if result.starts_with(b"internalerror") || result.starts_with(b"invalid") => {
            Some(Message::Library { library, reason })
        }
        _ => None,
    }
}

/// `Loaded runtime CuDNN library: 8.5.0 but source was compiled with: 8.6.0`, `Found cuSPARSE version 12100, but
/// JAX was built against version 12300, which is newer`
fn mismatch(at: &Match<'_>) -> Option<Message> {
    const MAX_NAME_BYTES: usize = 80;
    let before = at.before(MAX_NAME_BYTES);
    let of_library = ["cudnn", "cusparse", "cusolver", "cublas", "cufft", "cuda", "nccl", "jax"];
    contains_any(before, &of_library).then_some(Message::VersionMismatch)
}
