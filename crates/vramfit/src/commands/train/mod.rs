//! `vramfit train`: a training run from one file, from HDF5 to checkpoints and a report.
//!
//! The file and the datasets are checked here, before Python is started. The loop itself is
//! `vramfit.train.fit`.

mod batch_search;
mod check;
pub(super) mod datasets;
mod evaluate;
mod ineffective_keys;
mod init;
mod labels;
mod list;
mod outcome;
mod processes;
mod proposal;
mod request;
mod start;
mod stop_requests;
pub(super) mod trained_run;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::ArgGroup;
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_base::files::cannot_read_with_hint;
use vramfit_runner::Context;
use vramfit_runner::interruption::Interruption;
use vramfit_train::Config;

use self::trained_run::ModelArgs;
use super::results::JsonArgs;
use crate::command_line::shell_line;
use crate::output::Output;
use crate::status::Status;

/// Train a model on an HDF5 file, as described by a configuration file
///
/// Rows are streamed in bounded memory. Checkpoints are saved during the run, and the same command resumes
/// from the latest one.
#[derive(clap::Args, Debug)]
#[command(group = ArgGroup::new("results").args(["html", "json"]).multiple(true))]
#[command(after_help = "\
Examples:
  vramfit train --init train.toml
  vramfit train --init train.toml --data images.h5
  vramfit train train.toml --check
  vramfit train train.toml --dry-run t4
  vramfit train train.toml --set optimizer.learning_rate=3e-4 --epochs 20
  vramfit train --evaluate runs/train test.h5
  vramfit train --list runs --html runs.html

Exit codes:
  0      finished, or stopped early as configured
  1      failed: out of memory, a loss that is NaN or infinite, an error in the program, a full disk or another failure to
         write, such as a final state that could not be saved; or --dry-run found that it does not fit
  2      could not be started: the configuration, the data, the packages, a checkpoint that does not match
  128+N  stopped by signal N, with its state saved
")]
pub(crate) struct Args {
    /// Configuration file of the run
    #[arg(
        value_name = "CONFIG",
        required_unless_present_any = ["init", "evaluate", "list"],
        conflicts_with_all = ["init", "evaluate", "list"]
    )]
    config: Option<PathBuf>,
    /// Write a configuration template in which all keys are explained; `-` is standard output
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "train.toml",
        conflicts_with_all = ["check", "dry_run", "set", "epochs", "device", "resume", "fresh"]
    )]
    init: Option<PathBuf>,
    /// Fill in the template for this HDF5 file (with `--init`)
    #[arg(long, value_name = "FILE", requires = "init")]
    data: Option<PathBuf>,
    /// Check configuration and data, show the plan, and exit
    #[arg(long)]
    check: bool,
    /// Evaluate the model of a run on an HDF5 file, and print its metrics
    #[arg(
        long,
        num_args = 2,
        value_names = ["RUN", "DATA"],
        conflicts_with_all = ["init", "check", "dry_run", "set", "epochs", "resume", "fresh"]
    )]
    evaluate: Option<Vec<PathBuf>>,
    /// Checkpoint to evaluate: `best`, `last`, or a step
    #[arg(long, value_name = "WHICH", requires = "evaluate", value_parser = trained_run::parse_checkpoint)]
    checkpoint: Option<serde_json::Value>,
    /// Show the runs in a directory side by side
    #[arg(long, value_name = "DIR", conflicts_with_all = ["init", "evaluate", "check", "dry_run", "set"])]
    list: Option<PathBuf>,
    /// Write the report as a self-contained HTML file (with `--list`)
    #[arg(long, value_name = "FILE", requires = "list", alias = "report")]
    html: Option<PathBuf>,
    /// Overwrite existing files (with `--html` or `--json`)
    #[arg(long, requires = "results")]
    force: bool,
    /// Dry-run on a virtual GPU and report the largest batch size that fits
    #[arg(long, value_name = "GPU", conflicts_with = "check")]
    dry_run: Option<String>,
    /// Override a key of the configuration, such as `data.batch_size=64`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Short for `--set training.epochs=N`
    #[arg(long, value_name = "N")]
    epochs: Option<String>,
    /// Short for `--set training.device=D`
    #[arg(long, value_name = "D")]
    device: Option<String>,
    /// Require an existing checkpoint
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// Start over: move the files of an earlier run to `previous-1` in the directory
    #[arg(long)]
    fresh: bool,
    /// Resume even though the configuration or the data has changed since the checkpoint
    #[arg(long, conflicts_with = "fresh")]
    force_resume: bool,
    /// How progress is shown
    #[arg(long, value_name = "MODE", value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// How progress is shown, as `progress=` of `vramfit.train.fit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProgressMode {
    /// A bar on a terminal, lines elsewhere, and a summary of each epoch
    Auto,
    /// Like `auto`, without a bar
    Plain,
    /// Like `auto`, with one line per epoch
    Compact,
    /// Nothing
    None,
}

impl Args {
    /// Returns the options that override keys of the file, the last of which wins.
    fn overrides(&self) -> Vec<String> {
        let mut overrides = self.set.clone();
        let short = [("epochs", &self.epochs), ("device", &self.device)];
        for (name, value) in short {
            overrides.extend(value.iter().map(|value| format!("training.{name}={value}")));
        }
        overrides
    }
}

/// Runs `vramfit train`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    if let Some(path) = &args.init {
        return init::run(path, args.data.as_deref(), output);
    }
    let json = args.json.target(args.force)?;
    if let Some(directory) = &args.list {
        return list::run(directory, args.html.as_deref(), args.force, &json, output);
    }
    if let Some([run, data]) = args.evaluate.as_deref() {
        let model = ModelArgs {
            checkpoint: args.checkpoint.clone().unwrap_or_else(|| "best".into()),
            device: args.device.clone(),
        };
        return evaluate::run(run, data, &model, &json, context, output);
    }
    let file = args.config.as_deref().expect("clap requires it");
    let config = read(file, &args.overrides())?;
    ensure_directory_is_no_file(&config)?;
    let info = datasets::inspect(&config)?;
    let mut warnings = ineffective_keys::check(&config, &info)?;
    warnings.extend_from_slice(&info.packing_warnings);
    if args.check {
        let parameters = check::count_own_parameters(&config, &info, context)?;
        return check::report(file, &config, &info, &warnings, parameters, &json, output);
    }
    if let Some(gpu) = &args.dry_run {
        let _interruption = Interruption::watch()?;
        return batch_search::run(gpu, file, &config, &info, &json, context, output);
    }
    if !json.is_stdout() {
        for warning in &warnings {
            output.info(&format!("warning: {warning}"));
        }
    }
    match start::run(args, &config, &info, json, context, output) {
        // What was asked for is right, and would have been done with more space on a disk.
        Err(error) if error.kind() == ErrorKind::Io => {
            output.error(&error);
            Ok(Status::No)
        }
        ended => ended,
    }
}

/// Returns the command that was given.
fn given_command(context: &Context) -> String {
    let given = context.arguments.iter().map(OsString::as_os_str);
    shell_line([OsStr::new("vramfit")].into_iter().chain(given))
}

/// Returns the command that was given, without options that are for this time only and with others.
fn command_with(context: &Context, more: &[&str]) -> String {
    let mut words = vec![OsStr::new("vramfit")];
    let mut given = context.arguments.iter().map(OsString::as_os_str);
    while let Some(word) = given.next() {
        match word.as_encoded_bytes() {
            b"--" => {
                // Only the name of the file can follow.
                words.extend(more.iter().map(OsStr::new));
                words.push(word);
                words.extend(given);
                return shell_line(words);
            }
            b"--fresh" => {}
            b"--dry-run" => drop(given.next()),
            other if other.starts_with(b"--dry-run=") => {}
            _ => words.push(word),
        }
    }
    words.extend(more.iter().map(OsStr::new));
    shell_line(words)
}

/// Ensures that the directory of the run is not a file, such as that of the data, nor in one.
fn ensure_directory_is_no_file(config: &Config) -> Result<()> {
    let directory = config.training.directory.clone().unwrap_or_default();
    let there = directory.ancestors().find(|path| path.exists());
    let Some(file) = there.filter(|path| !path.is_dir()) else {
        return Ok(());
    };
    let same = |data: &Path| match (data.canonicalize(), file.canonicalize()) {
        (Ok(data), Ok(file)) => data == file,
        _ => false,
    };
    let data = &config.data;
    let what = match &data.validation_path {
        _ if same(&data.path) => "the data file of `data.path`",
        Some(path) if same(path) => "the data file of `data.validation_path`",
        _ => "a file",
    };
    let message = format!(
        "the directory of the run is `{}`, but `{}` is {what}",
        directory.display(),
        file.display()
    );
    Err(Error::invalid_argument(message).hint(
        "choose a directory for checkpoints and metrics, such as `--set training.directory=runs/train`",
    ))
}

/// Reads the configuration file.
fn read(file: &Path, overrides: &[String]) -> Result<Config> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        cannot_read_with_hint(file, error, "`vramfit train --init train.toml` writes a template")
    })?;
    Config::read(file, &text, overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_resume_with_is_the_one_that_was_given() {
        for (given, expected) in [
            (&["train", "a.toml"][..], "vramfit train a.toml"),
            (
                &["-q", "train", "my runs/a.toml", "--fresh", "--epochs=3"],
                "vramfit -q train 'my runs/a.toml' '--epochs=3'",
            ),
            (
                &["train", "a.toml", "--dry-run", "t4", "--set", "data.inputs='x y'"],
                "vramfit train a.toml --set \"data.inputs='x y'\"",
            ),
            (
                &["train", "--dry-run=t4", "--force-resume", "--", "--fresh"],
                "vramfit train --force-resume -- --fresh",
            ),
        ] {
            let context = Context {
                arguments: given.iter().map(OsString::from).collect(),
                ..Context::default()
            };
            assert_eq!(command_with(&context, &[]), expected);
        }
        let context = Context {
            arguments: ["train", "--", "a.toml"].map(OsString::from).to_vec(),
            ..Context::default()
        };
        assert_eq!(
            command_with(&context, &["--dry-run", "GPU"]),
            "vramfit train --dry-run GPU -- a.toml"
        );
    }
}
