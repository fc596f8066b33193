//! How the program was started: its script, its arguments, whether it has a batch.

use super::{Match, Pattern, contains_any, until};
use crate::explain::message::Message;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("file\"", script),
    Pattern::new("python", command),
    Pattern::new("torchrun", command),
    Pattern::new("uvrun", command),
    Pattern::new("acceleratelaunch", command),
    Pattern::new("batch", batch),
    Pattern::fixed("external/org_tensorflow/", Message::OldRelease),
    Pattern::fixed("microsoft-standard-wsl2", Message::Wsl),
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
const LAUNCHERS: [&str; 27] = [
    "apptainer",
    "conda",
    "docker",
    "hatch",
    "ionice",
    "jsrun",
    "mamba",
    "micromamba",
    "mpiexec",
    "mpirun",
    "nice",
    "nohup",
    "numactl",
    "pdm",
    "pipenv",
    "pixi",
    "podman",
    "poetry",
    "singularity",
    "srun",
    "stdbuf",
    "sudo",
    "taskset",
    "time",
    "timeout",
    "uv",
    "xvfb-run",
];

/// `$ python train.py --batch_size=64`, a command as the log or its reporter shows it.
fn command(at: &Match<'_>) -> Option<Message> {
    const MAX_WORDS_BEFORE: usize = 12;
    const MAX_VERSION_BYTES: usize = 8;
    const MAX_OPTIONS_BYTES: usize = 160;
    // A folder of a path, or a part of a word.
    let mut next = at.after_up_to(MAX_VERSION_BYTES).iter();
    let next = next.find(|byte| !byte.is_ascii_digit() && **byte != b'.');
    let names_program = || contains_any(at.after_up_to(MAX_OPTIONS_BYTES), &[".py", "-m"]);
    if next == Some(&b'/') || !names_program() || !at.block.begins_word(at.from) {
        return None;
    }
    let line = at.line();
    let command = at.block.place(at.from).text;
    let before = line.strip_suffix(&command)?;
    // Behind a prompt or another command, or alone; behind the words of a sentence it is no command line.
    let words: Vec<&str> = before.split_whitespace().collect();
    let ends_prompt = |word: &&str| word.ends_with(['$', '#', '>', '+', '%', ';']) || *word == "&&";
    let prompt = words.iter().rposition(ends_prompt);
    let words = &words[prompt.map_or(0, |at| at + 1)..];
    let is_before = |word: &&str| {
        word.contains('=') || word.starts_with('-') || word.ends_with('/') || *word == "env"
    };
    let launcher = words.iter().find(|word| !is_before(word));
    let is_launched = launcher.is_none_or(|word| LAUNCHERS.contains(word));
    if words.len() > MAX_WORDS_BEFORE || !is_launched {
        return None;
    }
    let program = command_words(&command)?;
    let names_script = match program.get(1..)? {
        // `uv run python …` is found at its `python`.
        [run, python, ..] if run == "run" && (python == "python" || python == "python3") => false,
        words => names_script(words),
    };
    names_script.then(|| Message::Command { line: program.join(" ") })
}

/// Returns the words of a command, up to where another begins or its output goes elsewhere. None where quotation marks
/// are left open.
fn command_words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for word in command.split_whitespace() {
        let is_redirection = word
            .trim_start_matches(|letter: char| letter.is_ascii_digit())
            .starts_with(['>', '<', '|']);
        if is_redirection || matches!(word, "&" | "&&" | ";") {
            break;
        }
        let kept = word.trim_end_matches([';', '&']);
        words.push(kept.to_owned());
        if kept.len() < word.len() {
            break;
        }
    }
    shlex::split(&words.join(" ")).is_some().then_some(words)
}

/// Returns `true` if the words behind an interpreter or launcher name a script or a module, perhaps behind options.
fn names_script(words: &[String]) -> bool {
    const MAX_OPTIONS: usize = 8;
    const WITH_VALUE: [&str; 2] = ["-X", "-W"];
    let mut words = words.iter().take(MAX_OPTIONS).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-m" => return words.next().is_some_and(|module| !matches!(module, "pip" | "venv")),
            "-c" => return false,
            word if WITH_VALUE.contains(&word) => drop(words.next()),
            word if word.ends_with(".py") => return !word.ends_with("setup.py"),
            _ => {}
        }
    }
    false
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
