//! Messages about the host: its memory and addresses, other processes of the job; and TPUs.

use super::{Match, Pattern, contains};
use crate::explain::message::{HostFailure, Message};
use crate::explain::number::size;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("unabletoallocate", numpy),
    Pattern::new("memoryerror", memory_error),
    Pattern::new("std::bad_alloc", |_| host(HostFailure::Cpp)),
    Pattern::new("bad_alloc", |_| host(HostFailure::Cpp)),
    Pattern::new("oom-kill", |_| host(HostFailure::Killed)),
    Pattern::new("oom_kill", |_| host(HostFailure::Killed)),
    Pattern::new("oomkilled", |_| host(HostFailure::Killed)),
    Pattern::new("out-of-memoryhandler", |_| host(HostFailure::Killed)),
    Pattern::new("outofmemory:killedprocess", |_| host(HostFailure::Killed)),
    Pattern::new("memorycgroupoutofmemory", |_| host(HostFailure::Killed)),
    Pattern::new("(outofmemory)killed", |_| host(HostFailure::Killed)),
    Pattern::new("outofhostmemorywhiletryingtoallocate", |_| {
        host(HostFailure::PinnedPool)
    }),
    Pattern::new("xla_pjrt_gpu_host_memory_limit_gbtoallocate", |_| {
        host(HostFailure::PinnedPool)
    }),
    Pattern::new("allocator(xla_gpu_host_bfc)ranoutofmemory", |_| {
        host(HostFailure::PinnedPool)
    }),
    Pattern::new("couldnotallocatepinnedhostofsize", |_| {
        host(HostFailure::PinnedRefused)
    }),
    Pattern::new("cannotallocatememory", cannot_allocate),
    Pattern::new("outofmemoryallocating", cpu_backend),
    Pattern::new("killed", killed),
    Pattern::new("cumemaddressreserve", address_reserve),
    Pattern::new("failedtoreservevirtualaddress", |_| address_space(false)),
    Pattern::new("failedtoreserveaddress", |_| address_space(false)),
    Pattern::new("ulimit-v", ulimit),
    Pattern::new("rlimit_as", |_| address_space(true)),
    Pattern::new("heartbeattimeout", |_| Some(Message::PeerFailure)),
    Pattern::new("coordinationservice", peer),
    Pattern::new("jaxdistributedservicedetectedfatalerror", |_| {
        Some(Message::PeerFailure)
    }),
    Pattern::new("barriertimedout", |_| Some(Message::PeerFailure)),
    Pattern::new("connectionresetbypeer", |_| Some(Message::PeerFailure)),
    Pattern::new("ranoutofmemoryinmemoryspacehbm", |_| tpu(true)),
    Pattern::new("ranoutofmemoryonhbm", |_| tpu(true)),
    Pattern::new("exceededhbmcapacity", |_| tpu(true)),
    Pattern::new("compiletimehbmoom", |_| tpu(true)),
    Pattern::new("tensorcorehbmusage", |_| tpu(true)),
    Pattern::new("xla:tpucompilepermanenterror", tpu_compile),
    Pattern::new("intohbm", |at| {
        contains(at.record(), "notpossible")
            .then(|| tpu(true))
            .flatten()
    }),
    Pattern::new("attemptingtoallocate", attempting),
    Pattern::new("attemptingtoreserve", attempting),
    Pattern::new("couldnotallocate", could_not),
    Pattern::new("wouldexceedmemory(size=", |_| tpu(true)),
    Pattern::new("tpudevice(", |_| tpu(false)),
    Pattern::new("xla:tpu", |_| tpu(false)),
];

fn host(how: HostFailure) -> Option<Message> {
    Some(Message::Host { how, size: None })
}

fn address_space(limit_named: bool) -> Option<Message> {
    Some(Message::AddressSpace { limit_named })
}

fn tpu(out_of_memory: bool) -> Option<Message> {
    Some(Message::Tpu { out_of_memory })
}

/// `Unable to allocate 5.00 GiB for an array with shape (…)`, NumPy's error.
fn numpy(at: &Match<'_>) -> Option<Message> {
    let (size, rest) = size(at.record())?;
    rest.starts_with(b"foranarray").then_some(Message::Host {
        how: HostFailure::Python,
        size: Some(size),
    })
}

/// Python's `MemoryError`, as the class of an exception; not a word in a sentence or an `except` clause.
fn memory_error(at: &Match<'_>) -> Option<Message> {
    let line = at.block.place(at.from).text;
    let is_raised = (line == "MemoryError" || line.starts_with("MemoryError:"))
        && at.block.begins_word(at.from);
    let before = at.before(64);
    let is_code = ["except", "raise", "(", ","]
        .iter()
        .any(|code| before.ends_with(code.as_bytes()));
    (is_raised && !is_code)
        .then(|| host(HostFailure::Python))
        .flatten()
}

/// `Out of memory allocating 274877906944 bytes.`, JAX's backend for the CPU.
fn cpu_backend(at: &Match<'_>) -> Option<Message> {
    let (size, _) = size(at.record())?;
    Some(Message::Host {
        how: HostFailure::CpuBackend,
        size: Some(size),
    })
}

/// `line 31: 48110 Killed   python train.py` of a shell, or the word by itself, also behind a progress bar.
fn killed(at: &Match<'_>) -> Option<Message> {
    let before = at.before(64);
    let is_first = at.block.line_start(at.from) == at.from || before.ends_with(b"]");
    let alone = is_first && at.block.place(at.from).text == "Killed";
    let number = before.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let by_shell = number.count() > 1 && contains(before, "line");
    (by_shell || alone)
        .then(|| host(HostFailure::KilledSilently))
        .flatten()
}

/// `ulimit -v 33554432`, a limit of the address space in KiB.
fn ulimit(at: &Match<'_>) -> Option<Message> {
    let (kib, _) = crate::explain::number::integer(at.record())?;
    (kib > 0).then(|| address_space(true)).flatten()
}

/// The system's text for ENOMEM: of `mmap`, which takes addresses, or of anything else.
fn cannot_allocate(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 240;
    // The call is in the traceback, some lines before.
    let text = at.block.text();
    let before = &text[at.from.saturating_sub(MAX_DISTANCE)..at.from];
    if ["mmap", "reserve", "failedtomap"]
        .iter()
        .any(|call| contains(before, call))
    {
        return address_space(false);
    }
    host(HostFailure::Python)
}

fn address_reserve(at: &Match<'_>) -> Option<Message> {
    const MAX_REASON_BYTES: usize = 240;
    let text = at.record();
    let text = &text[..text.len().min(MAX_REASON_BYTES)];
    let failed = ["out_of_memory", "outofmemory", "fail", "invalid"];
    let failed =
        failed.iter().any(|words| contains(text, words)) || contains(at.before(64), "fail");
    failed.then(|| address_space(false)).flatten()
}

/// A line of the coordination service that says that another task is gone.
fn peer(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 400;
    let text = at.record();
    let text = &text[..text.len().min(MAX_TEXT_BYTES)];
    let failed = [
        "error",
        "unavailable",
        "dead",
        "timeout",
        "unhealthy",
        "disconnect",
    ];
    let failed = failed.iter().any(|words| contains(text, words));
    failed.then_some(Message::PeerFailure)
}

fn tpu_compile(at: &Match<'_>) -> Option<Message> {
    tpu(contains(at.record(), "outofmemory"))
}

/// `Attempting to allocate 1.00G. That was not possible. There are 512.00M free.`, at run time on a TPU.
fn attempting(at: &Match<'_>) -> Option<Message> {
    let (_, rest) = size(at.record())?;
    let rest = &rest[..rest.len().min(120)];
    contains(rest, "wasnotpossible")
        .then(|| tpu(true))
        .flatten()
}

/// `Could not allocate 10485760 bytes in memory 0x0x0_HBM0; …`, at run time on a TPU.
fn could_not(at: &Match<'_>) -> Option<Message> {
    const MAX_NAME_BYTES: usize = 40;
    let (_, rest) = size(at.record())?;
    let memory = rest.strip_prefix(b"inmemory")?;
    contains(&memory[..memory.len().min(MAX_NAME_BYTES)], "hbm")
        .then(|| tpu(true))
        .flatten()
}
