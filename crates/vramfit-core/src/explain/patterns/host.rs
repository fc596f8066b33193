//! Messages about the host: its memory and addresses, other processes of the job; and TPUs.

use super::{Match, Pattern, contains, contains_any, head};
use crate::explain::message::{HostFailure, Message};
use crate::explain::number::{integer, size};

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("unabletoallocate", numpy),
    Pattern::new("memoryerror", memory_error),
    Pattern::fixed("std::bad_alloc", host(HostFailure::Cpp)),
    Pattern::fixed("bad_alloc", host(HostFailure::Cpp)),
    Pattern::fixed("oom-kill", host(HostFailure::Killed)),
    Pattern::fixed("oom_kill", host(HostFailure::Killed)),
    Pattern::fixed("oomkilled", host(HostFailure::Killed)),
    Pattern::fixed("out-of-memoryhandler", host(HostFailure::Killed)),
    Pattern::fixed("outofmemory:killedprocess", host(HostFailure::Killed)),
    Pattern::fixed("memorycgroupoutofmemory", host(HostFailure::Killed)),
    Pattern::fixed("(outofmemory)killed", host(HostFailure::Killed)),
    Pattern::fixed(
        "outofhostmemorywhiletryingtoallocate",
        host(HostFailure::PinnedPool),
    ),
    Pattern::fixed(
        "xla_pjrt_gpu_host_memory_limit_gbtoallocate",
        host(HostFailure::PinnedPool),
    ),
    Pattern::fixed(
        "allocator(xla_gpu_host_bfc)ranoutofmemory",
        host(HostFailure::PinnedPool),
    ),
    Pattern::fixed(
        "couldnotallocatepinnedhostofsize",
        host(HostFailure::PinnedRefused),
    ),
    Pattern::new("cannotallocatememory", cannot_allocate),
    Pattern::new("outofmemoryallocating", cpu_backend),
    Pattern::new("killed", killed),
    Pattern::new("cumemaddressreserve", address_reserve),
    Pattern::fixed("failedtoreservevirtualaddress", address_space(false)),
    Pattern::fixed("failedtoreserveaddress", address_space(false)),
    Pattern::new("ulimit-v", ulimit),
    Pattern::fixed("rlimit_as", address_space(true)),
    Pattern::fixed("heartbeattimeout", Message::PeerFailure),
    Pattern::new("coordinationservice", peer),
    Pattern::fixed(
        "jaxdistributedservicedetectedfatalerror",
        Message::PeerFailure,
    ),
    Pattern::fixed("barriertimedout", Message::PeerFailure),
    Pattern::fixed("connectionresetbypeer", Message::PeerFailure),
    Pattern::fixed("ranoutofmemoryinmemoryspacehbm", tpu(true)),
    Pattern::fixed("ranoutofmemoryonhbm", tpu(true)),
    Pattern::fixed("exceededhbmcapacity", tpu(true)),
    Pattern::fixed("compiletimehbmoom", tpu(true)),
    Pattern::fixed("tensorcorehbmusage", tpu(true)),
    Pattern::new("xla:tpucompilepermanenterror", tpu_compile),
    Pattern::new("intohbm", |at| {
        contains(at.record(), "notpossible").then_some(tpu(true))
    }),
    Pattern::new("attemptingtoallocate", attempting),
    Pattern::new("attemptingtoreserve", attempting),
    Pattern::new("couldnotallocate", could_not),
    Pattern::fixed("wouldexceedmemory(size=", tpu(true)),
    Pattern::fixed("tpudevice(", tpu(false)),
    Pattern::fixed("xla:tpu", tpu(false)),
];

const fn host(how: HostFailure) -> Message {
    Message::Host { how, size: None }
}

const fn address_space(limit_named: bool) -> Message {
    Message::AddressSpace { limit_named }
}

const fn tpu(out_of_memory: bool) -> Message {
    Message::Tpu { out_of_memory }
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
    (is_raised && !is_code).then_some(host(HostFailure::Python))
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
    (by_shell || alone).then_some(host(HostFailure::KilledSilently))
}

/// `ulimit -v 33554432`, a limit of the address space in KiB.
fn ulimit(at: &Match<'_>) -> Option<Message> {
    let (kib, _) = integer(at.record())?;
    (kib > 0).then_some(address_space(true))
}

/// The system's text for ENOMEM: of `mmap`, which takes addresses, or of anything else.
fn cannot_allocate(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 240;
    // The call is in the traceback, some lines before.
    let before = at.before_in_log(MAX_DISTANCE);
    if contains_any(before, &["mmap", "reserve", "failedtomap"]) {
        return Some(address_space(false));
    }
    Some(host(HostFailure::Python))
}

fn address_reserve(at: &Match<'_>) -> Option<Message> {
    const MAX_REASON_BYTES: usize = 240;
    let text = head(at.record(), MAX_REASON_BYTES);
    let failed = ["out_of_memory", "outofmemory", "fail", "invalid"];
    let failed = contains_any(text, &failed) || contains(at.before(64), "fail");
    failed.then_some(address_space(false))
}

/// A line of the coordination service that says that another task is gone.
fn peer(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 400;
    let text = head(at.record(), MAX_TEXT_BYTES);
    let failed = [
        "error",
        "unavailable",
        "dead",
        "timeout",
        "unhealthy",
        "disconnect",
    ];
    contains_any(text, &failed).then_some(Message::PeerFailure)
}

fn tpu_compile(at: &Match<'_>) -> Option<Message> {
    Some(tpu(contains(at.record(), "outofmemory")))
}

/// `Attempting to allocate 1.00G. That was not possible. There are 512.00M free.`, at run time on a TPU.
fn attempting(at: &Match<'_>) -> Option<Message> {
    let (_, rest) = size(at.record())?;
    let rest = head(rest, 120);
    contains(rest, "wasnotpossible").then_some(tpu(true))
}

/// `Could not allocate 10485760 bytes in memory 0x0x0_HBM0; …`, at run time on a TPU.
fn could_not(at: &Match<'_>) -> Option<Message> {
    const MAX_NAME_BYTES: usize = 40;
    let (_, rest) = size(at.record())?;
    let memory = rest.strip_prefix(b"inmemory")?;
    contains(head(memory, MAX_NAME_BYTES), "hbm").then_some(tpu(true))
}
