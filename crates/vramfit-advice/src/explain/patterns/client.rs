//! Messages of JAX and Python: settings, versions, exceptions, compilations, progress.

use super::{Match, Pattern, after_label, contains, contains_any, head, lossy, until};
use crate::explain::message::{Message, StatName, Subject};
use crate::explain::number::{plain_integer, size};

pub(super) const PATTERNS: &[Pattern] = &[
    rejected("isspecifiedtogetherwithxla_python_client_mem_fraction"),
    rejected("xla_python_client_allocatorenvvarmustbe"),
    Pattern::new("couldnotconvertstringtofloat:", not_a_number),
    Pattern::new("invalidliteralforint()", not_a_number),
    rejected("unknownflaginxla_flags"),
    rejected("unknownflagsinxla_flags"),
    rejected("flagparsingfailed"),
    rejected("notsupportedforpjrtgpuplugin"),
    rejected("unknownallocatorkind"),
    rejected("unexpectedoptionnamepassedtopjrt_client_create"),
    rejected("optionpassedtopjrt_client_create"),
    Pattern::new("jaxpluginconfigurationerror", plugin),
    rejected("invalidtruthvalue"),
    Pattern::fixed("fallingbacktocpu", Message::CpuFallback),
    Pattern::new("xla_python_client_mem_fraction", setting),
    Pattern::new("xla_client_mem_fraction", setting),
    Pattern::new("xla_python_client_preallocate", setting),
    Pattern::new("xla_python_client_allocator", setting),
    Pattern::new("tf_gpu_allocator", setting),
    Pattern::new("tf_force_gpu_allow_growth", setting),
    Pattern::new("tf_force_unified_memory", setting),
    Pattern::new("jax_preallocation_size_limit_bytes", setting),
    Pattern::fixed("donatedbufferswerenotusable", Message::DonationWarning),
    Pattern::fixed("donationbuffersunavailable", Message::DonationWarning),
    Pattern::fixed("donationrequestedforinvalidbuffer", Message::DonationError),
    Pattern::fixed("attempttodonatethesamebuffertwice", Message::DonationError),
    Pattern::fixed("bufferhasbeendeletedordonated", Message::DonationError),
    Pattern::fixed("arrayhasbeendeletedwithshape", Message::DonationError),
    Pattern::new("error:", exception),
    Pattern::new("exception:", exception),
    Pattern::new("exceptionhasoccurred:", debugger_exception),
    Pattern::new("keyboardinterrupt", exception),
    Pattern::new("quotaexceeded", |_| {
        Some(Message::Exception {
            class: "ResourceExhausted".to_owned(),
            subject: Subject::Program,
        })
    }),
    Pattern::fixed("fatalpythonerror:", Message::Abort),
    Pattern::new("checkfailed:", |_| {
        Some(Message::Exception { class: "Check failed".to_owned(), subject: Subject::Unknown })
    }),
    Pattern::fixed("non-ok-status:", Message::Abort),
    Pattern::fixed("sigsegvreceived", Message::Abort),
    Pattern::new("fragmentation", fragmentation),
    Pattern::new("fragmented", fragmentation),
    Pattern::new("finishedxlacompilationof", compilation),
    Pattern::new("tracingcachemissat", cache_miss),
    Pattern::new("jax", jax_version),
    Pattern::fixed("cuda13", Message::Cuda13Named),
    Pattern::new("bytes_in_use", |at| memory_stat(at, StatName::BytesInUse)),
    Pattern::new("peak_bytes_in_use", |at| memory_stat(at, StatName::PeakBytesInUse)),
    Pattern::new("bytes_limit", |at| memory_stat(at, StatName::BytesLimit)),
    Pattern::new("pool_bytes", |at| memory_stat(at, StatName::PoolBytes)),
    Pattern::new("peak_pool_bytes", |_| None),
    Pattern::new("largest_free_block_bytes", |at| memory_stat(at, StatName::LargestFreeBlock)),
    Pattern::new("doesnotfit:shortby", |at| dryrun(at, false)),
    // Behind a cause that is named first.
    Pattern::new(";shortby", |at| dryrun(at, false).filter(names_program)),
    Pattern::new("fits:peak", |at| dryrun(at, true)),
];

const fn rejected(text: &'static str) -> Pattern {
    Pattern::fixed(text, Message::SettingRejected { is_named: true })
}

/// `Jax plugin configuration error: …`, and what it is about in the traceback that follows.
fn plugin(at: &Match<'_>) -> Option<Message> {
    let missing = [
        "pluginmodule",
        "issueswithcudacomponents",
        "importerror:",
        "notcompatiblewith",
        "incompatiblewith",
    ];
    Some(match contains_any(at.after(), &missing) {
        true => Message::Installation,
        false => Message::SettingRejected { is_named: false },
    })
}

/// `ValueError: could not convert string to float: '75%'` of JAX's plugin, as its traceback shows.
fn not_a_number(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 3000;
    let of_the_plugin =
        ["generate_pjrt_gpu_plugin_options", "jaxpluginconfigurationerror", "mem_fraction"];
    contains_any(at.before_in_log(MAX_DISTANCE), &of_the_plugin)
        .then_some(Message::SettingRejected { is_named: true })
}

/// `NAME=value`, `NAME: value`, `os.environ["NAME"] = "value"`, of the variable that the pattern names.
fn setting(at: &Match<'_>) -> Option<Message> {
    const MAX_VALUE_BYTES: usize = 64;
    // Texts that speak of a setting: XLA's advice, and its error about two of them.
    if contains(at.before(40), "environmentvariable") || contains(at.before(12), "byreducing") {
        return None;
    }
    let after = at.record();
    let quotes = after.iter().take_while(|byte| matches!(byte, b'"' | b'\'' | b']' | b',')).count();
    let rest = &after[quotes..];
    let assigned = rest.strip_prefix(b"=").or(rest.strip_prefix(b":"));
    let value = match assigned {
        Some(value) => value,
        // The second argument of a call, or an entry of a dictionary.
        None if quotes > 0 && after[..quotes].contains(&b',') => rest,
        None => return None,
    };
    let value = match value.first() {
        Some(b'"' | b'\'') => &value[1..],
        _ => value,
    };
    // Where the value ends, only the line itself shows: white space is not in the normalized text.
    let offset = value.as_ptr().addr() - at.block.text().as_ptr().addr();
    let shown = at.block.place(offset).text;
    let is_end = |letter: char| {
        letter.is_whitespace() || matches!(letter, '"' | '\'' | ';' | ',' | '`' | ')')
    };
    let value = shown.split(is_end).next().unwrap_or_default();
    (!value.is_empty() && value.len() <= MAX_VALUE_BYTES).then(|| Message::Setting {
        name: lossy(at.pattern()).to_ascii_uppercase(),
        value: value.to_owned(),
    })
}

/// `jax.errors.JaxRuntimeError: …`, at the beginning of a line or behind a traceback's words.
fn exception(at: &Match<'_>) -> Option<Message> {
    const MAX_CLASS_BYTES: usize = 80;
    let before = at.before(MAX_CLASS_BYTES);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let name = before.iter().rev().take_while(|byte| is_name(byte)).count();
    // Looking at the line itself takes long; most that is matched is no name at all.
    if name == 0 && !at.pattern().ends_with(b"interrupt") {
        return None;
    }
    let whole = at.from - name;
    // The line before may end in a word, or the line is wrapped inside of the class.
    let in_line = at.block.line_start(at.from).max(whole);
    let class = exception_class(at, in_line).or_else(|| exception_class(at, whole))?;
    let subject = subject(&class, at.record());
    Some(Message::Exception { class, subject })
}

/// `Exception has occurred: FloatingPointError`, of a debugger, which has the text below.
fn debugger_exception(at: &Match<'_>) -> Option<Message> {
    let shown = at.block.place(at.to.min(at.block.text().len().checked_sub(1)?)).text;
    let shown = shown.trim_start_matches([':', ' ']);
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
    let name = &shown[..shown.find(|letter| !is_name(letter)).unwrap_or(shown.len())];
    let class = name.rsplit('.').next()?.to_owned();
    if !class.starts_with(|letter: char| letter.is_ascii_uppercase()) {
        return None;
    }
    let subject = subject(&class, at.record().get(name.len()..)?);
    Some(Message::Exception { class, subject })
}

/// Returns the class that begins at a position, where what stands there is one: a word in capitals.
fn exception_class(at: &Match<'_>, from: usize) -> Option<String> {
    let place = at.block.place(from);
    let shown = at.block.original(from, at.to);
    let class = shown.trim_end_matches(':').rsplit('.').next()?.to_owned();
    let is_class = class.len() > (at.to - at.from).saturating_sub(1)
        && class.starts_with(|letter: char| letter.is_ascii_uppercase())
        && class.chars().all(|letter| letter.is_ascii_alphanumeric());
    let is_class = is_class || class == "KeyboardInterrupt";
    (is_class && place.text.starts_with(&shown)).then_some(class)
}

/// Returns what an exception is about, by its class and its text. Only Python's own classes, and statuses of XLA
/// that speak of the program, are certain to be about something else than memory.
fn subject(class: &str, text: &[u8]) -> Subject {
    const MAX_TEXT_BYTES: usize = 240;
    let text = head(text, MAX_TEXT_BYTES);
    // What follows the error is no part of it.
    let ends = ["traceback(most", "duringhandlingof", "theaboveexception", "file\""];
    let end = ends.iter().filter_map(|end| memchr::memmem::find(text, end.as_bytes())).min();
    let text = head(text, end.unwrap_or(text.len()));
    let has = |words: &[&str]| contains_any(text, words);
    if class.ends_with("MemoryError") || has(&["outofmemory", "out_of_memory", "failedtoallocate"])
    {
        return Subject::Memory;
    }
    // TensorStore calls a full disk RESOURCE_EXHAUSTED, too.
    if has(&["nospaceleft", "diskquotaexceeded"]) && !has(&["/dev/shm", "sharedmemory"]) {
        return Subject::Program;
    }
    // Of servers, which find out that the GPU is too full before they ask for memory.
    let of_servers = ["availablememory", "freememory", "cachememory", "memoryutilization"];
    if has(&["alloc", "exhausted", "notenough", "insufficient"]) || has(&of_servers) {
        return Subject::Unknown;
    }
    let of_installation = [
        "nocuda",
        "nosupportedgpu",
        "visiblegpu",
        "driverversion",
        "cudadriverinit",
        "unabletoinitializebackend",
        "unknownbackend",
        "unsupportedtoolchain",
        "nokernelimage",
        "sharedobject",
        "undefinedsymbol",
        "incompatible",
        "installation",
        "notinstalled",
        "issueswithcuda",
    ];
    let of_packages = ["cuda", "cudnn", "jax", "nvidia", "libcu", "nccl"];
    let is_import = matches!(class, "ImportError" | "ModuleNotFoundError");
    if (!is_program_class(class) && has(&of_installation)) || (is_import && has(&of_packages)) {
        return Subject::Installation;
    }
    let of_the_program = [
        &b"invalid_argument:"[..],
        b"invalidargument:",
        b"unimplemented:",
        b"[errno2]",
        b"[errno13]",
        b"[errno17]",
        b"[errno24]",
        b"[errno28]",
    ];
    let is_status = of_the_program.iter().any(|status| text.starts_with(status));
    match is_program_class(class) || is_import || is_status {
        true => Subject::Program,
        false => Subject::Unknown,
    }
}

/// Returns `true` if a class of exceptions is one of errors in code: Python's own, and JAX's about tracing.
fn is_program_class(class: &str) -> bool {
    const ENDS: [&str; 18] = [
        "ArithmeticError",
        "AssertionError",
        "AttributeError",
        "DivisionError",
        "ConversionError",
        "FileNotFoundError",
        "FloatingPointError",
        "ConcretizationTypeError",
        "IndexError",
        "KeyError",
        "KeyboardInterrupt",
        "NameError",
        "NotImplementedError",
        "PermissionError",
        "ShapeError",
        "SyntaxError",
        "TypeError",
        "ValueError",
    ];
    ENDS.iter().any(|end| class.ends_with(end))
        || matches!(class, "ResourceExhausted" | "UnexpectedTracerError")
}

/// The word itself, but not in XLA's advice, XLA's figures, or vramfit's own text.
fn fragmentation(at: &Match<'_>) -> Option<Message> {
    let before = at.before(48);
    let after = at.record();
    let of_xla = ["causeismemory", "causedbymemory", "total", "temp", "%", "utilization"];
    let quoted = contains_any(&before[before.len().saturating_sub(20)..], &of_xla);
    (!quoted && !after.starts_with(b":") && !after.starts_with(b"("))
        .then_some(Message::FragmentationNamed)
}

/// `Finished XLA compilation of jit(step) in 1.27 sec`
fn compilation(at: &Match<'_>) -> Option<Message> {
    const MAX_NAME_BYTES: usize = 100;
    let text = head(at.record(), MAX_NAME_BYTES);
    let end = memchr::memmem::rfind(text, b"in")?;
    let name = match memchr::memmem::find(text, b")in") {
        Some(close) => &text[..=close],
        None => &text[..end],
    };
    Some(Message::Compilation { program: at.original(name) })
}

/// `TRACING CACHE MISS at train.py:118:15 (main) because:`
fn cache_miss(at: &Match<'_>) -> Option<Message> {
    let end = memchr::memmem::find(at.record(), b"because")?;
    Some(Message::Compilation { program: at.original(&at.record()[..end]) })
}

/// `jax 0.10.2`, `jaxlib==0.4.30`, `jax[cuda12]: 0.5.3`, `jax version: 0.6.0`
fn jax_version(at: &Match<'_>) -> Option<Message> {
    let mut text = at.record();
    text = text.strip_prefix(b"lib").unwrap_or(text);
    if let Some(extra) = text.strip_prefix(b"[") {
        text = extra.get(until(extra, b"]").len() + 1..).unwrap_or_default();
    }
    for word in
        [&b"version"[..], b".__version__", b"'", b"\"", b"==", b"=", b":", b"|", b"(", b"'", b"v"]
    {
        text = text.strip_prefix(word).unwrap_or(text);
    }
    let version = version(text).filter(|(_, minor, patch)| *minor < 100 && *patch < 200);
    Some(match version {
        Some(version) => Message::Jax { version },
        None => Message::JaxNamed,
    })
}

/// Reads `0.10.2`.
fn version(text: &[u8]) -> Option<(u32, u32, u32)> {
    let (0, text) = plain_integer(text)? else {
        return None;
    };
    let (minor, text) = plain_integer(text.strip_prefix(b".")?)?;
    let (patch, _) = plain_integer(text.strip_prefix(b".")?)?;
    Some((0, u32::try_from(minor).ok()?, u32::try_from(patch).ok()?))
}

/// `'bytes_in_use': 48000000000`, `bytes_in_use=44.7GiB`
fn memory_stat(at: &Match<'_>, name: StatName) -> Option<Message> {
    let text = at.record();
    let marks =
        text.iter().take(4).take_while(|byte| matches!(byte, b'"' | b'\'' | b':' | b'=' | b']'));
    let marks = marks.count();
    let (size, _) = size(&text[marks..])?;
    Some(Message::MemoryStat { name, bytes: size.bytes })
}

fn names_program(message: &Message) -> bool {
    matches!(message, Message::Dryrun { program: Some(_), .. })
}

/// `does not fit: short by 1.8 GiB in `jit_gradient` on t4`, the headline of a dry run.
fn dryrun(at: &Match<'_>, fits: bool) -> Option<Message> {
    const MAX_REPORT_BYTES: usize = 2000;
    let (short, rest) = size(at.record())?;
    let program = after_label(head(rest, 160), "in`").map(|name| until(name, b"`"));
    let report = head(at.after(), MAX_REPORT_BYTES);
    Some(Message::Dryrun {
        fits,
        short: (!fits).then_some(short),
        program: program.map(|name| at.original(name)),
        fragmented: !fits && contains(report, "butfragmented"),
    })
}
