//! `vramfit check --init`: a first `vramfit.toml` with the programs that are found here.

use std::fs;
use std::path::{Path, PathBuf};

use vramfit_analysis::{Error, Result};

use crate::command_line::shell_line;
use crate::files::{writable, write};
use crate::output::Output;
use crate::status::Status;

/// Programs that are proposed.
const MAX_ENTRIES: usize = 5;
/// Folders below the current one that are searched.
const MAX_DEPTH: usize = 2;
/// Of a file that is read to find out whether it uses JAX.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Folders with files of others, or with no programs.
const SKIPPED: [&str; 8] =
    ["tests", "test", "docs", "build", "dist", "node_modules", "site-packages", "__pycache__"];
const LIBRARIES: [&str; 5] = ["jax", "flax", "optax", "equinox", "haiku"];

const HEADER: &str = "\
# What `vramfit check` measures on virtual GPUs: peak, steady state and temporaries of the
# step, compared to the byte with vramfit.lock. docs/commands/check.md describes all keys.
[check]
gpus = [\"l4\"]          # `vramfit gpus` lists the models; \"h100-80gx8\" is eight GPUs
# tolerance = \"0\"      # nothing here is measured on hardware, so equality is no harder than 1 MiB
";

const TEMPLATE: &str = r#"
# No program that uses JAX was found here.
[[check.entry]]
name = "train"
command = "python train.py"   # runs in the folder of this file
steps = 3                     # stop after this many executions of the training step

# A function of yours, called once with arguments of these shapes:
# [[check.entry]]
# name = "step"
# function = "model:train_step"
# arguments = [{ w = "float32[1024,1024]" }, "float32[256,1024]"]
# max = "20GiB"
"#;

/// Writes the file.
pub(super) fn run(path: Option<&Path>, force: bool, output: &mut Output) -> Result<Status> {
    let path = path.unwrap_or(Path::new("vramfit.toml"));
    if path.file_name().is_some_and(|name| name == "pyproject.toml") {
        return Err(Error::invalid_argument("`--init` writes no `pyproject.toml`")
            .hint("run `vramfit check --init`, and move the tables to `[tool.vramfit.check]`"));
    }
    let target = writable(path, force)?;
    let folder = target.parent().unwrap_or(Path::new("."));
    let mut found = Vec::new();
    find_programs(folder, 0, &mut found);
    found.sort_by_key(|file| (file.components().count(), file.clone()));
    found.truncate(MAX_ENTRIES);
    let mut text = HEADER.to_owned();
    let mut names: Vec<String> = Vec::new();
    for file in &found {
        let relative = file.strip_prefix(folder).unwrap_or(file);
        let name = entry_name(relative, &names);
        text.push_str(&format!(
            "\n[[check.entry]]\nname = \"{name}\"\ncommand = {}\nsteps = 3\n",
            toml_text(&shell_line(["python".as_ref(), relative.as_os_str()]))
        ));
        names.push(name);
    }
    if found.is_empty() {
        text.push_str(TEMPLATE);
    }
    write(&target, &text, force)?;
    let what = match names.len() {
        0 => "with an example".to_owned(),
        1 => format!("with 1 entry: {}", names[0]),
        count => format!("with {count} entries: {}", names.join(", ")),
    };
    output.text(&format!(
        "{} written {what}\nnext: add the arguments that make them small, then `vramfit check --update`, \
         and commit both files\n",
        path.display()
    ))?;
    Ok(Status::Yes)
}

/// Finds files that use JAX and are run as programs.
fn find_programs(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            let is_environment = path.join("pyvenv.cfg").exists();
            let is_skipped = name.starts_with('.') || SKIPPED.contains(&&*name) || is_environment;
            if !is_skipped && depth < MAX_DEPTH {
                find_programs(&path, depth + 1, found);
            }
        } else if kind.is_file() && name.ends_with(".py") && is_program(&path) {
            found.push(path);
        }
    }
}

fn is_program(path: &Path) -> bool {
    if fs::metadata(path).is_ok_and(|data| data.len() > MAX_FILE_BYTES) {
        return false;
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let imports = text.lines().any(|line| {
        let mut words = line.split([' ', '.', ',']);
        matches!(words.next(), Some("import" | "from"))
            && words.next().is_some_and(|word| LIBRARIES.contains(&word))
    });
    imports && text.contains("__main__")
}

/// Returns a name that no other entry has.
fn entry_name(file: &Path, taken: &[String]) -> String {
    let stem = file.with_extension("");
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }
    };
    let clean = |text: &str| text.chars().map(allowed).collect::<String>();
    let short = clean(&stem.file_name().unwrap_or_default().to_string_lossy());
    match taken.contains(&short) {
        false => short,
        true => clean(&stem.to_string_lossy()),
    }
}

/// Writes a text as TOML.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use vramfit_analysis::check::CheckConfig;

    use super::*;
    use crate::output::OutputOptions;

    #[test]
    fn programs_are_proposed_and_others_are_not() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path();
        for (file, text) in [
            ("train.py", "import jax\nif __name__ == '__main__': pass\n"),
            ("it's new/train.py", "from flax import nnx\nif __name__ == '__main__': pass\n"),
            ("library.py", "import jax.numpy as jnp\n"),
            ("plain.py", "import numpy\nif __name__ == '__main__': pass\n"),
            ("tests/test_a.py", "import jax\nif __name__ == '__main__': pass\n"),
            (".venv/a.py", "import jax\nif __name__ == '__main__': pass\n"),
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("in a folder")).expect("created");
            fs::write(path, text).expect("written");
        }
        let path = root.join("vramfit.toml");
        let mut output = Output::new(OutputOptions { quiet: true, ..OutputOptions::default() });
        run(Some(&path), false, &mut output).expect("written");
        let text = fs::read_to_string(&path).expect("written");
        let config = CheckConfig::read(Path::new("vramfit.toml"), &text);
        let config = config.expect("valid").expect("has entries");
        let names: Vec<&str> = config.entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, ["train", "it-s-new-train"]);
        run(Some(&path), false, &mut output).expect_err("it exists");
    }

    #[test]
    fn the_template_is_valid() {
        let text = format!("{HEADER}{TEMPLATE}");
        let config = CheckConfig::read(Path::new("vramfit.toml"), &text);
        let config = config.expect("valid").expect("has entries");
        assert_eq!(config.entries.len(), 1);
        let mut uncommented = text.replace("# [[", "[[");
        for key in ["name", "function", "arguments", "max"] {
            uncommented = uncommented.replace(&format!("# {key}"), key);
        }
        CheckConfig::read(Path::new("vramfit.toml"), &uncommented).expect("valid");
    }
}
