//! The datasets of a run, checked before Python and JAX are loaded.

use std::path::Path;

use serde::Serialize;
use vramfit_core::{Error, Result};
use vramfit_data::hdf5::Scalar;
use vramfit_data::inspect;
use vramfit_data::load::{ColumnOptions, Loader, LoaderOptions, SplitOptions, SplitSet};
use vramfit_data::order::{RemainderPolicy, SplitMode};
use vramfit_data::read::{Dataset, RowOptions, RowReader};
use vramfit_train::Config;

use super::labels;

/// The data of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DatasetInfo {
    /// The inputs of the model, as stored.
    pub(super) inputs: Column,
    /// Its targets, as stored.
    pub(super) targets: Column,
    /// Steps of a sequence that the model gets; none if rows are not sequences.
    pub(super) sequence_length: Option<u64>,
    /// Number of different tokens of the inputs; none if they are numbers.
    pub(super) vocabulary: Option<u64>,
    /// Whether the target of each step is the next token.
    pub(super) predicts_next: bool,
    /// Number of classes of the labels; none if the targets are floats.
    pub(super) classes: Option<u64>,
    /// Whether that was inferred from the labels, and not configured.
    #[serde(skip)]
    pub(super) classes_inferred: bool,
    pub(super) train_rows: u64,
    pub(super) validation_rows: u64,
    /// Steps of an epoch, one for each batch.
    pub(super) steps_per_epoch: u64,
    /// How the file is read.
    #[serde(skip)]
    pub(super) plan: String,
}

/// A dataset.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Column {
    pub(super) dataset: String,
    pub(super) dtype: &'static str,
    pub(super) shape: Vec<u64>,
    /// What it is converted to on its way to the model.
    pub(super) batch_dtype: &'static str,
}

impl Column {
    /// Returns the shape of a row.
    pub(super) fn row(&self) -> &[u64] {
        &self.shape[1..]
    }
}

/// Inspects the datasets of a run.
///
/// # Errors
/// `invalid-argument` when they do not fit the model, each other or the memory; the errors of opening a file.
pub(super) fn inspect(config: &Config) -> Result<DatasetInfo> {
    let data = &config.data;
    let mut inputs = column(&data.path, &data.inputs)?;
    let mut targets = column(&data.path, &data.targets)?;
    let integers = !targets.dtype.contains("float");
    let is_autoencoder = data.targets == data.inputs;
    // A row of one number has no next one.
    let predicts_next =
        integers && is_autoencoder && matches!(inputs.row(), [length] if *length > 1);
    // An autoencoder predicts values, not classes, whatever their type.
    let labels = integers && (predicts_next || !is_autoencoder);
    if labels {
        targets.batch_dtype = "int32";
    }
    let vocabulary = match predicts_next || data.vocabulary.is_some() {
        true => Some(vocabulary(config, &inputs)?),
        false => None,
    };
    if vocabulary.is_some() {
        inputs.batch_dtype = "int32";
    } else if data.scale.is_some() && matches!(inputs.dtype, "uint8" | "int8" | "uint16" | "int16")
    {
        // It is converted and scaled on the device.
        inputs.batch_dtype = inputs.dtype;
    }
    if let Some(path) = &data.validation_path {
        for (own, name) in [(&inputs, &data.inputs), (&targets, &data.targets)] {
            let other = column(path, name)?;
            if other.row() != own.row() {
                let message = format!(
                    "rows of `{name}` have the shape {:?} in `{}`, but {:?} in `{}`",
                    own.row(),
                    data.path.display(),
                    other.row(),
                    path.display()
                );
                return Err(Error::invalid_argument(message)
                    .hint("use a validation file with rows of the same shape"));
            }
        }
    }
    let sequence_length = match vocabulary {
        Some(_) => Some(tokens_per_row(config, &inputs, predicts_next)?),
        None => sequence_length(config, &inputs)?,
    };
    let classes = match labels {
        true if predicts_next => vocabulary,
        true => Some(labels::count_classes(config, targets.row())?),
        false => None,
    };
    let batch_dtype = Scalar::from_name(inputs.batch_dtype);
    let open = |set| open(config, set, batch_dtype);
    let train = open(SplitSet::Train)?;
    let validates = data.validation_path.is_some() || data.validation_fraction > 0.0;
    let validation_rows = match validates {
        true => open(SplitSet::Validation)?.rows(),
        false => 0,
    };
    Ok(DatasetInfo {
        inputs,
        targets,
        sequence_length,
        vocabulary,
        predicts_next,
        classes,
        classes_inferred: labels && data.classes.is_none() && !predicts_next,
        train_rows: train.rows(),
        validation_rows,
        steps_per_epoch: train.batches()? * config.training.steps_per_dispatch,
        plan: train.plan().to_text(),
    })
}

fn column(file: &Path, name: &str) -> Result<Column> {
    // Its error names the format of a file that is not HDF5.
    let container = inspect::open(file)?;
    let (dataset, field) = Dataset::open_named(&container, name)?;
    let options = RowOptions { field, ..RowOptions::default() };
    let rows = RowReader::new(dataset, &options)?;
    Ok(Column {
        dataset: name.to_owned(),
        dtype: rows.scalar().name(),
        shape: [&[rows.len()], rows.row_shape()].concat(),
        batch_dtype: "float32",
    })
}

/// Returns the number of different tokens of the inputs, which must be sequences of integers.
fn vocabulary(config: &Config, inputs: &Column) -> Result<u64> {
    let name = &config.data.inputs;
    let invalid = |message: String| Error::invalid_argument(message);
    if inputs.dtype.contains("float") || inputs.row().len() != 1 {
        let message = format!(
            "tokens must be rows of integers, but rows of `{name}` are {} with the shape {:?}",
            inputs.dtype,
            inputs.row()
        );
        return Err(invalid(message).hint("remove `vocabulary`, or choose another dataset"));
    }
    if config.model.kind == "mlp" {
        let message =
            format!("`{name}` has tokens, but a model of kind `mlp` has no embedding for them");
        return Err(invalid(message).hint("use `kind = \"gru\"`, `\"lstm\"` or `\"transformer\"`"));
    }
    if config.data.scale.is_some() {
        return Err(invalid(format!("`scale` has no effect on the tokens of `{name}`"))
            .hint("remove `scale`"));
    }
    labels::count_tokens(config)
}

/// Returns how many tokens of a row the model gets: all but the last one, if the next token is predicted.
fn tokens_per_row(config: &Config, inputs: &Column, predicts_next: bool) -> Result<u64> {
    let steps = inputs.row()[0] - u64::from(predicts_next);
    match config.data.sequence_length {
        Some(wanted) if wanted > steps => {
            let message = format!(
                "`sequence_length` is {wanted}, but rows of `{}` have {steps} tokens for training",
                config.data.inputs
            );
            Err(Error::invalid_argument(message)
                .hint("remove it to use whole rows, or use fewer steps"))
        }
        wanted => Ok(wanted.unwrap_or(steps)),
    }
}

/// Returns how many steps of a sequence the model gets.
fn sequence_length(config: &Config, inputs: &Column) -> Result<Option<u64>> {
    let row = inputs.row();
    let shown = format!("rows of `{}` have the shape {row:?}", config.data.inputs);
    if config.model.kind != "mlp" && row.len() != 2 {
        let message = format!(
            "a model of kind `{}` needs rows of [steps, features], but {shown}",
            config.model.kind
        );
        return Err(Error::invalid_argument(message).hint(
            "use `kind = \"mlp\"`, which takes rows of any shape, or store the rows as sequences",
        ));
    }
    match (config.data.sequence_length, row) {
        (Some(wanted), [length, _, ..]) if wanted <= *length => Ok(Some(wanted)),
        (Some(wanted), [length, _, ..]) => {
            let message = format!(
                "`sequence_length` is {wanted}, but sequences of `{}` have {length} steps",
                config.data.inputs
            );
            Err(Error::invalid_argument(message)
                .hint("remove it to use whole sequences, or use fewer steps"))
        }
        (Some(_), _) => {
            let message = format!("`sequence_length` needs sequences, but {shown}");
            Err(Error::invalid_argument(message).hint("remove it"))
        }
        (None, [length, _, ..]) if config.model.kind != "mlp" => Ok(Some(*length)),
        (None, _) => Ok(None),
    }
}

/// Opens a loader like that of the run; no rows are read.
fn open(config: &Config, set: SplitSet, batch_dtype: Option<Scalar>) -> Result<Loader> {
    let data = &config.data;
    let path = match (set, &data.validation_path) {
        (SplitSet::Validation, Some(path)) => path,
        _ => &data.path,
    };
    let splits_file = data.validation_path.is_none() && data.validation_fraction > 0.0;
    let inputs = ColumnOptions { to: batch_dtype, ..data.inputs.as_str().into() };
    let mut columns = vec![inputs];
    if data.targets != data.inputs {
        columns.push(data.targets.as_str().into());
    }
    Loader::open(LoaderOptions {
        columns,
        batch_size: data.batch_size,
        stacked_batches: match (set, config.training.steps_per_dispatch) {
            (SplitSet::Train, steps) if steps > 1 => Some(steps),
            _ => None,
        },
        budget: data.memory,
        seed: data.seed,
        shuffle: data.shuffle && set == SplitSet::Train,
        remainder: match set {
            SplitSet::Train => RemainderPolicy::Drop,
            SplitSet::Validation | SplitSet::Test => RemainderPolicy::Pad,
        },
        split: splits_file.then_some(SplitOptions::of_two(
            set,
            data.validation_fraction,
            SplitMode::Spread,
            0,
        )),
        narrow: true,
        ..LoaderOptions::new(path, [])
    })
}
