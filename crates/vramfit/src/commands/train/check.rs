//! `vramfit train --check`: the plan of a run.

use std::path::Path;

use serde_json::json;
use vramfit_analysis::{Bytes, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_base::text::{width, wrap};
use vramfit_runner::Context;
use vramfit_train::{Config, PythonName};

use super::datasets::{Column, DatasetInfo};
use super::trained_run::run_action;
use crate::commands::data::{grouped, grouped_list};
use crate::commands::results::JsonTarget;
use crate::output::{Output, terminal_columns};
use crate::status::Status;

/// Reports the plan.
pub(super) fn report(
    file: &Path,
    config: &Config,
    info: &DatasetInfo,
    warnings: &[String],
    parameters: Option<u64>,
    json: &JsonTarget,
    output: &mut Output,
) -> Result<Status> {
    let plan = json!({
        "schema": JSON_SCHEMA,
        "config": config,
        "data": info,
        "parameters": parameters,
        "warnings": warnings,
    });
    json.write(&plan, output)?;
    if !json.is_stdout() {
        let mut all = lines(config, info);
        all.extend(parameters.map(|count| format!("parameters   {}", grouped(count))));
        all.extend(warnings.iter().map(|text| format!("warning      {text}")));
        let columns = terminal_columns(std::io::stdout());
        let all: Vec<String> = all.iter().map(|line| fitted(line, columns)).collect();
        output.text(&format!(
            "{}\n\nto start training, run `vramfit train {}`\n",
            all.join("\n"),
            file.display()
        ))?;
    }
    Ok(Status::Yes)
}

/// Builds a model or loss of the user's, which cannot be checked without, and returns the number of parameters; none
/// where both are ours.
///
/// # Errors
/// `invalid-argument` when it is not what it has to be.
pub(super) fn count_own_parameters(
    config: &Config,
    info: &DatasetInfo,
    context: &Context,
) -> Result<Option<u64>> {
    if config.model.own().is_none() && PythonName::parse(&info.loss).is_none() {
        return Ok(None);
    }
    let request = json!({
        "action": "check",
        "config": config,
        "data": info,
        "progress": "none",
        "parent_pid": std::process::id(),
    });
    let result = run_action(&request, context)?;
    Ok(result["parameters"].as_u64())
}

/// Returns the first lines, which are also shown when a run starts: model and data.
pub(super) fn summary(config: &Config, info: &DatasetInfo) -> Vec<String> {
    vec![
        format!("model        {}", model(config)),
        format!("inputs       {}", inputs(config, info)),
        format!("targets      {}", targets(config, info)),
        format!("rows         {}", rows(config, info)),
        format!("steps        {}", steps(config, info)),
    ]
}

/// Returns a line of the plan in lines that fit into a terminal of so many columns; as it is without one.
pub(super) fn fitted(line: &str, columns: Option<usize>) -> String {
    const LABEL: usize = 13;
    /// Below, a column of text cannot be read.
    const MIN_TEXT: usize = 20;
    let Some(columns) = columns.filter(|columns| *columns >= LABEL + MIN_TEXT) else {
        return line.to_owned();
    };
    match line.split_at_checked(LABEL) {
        Some((label, text)) if width(line) > columns => {
            let lines = wrap(text, columns - LABEL, 0);
            format!("{label}{}", lines.join(&format!("\n{}", " ".repeat(LABEL))))
        }
        _ => line.to_owned(),
    }
}

/// Returns the whole plan.
fn lines(config: &Config, info: &DatasetInfo) -> Vec<String> {
    let mut all = summary(config, info);
    all.extend([
        format!("optimizer    {}", optimizer(config)),
        format!("checkpoints  {}", checkpoints(config)),
        format!("device       {}", config.training.device.as_deref().unwrap_or("JAX's default")),
    ]);
    // The number of threads and their memory depend on the machine that trains.
    let host_dependent = ["threads:", "memory:"];
    let plan = info.plan.lines();
    let plan = plan.filter(|line| !host_dependent.iter().any(|word| line.starts_with(word)));
    for (at, line) in plan.enumerate() {
        let name = if at == 0 { "reading" } else { "" };
        all.push(format!("{name:12} {line}"));
    }
    // The validation rows have a loader of their own.
    let loaders = 1 + u64::from(info.validation_rows > 0);
    all.push(format!(
        "memory       at most {} on the host for reading; `--dry-run GPU` measures that of the device",
        Bytes(loaders * config.data.memory.0)
    ));
    all
}

fn model(config: &Config) -> String {
    let model = &config.model;
    if model.own().is_some() {
        let given = model.arguments.iter().flatten();
        let given: Vec<String> = given.map(|(name, value)| format!("{name}={value}")).collect();
        return match given.is_empty() {
            true => model.kind.clone(),
            false => format!("{} with {}", model.kind, given.join(", ")),
        };
    }
    let widths: Vec<String> = model.hidden_sizes.iter().map(u64::to_string).collect();
    let mut text = format!(
        "{}, {}, {} {}",
        model.kind,
        counted(widths.len() as u64, "layer"),
        if model.kind == "cnn" { "channels" } else { "width" },
        match widths.iter().all(|width| *width == widths[0]) {
            true => widths[0].clone(),
            false => widths.join(", "),
        }
    );
    if model.kind == "transformer" {
        text += &format!(", {}", counted(model.heads, "head"));
    }
    if model.dropout > 0.0 {
        text += &format!(", dropout {}", model.dropout);
    }
    text + &format!(", {}", model.dtype)
}

fn column(column: &Column) -> String {
    let mut text =
        format!("{}  {} [{}]", column.dataset, column.dtype, grouped_list(&column.shape));
    if column.dtype != column.batch_dtype {
        text += &format!(", converted to {}", column.batch_dtype);
    }
    text
}

fn inputs(config: &Config, info: &DatasetInfo) -> String {
    let mut text = column(&info.inputs);
    if let Some(scale) = config.data.scale {
        text += &format!(", scaled by {} on the device", factor(scale));
    }
    if config.data.normalizes("inputs") {
        text += ", normalized on the device";
    }
    if let Some(tokens) = info.vocabulary {
        text += &format!(", embedding of {} tokens", grouped(tokens));
    }
    match (info.sequence_length, info.inputs.row()) {
        (Some(seen), [length, ..]) if info.predicts_next && seen + 1 == *length => {
            format!("{text}, all but the last step of each row")
        }
        (Some(seen), [length, ..]) if info.predicts_next && seen < *length => {
            format!("{text}, the {seen} steps before the last of each row")
        }
        (Some(seen), [length, ..]) if seen < *length => {
            format!("{text}, the last {seen} steps of each row")
        }
        _ => text,
    }
}

/// Formats a factor, as a fraction if it is one of 1.
fn factor(scale: f64) -> String {
    let parts = (1.0 / scale).round();
    match parts > 1.0 && 1.0 / parts == scale {
        true => format!("1/{parts}"),
        false => scale.to_string(),
    }
}

fn targets(config: &Config, info: &DatasetInfo) -> String {
    let mut text = column(&info.targets);
    if config.data.normalizes("targets") {
        text += ", normalized";
    }
    let loss = match info.loss.as_str() {
        "mse" => "mean squared error",
        "mae" => "mean absolute error",
        "huber" => "Huber loss",
        "cross_entropy" => "cross-entropy",
        "binary_cross_entropy" => "binary cross-entropy",
        own => own,
    };
    match info.classes {
        None => format!("{text}: {loss}"),
        Some(classes) if info.predicts_next => {
            format!("{text}: next-token prediction, {loss} over {} tokens", grouped(classes))
        }
        Some(classes) => {
            let found = match info.classes_inferred {
                true => " (inferred from the labels)",
                false => "",
            };
            format!("{text}: {loss} over {classes} classes{found}")
        }
    }
}

fn rows(config: &Config, info: &DatasetInfo) -> String {
    let train = grouped(info.train_rows);
    let validate = grouped(info.validation_rows);
    match (&config.data.validation_path, info.validation_rows) {
        (_, 0) => format!("{train} for training, none for validation"),
        (Some(path), _) => {
            format!("{train} for training, {validate} of `{}` for validation", path.display())
        }
        (None, _) => {
            format!("{train} for training, {validate} for validation, spread over the file")
        }
    }
}

fn steps(config: &Config, info: &DatasetInfo) -> String {
    let total = grouped(config.total_steps(info.steps_per_epoch));
    let total = match (config.training.epochs, config.training.steps) {
        (Some(epochs), None) => format!("{total} in {}", counted(epochs, "epoch")),
        (Some(epochs), Some(_)) => format!("{total} in at most {}", counted(epochs, "epoch")),
        (None, _) => format!("{total} total"),
    };
    let dispatch = match config.training.steps_per_dispatch {
        1 => String::new(),
        steps => format!(", {steps} per dispatch"),
    };
    let left = info.train_rows - info.steps_per_epoch * config.data.batch_size;
    let left = match left {
        0 => String::new(),
        rows => format!("; {} of each epoch dropped", counted(rows, "row")),
    };
    format!(
        "{} of {} rows per epoch, {total}{dispatch}{left}",
        grouped(info.steps_per_epoch),
        grouped(config.data.batch_size),
    )
}

fn optimizer(config: &Config) -> String {
    let optimizer = &config.optimizer;
    let mut text = format!("{}, learning rate {}", optimizer.name, optimizer.learning_rate);
    match (optimizer.schedule.as_str(), optimizer.warmup_steps) {
        ("constant", _) => {}
        ("reduce_on_plateau", _) => {
            text += &format!(
                ", times {} after {} without a better training loss",
                optimizer.plateau_factor.unwrap_or_default(),
                counted(optimizer.plateau_patience.unwrap_or_default(), "epoch")
            );
        }
        (_, Some(steps)) => {
            text += &format!(", linear warmup over {steps} steps, then cosine decay to 0");
        }
        (_, None) => text += ", cosine decay to 0",
    }
    if let Some(norm) = optimizer.clip {
        text += &format!(", gradients clipped to norm {norm}");
    }
    if optimizer.accumulate > 1 {
        text += &format!(", one update per {} batches", optimizer.accumulate);
    }
    text
}

fn checkpoints(config: &Config) -> String {
    let checkpoint = &config.checkpoint;
    let mut when = format!("every {} s", checkpoint.every_seconds);
    if let Some(steps) = checkpoint.every_steps {
        when += &format!(" and every {}", counted(steps, "step"));
    }
    let best = match checkpoint.keep_best {
        0 => String::new(),
        best => format!(" and the best {best}"),
    };
    let directory = config.training.directory.clone().unwrap_or_default();
    format!(
        "{when}; the latest {}{best} are kept, in `{}`",
        checkpoint.keep_last,
        directory.join("checkpoints").display()
    )
}

/// Returns a number with its noun.
fn counted(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        many => format!("{} {one}s", grouped(many)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_plan_fits_the_terminal() {
        let line =
            "targets      label  int64 [20 000], converted to int32: cross-entropy over 4 classes";
        assert_eq!(fitted(line, None), line);
        assert_eq!(fitted(line, Some(200)), line);
        for columns in [33, 40, 60, 80] {
            let lines = fitted(line, Some(columns));
            assert!(lines.lines().all(|line| width(line) <= columns), "{lines}");
            assert!(lines.lines().skip(1).all(|line| line.starts_with(&" ".repeat(13))));
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&lines), words(line));
        }
        // A terminal that is narrower than that does not get one word per line.
        assert_eq!(fitted(line, Some(20)), line);
    }
}
