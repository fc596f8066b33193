//! Messages about the host: its memory and addresses, other processes of the job; and TPUs.

use super::{Match, Pattern, after_label, contains, contains_any, head, until};
use crate::explain::message::{HostFailure, Message};
use crate::explain::number::{integer, size};
use crate::explain::other_allocator::AllocatorOwner;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("unabletoallocate", numpy),
    Pattern::new("memoryerror", memory_error),
    Pattern::new("std::bad_alloc", bad_alloc),
    Pattern::new("bad_alloc", bad_alloc),
    Pattern::fixed("llvmerror:outofmemory", host(HostFailure::Cpp)),
    Pattern::fixed("ptxasfatal:memoryallocationfailure", host(HostFailure::Cpp)),
    Pattern::new("defaultcpuallocator", cpu_allocator),
    Pattern::new("oom-kill", oom_kill),
    Pattern::new("oom_kill", oom_kill),
    Pattern::fixed("invokedoom-killer", host(HostFailure::KillerRan)),
    Pattern::new("oomkilled", oom_kill),
    Pattern::new("out-of-memoryhandler", oom_kill),
    Pattern::new("outofmemory:killedprocess", killed_process),
    Pattern::new("outofmemory:killprocess", killed_process),
    Pattern::new("memorycgroupoutofmemory", killed_process),
    Pattern::fixed("(outofmemory)killed", host(HostFailure::Killed)),
    Pattern::fixed("outofhostmemorywhiletryingtoallocate", host(HostFailure::PinnedPool)),
    Pattern::fixed("xla_pjrt_gpu_host_memory_limit_gbtoallocate", host(HostFailure::PinnedPool)),
    Pattern::fixed("allocator(xla_gpu_host_bfc)ranoutofmemory", host(HostFailure::PinnedPool)),
    Pattern::fixed("couldnotallocatepinnedhostofsize", host(HostFailure::PinnedRefused)),
    Pattern::fixed("couldnotallocatepinnedhostmemoryofsize", host(HostFailure::PinnedRefused)),
    Pattern::new("cannotallocatememory", cannot_allocate),
    Pattern::fixed("llvmcompilationerror:cannotallocatememory", Message::CompiledPrograms),
    Pattern::fixed("releasemappedmemoryfailed", Message::CompiledPrograms),
    Pattern::fixed("failedtomaterializesymbols", Message::CompiledPrograms),
    Pattern::fixed("unabletoallocatesectionmemory", Message::CompiledPrograms),
    Pattern::fixed("jitsessionerror:cannotallocatememory", Message::CompiledPrograms),
    Pattern::new("nospaceleftondevice", no_space),
    Pattern::fixed("posix_fallocatefailed:nospaceleftondevice", host(HostFailure::SharedSegment)),
    Pattern::new("errorwhilecreatingsharedmemorysegment", shared_segment),
    Pattern::new("failedtoextend/dev/shm", shared_segment),
    Pattern::new("unabletoopensharedmemoryobject", shared_segment),
    Pattern::new("couldnotresizesharedmemorysegment", shared_segment),
    Pattern::new("unabletowritetofile</torch_", shared_segment),
    Pattern::new("unabletommap", shared_segment),
    Pattern::new("spacefor/dev/shm", shared_segment),
    Pattern::new("spacein/dev/shm", shared_segment),
    Pattern::fixed("outofsharedmemory", host(HostFailure::SharedSegmentProbably)),
    Pattern::fixed("insufficientsharedmemory", host(HostFailure::SharedSegmentProbably)),
    Pattern::fixed("killedbysignal:buserror", host(HostFailure::SharedSegmentProbably)),
    Pattern::fixed("buserror(coredumped)", host(HostFailure::SharedSegmentProbably)),
    Pattern::fixed("signalsigbus", host(HostFailure::SharedSegmentProbably)),
    Pattern::fixed("sigbusreceived", host(HostFailure::SharedSegmentProbably)),
    Pattern::fixed("fatalpythonerror:buserror", host(HostFailure::SharedSegmentProbably)),
    Pattern::fixed("enable_pinned_host_transfer=true", Message::PinnedTransfers),
    Pattern::new("killed", killed),
    // Ray, before the kernel does.
    Pattern::fixed("noderunninglowonmemory", host(HostFailure::Killed)),
    Pattern::fixed("signals.sigkill", host(HostFailure::KilledSilently)),
    Pattern::fixed("signal9:sigkill", host(HostFailure::KilledSilently)),
    Pattern::fixed("exitcode137", host(HostFailure::KilledSilently)),
    Pattern::fixed("exitcode:137", host(HostFailure::KilledSilently)),
    Pattern::fixed("out_of_host_memory", host(HostFailure::Cpp)),
    Pattern::fixed("nvrtc_error_out_of_memory", host(HostFailure::Cpp)),
    Pattern::new("cumemaddressreserve", address_reserve),
    Pattern::fixed("failedtoreservevirtualaddress", address_space(false)),
    Pattern::fixed("failedtoreserveaddress", address_space(false)),
    Pattern::new("ulimit-v", ulimit),
    Pattern::fixed("rlimit_as", address_space(true)),
    Pattern::fixed("heartbeattimeout", Message::PeerFailure),
    Pattern::new("coordinationservice", peer),
    Pattern::fixed("jaxdistributedservicedetectedfatalerror", Message::PeerFailure),
    Pattern::fixed("barriertimedout", Message::PeerFailure),
    // XLA's rendezvous: a device or a process has not joined a collective.
    Pattern::fixed("terminationtimeoutfor", Message::PeerFailure),
    Pattern::fixed("connectionresetbypeer", Message::PeerFailure),
    Pattern::fixed("ranoutofmemoryinmemoryspacehbm", tpu(true)),
    Pattern::fixed("ranoutofmemoryinmemoryspacevmem", Message::TpuOnChip),
    Pattern::fixed("ranoutofmemoryinmemoryspacesmem", Message::TpuOnChip),
    Pattern::fixed("exceededscopedvmemlimit", Message::TpuOnChip),
    Pattern::fixed("ranoutofmemoryonhbm", tpu(true)),
    Pattern::fixed("exceededhbmcapacity", tpu(true)),
    Pattern::fixed("compiletimehbmoom", tpu(true)),
    Pattern::fixed("tensorcorehbmusage", tpu(true)),
    Pattern::new("xla:tpucompilepermanenterror", tpu_compile),
    Pattern::new("intohbm", |at| contains(at.record(), "notpossible").then_some(tpu(true))),
    Pattern::new("errorloadingprogram'", |at| {
        contains(head(at.record(), 200), "wasnotpossible").then_some(Message::TpuProgramLoad)
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
    match size(at.record()) {
        Some((size, rest)) if rest.starts_with(b"foranarray") => {
            Some(Message::Host { how: HostFailure::Python, size: Some(size) })
        }
        _ => Some(Message::MemoryNamed),
    }
}

/// Returns whose GPU memory an error is about of a class that is also that of the host's, where its text says so.
fn of_gpu(at: &Match<'_>) -> Option<AllocatorOwner> {
    const MAX_TEXT_BYTES: usize = 120;
    let text = head(at.record(), MAX_TEXT_BYTES);
    let words = ["out_of_memory", "cudaerror", "cudamalloc", "cumem", "cuda_error", "gpu"];
    match (contains(text, "rmm"), contains_any(text, &words)) {
        (true, _) => Some(AllocatorOwner::Rmm),
        (false, true) => Some(AllocatorOwner::Unknown),
        (false, false) => None,
    }
}

/// `std::bad_alloc` of the host, and of the libraries that use it for the GPU.
fn bad_alloc(at: &Match<'_>) -> Option<Message> {
    let of_thrust = contains(at.before(40), "thrust");
    let owner = of_gpu(at).or(of_thrust.then_some(AllocatorOwner::Unknown));
    Some(match owner {
        Some(owner) => Message::other_allocator(owner, None),
        None => host(HostFailure::Cpp),
    })
}

/// `DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes.`, of PyTorch.
fn cpu_allocator(at: &Match<'_>) -> Option<Message> {
    contains(head(at.record(), 80), "memory").then_some(host(HostFailure::Cpp))
}

/// A segment of `/dev/shm` that could not be had. Other reasons than that it is full are named.
fn shared_segment(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 240;
    let text = head(at.record(), MAX_TEXT_BYTES);
    if contains_any(text, &["permissiondenied", "fileexists", "nosuchfile", "toomanyopen"]) {
        return None;
    }
    let is_full = contains_any(text, &["nospaceleft", "cannotallocate", "notenough"])
        || contains(at.before(MAX_TEXT_BYTES), "nospaceleft")
        || at.pattern().starts_with(b"space");
    Some(host(match is_full {
        true => HostFailure::SharedSegment,
        false => HostFailure::SharedSegmentProbably,
    }))
}

/// `OSError: [Errno 28] No space left on device: '/psm_3f2a9c01'`: of shared memory, else of a disk.
fn no_space(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 200;
    const NAMES: [&str; 7] =
        ["/dev/shm", "psm_", "/torch_", "sharedmemory", "shared_memory", "semlock", "nccl"];
    let after = head(at.record(), 80);
    // The call is in the traceback, some lines before.
    let is_shared =
        contains_any(at.before_in_log(MAX_DISTANCE), &NAMES) || contains_any(after, &NAMES);
    Some(match is_shared {
        true => host(HostFailure::SharedSegment),
        false => Message::DiskFull,
    })
}

/// Python's `MemoryError`, as the class of an exception; not a word in a sentence or an `except` clause.
fn memory_error(at: &Match<'_>) -> Option<Message> {
    let line = at.block.place(at.from).text;
    let is_raised = (line == "MemoryError" || line.starts_with("MemoryError:"))
        && at.block.begins_word(at.from);
    let before = at.before(64);
    let is_code =
        ["except", "raise", "(", ","].iter().any(|code| before.ends_with(code.as_bytes()));
    if !is_raised || is_code {
        return None;
    }
    // What follows may also be a message of its own, such as NumPy's.
    Some(match of_gpu(at) {
        Some(owner) => Message::other_allocator(owner, None),
        None => host(HostFailure::Python),
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

/// `Out of memory: Killed process 4711 (chrome) total-vm:…`, of the kernel.
fn killed_process(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 64;
    let text = head(at.record(), MAX_TEXT_BYTES);
    let name = after_label(text, "(").map(|name| until(name, b")"));
    Some(killed_by_name(at, name))
}

/// `oom-kill:constraint=CONSTRAINT_NONE,…,task=python3,pid=4711` of the kernel, and what Slurm counts of it.
fn oom_kill(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 600;
    let text = head(at.record(), MAX_TEXT_BYTES);
    if at.line().contains(".extern") {
        return Some(host(HostFailure::KilledBesideSteps));
    }
    let name = after_label(text, ",task=").filter(|_| text.starts_with(b":constraint="));
    Some(killed_by_name(at, name.map(|name| until(name, b",\n"))))
}

fn killed_by_name(at: &Match<'_>, name: Option<&[u8]>) -> Message {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => Message::KilledByName { program: at.original(name) },
        None => host(HostFailure::Killed),
    }
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
    let after = head(at.record(), 40);
    // The dynamic linker's, which is no lack of memory.
    if contains(after, "statictlsblock") {
        return Some(Message::Installation);
    }
    if contains_any(before, &["psm_", "shared_memory", "/torch_"]) || contains(after, "psm_") {
        return Some(host(HostFailure::SharedSegmentProbably));
    }
    if contains_any(before, &["mmap", "reserve", "failedtomap"]) {
        return Some(address_space(false));
    }
    if contains_any(before, &["llvm", "sectionmemory", "jitsession"]) {
        return Some(Message::CompiledPrograms);
    }
    Some(host(HostFailure::System))
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
    let failed = ["error", "unavailable", "dead", "timeout", "unhealthy", "disconnect"];
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
    let named = Some(Message::MemoryNamed);
    let Some((_, rest)) = size(at.record()) else {
        return named;
    };
    let Some(memory) = rest.strip_prefix(b"inmemory") else {
        return named;
    };
    contains(head(memory, MAX_NAME_BYTES), "hbm").then_some(tpu(true))
}
