//! The datasets of a run, checked before Python and JAX are loaded.

use std::path::Path;

use serde::Serialize;
use vramfit_analysis::{Error, Result};
use vramfit_data::hdf5::Scalar;
use vramfit_data::inspect::{self, name_attributes};
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
    /// Number of classes; none if the targets are quantities.
    pub(super) classes: Option<u64>,
    /// The loss: one of ours, or something in Python.
    pub(super) loss: String,
    /// Number of values that the model predicts for a row, or for a step if it predicts the next one.
    pub(super) outputs: u64,
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
    /// What to know of values that are not what they stand for.
    #[serde(skip)]
    pub(super) packing_warnings: Vec<String>,
}

/// A dataset.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Column {
    pub(crate) dataset: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<u64>,
    /// What it is converted to on its way to the model.
    pub(crate) batch_dtype: &'static str,
}

impl Column {
    /// Returns the shape of a row.
    pub(crate) fn row(&self) -> &[u64] {
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
    let Task { loss, target, predicts_next } = task(config, &inputs, &targets)?;
    if matches!(target, Target::Labels | Target::Integers) {
        targets.batch_dtype = "int32";
    }
    if data.normalizes("targets") && target != Target::Quantities {
        let message = format!(
            "`normalize` is `{}`, but the targets of `{}` are not quantities: the loss is `{loss}`",
            data.normalize.as_deref().unwrap_or_default(),
            data.targets
        );
        return Err(Error::invalid_argument(message).hint("set `data.normalize` to `inputs`"));
    }
    ensure_classes(config, target, &targets, &loss)?;
    let vocabulary = match predicts_next || data.vocabulary.is_some() {
        true => Some(vocabulary(config, &inputs)?),
        false => None,
    };
    if vocabulary.is_some() {
        inputs.batch_dtype = "int32";
    } else if (data.scale.is_some() || data.normalizes("inputs"))
        && matches!(inputs.dtype, "uint8" | "int8" | "uint16" | "int16")
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
    let classes = match target {
        Target::Labels if predicts_next => vocabulary,
        Target::Labels => Some(labels::count_classes(config, targets.row())?),
        Target::Probabilities => targets.row().last().copied(),
        Target::Integers | Target::Quantities | Target::Flags => None,
    };
    let outputs = match target {
        Target::Labels => classes.unwrap_or(1),
        _ => targets.row().iter().product(),
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
        classes_inferred: target == Target::Labels && data.classes.is_none() && !predicts_next,
        loss,
        outputs,
        train_rows: train.rows(),
        validation_rows,
        steps_per_epoch: train.batches()? * config.training.steps_per_dispatch,
        plan: train.plan().to_text(),
        packing_warnings: train.columns().iter().filter_map(packing_warning).collect(),
    })
}

/// Returns what to know of a dataset of packed values, which training takes as they are stored.
fn packing_warning(column: &vramfit_data::load::Column) -> Option<String> {
    let named = name_attributes(column.packing_attributes())?;
    let name = column.name();
    let named_fill = |name: &&str| matches!(*name, "_FillValue" | "missing_value");
    if column.packing_attributes().iter().all(named_fill) && !column.stored_as().contains("float") {
        return Some(format!(
            "`{name}` has the {named}, for missing values: these are integers like the others to the model; leave their \
             rows out of the file"
        ));
    }
    Some(format!(
        "`{name}` has the {named}: the model gets values as they are stored, packed and with fill values for missing \
         ones; unpack them first, with `xarray.open_dataset(\"in.nc\").drop_encoding().to_netcdf(\"out.nc\")`, or \
         train with a `vramfit.data.Loader(unpack=True)`"
    ))
}

/// What the targets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Numbers whose distance to a prediction is its error.
    Quantities,
    /// The number of one class for each row, or for each step.
    Labels,
    /// A probability for each class.
    Probabilities,
    /// 0 or 1, for each of several labels.
    Flags,
    /// Integers that only a loss of the user's knows.
    Integers,
}

/// What a model is trained for.
struct Task {
    loss: String,
    target: Target,
    /// Whether the target of each step is the next token.
    predicts_next: bool,
}

/// Returns the loss, and what the targets are to it.
fn task(config: &Config, inputs: &Column, targets: &Column) -> Result<Task> {
    let data = &config.data;
    let integers = !targets.dtype.contains("float");
    let is_autoencoder = data.targets == data.inputs;
    // A row of one number has no next one.
    let has_next = integers && is_autoencoder && matches!(inputs.row(), [length] if *length > 1);
    // An autoencoder predicts values, not classes, whatever their type.
    let has_labels = integers && (has_next || !is_autoencoder);
    let loss = config.training.loss.as_deref();
    let found = |loss: &str, target| Task {
        loss: loss.to_owned(),
        target,
        predicts_next: has_next && target == Target::Labels,
    };
    Ok(match loss {
        None if has_labels => found("cross_entropy", Target::Labels),
        None => found("mse", Target::Quantities),
        Some("mse" | "mae" | "huber") => found(loss.unwrap_or("mse"), Target::Quantities),
        Some("binary_cross_entropy") => found("binary_cross_entropy", Target::Flags),
        Some("cross_entropy") => match targets.row() {
            _ if has_next => found("cross_entropy", Target::Labels),
            [] | [1] if integers => found("cross_entropy", Target::Labels),
            [classes] if *classes > 1 => found("cross_entropy", Target::Probabilities),
            row => {
                let message = format!(
                    "`cross_entropy` needs a label for each row, or a probability for each class, but rows of `{}` \
                     are {} with the shape {row:?}",
                    data.targets, targets.dtype
                );
                return Err(Error::invalid_argument(message)
                    .hint("store labels as integers, or choose another `training.loss`"));
            }
        },
        Some(own) => match targets.row() {
            [] | [1] if has_labels => found(own, Target::Labels),
            _ if has_next => found(own, Target::Labels),
            _ if integers => found(own, Target::Integers),
            _ => found(own, Target::Quantities),
        },
    })
}

/// Refuses a number of classes that the targets do not have, or that says nothing of them.
fn ensure_classes(config: &Config, target: Target, targets: &Column, loss: &str) -> Result<()> {
    let Some(classes) = config.data.classes else {
        return Ok(());
    };
    let hint = match target {
        // Of tokens, too: a run that has ended says how many its model knows.
        Target::Labels => return Ok(()),
        Target::Probabilities if targets.row() == [classes] => return Ok(()),
        Target::Probabilities => "remove it: rows have a probability for each class",
        Target::Quantities | Target::Flags | Target::Integers => {
            "remove it, or store one integer label for each row"
        }
    };
    let message = format!(
        "`data.classes` is {classes}, but `{}` has no such labels: its rows are {} with the shape {:?}, and the loss is `{loss}`",
        config.data.targets,
        targets.dtype,
        targets.row()
    );
    Err(Error::invalid_argument(message).hint(hint))
}

/// Returns a dataset of numbers.
///
/// # Errors
/// Those of opening it.
pub(crate) fn column(file: &Path, name: &str) -> Result<Column> {
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
    if matches!(config.model.kind.as_str(), "mlp" | "cnn") {
        let message = format!(
            "`{name}` has tokens, but a model of kind `{}` has no embedding for them",
            config.model.kind
        );
        return Err(invalid(message).hint("use `kind = \"gru\"`, `\"lstm\"` or `\"transformer\"`"));
    }
    if config.data.scale.is_some() {
        return Err(invalid(format!("`scale` has no effect on the tokens of `{name}`"))
            .hint("remove `scale`"));
    }
    if config.data.normalizes("inputs") {
        return Err(invalid(format!("the tokens of `{name}` cannot be normalized"))
            .hint("remove `normalize`"));
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
    let kind = config.model.kind.as_str();
    let takes_sequences = matches!(kind, "gru" | "lstm" | "transformer");
    let any_shape = "use `kind = \"mlp\"`, which takes rows of any shape";
    if takes_sequences && row.len() != 2 {
        let message =
            format!("a model of kind `{kind}` needs rows of [steps, features], but {shown}");
        return Err(Error::invalid_argument(message)
            .hint(format!("{any_shape}, or store the rows as sequences")));
    }
    if kind == "cnn" {
        if !matches!(row.len(), 2 | 3) {
            let message = format!(
                "a model of kind `cnn` needs rows of [height, width] or [height, width, channels], but {shown}"
            );
            return Err(Error::invalid_argument(message)
                .hint(format!("{any_shape}, or store the rows as images")));
        }
        return match config.data.sequence_length {
            Some(_) => Err(Error::invalid_argument(
                "`sequence_length` needs sequences, but a model of kind `cnn` takes images",
            )
            .hint("remove it")),
            None => Ok(None),
        };
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
        (None, [length, _, ..]) if takes_sequences => Ok(Some(*length)),
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
