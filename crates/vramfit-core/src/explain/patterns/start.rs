//! How the program was started: its script, its arguments, whether it has a batch.

use super::{Match, Pattern, contains_any, head, until};
use crate::explain::message::Message;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("file\"", script),
    Pattern::new("python", command),
    Pattern::new("torchrun", command),
    Pattern::new("batch", batch),
    Pattern::fixed("external/org_tensorflow/", Message::OldRelease),
    Pattern::fixed("--xla_gpu_autotune_level=0", Message::AutotuningOff),
];

/// `File "/home/user/train.py", line 50, in <module>` of a traceback.
fn script(at: &Match<'_>) -> Option<Message> {
    // An entry of a library is not worth a look at its line.
    const MAX_PATH_BYTES: usize = 240;
    let path = until(head(at.record(), MAX_PATH_BYTES), b"\"");
    let of_packages = ["site-packages", "dist-packages", "/lib/python", "<", "ipykernel", "/bin/"];
    if !path.ends_with(b".py") || contains_any(path, &of_packages) {
        return None;
    }
    let line = at.block.place(at.from).text;
    // Where an excerpt begins later, the program's own entry is its `main`.
    let is_entry = line.ends_with(", in <module>") || line.ends_with(", in main");
    is_entry.then(|| Message::Script { path: at.original(path) })
}

/// `$ python train.py --batch_size=64`, a command as the log or its reporter shows it.
fn command(at: &Match<'_>) -> Option<Message> {
    const MAX_WORDS_BEFORE: usize = 12;
    const MAX_OPTIONS: usize = 4;
    // A folder of a path, or a part of a word.
    let version = at.record().iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.');
    let next = version.and_then(|end| at.record().get(end));
    if next == Some(&b'/') || !at.block.begins_word(at.from) {
        return None;
    }
    let line = at.block.place(at.block.line_start(at.from)).text;
    // What is in quotes, or behind words of a sentence, is no command line.
    let words = shlex::split(line.trim())?;
    let is_python = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or(word);
        let version = name.strip_prefix("python");
        name == "torchrun"
            || version.is_some_and(|version| {
                version.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
            })
    };
    let first = words.iter().position(is_python)?;
    let is_before = |word: &String| {
        word.contains('=')
            || matches!(word.as_str(), "$" | "#" | ">" | "+" | "%" | ">>>" | "!" | "sudo" | "env")
            || word.ends_with('$')
            || word.starts_with('-')
    };
    let launchers = ["srun", "docker", "podman", "time", "nohup", "numactl", "uv", "poetry"];
    let is_launched = words[..first].iter().any(|word| launchers.contains(&word.as_str()));
    if first > MAX_WORDS_BEFORE || !(is_launched || words[..first].iter().all(is_before)) {
        return None;
    }
    let program = &words[first..];
    let names_script = match program.get(1).map(String::as_str) {
        Some("-m") => program.get(2).is_some_and(|module| module != "pip" && module != "venv"),
        _ => program
            .iter()
            .take(MAX_OPTIONS)
            .any(|word| word.ends_with(".py") && !word.ends_with("setup.py")),
    };
    let ends = ["2>&1", "|", ">", "&", "&&", ";"];
    let program = program.iter().take_while(|word| !ends.contains(&word.as_str()));
    let line = shlex::try_join(program.map(String::as_str)).ok()?;
    names_script.then_some(Message::Command { line })
}

/// `batch_size=64`, `--batch 8`, `global batch: 512`, and not the names of operations and layers.
fn batch(at: &Match<'_>) -> Option<Message> {
    const MAX_NAME_BYTES: usize = 16;
    let text = head(at.record(), MAX_NAME_BYTES);
    let of_map = at.before(24).ends_with(b"xs,") || at.before(24).ends_with(b"lax.map(f,xs,");
    let is_size = [&b"_size"[..], b"size", b"=", b":"].iter().any(|name| text.starts_with(name));
    let is_option = at.before(2) == b"--";
    ((is_size || is_option) && !of_map).then_some(Message::Batch)
}
