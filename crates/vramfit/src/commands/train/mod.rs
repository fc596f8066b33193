//! `vramfit train`: a training run from one file, from HDF5 to checkpoints and a report.
//!
//! Everything that can be refused is refused here, before Python is started: the file, the datasets,
//! what the Python lacks. The loop itself is `vramfit.train.fit`.

mod check;
mod datasets;
mod effects;
mod ending;
mod init;
mod labels;
mod memory;
mod processes;
mod proposal;
mod rehearsal;
mod request;
mod start;

use std::path::{Path, PathBuf};

use vramfit_core::train::Config;
use vramfit_core::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::output::Output;
use crate::status::Status;

/// Train a model on an HDF5 file, as one configuration file says
///
/// Rows are streamed in bounded memory. The state is saved as the run goes on, and the same command goes
/// on after a kill where it was.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit train --init train.toml
  vramfit train --init train.toml --data images.h5
  vramfit train train.toml --check
  vramfit train train.toml --dry-run t4
  vramfit train train.toml --set optimizer.learning_rate=3e-4 --epochs 20

Exit codes:
  0      the run is finished, or stopped early as it was told to
  1      it failed, or --dry-run says that it does not fit: out of memory, a loss that is not a number, an error of the program,
         a final state that could not be saved
  2      it could not be started
  128+N  it was ended by signal N, and its state is saved
")]
pub(crate) struct Args {
    /// The file that describes the run
    #[arg(
        value_name = "CONFIG",
        required_unless_present = "init",
        conflicts_with = "init"
    )]
    config: Option<PathBuf>,
    /// Write a file to begin with, all keys explained; `-` is standard output
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "train.toml",
        conflicts_with_all = ["check", "dry_run", "set", "epochs", "device", "resume", "fresh"]
    )]
    init: Option<PathBuf>,
    /// Propose what fits this HDF5 file in the file that `--init` writes
    #[arg(long, value_name = "FILE", requires = "init")]
    data: Option<PathBuf>,
    /// Say what will be done with which data, and start nothing
    #[arg(long)]
    check: bool,
    /// Try it on a GPU that is not there, and find the largest batch that fits; start nothing
    #[arg(long, value_name = "GPU", conflicts_with = "check")]
    dry_run: Option<String>,
    /// Another value for a key of the file, such as `data.batch_size=64`; can be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Short for `--set training.epochs=N`
    #[arg(long, value_name = "N")]
    epochs: Option<String>,
    /// Short for `--set training.device=D`
    #[arg(long, value_name = "D")]
    device: Option<String>,
    /// Refuse to begin: there has to be a checkpoint to go on from
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// Begin anew: what an earlier run has left in the directory is moved to `previous-1` in it
    #[arg(long)]
    fresh: bool,
    /// Go on from a checkpoint even though the configuration or the data has changed since
    #[arg(long, conflicts_with = "fresh")]
    force_resume: bool,
    /// How progress is shown: a bar on a terminal, only lines, one line per epoch, or nothing
    #[arg(long, value_name = "MODE", value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// How progress is shown, as `progress=` of `vramfit.train.fit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProgressMode {
    /// A bar on a terminal, lines elsewhere, a summary of each epoch
    Auto,
    /// As `auto`, without a bar
    Plain,
    /// As `auto`, with one line for each epoch
    Compact,
    /// Nothing
    None,
}

impl Args {
    pub(crate) fn prints_json(&self) -> bool {
        self.json
    }

    /// Returns the options that stand for a key of the file, in their order of precedence.
    fn settings(&self) -> Vec<String> {
        let mut settings = self.set.clone();
        let short = [("epochs", &self.epochs), ("device", &self.device)];
        for (name, value) in short {
            settings.extend(value.iter().map(|value| format!("training.{name}={value}")));
        }
        settings
    }
}

/// Runs `vramfit train`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    if let Some(path) = &args.init {
        return init::run(path, args.data.as_deref(), output);
    }
    let file = args.config.as_deref().expect("clap requires it");
    let config = read(file, &args.settings())?;
    ensure_no_file(&config)?;
    let rows = datasets::look(&config)?;
    let mut warnings = effects::check(&config, &rows)?;
    if args.check {
        let memory = memory::Memory::add_up(&config, &rows);
        warnings.extend(memory.as_ref().and_then(memory::Memory::warning));
        return check::tell(
            file,
            &config,
            &rows,
            memory.as_ref(),
            &warnings,
            args.json,
            output,
        );
    }
    if let Some(gpu) = &args.dry_run {
        return rehearsal::run(gpu, file, &config, &rows, args.json, context, output);
    }
    if !args.json {
        for warning in &warnings {
            output.info(&format!("warning: {warning}"));
        }
    }
    start::run(args, file, &config, &rows, context, output)
}

/// Refuses a directory of the run that is a file, such as that of the data, or in one.
fn ensure_no_file(config: &Config) -> Result<()> {
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
        "the directory of the run is `{}`, and `{}` is {what}",
        directory.display(),
        file.display()
    );
    Err(Error::new(ErrorKind::InvalidArgument, message).hint(
        "name a directory for checkpoints and metrics, such as `--set training.directory=runs/train`",
    ))
}

/// Reads the file of a run.
fn read(file: &Path, settings: &[String]) -> Result<Config> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let message = format!("cannot read `{}`", file.display());
        Error::new(ErrorKind::Io, message)
            .cause(error)
            .hint("`vramfit train --init train.toml` writes a file to begin with")
    })?;
    Config::read(file, &text, settings)
}
