//! A file that a line names and that does not exist, in every command that reads one.

use std::path::Path;
use std::process::Command;

/// Files beside those that are named, and the lines in which one is misspelled.
const FILES: [&str; 7] =
    ["gpt.trace", "plan.toml", "train.log", "train.h5", "train.py", "gpu.txt", "top.jsonl"];
const LINES: [(&str, &str, &str); 26] = [
    ("dryrun --gpu t4 trian.py", "trian.py", "train.py"),
    ("dryrun --gpu plam.toml train.py", "plam.toml", "plan.toml"),
    ("dryrun --gpu t4 --plan plna.toml train.py", "plna.toml", "plan.toml"),
    ("dryrun --gpu t4 --calibration plna.toml train.py", "plna.toml", "plan.toml"),
    ("dryrun --gpu t4 --autotune-results gup.txt train.py", "gup.txt", "gpu.txt"),
    ("plan --gpu t4 trian.py", "trian.py", "train.py"),
    ("plan --gpu plam.toml train.py", "plam.toml", "plan.toml"),
    ("plan --gpu t4 --calibration plna.toml train.py", "plna.toml", "plan.toml"),
    ("check --config plam.toml", "plam.toml", "plan.toml"),
    ("run --plan plna.toml train.py", "plna.toml", "plan.toml"),
    ("explain trian.log", "trian.log", "train.log"),
    ("explain train.log --with gtp.trace", "gtp.trace", "gpt.trace"),
    ("explain train.log --gpu plam.toml", "plam.toml", "plan.toml"),
    ("top --once --replay tpo.jsonl", "tpo.jsonl", "top.jsonl"),
    ("report gtp.trace", "gtp.trace", "gpt.trace"),
    ("diff gtp.trace gpt.trace", "gtp.trace", "gpt.trace"),
    ("replay gtp.trace", "gtp.trace", "gpt.trace"),
    ("replay --gpu plam.toml gpt.trace", "plam.toml", "plan.toml"),
    ("data inspect trian.h5", "trian.h5", "train.h5"),
    ("data stats trian.h5", "trian.h5", "train.h5"),
    ("train plam.toml", "plam.toml", "plan.toml"),
    ("train --init new.toml --data trian.h5", "trian.h5", "train.h5"),
    ("gpus plam.toml", "plam.toml", "plan.toml"),
    ("gpus show plam.toml", "plam.toml", "plan.toml"),
    ("predict rusn/a train.h5 out.h5", "rusn/a", ""),
    ("train --list rusn", "rusn", "runs"),
];

fn run(line: &str, folder: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramfit"));
    let done = command.args(line.split(' ')).current_dir(folder).env("NO_COLOR", "1").output();
    let done = done.expect("it starts");
    assert!(!done.status.success(), "{line}");
    String::from_utf8(done.stderr).expect("text")
}

#[test]
fn the_nearest_name_is_suggested_by_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in FILES {
        std::fs::write(folder.path().join(name), "text\n").expect("written");
    }
    std::fs::create_dir(folder.path().join("runs")).expect("made");
    for (line, missing, meant) in LINES {
        let shown = run(line, folder.path());
        let what = if missing.starts_with("rusn") { "directory" } else { "file" };
        assert!(shown.contains(&format!("]: there is no {what} `{missing}`\n")), "{line}: {shown}");
        let hint = match meant {
            "" => "hint: name the directory that `vramfit train` wrote",
            _ => &format!("hint: did you mean `{meant}`?"),
        };
        assert!(shown.contains(hint), "{line}: {shown}");
        assert!(!shown.contains("cause:"), "{line}: {shown}");
    }
}
