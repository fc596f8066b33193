//! Messages of the CUDA driver, and of libraries beside XLA.

use super::{Match, Pattern, after_label, contains, contains_any, head};
use crate::explain::message::{DriverCall, Library, Message, Reason};
use crate::explain::number::{integer, size};

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("failedtoallocate", driver_refusal),
    Pattern::new("failedtoallocatedevicememoryof", driver_refusal),
    Pattern::new("failedtoalloc", driver_refusal),
    Pattern::new("failedtoloadin-memorycubin", module),
    Pattern::new("failedtoloadptxtextasamodule", module),
    Pattern::new("failedtoloadin-memorymodule", module),
    Pattern::fixed(
        "ranoutofmemorytryingtoinstantiatecommandbuffer",
        call(DriverCall::Graph),
    ),
    Pattern::fixed(
        "ranoutofmemorytryingtoinstantiatecudagraph",
        call(DriverCall::Graph),
    ),
    Pattern::new("failedtoinstantiatecudagraph", |at| {
        if_memory(at, DriverCall::Graph)
    }),
    Pattern::new("failedtoinstantiategpugraph", |at| {
        if_memory(at, DriverCall::Graph)
    }),
    Pattern::new("failedcalltocudeviceprimaryctxretain", |at| {
        if_memory(at, DriverCall::Context)
    }),
    Pattern::new("couldnotretaincudadevicecontext", |at| {
        if_memory(at, DriverCall::Context)
    }),
    Pattern::new("failedcalltocuctxcreate", |at| {
        if_memory(at, DriverCall::Context)
    }),
    Pattern::new("failedcalltocuinit", |at| {
        if_memory(at, DriverCall::Context)
    }),
    Pattern::new("cudadriverinitfailed", |at| {
        if_memory(at, DriverCall::Context)
    }),
    Pattern::new("cuda_error_out_of_memory", unnamed_call),
    Pattern::new("cuda_error_", driver_error),
    Pattern::fixed("ptxwascompiledwithanunsupportedtoolchain", installation()),
    Pattern::fixed("unabletoloadcuda", installation()),
    Pattern::fixed("unabletousecudabecause", installation()),
    Pattern::new("installationfound.", outdated),
    Pattern::fixed("novisiblegpudevices", installation()),
    Pattern::new("hip_error_outofmemory", unnamed_call),
    Pattern::new("hiperroroutofmemory", unnamed_call),
    Pattern::new("cudaerrormemoryallocation", unnamed_call),
    Pattern::new("cudaoperationfailed:outofmemory", unnamed_call),
    Pattern::new("gpuoperationfailed:outofmemory", unnamed_call),
    Pattern::new("couldnotcreatecudnnhandle", |at| {
        library(at, Library::Cudnn)
    }),
    Pattern::new("therewasanerrorbeforecreatingcudnnhandle", |at| {
        library(at, Library::Cudnn)
    }),
    Pattern::new("dnnlibraryinitializationfailed", |at| {
        library(at, Library::Cudnn)
    }),
    Pattern::new("dnnlibraryisnotfound", |at| library(at, Library::Cudnn)),
    Pattern::new("dnn!=nullptr", |at| library(at, Library::Cudnn)),
    Pattern::fixed("cudnn_status_alloc_failed", memory_of(Library::Cudnn)),
    Pattern::new("cudnn_status_not_initialized", |at| {
        library(at, Library::Cudnn)
    }),
    Pattern::new("failedtocreatecublashandle", |at| {
        library(at, Library::Cublas)
    }),
    Pattern::new("unabletocreatecublashandle", |at| {
        library(at, Library::Cublas)
    }),
    Pattern::new("failedtoinitializeblassupport", |at| {
        library(at, Library::Cublas)
    }),
    Pattern::fixed("cublas_status_alloc_failed", memory_of(Library::Cublas)),
    Pattern::new("cublas_status_not_initialized", |at| {
        library(at, Library::Cublas)
    }),
    Pattern::new("failedtocreatecufft", cufft),
    Pattern::new("failedtomakecufft", cufft),
    Pattern::new("failedtoinitializebatchedcufftplan", cufft),
    Pattern::new("cufftplanisnull", |at| library(at, Library::Cufft)),
    Pattern::fixed("cufft_alloc_failed", memory_of(Library::Cufft)),
    Pattern::new("gpusolverdncreate(", |at| library(at, Library::Cusolver)),
    Pattern::new("failedtocreatecusolver", |at| {
        library(at, Library::Cusolver)
    }),
    Pattern::fixed("cusolver_status_alloc_failed", memory_of(Library::Cusolver)),
    Pattern::new("cusolver_status_not_initialized", |at| {
        library(at, Library::Cusolver)
    }),
    Pattern::fixed("cusolvererror:alloc", memory_of(Library::Cusolver)),
    Pattern::new("cusolverinternalerror", |at| library(at, Library::Cusolver)),
    Pattern::fixed("cusparse_status_alloc_failed", memory_of(Library::Cusparse)),
    Pattern::new("ncclwarn", nccl),
    Pattern::new("cudafailure", nccl),
    Pattern::new("ncclunhandledcudaerror", |at| library(at, Library::Nccl)),
    Pattern::new("unhandledcudaerror", |at| library(at, Library::Nccl)),
    Pattern::new("unhandledsystemerror", |at| library(at, Library::Nccl)),
];

const fn call(call: DriverCall) -> Message {
    Message::DriverOutOfMemory { call }
}

fn names_memory(text: &[u8]) -> bool {
    let words = [
        "out_of_memory",
        "outofmemory",
        "memoryallocation",
        "alloc_failed",
        // The number of ROCm's error before it was printed by name.
        "hiperror_t(1002)",
    ];
    contains_any(text, &words)
}

/// How far behind the beginning of a message its reason may stand.
const MAX_REASON_BYTES: usize = 240;

fn reason<'a>(at: &Match<'a>) -> &'a [u8] {
    head(at.record(), MAX_REASON_BYTES)
}

fn if_memory(at: &Match<'_>, which: DriverCall) -> Option<Message> {
    names_memory(reason(at)).then_some(call(which))
}

/// `failed to allocate 1.14G (1224736768 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory`
fn driver_refusal(at: &Match<'_>) -> Option<Message> {
    let (size, rest) = size(at.record())?;
    let rest = head(rest, MAX_REASON_BYTES);
    // `Failed to allocate 1409286144 bytes for new constant`: of a program that is loaded.
    if rest.starts_with(b"fornewconstant") {
        return Some(Message::OutOfMemory {
            size,
            program: None,
        });
    }
    let refused =
        names_memory(rest) || contains(rest, "error_out") || contains(rest, "resource_exhausted");
    let host = contains(head(rest, 60), "onhost") || contains(rest, "pinnedhostmemory");
    (refused || host).then_some(Message::DriverRefusal {
        size,
        pinned_host: host,
    })
}

/// `Failed to load in-memory CUBIN (compiled for a different GPU?).: CUDA_ERROR_OUT_OF_MEMORY: out of memory`
fn module(at: &Match<'_>) -> Option<Message> {
    if_memory(at, DriverCall::Module)
}

/// The driver's error by itself. Messages that say what it was for are matched from their beginning, and
/// the error in them is then no message of its own.
fn unnamed_call(at: &Match<'_>) -> Option<Message> {
    let before = at.before(MAX_REASON_BYTES);
    let words = [
        "failedtoalloc",
        "cubin",
        "ctxretain",
        "instantiate",
        "devicecontext",
        "memaddressreserve",
        "cuinit",
    ];
    let is_part = contains_any(before, &words);
    (!is_part).then_some(call(DriverCall::Unknown))
}

/// Says whether NCCL failed to reach another process.
fn of_network(text: &[u8]) -> bool {
    let words = [
        "socket",
        "connectionrefused",
        "connectto",
        "noroutetohost",
        "timedout",
        "ibv_",
    ];
    contains_any(text, &words)
}

fn library(at: &Match<'_>, library: Library) -> Option<Message> {
    if library == Library::Nccl && of_network(reason(at)) {
        return Some(Message::PeerFailure);
    }
    let reason = library_reason(reason(at));
    Some(Message::Library { library, reason })
}

/// Returns the reason of a library's failure, by the status in its message.
fn library_reason(text: &[u8]) -> Reason {
    // What the libraries return where they got no memory at their start.
    const AMBIGUOUS: [&[u8]; 3] = [b"not_initialized", b"internal_error", b"execution_failed"];
    if names_memory(text) || contains(text, "allocationfailed") {
        return Reason::Memory;
    }
    match after_label(text, "_status_") {
        Some(status) if !AMBIGUOUS.iter().any(|name| status.starts_with(name)) => Reason::Other,
        _ => Reason::Unknown,
    }
}

const fn memory_of(library: Library) -> Message {
    let reason = Reason::Memory;
    Message::Library { library, reason }
}

/// `Failed to create cuFFT batched plan: 2`, with the number of cuFFT's status.
fn cufft(at: &Match<'_>) -> Option<Message> {
    const ALLOC_FAILED: u64 = 2;
    const INTERNAL_ERROR: u64 = 5;
    const MAX_STATUS_BYTES: usize = 24;
    let text = reason(at);
    let status = after_label(head(text, MAX_STATUS_BYTES), "plan:").and_then(integer);
    let reason = match status {
        Some((ALLOC_FAILED, _)) => Reason::Memory,
        Some((INTERNAL_ERROR, _)) | None => library_reason(text),
        Some(_) => Reason::Other,
    };
    let library = Library::Cufft;
    Some(Message::Library { library, reason })
}

/// `NCCL WARN Cuda failure 'out of memory'`, `NCCL WARN Failed to CUDA malloc 4194304 bytes`
fn nccl(at: &Match<'_>) -> Option<Message> {
    let text = reason(at);
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

const fn installation() -> Message {
    Message::Installation
}

/// `Outdated cuDNN installation found.`, when JAX looks at the libraries.
fn outdated(at: &Match<'_>) -> Option<Message> {
    const MAX_NAME_BYTES: usize = 24;
    contains(at.before(MAX_NAME_BYTES), "outdated").then(installation)
}

/// `CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered`
fn driver_error(at: &Match<'_>) -> Option<Message> {
    let name = at.record();
    let is_letter = |byte: &&u8| byte.is_ascii_lowercase() || **byte == b'_';
    let length = name.iter().take_while(is_letter).count();
    // The name may be cut short, as where a log ends.
    let is_cut = b"out_of_memory".starts_with(&name[..length]);
    (!is_cut).then_some(Message::DriverError)
}
