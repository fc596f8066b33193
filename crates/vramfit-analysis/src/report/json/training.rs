//! What `vramfit report --json` prints of a training run.

use serde_json::{Value, json};
use vramfit_base::JSON_SCHEMA;
use vramfit_train::MetricsLog;

pub(in crate::report) fn training(log: &MetricsLog) -> Value {
    let epochs = log.epochs.iter().map(|epoch| {
        json!({
            "number": epoch.number,
            "step": epoch.step,
            "train": object(&epoch.train),
            "validation": object(&epoch.validation),
            "best": epoch.best,
            "duration_s": epoch.seconds,
            "elapsed_s": epoch.elapsed,
        })
    });
    let evaluations = log.evaluations.iter().map(|evaluation| {
        json!({
            "step": evaluation.step,
            "epoch": evaluation.epoch,
            "metrics": object(&evaluation.metrics),
            "best": evaluation.best,
        })
    });
    json!({
        "schema": JSON_SCHEMA,
        "stop_reason": log.stop_reason(),
        "steps": log.step,
        "sessions": log.sessions,
        "device": log.device,
        "best_epoch": log.best().map(|best| best.epoch),
        "best_step": log.best().map(|best| best.step),
        "timing_s": object(&log.timing()),
        "epochs": epochs.collect::<Vec<_>>(),
        "evaluations": evaluations.collect::<Vec<_>>(),
    })
}

fn object(values: &[(String, f64)]) -> Value {
    let entries = values.iter().map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(entries.collect())
}
