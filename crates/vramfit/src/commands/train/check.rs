//! `vramfit train --check`: what will be done, and nothing of it.

use std::path::Path;

use serde::Serialize;
use vramfit_core::Result;
use vramfit_core::train::Config;

use super::datasets::{Column, Look};
use super::memory::Memory;
use crate::commands::data::grouped;
use crate::output::Output;
use crate::status::Status;

#[derive(Serialize)]
struct CheckOutput<'a> {
    schema: u32,
    config: &'a Config,
    data: &'a Look,
    memory: Option<&'a Memory>,
    warnings: &'a [String],
}

/// Tells what a run will be.
pub(super) fn tell(
    file: &Path,
    config: &Config,
    look: &Look,
    memory: Option<&Memory>,
    warnings: &[String],
    json: bool,
    output: &mut Output,
) -> Result<Status> {
    if json {
        output.json(&CheckOutput {
            schema: 1,
            config,
            data: look,
            memory,
            warnings,
        })?;
    } else {
        let mut all = lines(config, look);
        all.extend(memory.map_or_else(Vec::new, Memory::lines));
        all.extend(warnings.iter().map(|text| format!("warning      {text}")));
        output.text(&format!(
            "{}\n\nnothing was started; `vramfit train {}` does\n",
            all.join("\n"),
            file.display()
        ))?;
    }
    Ok(Status::Yes)
}

/// Returns what is told when a run begins: what learns what, from which rows.
pub(super) fn summary(config: &Config, look: &Look) -> Vec<String> {
    vec![
        format!("model        {}", model(config)),
        format!("inputs       {}", inputs(config, look)),
        format!("targets      {}", targets(look)),
        format!("rows         {}", rows(config, look)),
        format!("steps        {}", steps(config, look)),
    ]
}

/// Returns the plan of a run, a line for each thing.
fn lines(config: &Config, look: &Look) -> Vec<String> {
    let mut all = summary(config, look);
    all.extend([
        format!("optimizer    {}", optimizer(config)),
        format!("checkpoints  {}", checkpoints(config)),
        format!(
            "device       {}",
            config
                .training
                .device
                .as_deref()
                .unwrap_or("what JAX takes")
        ),
    ]);
    // How many threads there are, and what they take, is the business of the machine that trains.
    let machine = ["threads:", "memory:"];
    let plan = look.plan.lines();
    let plan = plan.filter(|line| !machine.iter().any(|word| line.starts_with(word)));
    for (at, line) in plan.enumerate() {
        let name = if at == 0 { "reading" } else { "" };
        all.push(format!("{name:12} {line}"));
    }
    all
}

fn model(config: &Config) -> String {
    let model = &config.model;
    let widths: Vec<String> = model.hidden_sizes.iter().map(u64::to_string).collect();
    let mut text = format!(
        "{} of {} with the width {}",
        model.kind,
        counted(widths.len() as u64, "layer"),
        match widths.iter().all(|width| *width == widths[0]) {
            true => widths[0].clone(),
            false => widths.join(", "),
        }
    );
    if model.kind == "transformer" {
        text += &format!(" and {}", counted(model.heads, "head"));
    }
    if model.dropout > 0.0 {
        text += &format!(", dropout {}", model.dropout);
    }
    text + &format!(", computed in {}", model.dtype)
}

fn column(column: &Column) -> String {
    let shape: Vec<String> = column.shape.iter().map(|size| grouped(*size)).collect();
    let mut text = format!(
        "{}  {} [{}]",
        column.dataset,
        column.dtype,
        shape.join(", ")
    );
    if column.dtype != column.becomes {
        text += &format!(", read as {}", column.becomes);
    }
    text
}

fn inputs(config: &Config, look: &Look) -> String {
    let mut text = column(&look.inputs);
    if let Some(scale) = config.data.scale {
        text += &format!(", multiplied by {} on the device", factor(scale));
    }
    if let Some(tokens) = look.vocabulary {
        text += &format!(", {} tokens, each a vector that is learnt", grouped(tokens));
    }
    match (look.sequence_length, look.inputs.row()) {
        (Some(seen), [length, ..]) if seen < *length => {
            format!("{text}, the last {seen} steps of each")
        }
        _ => text,
    }
}

/// Writes a factor as the fraction that it is, if it is one of 1.
fn factor(scale: f64) -> String {
    let parts = (1.0 / scale).round();
    match parts > 1.0 && 1.0 / parts == scale {
        true => format!("1/{parts}"),
        false => scale.to_string(),
    }
}

fn targets(look: &Look) -> String {
    let text = column(&look.targets);
    match look.classes {
        None => format!("{text}: mean squared error"),
        Some(classes) if look.predicts_next => format!(
            "{text}: the next token of each step, cross-entropy of {} tokens",
            grouped(classes)
        ),
        Some(classes) => {
            let found = match look.classes_found {
                true => ", found by reading all labels",
                false => "",
            };
            format!("{text}: cross-entropy of {classes} classes{found}")
        }
    }
}

fn rows(config: &Config, look: &Look) -> String {
    let train = grouped(look.train_rows);
    let validate = grouped(look.validation_rows);
    match (&config.data.validation_path, look.validation_rows) {
        (_, 0) => format!("{train} to learn from; none validate"),
        (Some(path), _) => format!(
            "{train} to learn from; {validate} of `{}` validate",
            path.display()
        ),
        (None, _) => {
            format!("{train} to learn from; {validate}, spread over the file, validate")
        }
    }
}

fn steps(config: &Config, look: &Look) -> String {
    let epochs = config.training.epochs;
    let at_once = match config.training.steps_per_dispatch {
        1 => String::new(),
        steps => format!(", {steps} at once"),
    };
    let left = look.train_rows - look.steps * config.data.batch_size;
    let left = match left {
        0 => String::new(),
        rows => format!("; {} of each epoch left out", counted(rows, "row")),
    };
    format!(
        "{} of {} rows in an epoch, {} in {}{at_once}{left}",
        grouped(look.steps),
        grouped(config.data.batch_size),
        grouped(look.steps * epochs),
        counted(epochs, "epoch"),
    )
}

fn optimizer(config: &Config) -> String {
    let optimizer = &config.optimizer;
    let mut text = format!(
        "{}, learning rate {}",
        optimizer.name, optimizer.learning_rate
    );
    match (optimizer.schedule.as_str(), optimizer.warmup_steps) {
        ("constant", _) => {}
        (_, Some(steps)) => {
            text += &format!(", up to it in {steps} steps, then down to 0 as a cosine");
        }
        (_, None) => text += ", down to 0 as a cosine",
    }
    if let Some(norm) = optimizer.clip {
        text += &format!(", gradients clipped to {norm}");
    }
    if optimizer.accumulate > 1 {
        text += &format!(", one change for {} batches", optimizer.accumulate);
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
        "{when}; the last {}{best} stay, in `{}`",
        checkpoint.keep_last,
        directory.join("checkpoints").display()
    )
}

/// Returns a number and what is counted.
fn counted(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        many => format!("{} {one}s", grouped(many)),
    }
}
