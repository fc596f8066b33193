//! Messages of the CUDA driver, and about its installation.

use super::{Match, Pattern, contains, contains_any, head, lossy};
use crate::explain::message::{DriverCall, HostFailure, Message, Platform};
use crate::explain::number::size;
use crate::explain::other_allocator::AllocatorOwner;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("failedtoallocate", driver_refusal),
    Pattern::new("failedtoallocatedevicememoryof", driver_refusal),
    Pattern::new("failedtoalloc", driver_refusal),
    Pattern::new("failedtoloadin-memorycubin", module),
    Pattern::new("failedtoloadptxtextasamodule", module),
    Pattern::new("failedtoloadin-memorymodule", module),
    Pattern::fixed("ranoutofmemorytryingtoinstantiatecommandbuffer", call(DriverCall::Graph)),
    Pattern::fixed("ranoutofmemorytryingtoinstantiatecudagraph", call(DriverCall::Graph)),
    Pattern::new("failedtoinstantiatecudagraph", |at| if_memory(at, DriverCall::Graph)),
    Pattern::new("failedtoinstantiategpugraph", |at| if_memory(at, DriverCall::Graph)),
    Pattern::new("failedcalltocudeviceprimaryctxretain", |at| if_memory(at, DriverCall::Context)),
    Pattern::new("couldnotretaincudadevicecontext", |at| if_memory(at, DriverCall::Context)),
    Pattern::new("failedcalltocuctxcreate", |at| if_memory(at, DriverCall::Context)),
    Pattern::new("failedcalltocuinit", |at| if_memory(at, DriverCall::Context)),
    Pattern::new("cudadriverinitfailed", |at| if_memory(at, DriverCall::Context)),
    Pattern::new("mig", mig_slice),
    // Of the table of `nvidia-smi`, which names the whole GPU.
    Pattern::new("migdevices:", |_| Some(Message::MigSlice { profile: String::new() })),
    Pattern::new("cuda_error_out_of_memory", unnamed_call),
    Pattern::new("cuda_error_", driver_error),
    Pattern::fixed("ptxwascompiledwithanunsupportedtoolchain", installation()),
    Pattern::fixed("unabletoloadcuda", installation()),
    Pattern::fixed("unabletousecudabecause", installation()),
    Pattern::new("installationfound.", outdated),
    Pattern::fixed("novisiblegpudevices", installation()),
    Pattern::fixed("driverversionisinsufficient", installation()),
    Pattern::fixed("isitinstalled?", installation()),
    Pattern::fixed("libdevicenotfoundat", installation()),
    Pattern::fixed("errorloadingcudalibraries", installation()),
    Pattern::fixed("unabletoloadnccllibrary", installation()),
    Pattern::fixed("cuda-enabledjaxlibisnotinstalled", installation()),
    Pattern::fixed("nokernelimageisavailable", installation()),
    Pattern::fixed("instatictlsblock", installation()),
    // The kernels themselves, of Triton, Pallas, Mosaic and ptxas.
    Pattern::fixed("sharedmemorysizelimitexceeded", Message::KernelResources),
    Pattern::fixed("sharedmemoryrequestedexceedsdeviceresources", Message::KernelResources),
    Pattern::fixed("outofresource:", Message::KernelResources),
    Pattern::fixed("toomanyresourcesrequestedforlaunch", Message::KernelResources),
    Pattern::fixed("usestoomuchshareddata", Message::KernelResources),
    Pattern::fixed("exceedsavailablesharedmemory", Message::KernelResources),
    Pattern::fixed("exceedsthesharedmemory", Message::KernelResources),
    Pattern::fixed("toomuchsharedmemory", Message::KernelResources),
    Pattern::fixed("rocm_driver.cc", Message::OtherPlatform(Platform::Rocm)),
    Pattern::fixed("rocm_executor.cc", Message::OtherPlatform(Platform::Rocm)),
    Pattern::fixed("/opt/rocm", Message::OtherPlatform(Platform::Rocm)),
    Pattern::fixed("amdinstinct", Message::OtherPlatform(Platform::Rocm)),
    Pattern::fixed("amdradeon", Message::OtherPlatform(Platform::Rocm)),
    Pattern::fixed("metaldevicesetto", Message::OtherPlatform(Platform::Metal)),
    Pattern::fixed("platform'metal'isexperimental", Message::OtherPlatform(Platform::Metal)),
    Pattern::fixed("hiperrorinvalid", Message::DriverError),
    Pattern::fixed("hiperrorillegal", Message::DriverError),
    Pattern::fixed("hiperrorlaunch", Message::DriverError),
    Pattern::fixed("hiperrornobinary", Message::DriverError),
    Pattern::new("hip_error_outofmemory", unnamed_call),
    Pattern::new("hiperroroutofmemory", unnamed_call),
    Pattern::new("cudaerrormemoryallocation", unnamed_call),
    Pattern::new("cudaoperationfailed:outofmemory", unnamed_call),
    Pattern::new("gpuoperationfailed:outofmemory", unnamed_call),
    Pattern::new("hiperror_t(1002)", unnamed_call),
];

const fn call(call: DriverCall) -> Message {
    Message::DriverOutOfMemory { call, function: None, is_certain: true }
}

fn uncertain(call: DriverCall, function: Option<String>) -> Message {
    Message::DriverOutOfMemory { call, function, is_certain: false }
}

/// The names of the error, in CUDA and in ROCm.
const ERRORS: [&str; 4] = [
    "cuda_error_out_of_memory",
    "cudaerrormemoryallocation",
    "hip_error_outofmemory",
    "hiperroroutofmemory",
];

pub(super) fn names_memory(text: &[u8]) -> bool {
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

pub(super) fn reason<'a>(at: &Match<'a>) -> &'a [u8] {
    head(at.record(), MAX_REASON_BYTES)
}

fn if_memory(at: &Match<'_>, which: DriverCall) -> Option<Message> {
    names_memory(reason(at)).then_some(call(which))
}

/// `failed to allocate 1.14G (1224736768 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory`
fn driver_refusal(at: &Match<'_>) -> Option<Message> {
    let Some((size, rest)) = size(at.record()) else {
        let is_refusal = contains_any(reason(at), &ERRORS);
        let of_host = contains_any(head(at.record(), 60), &["onhost", "hostmemory"]);
        return Some(match (is_refusal, of_host) {
            (true, true) => Message::Host { how: HostFailure::PinnedRefused, size: None },
            (true, false) => uncertain(DriverCall::Unknown, None),
            (false, _) => Message::MemoryNamed,
        });
    };
    let rest = head(rest, MAX_REASON_BYTES);
    // `failed to alloc 2147483648 bytes unified memory; result: CUDA_ERROR_OUT_OF_MEMORY: out of memory`
    if rest.starts_with(b"unifiedmemory") && names_memory(rest) {
        let how = HostFailure::UnifiedRefused;
        return Some(Message::Host { how, size: None });
    }
    // `Failed to allocate 1409286144 bytes for new constant`: of a program that is loaded. Or nothing but the status tells.
    if rest.starts_with(b"fornewconstant") || is_status_alone(at, rest) {
        return Some(Message::OutOfMemory { size, program: None });
    }
    // `Failed to allocate 104857600 bytes on device 'cuda:0'`, of Warp.
    if rest.starts_with(b"ondevice'cuda") {
        return Some(Message::other_allocator(AllocatorOwner::Warp, Some(size)));
    }
    if rest.starts_with(b"ondevice'cpu") {
        let how = HostFailure::Cpp;
        let size = Some(size);
        return Some(Message::Host { how, size });
    }
    let refused =
        names_memory(rest) || contains(rest, "error_out") || contains(rest, "resource_exhausted");
    let host = contains(head(rest, 60), "onhost") || contains(rest, "pinnedhostmemory");
    // `Failed to allocate device memory of 2.00MiB (2097152 bytes): INTERNAL: : CUDA_ERROR_UNKNOWN: unknown error`
    let is_other_error = contains(rest, "cuda_error_") && !names_memory(rest);
    Some(match refused || host {
        _ if is_other_error && !contains(rest, "cuda_error_out") => Message::DriverError,
        true => Message::DriverRefusal { size, pinned_host: host },
        false => Message::MemoryNamed,
    })
}

/// `RESOURCE_EXHAUSTED: Failed to allocate 5368709120 bytes`, with nothing behind it.
fn is_status_alone(at: &Match<'_>, rest: &[u8]) -> bool {
    const STATUS: &[u8] = b"resource_exhausted:";
    at.before(STATUS.len()) == STATUS && matches!(rest, [] | [b'.', ..] | [b'\n', ..])
}

/// `Failed to load in-memory CUBIN (compiled for a different GPU?).: CUDA_ERROR_OUT_OF_MEMORY: out of memory`
fn module(at: &Match<'_>) -> Option<Message> {
    if_memory(at, DriverCall::Module)
}

/// The functions of the driver and the runtime that pin memory of the host.
pub(super) const OF_PINNED_MEMORY: [&str; 5] =
    ["hostalloc", "mallochost", "allochost", "hostmalloc", "hostregister"];

/// Beginnings of messages that are read with the error in them.
const READ_FROM_BEGINNING: [&str; 11] = [
    "failedtoalloc",
    "failedtoloadin-memory",
    "failedtoloadptxtextasamodule",
    "failedtoinstantiatecudagraph",
    "failedtoinstantiategpugraph",
    "ranoutofmemorytryingtoinstantiate",
    "failedcalltocudeviceprimaryctxretain",
    "couldnotretaincudadevicecontext",
    "failedcalltocuctxcreate",
    "failedcalltocuinit",
    "memaddressreserve",
];

/// The driver's error in any other message, with what failed, as far as that stands in front of it:
/// `Failed to capture gpu graph: no memory: cuGraphInstantiate CUDA_ERROR_OUT_OF_MEMORY`.
fn unnamed_call(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 120;
    const OF_GRAPHS: [&str; 5] =
        ["graphinstantiate", "gpugraph", "cudagraph", "graphexec", "commandbuffer"];
    const OF_CONTEXTS: [&str; 4] = ["cuinit", "ctxcreate", "ctxretain", "devicecontext"];
    const OF_MODULES: [&str; 4] = ["cubin", "moduleload", "loadmodule", "libraryload"];
    if contains_any(at.before(MAX_REASON_BYTES), &READ_FROM_BEGINNING) {
        return None;
    }
    let before = at.before(MAX_DISTANCE);
    if contains_any(before, &OF_PINNED_MEMORY) {
        return Some(Message::Host { how: HostFailure::PinnedRefused, size: None });
    }
    let call = match before {
        _ if contains_any(before, &OF_GRAPHS) => DriverCall::Graph,
        _ if contains_any(before, &OF_CONTEXTS) => DriverCall::Context,
        _ if contains_any(before, &OF_MODULES) => DriverCall::Module,
        _ => DriverCall::Unknown,
    };
    Some(uncertain(call, function_before(at)))
}

/// Returns the last function of the driver, the runtime or a library that the line names in front of a match.
fn function_before(at: &Match<'_>) -> Option<String> {
    const PREFIXES: [&str; 3] = ["cu", "hip", "nccl"];
    const LIBRARIES: [&str; 5] = ["cudnn", "cublas", "cufft", "cusolver", "cusparse"];
    let line = at.line();
    let before = line.strip_suffix(&at.block.place(at.from).text)?;
    let words = before.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_function = |word: &&str| {
        let is_library = LIBRARIES.iter().any(|library| word.eq_ignore_ascii_case(library));
        PREFIXES.iter().any(|prefix| word.starts_with(prefix))
            && word.contains(|letter: char| letter.is_ascii_uppercase())
            && !word.contains("Error")
            && !is_library
    };
    words.into_iter().find(is_function).map(str::to_owned)
}

/// `MIG 1g.10gb`, and `MIG 1c.3g.40gb` of a slice that is divided further.
fn mig_slice(at: &Match<'_>) -> Option<Message> {
    const MAX_PROFILE_BYTES: usize = 16;
    let text = head(at.record(), MAX_PROFILE_BYTES);
    let end = memchr::memmem::find(text, b"gb")? + 2;
    let profile = &text[..end];
    let is_profile = profile[0].is_ascii_digit()
        && contains(profile, "g.")
        && profile.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
    is_profile.then(|| Message::MigSlice { profile: lossy(profile) })
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
    let name = &name[..length];
    // The name may be cut short, as where a log ends.
    let is_cut = b"out_of_memory".starts_with(name);
    // These say nothing of the reason.
    let is_vague = [&b"unknown"[..], b"operating_system", b"map_failed"].contains(&name);
    match name {
        _ if is_cut || is_vague => None,
        b"launch_out_of_resources" => Some(Message::KernelResources),
        _ => Some(Message::DriverError),
    }
}
