//! `vramfit train --evaluate RUN DATA`: the metrics of a trained model on other data.

use std::path::Path;

use serde_json::{Value as Json, json};
use vramfit_analysis::{Error, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_runner::Context;

use super::datasets;
use super::trained_run::{ModelArgs, TrainedRun};
use crate::commands::data::grouped;
use crate::commands::results::JsonTarget;
use crate::output::Output;
use crate::status::Status;

/// Evaluates the model of a run on all rows of a file.
pub(super) fn run(
    run: &Path,
    data: &Path,
    model: &ModelArgs,
    json: &JsonTarget,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let run = TrainedRun::read(run)?;
    let inputs = run.inputs(data, None)?;
    if inputs.shape[0] == 0 {
        let message = format!("`{}` of `{}` has no rows", inputs.dataset, data.display());
        return Err(Error::invalid_argument(message).hint("evaluate a file with rows"));
    }
    let mut config = run.config.clone();
    data.clone_into(&mut config.data.path);
    config.data.validation_path = None;
    config.data.validation_fraction = 0.0;
    config.data.vocabulary = run.data.vocabulary;
    run.check_targets(data)?;
    // What the loss is does not depend on how this file stores its targets.
    config.training.loss = config.training.loss.or_else(|| Some(run.data.loss.clone()));
    // Labels of the file are checked against the classes that the model knows.
    config.data.classes = run.data.classes;
    // The last batch is padded, and there may be few rows.
    config.data.batch_size = config.data.batch_size.min(inputs.shape[0]);
    config.training.steps_per_dispatch = 1;
    let info = datasets::inspect(&config)?;
    let request = json!({
        "data": data,
        "inputs": config.data.inputs,
        "targets": config.data.targets,
        "batch_size": config.data.batch_size,
        "memory": config.data.memory,
        "info": info,
    });
    let result = run.perform("evaluate", model, request, context, output, json)?;
    json.write(&json!({ "schema": JSON_SCHEMA, "result": result }), output)?;
    if !json.is_stdout() {
        output.text(&table(&result))?;
    }
    Ok(Status::Yes)
}

/// Returns the metrics, with those of a constant prediction beside them.
fn table(result: &Json) -> String {
    let rows = result["rows"].as_u64().unwrap_or(0);
    let mut text = format!(
        "{} rows of `{}`, model of step {}\n\n",
        grouped(rows),
        result["data"].as_str().unwrap_or_default(),
        result["step"]
    );
    let baseline = result["baseline"].as_object();
    for (name, value) in result["metrics"].as_object().into_iter().flatten() {
        let number =
            |value: &Json| value.as_f64().map_or("NaN".to_owned(), |it| format!("{it:.6}"));
        text += &format!("  {name:<12} {:>14}", number(value));
        if let Some(constant) = baseline.and_then(|baseline| baseline.get(name)) {
            text += &format!("   (always predicting {}: {})", prediction(result), number(constant));
        }
        text.push('\n');
    }
    text
}

fn prediction(result: &Json) -> &str {
    result["baseline_prediction"].as_str().unwrap_or_default()
}
