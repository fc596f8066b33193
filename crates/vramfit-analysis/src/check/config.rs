//! The entries that are checked: `[check]` of `vramfit.toml`, or `[tool.vramfit.check]` of `pyproject.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::amount::Amount;
use super::outcome::Limits;
use crate::analysis::hosts::MAX_HOSTS;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::gpu::GpuSelection;
use crate::nearest::nearest;
use crate::run_config::{FEW_CALLS, StepLimit};

/// What is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckConfig {
    /// The entries, in the order of the file.
    pub entries: Vec<Entry>,
}

/// A program, and the GPUs that it is measured on.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name, unique in the file.
    pub name: String,
    /// The program.
    pub program: Program,
    /// The GPUs, as they are written and as they are meant.
    pub gpus: Vec<GpuSelection>,
    /// How many hosts with these GPUs run the program together; `None` for one.
    pub hosts: Option<u32>,
    /// What it may need.
    pub limits: Limits,
    /// Fraction of the GPU's memory that JAX's pool may use; JAX's default where it is not set.
    pub fraction: Option<f64>,
    /// Variables of the program's environment.
    pub env: BTreeMap<String, String>,
}

/// How the program of an entry is started.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// A command.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// After which training steps to stop.
        steps: StepLimit,
        /// Name of the function that is the training step, where it is not detected.
        step: Option<String>,
    },
    /// A function that is called once.
    Function {
        /// The function, as `module:name`.
        function: String,
        /// Its arguments: a list of pytrees whose leaves are texts such as `float32[8,128]`, or the
        /// function that returns them, as `module:name`.
        arguments: serde_json::Value,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    check: Option<CheckTable>,
}

#[derive(Deserialize)]
struct PyProject {
    tool: Option<ToolTable>,
}

#[derive(Deserialize)]
struct ToolTable {
    vramfit: Option<ConfigFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckTable {
    gpus: Option<Vec<String>>,
    steps: Option<StepLimit>,
    tolerance: Option<Amount>,
    spare: Option<Amount>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    entry: Vec<EntryTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryTable {
    name: String,
    command: Option<Command>,
    function: Option<String>,
    arguments: Option<serde_json::Value>,
    gpus: Option<Vec<String>>,
    hosts: Option<u32>,
    steps: Option<StepLimit>,
    step: Option<String>,
    max: Option<Amount>,
    spare: Option<Amount>,
    tolerance: Option<Amount>,
    fraction: Option<f64>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a command such as \"python train.py\", or a list of its words"
)]
enum Command {
    Text(String),
    Words(Vec<String>),
}

/// Returns the name of the table with the entries in a file of this name.
pub fn find_table(file: &Path) -> &'static str {
    match is_pyproject(file) {
        true => "tool.vramfit.check",
        false => "check",
    }
}

fn is_pyproject(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == "pyproject.toml")
}

impl CheckConfig {
    /// Reads the text of a file; `None` where it has no table for entries.
    ///
    /// # Errors
    /// `invalid-file` when it is not TOML; `invalid-argument` for an unknown key or an invalid value, and
    /// `unknown-gpu`.
    pub fn read(file: &Path, text: &str) -> Result<Option<CheckConfig>> {
        let parsed = match is_pyproject(file) {
            true => toml::from_str::<PyProject>(text)
                .map(|all| all.tool.and_then(|tool| tool.vramfit?.check)),
            false => toml::from_str::<ConfigFile>(text).map(|all| all.check),
        };
        let table = parsed.map_err(|error| read_error(file, text, &error))?;
        let Some(table) = table else {
            return Ok(None);
        };
        let shown = file.display();
        if table.entry.is_empty() {
            let name = find_table(file);
            return Err(Error::invalid_argument(format!("`{shown}` has no entries"))
                .hint(format!("add `[[{name}.entry]]`, or run `vramfit check --init`")));
        }
        let mut config = CheckConfig { entries: Vec::new() };
        for entry in &table.entry {
            let name = entry.name.clone();
            let entry = read_entry(&table, entry)
                .map_err(|error| error.context(format_args!("`{shown}`, entry `{name}`")))?;
            if config.entries.iter().any(|other| other.name == name) {
                return Err(Error::invalid_argument(format!(
                    "`{shown}` has two entries called `{name}`"
                ))
                .hint("give each entry a name of its own: it is its name in the lock file"));
            }
            config.entries.push(entry);
        }
        Ok(Some(config))
    }
}

fn read_entry(table: &CheckTable, entry: &EntryTable) -> Result<Entry> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if entry.name.is_empty() || !entry.name.chars().all(allowed) {
        return Err(Error::invalid_argument("the name is not valid")
            .hint("use letters, digits and `-_.`, such as `train-small`"));
    }
    let program = read_program(table, entry)?;
    let gpus = entry.gpus.as_ref().or(table.gpus.as_ref());
    let gpus = gpus.filter(|gpus| !gpus.is_empty()).ok_or_else(|| {
        Error::invalid_argument("no GPU to measure on")
            .hint("add `gpus = [\"l4\"]`; `vramfit gpus` lists the models")
    })?;
    let gpus = gpus.iter().map(|name| name.parse());
    let max = match entry.max {
        Some(Amount::Percent(_)) => {
            return Err(Error::invalid_argument("`max` is a percentage")
                .hint("write bytes, such as `max = \"20GiB\"`, or use `spare = \"5%\"`"));
        }
        Some(Amount::Bytes(bytes)) => Some(Bytes(bytes)),
        None => None,
    };
    if entry.fraction.is_some_and(|fraction| !(fraction > 0.0 && fraction <= 1.0)) {
        return Err(Error::invalid_argument("`fraction` is out of range")
            .hint("write a number above 0 and up to 1, such as `0.9`"));
    }
    if entry.hosts.is_some_and(|hosts| !(1..=MAX_HOSTS).contains(&hosts)) {
        return Err(Error::invalid_argument("`hosts` is out of range")
            .hint(format!("write the number of hosts, from 1 to {MAX_HOSTS}")));
    }
    let mut env = table.env.clone();
    env.extend(entry.env.clone());
    Ok(Entry {
        name: entry.name.clone(),
        program,
        gpus: gpus.collect::<Result<_>>()?,
        limits: Limits {
            max,
            spare: entry.spare.or(table.spare),
            tolerance: entry.tolerance.or(table.tolerance).unwrap_or_default(),
        },
        hosts: entry.hosts,
        fraction: entry.fraction,
        env,
    })
}

fn read_program(table: &CheckTable, entry: &EntryTable) -> Result<Program> {
    match (&entry.command, &entry.function) {
        (Some(command), None) => {
            if entry.arguments.is_some() {
                return Err(Error::invalid_argument("`arguments` goes with `function`")
                    .hint("write the arguments of a command in `command`"));
            }
            let words = match command {
                Command::Words(words) => words.clone(),
                Command::Text(text) => shlex::split(text).ok_or_else(|| {
                    Error::invalid_argument("a quote in `command` is not closed")
                        .hint("or write a list of words: `command = [\"python\", \"train.py\"]`")
                })?,
            };
            if words.is_empty() {
                return Err(Error::invalid_argument("`command` is empty")
                    .hint("for example `command = \"python train.py --batch 8\"`"));
            }
            let steps = entry.steps.or(table.steps);
            Ok(Program::Command {
                words,
                steps: steps.unwrap_or(StepLimit::Calls(FEW_CALLS)),
                step: entry.step.clone(),
            })
        }
        (None, Some(function)) => {
            if !is_qualified(function) {
                return Err(Error::invalid_argument("`function` is not `module:name`")
                    .hint("for example `function = \"model:train_step\"`"));
            }
            if entry.steps.is_some() || entry.step.is_some() {
                return Err(Error::invalid_argument("`steps` and `step` go with `command`")
                    .hint("a function is called once"));
            }
            Ok(Program::Function {
                function: function.clone(),
                arguments: entry.arguments.clone().unwrap_or_else(|| serde_json::json!([])),
            })
        }
        (Some(_), Some(_)) => Err(Error::invalid_argument("both `command` and `function` are set")
            .hint("keep one of them")),
        (None, None) => Err(Error::invalid_argument("neither `command` nor `function` is set")
            .hint("add `command = \"python train.py\"` or `function = \"model:train_step\"`")),
    }
}

/// Returns `true` if a text is `module:name`, both of them possibly dotted.
fn is_qualified(text: &str) -> bool {
    let is_dotted = |text: &str| {
        text.split('.').all(|word| {
            let starts = word.starts_with(|c: char| c.is_alphabetic() || c == '_');
            starts && word.chars().all(|c| c.is_alphanumeric() || c == '_')
        })
    };
    text.split_once(':').is_some_and(|(module, name)| is_dotted(module) && is_dotted(name))
}

/// Names the line of a mistake, and the key that was probably meant.
fn read_error(file: &Path, text: &str, error: &toml::de::Error) -> Error {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
    let shown = file.display();
    let message = error.message();
    let Some(rest) = message.strip_prefix("unknown field `") else {
        let is_syntax = toml::from_str::<toml::Table>(text).is_err();
        return match is_syntax {
            true => {
                Error::invalid_file(format!("`{shown}:{line}` is not valid TOML")).cause(message)
            }
            false => Error::invalid_argument(format!("`{shown}:{line}`: {message}"))
                .hint("docs/commands/check.md lists the keys and their values"),
        };
    };
    let mut words = rest.split('`');
    let key = words.next().unwrap_or_default();
    let known: Vec<&str> = words.skip(1).step_by(2).collect();
    let error = Error::invalid_argument(format!("`{shown}:{line}`: unknown key `{key}`"));
    match nearest(key, known.iter().copied()).first() {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("the keys are `{}`", known.join("`, `"))),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
