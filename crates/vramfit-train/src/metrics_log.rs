//! What happened in a run, from its `metrics.jsonl`: one JSON object per line.
//!
//! A line that is truncated, or of an unknown kind, is skipped.

use serde_json::{Map, Value as Json};

/// A value at a step.
pub type Point = (u64, f64);

/// A run with all its sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsLog {
    /// Description of the devices.
    pub device: String,
    /// The values saved with each checkpoint.
    pub config: Map<String, Json>,
    /// Versions of the packages.
    pub versions: Map<String, Json>,
    /// What decides which evaluation is the best, such as `min loss`; empty in earlier versions.
    pub best_by: String,
    /// Means of each metric over the steps since the previous point, by name; of the learning rate
    /// the last value.
    pub train: Vec<(String, Vec<Point>)>,
    /// The finished epochs.
    pub epochs: Vec<EpochLine>,
    /// The evaluations, also those after an epoch.
    pub evaluations: Vec<EvaluationLine>,
    /// Number of sessions: starts and resumes.
    pub sessions: u64,
    /// The ends of sessions that were not killed.
    pub ends: Vec<SessionEnd>,
    /// The first step whose loss was NaN or infinite.
    pub nan: Option<u64>,
    /// The last step in the file.
    pub step: u64,
}

/// A finished epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpochLine {
    /// Its number, from 1.
    pub number: u64,
    /// Its last step.
    pub step: u64,
    /// Means of the training metrics, by name.
    pub train: Vec<(String, f64)>,
    /// Metrics of the latest evaluation in it, by name.
    pub validation: Vec<(String, f64)>,
    /// Whether that evaluation is the best so far.
    pub best: bool,
    /// Its duration.
    pub seconds: f64,
    /// Seconds of all sessions until then.
    pub elapsed: f64,
}

/// An evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluationLine {
    /// Number of steps of the state.
    pub step: u64,
    /// The epoch of that step, from 1.
    pub epoch: u64,
    /// Its metrics, by name.
    pub metrics: Vec<(String, f64)>,
    /// Whether it is the best so far.
    pub best: bool,
}

/// The end of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionEnd {
    /// `finished`, `early`, `callback`, `signal` or `nan`.
    pub stop_reason: String,
    /// What a callback that stopped it said.
    pub stop_message: String,
    /// Seconds of all sessions until then.
    pub elapsed: f64,
    /// Seconds of this session by activity.
    pub timing: Vec<(String, f64)>,
    /// Peak memory of the process.
    pub peak_host_bytes: Option<u64>,
    /// Peak memory of a device.
    pub peak_device_bytes: Option<u64>,
}

impl MetricsLog {
    /// Reads the lines of a file.
    pub fn read(text: &str) -> MetricsLog {
        let mut log = MetricsLog::default();
        for line in text.lines() {
            if let Ok(Json::Object(line)) =
                serde_json::from_str(line.trim_matches(['\0', ' ', '\t']))
            {
                log.apply_line(&line);
            }
        }
        log.add_evaluations_of_epochs();
        log
    }

    /// Adds the evaluations of epochs that have no line of their own, as in earlier versions.
    fn add_evaluations_of_epochs(&mut self) {
        for epoch in self.epochs.iter().filter(|epoch| !epoch.validation.is_empty()) {
            if self.evaluations.iter().all(|it| it.epoch != epoch.number) {
                self.evaluations.push(EvaluationLine {
                    step: epoch.step,
                    epoch: epoch.number,
                    metrics: epoch.validation.clone(),
                    best: epoch.best,
                });
            }
        }
        self.evaluations.sort_by_key(|it| it.step);
    }

    fn apply_line(&mut self, line: &Map<String, Json>) {
        let step = count(line.get("step")).unwrap_or(self.step);
        self.step = self.step.max(step);
        match line.get("event").and_then(Json::as_str) {
            Some("start") => {
                self.sessions += 1;
                self.device = text(line.get("device"));
                self.config = table(line.get("config"));
                self.versions = table(line.get("versions"));
                self.best_by = text(line.get("best_by"));
                self.nan = None;
            }
            Some("steps") => {
                for (name, value) in numbers(Some(&Json::Object(line.clone()))) {
                    if !["step", "epoch"].contains(&name.as_str()) {
                        curve_mut(&mut self.train, name).push((step, value));
                    }
                }
            }
            Some("epoch") => self.epochs.push(EpochLine {
                number: count(line.get("epoch")).unwrap_or(0),
                step,
                train: numbers(line.get("train")),
                validation: numbers(line.get("validation")),
                best: line.get("best").and_then(Json::as_bool) == Some(true),
                seconds: number(line.get("seconds")).unwrap_or(0.0),
                elapsed: number(line.get("elapsed")).unwrap_or(0.0),
            }),
            Some("evaluation") => self.evaluations.push(EvaluationLine {
                step,
                epoch: count(line.get("epoch")).unwrap_or(0),
                metrics: numbers(line.get("metrics")),
                best: line.get("best").and_then(Json::as_bool) == Some(true),
            }),
            Some("nan") => self.nan = Some(step),
            Some("end") => self.ends.push(SessionEnd {
                stop_reason: text(line.get("stop_reason")),
                stop_message: text(line.get("stop_message")),
                elapsed: number(line.get("elapsed")).unwrap_or(0.0),
                timing: numbers(line.get("timing")),
                peak_host_bytes: count(line.get("peak_host_bytes")),
                peak_device_bytes: count(line.get("peak_device_bytes")),
            }),
            _ => {}
        }
    }

    /// Returns the best evaluation.
    pub fn best(&self) -> Option<&EvaluationLine> {
        self.evaluations.iter().rev().find(|evaluation| evaluation.best)
    }

    /// Returns the metric that decides which evaluation is the best.
    pub fn best_metric(&self) -> &str {
        self.best_by.split_once(' ').map_or("loss", |(_, metric)| metric)
    }

    /// Returns the epoch that ends with a step.
    pub fn epoch_ending_at(&self, step: u64) -> Option<&EpochLine> {
        self.epochs.iter().find(|epoch| epoch.step == step)
    }

    /// Returns why the run ended; none if it is running or was killed.
    pub fn stop_reason(&self) -> Option<&str> {
        let end = self.ends.last()?;
        (self.ends.len() as u64 >= self.sessions).then_some(end.stop_reason.as_str())
    }

    /// Returns seconds by activity, of all sessions that were not killed.
    pub fn timing(&self) -> Vec<(String, f64)> {
        let mut all: Vec<(String, f64)> = Vec::new();
        for (name, seconds) in self.ends.iter().flat_map(|end| &end.timing) {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += seconds,
                None => all.push((name.clone(), *seconds)),
            }
        }
        all
    }
}

/// Returns the points of a metric.
fn curve_mut(curves: &mut Vec<(String, Vec<Point>)>, name: String) -> &mut Vec<Point> {
    let at = curves.iter().position(|(known, _)| *known == name);
    let at = at.unwrap_or_else(|| {
        curves.push((name, Vec::new()));
        curves.len() - 1
    });
    &mut curves[at].1
}

/// Reads a number; NaN and infinities are written as strings.
fn number(value: Option<&Json>) -> Option<f64> {
    match value? {
        Json::Number(number) => number.as_f64(),
        Json::String(name) if ["nan", "inf", "-inf"].contains(&name.as_str()) => name.parse().ok(),
        _ => None,
    }
}

fn numbers(value: Option<&Json>) -> Vec<(String, f64)> {
    let entries = value.and_then(Json::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), number(Some(value))?))).collect()
}

fn count(value: Option<&Json>) -> Option<u64> {
    value?.as_u64()
}

fn text(value: Option<&Json>) -> String {
    value.and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn table(value: Option<&Json>) -> Map<String, Json> {
    value.and_then(Json::as_object).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"event":"start","step":0,"device":"CPU","config":{"data.seed":0},"versions":{"jax":"1"}}
{"event":"steps","step":2,"epoch":1,"loss":1.5,"accuracy":0.25}
{"event":"epoch","step":4,"epoch":1,"train":{"loss":1.0},"validation":{"loss":0.5},"best":true,"seconds":2.0,"elapsed":3.0}
{"event":"end","step":4,"stop_reason":"signal","elapsed":3.0,"timing":{"step":1.0,"compile":0.5},"peak_host_bytes":7}
{"event":"start","step":4,"device":"CPU"}
{"event":"steps","step":6,"epoch":2,"loss":"nan"}
{"event":"later","step":6,"what":[1]}
{"event":"epoch","step":8,"epoch":2,"train":{"loss":0.9},"validation":{"loss":0.6},"best":false,"seconds":1.0,"elapsed":4.0}
{"event":"end","step":8,"stop_reason":"finished","elapsed":4.0,"timing":{"step":0.5}}
{"event":"steps","st"#;

    #[test]
    fn sessions_are_combined() {
        let log = MetricsLog::read(RUN);
        assert_eq!(log.sessions, 2);
        assert_eq!(log.step, 8);
        assert_eq!(log.stop_reason(), Some("finished"));
        assert_eq!(log.best().map(|best| best.epoch), Some(1));
        assert_eq!(log.train[0].0, "loss");
        assert_eq!(log.train[0].1[0], (2, 1.5));
        assert!(log.train[0].1[1].1.is_nan());
        assert_eq!(log.train[1], ("accuracy".to_owned(), vec![(2, 0.25)]));
        let timing = vec![("step".to_owned(), 1.5), ("compile".to_owned(), 0.5)];
        assert_eq!(log.timing(), timing);
    }

    #[test]
    fn evaluations_by_steps_are_beside_those_of_epochs_without_them() {
        let lines = r#"{"event":"start","step":0,"best_by":"max f1"}
{"event":"epoch","step":4,"epoch":1,"validation":{"loss":0.5},"best":true}
{"event":"evaluation","step":6,"epoch":2,"metrics":{"loss":0.4,"f1":0.75},"best":true,"scheduled":true}
{"event":"evaluation","step":8,"epoch":2,"metrics":{"loss":"nan","f1":0.5},"best":false,"scheduled":true}
{"event":"epoch","step":8,"epoch":2,"validation":{"loss":"nan","f1":0.5},"best":false}
{"event":"end","step":8,"stop_reason":"callback","stop_message":"enough"}"#;
        let log = MetricsLog::read(lines);
        let found: Vec<_> = log.evaluations.iter().map(|it| (it.step, it.epoch)).collect();
        assert_eq!(found, [(4, 1), (6, 2), (8, 2)]);
        assert_eq!(log.best().map(|best| best.step), Some(6));
        assert_eq!(log.epoch_ending_at(6), None);
        assert_eq!(log.epoch_ending_at(8).map(|epoch| epoch.number), Some(2));
        assert_eq!(log.ends[0].stop_message, "enough");
        assert_eq!((log.best_metric(), MetricsLog::default().best_metric()), ("f1", "loss"));
    }

    #[test]
    fn a_run_that_was_killed_has_no_end() {
        let lines: Vec<&str> = RUN.lines().take(6).collect();
        assert_eq!(MetricsLog::read(&lines.join("\n")).stop_reason(), None);
        assert_eq!(MetricsLog::read(""), MetricsLog::default());
    }
}
