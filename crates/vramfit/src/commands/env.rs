//! `vramfit env`: the settings of a program, written for the place where it will run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use vramfit_core::env::{self, File, Format, Start, Variable};
use vramfit_core::lint::{Surroundings, lint};
use vramfit_core::report::render_findings;
use vramfit_core::settings::{self, Version};
use vramfit_core::{Error, ErrorKind, Result};

use super::policy::PolicyArgs;
use crate::cards::{self, Cards};
use crate::files;
use crate::output::Output;
use crate::status::Status;

/// Write memory settings for a shell, an image, a cluster
///
/// The text is complete: it can be pasted or written to a file as it is. It is for another machine,
/// so nothing here is asked: neither this environment nor its cards. An amount of bytes needs the card
/// it is for (`--gpu`).
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit env shell --fraction 0.9
  vramfit env dockerfile --gpu a100-80g --limit 40GiB -- python train.py --batch 64
  vramfit env devcontainer --gpu rtx-4090 --processes 2 --require-gpu --write .
")]
pub(crate) struct Args {
    /// The place to write for
    #[arg(value_name = "PLACE")]
    #[arg(value_parser = PossibleValuesParser::new(Format::ALL.map(Format::name))
        .map(|word| Format::from_str(&word).expect("only these words are let through")))]
    format: Format,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Set another variable, too; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The release of JAX to install, whose names are written
    #[arg(long, value_name = "VERSION", default_value_t = RELEASE)]
    jax: Version,
    /// The image that a container is made from
    #[arg(long, value_name = "NAME", default_value = "python:3.12-slim")]
    image: String,
    /// Write files under this directory, which is made if need be, instead of printing
    #[arg(long, value_name = "DIRECTORY")]
    write: Option<PathBuf>,
    /// Overwrite files that exist
    #[arg(long, requires = "write")]
    force: bool,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", last = true, default_values = ["python", "train.py"])]
    command: Vec<String>,
}

/// The release that the tests of this version run on.
const RELEASE: Version = Version::new(0, 10, 2);

/// The first release with a plugin for CUDA 13.
const FIRST_FOR_CUDA_13: Version = Version::new(0, 7, 2);

/// Runs `vramfit env`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let told = args.policy.told();
    let cards = told.gpu.map(cards::cards).transpose()?;
    // This machine's cards say nothing about another's.
    let rooms = match told.gpu {
        Some(_) => cards::rooms(&told, |_| None),
        None => Err(Error::new(
            ErrorKind::InvalidArgument,
            "an amount of memory can only be written for a card that is known",
        )
        .hint("name it, such as `--gpu a100-80g`; `vramfit gpus` lists the cards")),
    };
    let policy = args.policy.policy(rooms, false)?;
    let assigned = settings::variables_for(&policy, args.jax, |_| None)?;
    let mut variables: Vec<Variable> = assigned
        .set
        .into_iter()
        .map(|set| Variable {
            name: set.name.to_owned(),
            value: set.value,
            reason: set.reason,
        })
        .collect();
    let mut notes = assigned.notes;
    let own = own_variables(&args.set)?;
    if variables.is_empty() && own.is_empty() {
        notes.push(
            "no option asks for a setting, so JAX takes 75 % of the card at its first operation"
                .to_owned(),
        );
    }
    for (name, value) in &own {
        variables.retain(|variable| variable.name != *name);
        variables.push(Variable {
            name: name.clone(),
            value: value.clone(),
            reason: String::new(),
        });
    }
    let start = Start {
        variables,
        notes,
        command: args.command.clone(),
        gpus: cards.as_ref().map_or(1, |cards| cards.count),
        jax: args.jax.to_string(),
        cuda_extra: cuda_extra(cards.as_ref(), args.jax).to_owned(),
        image: args.image.clone(),
    };
    let files = env::write(args.format, &start)?;
    match &args.write {
        Some(directory) => write(directory, &files, args.force, output)?,
        None => output.data(&printed(&files))?,
    }
    tell_what_is_wrong(&start, &own, args.jax, output);
    Ok(Status::Yes)
}

/// Reads what `--set` gave; of a name given twice the last counts.
fn own_variables(set: &[String]) -> Result<BTreeMap<String, String>> {
    let read = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("`--set {text}` sets nothing"),
            )
            .hint(format!("write `--set {text}=VALUE`"))
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    set.iter().map(read).collect()
}

/// Returns the extra of JAX that brings the newest CUDA which release and card both know.
fn cuda_extra(cards: Option<&Cards>, release: Version) -> &'static str {
    let card_takes = cards.is_none_or(|cards| cards.gpu.supports_cuda(13));
    if card_takes && release >= FIRST_FOR_CUDA_13 {
        "cuda13"
    } else {
        "cuda12"
    }
}

/// Returns what is printed: one file as it is, several with their names between them.
fn printed(files: &[File]) -> String {
    match files {
        [file] => file.text.clone(),
        _ => files
            .iter()
            .map(|file| format!("# ---- {} ----\n{}", file.path, file.text))
            .collect(),
    }
}

/// Writes the files and names each, and makes the directories they are in. No file is written unless all
/// can be.
fn write(directory: &Path, files: &[File], force: bool, output: &mut Output) -> Result<()> {
    for file in files {
        let path = directory.join(file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                Error::new(
                    ErrorKind::Io,
                    format!("cannot make the directory `{}`", folder.display()),
                )
                .cause(error)
            })?;
        }
        files::writable(&path, force)?;
    }
    for file in files {
        let path = directory.join(file.path);
        files::write(&path, &file.text, force)?;
        output.say(&format!("written: {}", path.display()));
    }
    Ok(())
}

/// Tells what the lint finds in the variables that the user gave, beside what is set for them.
fn tell_what_is_wrong(
    start: &Start,
    own: &BTreeMap<String, String>,
    release: Version,
    output: &mut Output,
) {
    let all = start.variables.iter();
    let surroundings = Surroundings {
        environment: all
            .map(|variable| (variable.name.clone(), variable.value.clone()))
            .collect(),
        jax: Some(release),
        ..Surroundings::default()
    };
    let mut findings = lint(&surroundings);
    findings.retain(|finding| own.contains_key(&finding.subject));
    if !findings.is_empty() {
        output.say(&render_findings(&findings));
    }
}
