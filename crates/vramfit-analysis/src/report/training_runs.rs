//! The report of several training runs, side by side: how each ended, its best evaluation, time, memory, and in
//! which settings they differ.

use serde_json::{Value as Json, json};
use vramfit_base::JSON_SCHEMA;
use vramfit_train::MetricsLog;

use super::training::{downsample, format_duration, format_metric, value_of};
use super::{Content, Curve, Curves, Outcome, Report, Section, Table, Value};

/// Curves of a chart; more could not be told apart.
const MAX_CURVES: usize = 8;

/// A run with its name.
pub(super) type NamedRun = (String, MetricsLog);

pub(super) fn report(runs: &[NamedRun]) -> Report {
    let mut sections = vec![Section::new("runs", Content::Table(overview(runs)))];
    let settings = differing_settings(runs);
    if !settings.is_empty() {
        sections.push(Section::new(
            "settings in which they differ",
            Content::Table(settings_table(runs, &settings)),
        ));
    }
    sections.extend(curves(runs));
    Report {
        title: "vramfit train".to_owned(),
        outcome: Outcome::Neutral,
        headline: headline(runs),
        cause: Vec::new(),
        sections,
        metadata: Vec::new(),
        json: json(runs, &settings),
        ..Report::default()
    }
}

fn headline(runs: &[NamedRun]) -> String {
    let count = match runs.len() {
        1 => "1 training run".to_owned(),
        count => format!("{count} training runs"),
    };
    match best_run(runs) {
        Some((name, value, rule)) => {
            format!("{count}; the best ({rule}) is {name} with {}", format_metric(value))
        }
        None => count,
    }
}

/// Returns the run with the best evaluation, if all are judged by the same rule.
fn best_run(runs: &[NamedRun]) -> Option<(&str, f64, &str)> {
    let rule = runs.first()?.1.best_by.as_str();
    if rule.is_empty() || runs.iter().any(|(_, log)| log.best_by != rule) {
        return None;
    }
    let is_max = rule.starts_with("max ");
    let values = runs.iter().filter_map(|(name, log)| Some((name.as_str(), best_value(log)?)));
    let (name, value) =
        values.min_by(
            |(_, one), (_, other)| {
                if is_max { other.total_cmp(one) } else { one.total_cmp(other) }
            },
        )?;
    Some((name, value, rule))
}

fn best_value(log: &MetricsLog) -> Option<f64> {
    value_of(&log.best()?.metrics, log.best_metric())
}

fn ending(log: &MetricsLog) -> &str {
    // One that runs and one that was killed look the same from here.
    log.stop_reason().unwrap_or("not ended")
}

fn elapsed(log: &MetricsLog) -> Option<f64> {
    let end = log.ends.last().map(|end| end.elapsed);
    end.or(log.epochs.last().map(|epoch| epoch.elapsed))
}

fn peak(log: &MetricsLog) -> Option<u64> {
    let device = log.ends.iter().filter_map(|end| end.peak_device_bytes).max();
    device.or(log.ends.iter().filter_map(|end| end.peak_host_bytes).max())
}

fn overview(runs: &[NamedRun]) -> Table {
    let columns = ["run", "ended", "steps", "best", "at step", "last loss", "time", "peak memory"];
    let rows = runs.iter().map(|(name, log)| {
        let metric = |value: Option<f64>| match value {
            Some(value) => Value::Text(format_metric(value)),
            None => Value::Missing("none"),
        };
        let last = log.evaluations.last().and_then(|last| value_of(&last.metrics, "loss"));
        let trained = log.epochs.last().and_then(|epoch| value_of(&epoch.train, "loss"));
        let time = elapsed(log).map(|seconds| Value::Text(format_duration(seconds)));
        vec![
            Value::Text(name.clone()),
            Value::Text(ending(log).to_owned()),
            Value::Count(log.step),
            metric(best_value(log)),
            log.best().map_or(Value::Missing("none"), |best| Value::Count(best.step)),
            metric(last.or(trained)),
            time.unwrap_or(Value::Missing("unknown")),
            peak(log).map_or(Value::Missing("unknown"), Value::Bytes),
        ]
    });
    Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note: "best: of all evaluations, by `best_by`; last loss: of the last evaluation, or without one of the \
               last epoch; peak memory: of the device, or where that is unknown of the process"
            .to_owned(),
    }
}

/// Returns the keys of the configurations that have not the same value in all runs.
fn differing_settings(runs: &[NamedRun]) -> Vec<String> {
    let mut keys: Vec<&String> = runs.iter().flat_map(|(_, log)| log.config.keys()).collect();
    keys.sort();
    keys.dedup();
    let value = |log: &MetricsLog, key: &str| log.config.get(key).cloned().unwrap_or(Json::Null);
    let differs = |key: &&String| {
        let mut values = runs.iter().map(|(_, log)| value(log, key));
        let first = values.next();
        values.any(|other| Some(other) != first)
    };
    keys.into_iter().filter(differs).cloned().collect()
}

fn settings_table(runs: &[NamedRun], keys: &[String]) -> Table {
    let mut columns = vec!["run".to_owned()];
    columns.extend(keys.iter().cloned());
    let rows = runs.iter().map(|(name, log)| {
        let values = keys.iter().map(|key| match log.config.get(key) {
            None | Some(Json::Null) => Value::Missing("not set"),
            Some(Json::String(text)) => Value::Text(text.clone()),
            Some(other) => Value::Text(other.to_string()),
        });
        std::iter::once(Value::Text(name.clone())).chain(values).collect()
    });
    Table { columns, rows: rows.collect(), note: String::new() }
}

/// Returns a chart of the loss of each run: in evaluations, or without any in training.
fn curves(runs: &[NamedRun]) -> Option<Section> {
    let points = |log: &MetricsLog| {
        let validation = log.evaluations.iter();
        let validation: Vec<_> = validation
            .filter_map(|one| value_of(&one.metrics, "loss").map(|loss| (one.step, loss)))
            .collect();
        let train = log.train.iter().find(|(name, _)| name == "loss");
        match validation.is_empty() {
            true => train.map(|(_, points)| points.clone()).unwrap_or_default(),
            false => validation,
        }
    };
    let curves: Vec<Curve> = runs
        .iter()
        .take(MAX_CURVES)
        .map(|(name, log)| {
            let finite = points(log).into_iter().filter(|(_, loss)| loss.is_finite());
            Curve { label: name.clone(), points: downsample(finite.collect()) }
        })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let title = match runs.len() > MAX_CURVES {
        true => format!("loss of the first {MAX_CURVES} runs"),
        false => "loss".to_owned(),
    };
    (!curves.is_empty())
        .then(|| Section::new(title, Content::Curves(Curves { unit: "step", curves })))
}

fn json(runs: &[NamedRun], settings: &[String]) -> Json {
    let runs = runs.iter().map(|(name, log)| {
        let last = log.evaluations.last();
        json!({
            "run": name,
            "stop_reason": log.stop_reason(),
            "steps": log.step,
            "best_by": log.best_by,
            "best": best_value(log),
            "best_step": log.best().map(|best| best.step),
            "last_loss": last.and_then(|last| value_of(&last.metrics, "loss")),
            "elapsed_s": elapsed(log),
            "peak_bytes": peak(log),
            "device": log.device,
            "config": log.config,
        })
    });
    json!({ "schema": JSON_SCHEMA, "differing_settings": settings, "runs": runs.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, loss: f64, rate: f64) -> NamedRun {
        let lines = [
            json!({"event": "start", "step": 0, "device": "CPU", "best_by": "min loss",
                   "config": {"optimizer.learning_rate": rate, "model.kind": "mlp"}}),
            json!({"event": "epoch", "step": 10, "epoch": 1, "train": {"loss": 3.0},
                   "validation": {"loss": loss}, "best": true, "seconds": 1.0, "elapsed": 2.0}),
            json!({"event": "end", "step": 10, "stop_reason": "finished", "elapsed": 2.5,
                   "timing": {"wall": 2.5}, "peak_host_bytes": 1 << 20}),
        ];
        let text: Vec<String> = lines.iter().map(Json::to_string).collect();
        (name.to_owned(), MetricsLog::read(&text.join("\n")))
    }

    #[test]
    fn the_best_run_and_the_settings_that_differ_are_named() {
        let report = Report::from_training_runs(&[run("a", 0.5, 0.1), run("b", 0.25, 0.01)]);
        assert_eq!(report.headline, "2 training runs; the best (min loss) is b with 0.2500");
        let json: Json = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["differing_settings"], json!(["optimizer.learning_rate"]));
        assert_eq!(json["runs"][0]["best"], json!(0.5));
        let text = report.to_full_text();
        for part in ["finished", "0.01", "1.0 MiB", "optimizer.learning_rate"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("model.kind"), "{text}");
    }

    #[test]
    fn runs_without_an_evaluation_have_no_best_one() {
        let (_, mut log) = run("a", 0.5, 0.1);
        log.evaluations.clear();
        let report = Report::from_training_runs(&[("a".to_owned(), log)]);
        assert_eq!(report.headline, "1 training run");
        assert!(report.to_full_text().contains("3.0000"), "the loss of the last epoch");
    }
}
