//! How the program was started: its script, its arguments, whether it has a batch.

use super::{Match, Pattern, contains_any, until};
use crate::explain::message::Message;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("file\"", script),
    Pattern::new("python", command),
    Pattern::new("torchrun", command),
    Pattern::new("uvrun", command),
    Pattern::new("batch", batch),
    Pattern::fixed("external/org_tensorflow/", Message::OldRelease),
    Pattern::fixed("--xla_gpu_autotune_level=0", Message::AutotuningOff),
];

/// `File "/home/user/train.py", line 50, in <module>` of a traceback.
fn script(at: &Match<'_>) -> Option<Message> {
    // An entry of a library is not worth a look at its line.
    const MAX_PATH_BYTES: usize = 240;
    let path = until(at.after_up_to(MAX_PATH_BYTES), b"\"\n");
    let of_packages = ["site-packages", "dist-packages", "/lib/python", "<", "ipykernel", "/bin/"];
    if !path.ends_with(b".py") || contains_any(path, &of_packages) {
        return None;
    }
    let line = at.block.place(at.from).text;
    // Where an excerpt begins later, the program's own entry is its `main`.
    let is_entry = line.ends_with(", in <module>") || line.ends_with(", in main");
    is_entry.then(|| Message::Script { path: at.original(path) })
}

/// What runs a command that it is given.
const LAUNCHERS: [&str; 9] =
    ["srun", "docker", "podman", "sudo", "time", "nohup", "numactl", "uv", "poetry"];

/// `$ python train.py --batch_size=64`, a command as the log or its reporter shows it.
fn command(at: &Match<'_>) -> Option<Message> {
    const MAX_WORDS_BEFORE: usize = 12;
    const MAX_OPTIONS: usize = 4;
    const MAX_VERSION_BYTES: usize = 8;
    const MAX_OPTIONS_BYTES: usize = 160;
    // A folder of a path, or a part of a word.
    let mut next = at.after_up_to(MAX_VERSION_BYTES).iter();
    let next = next.find(|byte| !byte.is_ascii_digit() && **byte != b'.');
    let names_program = || contains_any(at.after_up_to(MAX_OPTIONS_BYTES), &[".py", "-m"]);
    if next == Some(&b'/') || !names_program() || !at.block.begins_word(at.from) {
        return None;
    }
    let line = at.block.place(at.block.line_start(at.from)).text;
    let command = at.block.place(at.from).text;
    let before = line.strip_suffix(&command)?;
    // Behind a prompt, or alone; behind the words of a sentence it is no command line.
    let words: Vec<&str> = before.split_whitespace().collect();
    let prompt = words.iter().rposition(|word| word.ends_with(['$', '#', '>', '+', '%']));
    let words = &words[prompt.map_or(0, |at| at + 1)..];
    let is_before = |word: &&str| {
        word.contains('=') || word.starts_with('-') || word.ends_with('/') || *word == "env"
    };
    let is_launched = words.iter().any(|word| LAUNCHERS.contains(word));
    if words.len() > MAX_WORDS_BEFORE || !(is_launched || words.iter().all(is_before)) {
        return None;
    }
    let ends = ["2>&1", "|", ">", ">>", "&", "&&", ";"];
    let program: Vec<&str> =
        command.split_whitespace().take_while(|word| !ends.contains(word)).collect();
    let names_script = match program.get(1..)? {
        ["-m", module, ..] => !matches!(*module, "pip" | "venv"),
        // `uv run python …` is found at its `python`.
        ["run", "python" | "python3", ..] => false,
        words => words
            .iter()
            .take(MAX_OPTIONS)
            .any(|word| word.ends_with(".py") && !word.ends_with("setup.py")),
    };
    names_script.then(|| Message::Command { line: program.join(" ") })
}

/// `batch_size=64`, `--batch 8`, `global batch: 512`, and not the names of operations and layers.
fn batch(at: &Match<'_>) -> Option<Message> {
    const MAX_NAME_BYTES: usize = 8;
    let text = at.after_up_to(MAX_NAME_BYTES);
    let is_size = [&b"_size"[..], b"size", b"=", b":"].iter().any(|name| text.starts_with(name));
    // `jax.lax.map(f, xs, batch_size=64)` computes in chunks.
    let is_named = (is_size && !at.before(3).ends_with(b"xs,")) || at.before(2) == b"--";
    is_named.then_some(Message::Batch)
}
