//! The directory of a run as the commands that use its model see it.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_base::files::{cannot_read, missing_directory};
use vramfit_data::write::Number;
use vramfit_runner::Context;
use vramfit_runner::child;
use vramfit_train::{Config, RecordedData, RunRecord};

use super::datasets::{Column, column};
use super::labels;
use super::outcome::STOP_SIGNALS;
use super::request::{OutcomeKind, RequestDir};
use super::start::python;
use crate::commands::results::JsonTarget;
use crate::output::Output;

/// Options of all commands that use a trained model.
#[derive(clap::Args, Debug)]
pub(crate) struct ModelArgs {
    /// Checkpoint to use: `best`, `last`, or a step
    #[arg(long, value_name = "WHICH", default_value = "best", value_parser = parse_checkpoint)]
    pub(crate) checkpoint: Json,
    /// Device: `cpu`, `gpu` or `cuda` (required), `cuda?` (a GPU if there is one)
    #[arg(long, value_name = "D")]
    pub(crate) device: Option<String>,
}

pub(super) fn parse_checkpoint(text: &str) -> std::result::Result<Json, String> {
    match (text, text.parse::<u64>()) {
        ("best" | "last", _) => Ok(text.into()),
        (_, Ok(step)) => Ok(step.into()),
        _ => Err("use `best`, `last` or the step of a checkpoint".to_owned()),
    }
}

/// A run of `vramfit train` that has been started.
#[derive(Debug)]
pub(crate) struct TrainedRun {
    pub(crate) directory: PathBuf,
    pub(crate) config: Config,
    pub(crate) data: RecordedData,
}

impl TrainedRun {
    /// Reads the record of a run.
    ///
    /// # Errors
    /// `io` when there is no such directory, `invalid-argument` when it is not that of a run of `vramfit train`.
    pub(crate) fn read(directory: &Path) -> Result<TrainedRun> {
        let file = directory.join("run.json");
        let shown = directory.display();
        let hint = "name the directory that `vramfit train` wrote, such as `runs/train`";
        if !directory.exists() {
            return Err(missing_directory(directory, hint));
        }
        if !file.exists() {
            let message = format!("`{shown}` is not the directory of a run: it has no `run.json`");
            return Err(Error::invalid_argument(message).hint(
                match directory.join("checkpoints").is_dir() {
                    true => {
                        "it was written by an earlier version: resume the run once with this one"
                    }
                    false => hint,
                },
            ));
        }
        let text = std::fs::read_to_string(&file).map_err(|error| cannot_read(&file, error))?;
        let record = RunRecord::read(&text).map_err(|error| {
            let message = format!("`{}` cannot be read: {}", file.display(), error.message());
            Error::new(error.kind(), message).cause(error.cause_text().unwrap_or_default())
        })?;
        let config = record.train_config();
        let (Some(config), Some(data)) = (config, record.data) else {
            let message = format!(
                "`{shown}` is a run of a program that called `fit`, whose model only that program knows"
            );
            return Err(Error::invalid_argument(message)
                .hint("`vramfit.train.load_state(run, like=state)` returns its state"));
        };
        Ok(TrainedRun { directory: directory.to_owned(), config, data })
    }

    /// Returns the dataset of a file that the model predicts from.
    ///
    /// # Errors
    /// `invalid-argument` when its rows are not those that the model was trained on.
    pub(crate) fn inputs(&self, file: &Path, dataset: Option<&str>) -> Result<Column> {
        let name = dataset.unwrap_or(&self.data.inputs.dataset);
        let found = column(file, name).map_err(|error| match dataset {
            None if error.kind() != ErrorKind::Io => {
                error.hint("name the dataset of the inputs with `--inputs`")
            }
            _ => error,
        })?;
        let trained = &self.data.inputs.shape[1..];
        if found.row() != trained {
            let message = format!(
                "rows of `{name}` in `{}` have the shape {:?}, but the model was trained on {trained:?}",
                file.display(),
                found.row()
            );
            return Err(Error::invalid_argument(message).hint(
                "use rows as those of the training data, or name another dataset with `--inputs`",
            ));
        }
        Ok(found)
    }

    /// Ensures that rows of the targets in a file have the shape of those that the model was trained on.
    ///
    /// # Errors
    /// `invalid-argument` when they have not.
    pub(crate) fn check_targets(&self, file: &Path) -> Result<()> {
        let name = &self.data.targets.dataset;
        let found = column(file, name)?;
        let trained = &self.data.targets.shape[1..];
        // A label may stand in an array of one.
        let is_label = |row: &[u64]| matches!(row, [] | [1]);
        if found.row() == trained || is_label(found.row()) && is_label(trained) {
            return Ok(());
        }
        let message = format!(
            "rows of `{name}` in `{}` have the shape {:?}, but the model was trained on {trained:?}",
            file.display(),
            found.row()
        );
        Err(Error::invalid_argument(message).hint("use targets as those of the training data"))
    }

    /// Ensures that all tokens of a file are known to the model, if it takes tokens.
    ///
    /// # Errors
    /// `invalid-argument` when one is out of range.
    pub(crate) fn check_tokens(&self, file: &Path, dataset: &str) -> Result<()> {
        if self.data.vocabulary.is_none() {
            return Ok(());
        }
        let mut config = self.config.clone();
        file.clone_into(&mut config.data.path);
        dataset.clone_into(&mut config.data.inputs);
        config.data.validation_path = None;
        config.data.vocabulary = self.data.vocabulary;
        labels::count_tokens(&config).map(|_| ())
    }

    /// Returns the device for a model that was trained on one of these: a GPU where there is one.
    fn device(&self) -> Option<&'static str> {
        match self.config.training.device.as_deref() {
            Some("cpu") => Some("cpu"),
            Some("gpu" | "cuda" | "cuda?") => Some("cuda?"),
            _ => None,
        }
    }

    /// Has Python do something with the model, and returns its result.
    ///
    /// # Errors
    /// What went wrong there.
    pub(crate) fn perform(
        &self,
        action: &str,
        model: &ModelArgs,
        mut request: Json,
        context: &Context,
        output: &Output,
        json: &JsonTarget,
    ) -> Result<Json> {
        request["action"] = action.into();
        request["run"] = self.directory.to_string_lossy().into();
        request["checkpoint"] = model.checkpoint.clone();
        request["device"] = json!(model.device.as_deref().or(self.device()));
        request["progress"] =
            if json.is_stdout() || output.is_quiet() { "none" } else { "auto" }.into();
        request["parent_pid"] = std::process::id().into();
        run_action(&request, context)
    }
}

/// Has Python do what a request asks for, and returns its result.
///
/// # Errors
/// What went wrong there.
pub(super) fn run_action(request: &Json, context: &Context) -> Result<Json> {
    let folder = RequestDir::new(request)?;
    let ended = child::run(&python(context)?, &folder.arguments(), None, |_| {})?;
    if let child::ExitReason::Signal(signal) = ended
        && STOP_SIGNALS.contains(&signal)
    {
        return Err(Error::new(ErrorKind::Interrupted, "stopped")
            .hint("the same command goes on where it was"));
    }
    let Some(outcome) = folder.outcome() else {
        let message = format!("the process with the model {}", ended.describe());
        return Err(Error::new(ErrorKind::Internal, message).hint("see its output above"));
    };
    match (outcome.kind, outcome.error) {
        (OutcomeKind::Finished, _) => Ok(outcome.result),
        (_, Some(error)) => Err(error.into()),
        (_, None) => Err(Error::new(ErrorKind::Internal, "it failed for an unknown reason")),
    }
}

/// Returns the type of numbers that HDF5 has for those of a column.
pub(crate) fn stored_type(column: &Column) -> &'static str {
    match (Number::from_name(column.dtype), column.dtype) {
        (Some(number), _) => number.name(),
        (None, "bool") => Number::U8.name(),
        // HDF5 has no bfloat16.
        (None, _) => Number::F32.name(),
    }
}
