//! Messages of the CUDA driver, and of libraries beside XLA.

use super::{Match, Pattern, after_label, contains};
use crate::explain::message::{DriverCall, Library, Message};
use crate::explain::number::size;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("failedtoallocate", driver_refusal),
    Pattern::new("failedtoallocatedevicememoryof", driver_refusal),
    Pattern::new("failedtoalloc", driver_refusal),
    Pattern::new("failedtoloadin-memorycubin", module),
    Pattern::new("failedtoloadptxtextasamodule", module),
    Pattern::new("failedtoloadin-memorymodule", module),
    Pattern::new("ranoutofmemorytryingtoinstantiatecommandbuffer", |_| {
        call(DriverCall::Graph)
    }),
    Pattern::new("ranoutofmemorytryingtoinstantiatecudagraph", |_| {
        call(DriverCall::Graph)
    }),
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
    Pattern::new("cudnn_status_alloc_failed", |_| memory_of(Library::Cudnn)),
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
    Pattern::new("cublas_status_alloc_failed", |_| memory_of(Library::Cublas)),
    Pattern::new("cublas_status_not_initialized", |at| {
        library(at, Library::Cublas)
    }),
    Pattern::new("failedtocreatecufftbatchedplan", |at| {
        library(at, Library::Cufft)
    }),
    Pattern::new("failedtoinitializebatchedcufftplan", |at| {
        library(at, Library::Cufft)
    }),
    Pattern::new("cufftplanisnull", |at| library(at, Library::Cufft)),
    Pattern::new("cufft_alloc_failed", |_| memory_of(Library::Cufft)),
    Pattern::new("gpusolverdncreate(", |at| library(at, Library::Cusolver)),
    Pattern::new("failedtocreatecusolver", |at| {
        library(at, Library::Cusolver)
    }),
    Pattern::new("cusolver_status_alloc_failed", |_| {
        memory_of(Library::Cusolver)
    }),
    Pattern::new("cusolver_status_not_initialized", |at| {
        library(at, Library::Cusolver)
    }),
    Pattern::new("cusolvererror:alloc", |_| memory_of(Library::Cusolver)),
    Pattern::new("cusolverinternalerror", |at| library(at, Library::Cusolver)),
    Pattern::new("cusparse_status_alloc_failed", |_| {
        memory_of(Library::Cusparse)
    }),
    Pattern::new("ncclwarn", nccl),
    Pattern::new("ncclunhandledcudaerror", |at| library(at, Library::Nccl)),
    Pattern::new("unhandledcudaerror", |at| library(at, Library::Nccl)),
    Pattern::new("unhandledsystemerror", |at| library(at, Library::Nccl)),
];

fn call(call: DriverCall) -> Option<Message> {
    Some(Message::DriverOutOfMemory { call })
}

fn names_memory(text: &[u8]) -> bool {
    [
        "out_of_memory",
        "outofmemory",
        "memoryallocation",
        "alloc_failed",
    ]
    .iter()
    .any(|words| contains(text, words))
}

/// How far behind the beginning of a message its reason may stand.
const MAX_REASON_BYTES: usize = 240;

fn reason<'a>(at: &Match<'a>) -> &'a [u8] {
    let text = at.record();
    &text[..text.len().min(MAX_REASON_BYTES)]
}

fn if_memory(at: &Match<'_>, which: DriverCall) -> Option<Message> {
    names_memory(reason(at)).then(|| call(which)).flatten()
}

/// `failed to allocate 1.14G (1224736768 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory`
fn driver_refusal(at: &Match<'_>) -> Option<Message> {
    let (size, rest) = size(at.record())?;
    let rest = &rest[..rest.len().min(MAX_REASON_BYTES)];
    // `Failed to allocate 1409286144 bytes for new constant`: of a program that is loaded.
    if rest.starts_with(b"fornewconstant") {
        return Some(Message::OutOfMemory {
            size,
            program: None,
        });
    }
    let refused =
        names_memory(rest) || contains(rest, "error_out") || contains(rest, "resource_exhausted");
    let host =
        contains(&rest[..rest.len().min(60)], "onhost") || contains(rest, "pinnedhostmemory");
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
    let is_part = [
        "failedtoalloc",
        "cubin",
        "ctxretain",
        "instantiate",
        "devicecontext",
        "memaddressreserve",
        "cuinit",
    ]
    .iter()
    .any(|words| contains(before, words));
    (!is_part).then(|| call(DriverCall::Unknown)).flatten()
}

/// Says whether NCCL failed to reach another process.
fn of_network(text: &[u8]) -> bool {
    [
        "socket",
        "connectionrefused",
        "connectto",
        "noroutetohost",
        "timedout",
        "ibv_",
    ]
    .iter()
    .any(|words| contains(text, words))
}

fn library(at: &Match<'_>, library: Library) -> Option<Message> {
    if library == Library::Nccl && of_network(reason(at)) {
        return Some(Message::PeerFailure);
    }
    let out_of_memory = names_memory(reason(at)) || contains(reason(at), "allocationfailed");
    Some(Message::Library {
        library,
        out_of_memory,
    })
}

fn memory_of(library: Library) -> Option<Message> {
    Some(Message::Library {
        library,
        out_of_memory: true,
    })
}

/// `NCCL WARN Cuda failure 'out of memory'`, `NCCL WARN Failed to CUDA malloc 4194304 bytes`
fn nccl(at: &Match<'_>) -> Option<Message> {
    let text = reason(at);
    if of_network(text) {
        return Some(Message::PeerFailure);
    }
    let failed = after_label(text, "failure").is_some() || contains(text, "failedto");
    let out_of_memory = names_memory(text) || contains(text, "failedtocudamalloc");
    (failed || out_of_memory).then_some(Message::Library {
        library: Library::Nccl,
        out_of_memory,
    })
}
