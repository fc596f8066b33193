//! The report of a training run: losses, where the time went, memory, epoch by epoch.

use vramfit_train::{MetricsLog, Point, SessionEnd};

use super::{Content, Curve, Curves, Metric, Report, Section, Share, Table, Value, json};

/// Points of a curve that are drawn; more are averaged to as many.
const MAX_POINTS: usize = 4000;

/// The metric that is not computed by a step, but an input of it.
const LEARNING_RATE: &str = "learning_rate";

pub(super) fn report(log: &MetricsLog) -> Report {
    let mut sections = vec![Section::new("", Content::Metrics(metrics(log)))];
    sections.extend(curves(log));
    sections.extend(time_breakdown(log));
    if !log.epochs.is_empty() {
        sections.push(Section::new("epochs", Content::Table(epochs(log))));
    }
    Report {
        title: "vramfit train".to_owned(),
        outcome: (Some(matches!(log.stop_reason(), Some("finished" | "early" | "callback"))))
            .into(),
        headline: headline(log),
        cause: Vec::new(),
        sections,
        metadata: metadata(log),
        json: json::training(log),
        ..Report::default()
    }
}

fn headline(log: &MetricsLog) -> String {
    let how = match log.stop_reason() {
        Some("finished") => "finished".to_owned(),
        Some("early") => "stopped early: the evaluation stopped improving".to_owned(),
        Some("nan") => format!("the loss became NaN at step {}", log.nan.unwrap_or(0)),
        Some("callback") => match log.ends.last().map(|end| end.stop_message.as_str()) {
            None | Some("") => "stopped by a callback".to_owned(),
            Some(message) => format!("stopped by a callback: {message}"),
        },
        Some(other) => format!("stopped by a {other}"),
        None => format!("not finished: last recorded step {}", log.step),
    };
    let loss = |metrics: &[(String, f64)]| value_of(metrics, "loss").map(format_metric);
    let metric = log.best_metric();
    let best = log.best().and_then(|best| Some((value_of(&best.metrics, metric)?, best.step)));
    if let Some((value, step)) = best {
        let at = match log.epoch_ending_at(step) {
            Some(epoch) => format!("in epoch {}", epoch.number),
            None => format!("at step {step}"),
        };
        return format!("{how}; best validation {metric} {} {at}", format_metric(value));
    }
    match log.epochs.last().and_then(|epoch| loss(&epoch.train)) {
        Some(loss) => format!("{how}; training loss {loss}"),
        None => how,
    }
}

pub(super) fn value_of(metrics: &[(String, f64)], name: &str) -> Option<f64> {
    let found = metrics.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| *value)
}

fn metrics(log: &MetricsLog) -> Vec<Metric> {
    let epochs = log.epochs.len();
    let steps = Value::Count(log.step);
    let mut metrics = vec![Metric::new("steps", steps, format!("{epochs} epochs completed"))];
    let elapsed = log.ends.last().map(|end| end.elapsed);
    let elapsed = elapsed.or(log.epochs.last().map(|epoch| epoch.elapsed));
    if let Some(seconds) = elapsed {
        let note = match log.sessions {
            0 | 1 => String::new(),
            count => format!("in {count} sessions"),
        };
        let total = Value::Text(format_duration(seconds));
        metrics.push(Metric::new("total time", total, note));
    }
    if epochs > 0 {
        let sum: f64 = log.epochs.iter().map(|epoch| epoch.seconds).sum();
        let mean = Value::Text(format_duration(sum / epochs as f64));
        metrics.push(Metric::new("average epoch", mean, "including validation"));
    }
    let max = |of: fn(&SessionEnd) -> Option<u64>| log.ends.iter().filter_map(of).max();
    let host = max(|end| end.peak_host_bytes);
    let device = max(|end| end.peak_device_bytes);
    let value = |bytes: Option<u64>| bytes.map_or(Value::Missing("unknown"), Value::Bytes);
    let note = match device {
        Some(_) => "in use in JAX's pool, maximum over devices",
        None => "JAX does not report it for this kind of device",
    };
    metrics.push(Metric::new(
        "peak memory, host",
        value(host),
        "of the process: Python, JAX, batches",
    ));
    metrics.push(Metric::new("peak memory, device", value(device), note));
    metrics
}

/// Returns a chart for each metric, the loss first.
fn curves(log: &MetricsLog) -> Vec<Section> {
    let mut names: Vec<&str> = vec!["loss"];
    let train = log.train.iter().map(|(name, _)| name.as_str());
    let validation = log.evaluations.iter().flat_map(|evaluation| &evaluation.metrics);
    for name in train.chain(validation.map(|(name, _)| name.as_str())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // It explains the others, and has no other use.
    names.sort_by_key(|name| *name == LEARNING_RATE);
    let charts = names.into_iter().filter_map(|name| {
        let train = log.train.iter().find(|(known, _)| known == name);
        let train = train.map(|(_, points)| points.clone()).unwrap_or_default();
        let validation = log
            .evaluations
            .iter()
            .filter_map(|it| value_of(&it.metrics, name).map(|value| (it.step, value)));
        let curve = |label: &str, points: Vec<Point>| {
            let finite = points.into_iter().filter(|(_, value)| value.is_finite());
            let points = downsample(finite.collect());
            (!points.is_empty()).then(|| Curve { label: label.to_owned(), points })
        };
        let train = curve("train", train);
        let validation = curve("validation", validation.collect());
        let curves: Vec<_> = train.into_iter().chain(validation).collect();
        let unit = "step";
        (!curves.is_empty()).then(|| Section::new(name, Content::Curves(Curves { unit, curves })))
    });
    charts.collect()
}

/// Averages adjacent points until there are few enough.
pub(super) fn downsample(points: Vec<Point>) -> Vec<Point> {
    let size = points.len().div_ceil(MAX_POINTS).max(1);
    if size == 1 {
        return points;
    }
    let mean = |chunk: &[Point]| {
        let sum: f64 = chunk.iter().map(|(_, value)| value).sum();
        (chunk[chunk.len() - 1].0, sum / chunk.len() as f64)
    };
    points.chunks(size).map(mean).collect()
}

/// Returns where the time went, in the sessions that recorded it.
fn time_breakdown(log: &MetricsLog) -> Option<Section> {
    let timing = log.timing();
    let seconds = |name: &str| value_of(&timing, name).unwrap_or(0.0);
    let wall = seconds("wall");
    if wall <= 0.0 {
        return None;
    }
    let parts = [
        ("training steps", seconds("step")),
        ("waiting for data", seconds("data_wait")),
        ("validation", seconds("eval")),
        ("compilation", seconds("compile")),
        ("checkpoints", seconds("checkpoint")),
        ("callbacks", seconds("callbacks")),
    ];
    let known: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    let rest = ("startup and other", (wall - known).max(0.0));
    let shares = parts
        .into_iter()
        .chain([rest])
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(label, seconds)| Share {
            label: label.to_owned(),
            fraction: seconds / wall.max(known),
            amount: format_duration(seconds),
        })
        .collect();
    let killed = log.sessions.saturating_sub(log.ends.len() as u64);
    let without = match killed {
        0 => String::new(),
        1 => ", without 1 session that was killed".to_owned(),
        count => format!(", without {count} sessions that were killed"),
    };
    let title = format!("time breakdown{without}");
    Some(Section::new(title, Content::Breakdown(shares)))
}

fn epochs(log: &MetricsLog) -> Table {
    let mut names: Vec<(&str, bool)> = Vec::new();
    for epoch in &log.epochs {
        let train = epoch.train.iter().map(|(name, _)| (name.as_str(), false));
        let validation = epoch.validation.iter();
        let validation = validation.map(|(name, _)| (name.as_str(), true));
        for name in train.chain(validation) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.sort_by_key(|(name, _)| *name != "loss");
    let headings = names.iter().map(|(name, is_validation)| {
        let split = if *is_validation { "validation" } else { "train" };
        format!("{split} {name}")
    });
    let mut columns = vec!["epoch".to_owned()];
    columns.extend(headings);
    columns.extend(["time", "elapsed"].map(str::to_owned));
    let best = log.best().and_then(|best| log.epoch_ending_at(best.step));
    let best = best.map(|epoch| epoch.number);
    let rows = log.epochs.iter().map(|epoch| {
        let mark = if best == Some(epoch.number) { " (best)" } else { "" };
        let mut row = vec![Value::Text(format!("{}{mark}", epoch.number))];
        row.extend(names.iter().map(|(name, is_validation)| {
            let metrics = if *is_validation { &epoch.validation } else { &epoch.train };
            let value = value_of(metrics, name);
            value.map_or(Value::Missing("unknown"), |value| Value::Text(format_metric(value)))
        }));
        row.push(Value::Text(format_duration(epoch.seconds)));
        row.push(Value::Text(format_duration(epoch.elapsed)));
        row
    });
    Table { columns, rows: rows.collect(), note: String::new() }
}

fn metadata(log: &MetricsLog) -> Vec<Metric> {
    let list = |table: &serde_json::Map<String, serde_json::Value>| {
        let known = table.iter().filter(|(_, value)| !value.is_null());
        let pairs = known.map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name} {text}"),
            None => format!("{name} {value}"),
        });
        pairs.collect::<Vec<_>>().join(", ")
    };
    let mut metadata = vec![Metric::text("device", log.device.clone())];
    for (label, table) in [("configuration", &log.config), ("versions", &log.versions)] {
        if !table.is_empty() {
            metadata.push(Metric::text(label, list(table)));
        }
    }
    metadata
}

/// Writes a metric with four significant decimals.
pub(super) fn format_metric(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (0.001..10_000.0).contains(&size) => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

pub(super) fn format_duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole / 3600 {
        0 => format!("{} min {} s", whole / 60, whole % 60),
        hours => format!("{hours} h {} min", whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chart: its title, and the points of each curve by label.
    type Chart<'a> = (&'a str, Vec<(&'a str, &'a [Point])>);

    #[test]
    fn evaluations_are_drawn_by_steps_and_the_learning_rate_last() {
        let lines = r#"{"event":"start","step":0,"device":"CPU","best_by":"max f1"}
{"event":"steps","step":5,"epoch":1,"learning_rate":0.1,"loss":1.5}
{"event":"evaluation","step":6,"epoch":1,"metrics":{"loss":0.4,"f1":0.75},"best":true}
{"event":"steps","step":10,"epoch":1,"learning_rate":0.05,"loss":1.0}
{"event":"evaluation","step":12,"epoch":1,"metrics":{"loss":0.3,"f1":0.5},"best":false}
{"event":"epoch","step":12,"epoch":1,"train":{"loss":1.2},"validation":{"loss":0.3,"f1":0.5},"best":false}
{"event":"end","step":12,"stop_reason":"callback","stop_message":"enough","elapsed":1.0}"#;
        let report = report(&MetricsLog::read(lines));
        let why = "stopped by a callback: enough; best validation f1 0.7500 at step 6";
        assert_eq!(report.headline, why);
        let charts: Vec<Chart<'_>> = report
            .sections
            .iter()
            .filter_map(|section| match &section.content {
                Content::Curves(chart) => Some((section.title.as_str(), &chart.curves)),
                _ => None,
            })
            .map(|(title, curves)| {
                let curves = curves.iter().map(|it| (it.label.as_str(), it.points.as_slice()));
                (title, curves.collect())
            })
            .collect();
        let expected: Vec<Chart<'_>> = vec![
            (
                "loss",
                vec![("train", &[(5, 1.5), (10, 1.0)]), ("validation", &[(6, 0.4), (12, 0.3)])],
            ),
            ("f1", vec![("validation", &[(6, 0.75), (12, 0.5)])]),
            ("learning_rate", vec![("train", &[(5, 0.1), (10, 0.05)])]),
        ];
        assert_eq!(charts, expected);
        assert_eq!(report.json["best_step"], 6);
        assert_eq!(report.json["evaluations"][1]["metrics"]["f1"], 0.5);
    }
}
