//! What the data of a run is: looked at before anything starts, so that a run does not die of a shape
//! after Python and JAX have been loaded.

use std::path::Path;

use serde::Serialize;
use vramfit_core::train::Config;
use vramfit_core::{Error, ErrorKind, Result};
use vramfit_data::hdf5::Scalar;
use vramfit_data::inspect;
use vramfit_data::load::{ColumnOptions, Loader, LoaderOptions, SplitOptions, SplitSet};
use vramfit_data::order::{RemainderPolicy, SplitMode};
use vramfit_data::read::{Dataset, RowOptions, RowReader};

use super::labels;

/// The rows of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Look {
    /// What the model sees, as the file has it.
    pub(super) inputs: Column,
    /// What it predicts, as the file has it.
    pub(super) targets: Column,
    /// Steps of a sequence that the model sees; none where rows are no sequences to it.
    pub(super) sequence_length: Option<u64>,
    /// How many different tokens the inputs have; none where they are numbers.
    pub(super) vocabulary: Option<u64>,
    /// Whether the next token of each step is predicted.
    pub(super) predicts_next: bool,
    /// How many classes the labels have; none where the targets are floats.
    pub(super) classes: Option<u64>,
    /// Whether that was found out from the labels, and not written in the file.
    #[serde(skip)]
    pub(super) classes_found: bool,
    /// Rows that are learnt from.
    pub(super) train_rows: u64,
    /// Rows that validate.
    pub(super) validation_rows: u64,
    /// Batches that each epoch has, and steps.
    pub(super) steps: u64,
    /// How the file is gone through.
    #[serde(skip)]
    pub(super) plan: String,
}

/// A dataset.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Column {
    pub(super) dataset: String,
    pub(super) dtype: &'static str,
    pub(super) shape: Vec<u64>,
    /// What it becomes on its way to the model.
    pub(super) becomes: &'static str,
}

impl Column {
    /// Returns the shape of a row.
    pub(super) fn row(&self) -> &[u64] {
        &self.shape[1..]
    }
}

/// Looks at the datasets of a run.
///
/// # Errors
/// `invalid-argument` when they do not fit the model, each other or the memory; what opening a file can fail
/// with.
pub(super) fn look(config: &Config) -> Result<Look> {
    let data = &config.data;
    let mut inputs = column(&data.path, &data.inputs)?;
    let mut targets = column(&data.path, &data.targets)?;
    let integers = !targets.dtype.contains("float");
    let rebuilds = data.targets == data.inputs;
    // A row of one number has no next one.
    let predicts_next = integers && rebuilds && matches!(inputs.row(), [length] if *length > 1);
    // What a model makes of its own inputs is no class, whatever their type.
    let labels = integers && (predicts_next || !rebuilds);
    if labels {
        targets.becomes = "int32";
    }
    let vocabulary = match predicts_next || data.vocabulary.is_some() {
        true => Some(vocabulary(config, &inputs)?),
        false => None,
    };
    if vocabulary.is_some() {
        inputs.becomes = "int32";
    } else if data.scale.is_some() && matches!(inputs.dtype, "uint8" | "int8" | "uint16" | "int16")
    {
        // It is scaled on the device, and travels there as it is.
        inputs.becomes = inputs.dtype;
    }
    if let Some(path) = &data.validation_path {
        for (own, name) in [(&inputs, &data.inputs), (&targets, &data.targets)] {
            let other = column(path, name)?;
            if other.row() != own.row() {
                let message = format!(
                    "rows of `{name}` have the shape {:?} in `{}`, and {:?} in `{}`",
                    own.row(),
                    data.path.display(),
                    other.row(),
                    path.display()
                );
                return Err(Error::new(ErrorKind::InvalidArgument, message)
                    .hint("validate with rows of the same shape"));
            }
        }
    }
    let sequence_length = match vocabulary {
        Some(_) => Some(token_steps(config, &inputs, predicts_next)?),
        None => sequence_length(config, &inputs)?,
    };
    let classes = match labels {
        true if predicts_next => vocabulary,
        true => Some(labels::count_classes(config, targets.row())?),
        false => None,
    };
    let becomes = Scalar::from_name(inputs.becomes);
    let open = |set| open(config, set, becomes);
    let train = open(SplitSet::Train)?;
    let validates = data.validation_path.is_some() || data.validation_share > 0.0;
    let validation_rows = match validates {
        true => open(SplitSet::Validation)?.rows(),
        false => 0,
    };
    Ok(Look {
        inputs,
        targets,
        sequence_length,
        vocabulary,
        predicts_next,
        classes,
        classes_found: labels && data.classes.is_none() && !predicts_next,
        train_rows: train.rows(),
        validation_rows,
        steps: train.batches()? * config.training.steps_per_dispatch,
        plan: train.plan().to_text(),
    })
}

fn column(file: &Path, name: &str) -> Result<Column> {
    // Says so when the file is no HDF5 but something else that people have.
    let container = inspect::open(file)?;
    let (dataset, field) = Dataset::open_named(&container, name)?;
    let options = RowOptions {
        field,
        ..RowOptions::default()
    };
    let rows = RowReader::new(dataset, &options)?;
    Ok(Column {
        dataset: name.to_owned(),
        dtype: rows.scalar().name(),
        shape: [&[rows.len()], rows.row_shape()].concat(),
        becomes: "float32",
    })
}

/// Returns how many different tokens the inputs have, which must be sequences of integers.
fn vocabulary(config: &Config, inputs: &Column) -> Result<u64> {
    let name = &config.data.inputs;
    let refuse = |what: String| Error::new(ErrorKind::InvalidArgument, what);
    if inputs.dtype.contains("float") || inputs.row().len() != 1 {
        let message = format!(
            "tokens are rows of integers, and rows of `{name}` are {} of the shape {:?}",
            inputs.dtype,
            inputs.row()
        );
        return Err(refuse(message).hint("leave `vocabulary` out, or name another dataset"));
    }
    if config.model.kind == "mlp" {
        let message =
            format!("`{name}` has tokens, and a model of kind `mlp` has no vectors for them");
        return Err(refuse(message).hint("take `kind = \"gru\"`, `\"lstm\"` or `\"transformer\"`"));
    }
    if config.data.scale.is_some() {
        return Err(
            refuse(format!("`scale` has no effect on the tokens of `{name}`"))
                .hint("leave `scale` out"),
        );
    }
    labels::count_tokens(config)
}

/// Returns how many tokens of a row the model sees. The last one has no next one to be predicted.
fn token_steps(config: &Config, inputs: &Column, predicts_next: bool) -> Result<u64> {
    let steps = inputs.row()[0] - u64::from(predicts_next);
    match config.data.sequence_length {
        Some(wanted) if wanted > steps => {
            let message = format!(
                "`sequence_length` is {wanted}, and rows of `{}` have {steps} tokens to learn from",
                config.data.inputs
            );
            Err(Error::new(ErrorKind::InvalidArgument, message)
                .hint("leave it out for whole rows, or take fewer steps"))
        }
        wanted => Ok(wanted.unwrap_or(steps)),
    }
}

/// Returns how many steps of a sequence the model sees.
fn sequence_length(config: &Config, inputs: &Column) -> Result<Option<u64>> {
    let row = inputs.row();
    let shown = format!("rows of `{}` have the shape {row:?}", config.data.inputs);
    if config.model.kind != "mlp" && row.len() != 2 {
        let message = format!(
            "a model of kind `{}` needs rows of [steps, features], and {shown}",
            config.model.kind
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message).hint(
            "take `kind = \"mlp\"`, which sees a row of any shape, or store the rows as sequences",
        ));
    }
    match (config.data.sequence_length, row) {
        (Some(wanted), [length, _, ..]) if wanted <= *length => Ok(Some(wanted)),
        (Some(wanted), [length, _, ..]) => {
            let message = format!(
                "`sequence_length` is {wanted}, and sequences of `{}` have {length} steps",
                config.data.inputs
            );
            Err(Error::new(ErrorKind::InvalidArgument, message)
                .hint("leave it out for whole sequences, or take fewer steps"))
        }
        (Some(_), _) => {
            let message = format!("`sequence_length` is for sequences, and {shown}");
            Err(Error::new(ErrorKind::InvalidArgument, message).hint("leave it out"))
        }
        (None, [length, _, ..]) if config.model.kind != "mlp" => Ok(Some(*length)),
        (None, _) => Ok(None),
    }
}

/// Opens the loader that the run will have; nothing is read of the rows.
fn open(config: &Config, set: SplitSet, becomes: Option<Scalar>) -> Result<Loader> {
    let data = &config.data;
    let path = match (set, &data.validation_path) {
        (SplitSet::Validation, Some(path)) => path,
        _ => &data.path,
    };
    let divided = data.validation_path.is_none() && data.validation_share > 0.0;
    let inputs = ColumnOptions {
        to: becomes,
        ..data.inputs.as_str().into()
    };
    let mut columns = vec![inputs];
    if data.targets != data.inputs {
        columns.push(data.targets.as_str().into());
    }
    Loader::open(LoaderOptions {
        columns,
        batch_size: data.batch_size,
        super_batch: match (set, config.training.steps_per_dispatch) {
            (SplitSet::Train, steps) if steps > 1 => Some(steps),
            _ => None,
        },
        budget: data.memory,
        seed: data.seed,
        shuffle: data.shuffle && set == SplitSet::Train,
        remainder: match set {
            SplitSet::Train => RemainderPolicy::Drop,
            SplitSet::Validation => RemainderPolicy::Pad,
        },
        split: divided.then_some(SplitOptions {
            set,
            fraction: data.validation_share,
            mode: SplitMode::Spread,
            seed: 0,
        }),
        narrow: true,
        ..LoaderOptions::new(path, [])
    })
}
