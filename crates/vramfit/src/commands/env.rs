//! `vramfit env`: memory settings in the format of a shell, an image or a cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use vramfit_advice::env::{self, Format, GeneratedFile, Launch, Variable};
use vramfit_advice::lint::{LintInput, lint};
use vramfit_analysis::report::render_findings;
use vramfit_analysis::{Error, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::settings::{NAME_GPU_HINT, Target, Version, resolve};

use super::dryrun::host_count_parser;
use super::policy::PolicyArgs;
use crate::files;
use crate::output::Output;
use crate::status::Status;

/// Generate memory settings for a shell, a container image or a cluster
///
/// The text is complete: paste it, or write it to a file. It is meant for another machine, so neither
/// the environment nor the GPUs of this one are considered. A size in bytes needs the GPU it is for
/// (`--gpu`).
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit env shell --fraction 0.9
  vramfit env dockerfile --gpu a100-80g --limit 40GiB -- python train.py --batch 64
  vramfit env slurm --gpu h100-80gx8 --hosts 4 --write . -- python train.py
")]
pub(crate) struct Args {
    /// Output format
    #[arg(value_name = "FORMAT")]
    #[arg(value_parser = PossibleValuesParser::new(Format::ALL.map(Format::name))
        .map(|name| Format::from_str(&name).expect("only these names are accepted")))]
    format: Format,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Write a job of N hosts, each with the GPUs of --gpu (formats slurm and kubernetes)
    #[arg(long, value_name = "N", value_parser = host_count_parser())]
    hosts: Option<u32>,
    /// Also set this variable; can be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Release of JAX to install; decides which variable names are used
    #[arg(long, value_name = "VERSION", default_value_t = DEFAULT_JAX)]
    jax: Version,
    /// Base image of containers
    #[arg(long, value_name = "NAME", default_value = "python:3.12-slim")]
    image: String,
    /// Write files into this directory, which is created if missing, instead of printing
    #[arg(long, value_name = "DIRECTORY")]
    write: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long, requires = "write")]
    force: bool,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", last = true, default_values = ["python", "train.py"])]
    command: Vec<String>,
}

/// The release that the tests of this version run on.
const DEFAULT_JAX: Version = Version::new(0, 10, 2);

/// The first release with a plugin for CUDA 13.
const MIN_JAX_FOR_CUDA_13: Version = Version::new(0, 7, 2);

/// Runs `vramfit env`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let overrides = args.policy.gpu_overrides()?;
    // The GPUs of this machine say nothing about another's.
    let target = Target {
        jax: Some(args.jax),
        gpu_budgets: &|| match &overrides.selection {
            Some(_) => overrides.gpu_budgets(|_| None),
            None => Err(Error::invalid_argument(
                "a size in bytes can only be converted for a known GPU",
            )
            .hint(NAME_GPU_HINT)),
        },
        detailed: true,
        ..Target::default()
    };
    let gpus = || {
        let unknown =
            || Error::invalid_argument("unified memory needs a known GPU").hint(NAME_GPU_HINT);
        overrides.selection.clone().ok_or_else(unknown)
    };
    let settings = resolve(&args.policy.options(gpus, || None)?, &target)?;
    let mut variables: Vec<Variable> = settings
        .set
        .into_iter()
        .map(|set| Variable { name: set.name.to_owned(), value: set.value, reason: set.reason })
        .collect();
    let mut notes = settings.notes;
    let custom = parse_variables(&args.set)?;
    if variables.is_empty() && custom.is_empty() {
        notes.push(
            "no option sets anything, so JAX preallocates 75 % of the GPU's memory at startup"
                .to_owned(),
        );
    }
    for (name, value) in &custom {
        variables.retain(|variable| variable.name != *name);
        variables.push(Variable {
            name: name.clone(),
            value: value.clone(),
            reason: String::new(),
        });
    }
    let gpus = overrides.selection.as_ref();
    let launch = Launch {
        variables,
        notes,
        command: args.command.clone(),
        gpus: gpus.map_or(1, |gpus| gpus.count),
        hosts: args.hosts,
        jax: args.jax.to_string(),
        cuda_extra: cuda_extra(gpus, args.jax).to_owned(),
        image: args.image.clone(),
    };
    let files = env::write(args.format, &launch)?;
    match &args.write {
        Some(directory) => write_files(directory, &files, args.force, output)?,
        None => output.data(&concatenate(&files))?,
    }
    report_findings(&launch, &custom, args.jax, output);
    Ok(Status::Yes)
}

/// Parses the values of `--set`; the last one of a name counts.
fn parse_variables(set: &[String]) -> Result<BTreeMap<String, String>> {
    let parse = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Error::invalid_argument(format!("`--set {text}` has no value"))
                .hint(format!("write `--set {text}=VALUE`"))
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    set.iter().map(parse).collect()
}

/// Returns the extra of JAX with the latest CUDA that both the release and the GPU support.
fn cuda_extra(gpus: Option<&GpuSelection>, jax: Version) -> &'static str {
    let is_supported = gpus.is_none_or(|gpus| gpus.gpu.supports_cuda(13));
    if is_supported && jax >= MIN_JAX_FOR_CUDA_13 { "cuda13" } else { "cuda12" }
}

/// Returns the text to print: one file as it is, several with their names between them.
fn concatenate(files: &[GeneratedFile]) -> String {
    match files {
        [file] => file.text.clone(),
        _ => files.iter().map(|file| format!("# ---- {} ----\n{}", file.path, file.text)).collect(),
    }
}

/// Writes the files, after checking that all of them can be written.
fn write_files(
    directory: &Path,
    files: &[GeneratedFile],
    force: bool,
    output: &mut Output,
) -> Result<()> {
    for file in files {
        let path = directory.join(file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                Error::io(format!("cannot create the directory `{}`", folder.display()))
                    .cause(error)
            })?;
        }
        files::writable(&path, force)?;
    }
    for file in files {
        let path = directory.join(file.path);
        files::write(&path, &file.text, force)?;
        output.info(&format!("written: {}", path.display()));
    }
    Ok(())
}

/// Prints what the lint rules find in the variables of `--set`.
fn report_findings(
    launch: &Launch,
    custom: &BTreeMap<String, String>,
    jax: Version,
    output: &mut Output,
) {
    let all = launch.variables.iter();
    let surroundings = LintInput {
        environment: all.map(|variable| (variable.name.clone(), variable.value.clone())).collect(),
        jax: Some(jax),
        ..LintInput::default()
    };
    let mut findings = lint(&surroundings);
    findings.retain(|finding| custom.contains_key(&finding.subject));
    if !findings.is_empty() {
        output.info(&render_findings(&findings));
    }
}
