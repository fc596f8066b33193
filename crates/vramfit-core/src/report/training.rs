//! The report of a training run: losses, where the time went, memory, epoch by epoch.

use serde_json::json;

use super::picture::{Curve, Curves, Portion};
use super::{Body, Figure, Report, Section, Table, Value};
use crate::train::{Journal, Point};

/// Points of a curve that are drawn; more are averaged to as many.
const MAX_POINTS: usize = 4000;

/// Makes the report.
pub(super) fn report(journal: &Journal) -> Report {
    let mut sections = vec![section("", Body::Figures(figures(journal)))];
    sections.extend(curves(journal));
    sections.extend(time(journal));
    if !journal.epochs.is_empty() {
        sections.push(section("epochs", Body::Table(epochs(journal))));
    }
    let stopped = journal.stopped();
    Report {
        title: "vramfit train".to_owned(),
        good: Some(matches!(stopped, Some("finished" | "early"))),
        answer: answer(journal),
        sections,
        facts: facts(journal),
        record: record(journal),
    }
}

fn section(title: &str, body: Body) -> Section {
    Section {
        title: title.to_owned(),
        body,
        detail: false,
    }
}

fn answer(journal: &Journal) -> String {
    let how = match journal.stopped() {
        Some("finished") => "finished".to_owned(),
        Some("early") => "stopped early, as the validation loss got no better".to_owned(),
        Some("nan") => format!(
            "the loss was not a number at step {}",
            journal.nan.unwrap_or(0)
        ),
        Some(other) => format!("ended by a {other}"),
        None => format!(
            "not at its end: the last line is about step {}",
            journal.step
        ),
    };
    let loss = |all: &[(String, f64)]| {
        let loss = all.iter().find(|(name, _)| name == "loss");
        loss.map(|(_, loss)| digits(*loss))
    };
    let best = journal.best();
    let last = journal.epochs.last();
    match best.and_then(|epoch| Some((loss(&epoch.validation)?, epoch.number))) {
        Some((loss, epoch)) => format!("{how}: best validation loss {loss} in epoch {epoch}"),
        None => match last.and_then(|epoch| loss(&epoch.train)) {
            Some(loss) => format!("{how}: train loss {loss}"),
            None => how,
        },
    }
}

fn figures(journal: &Journal) -> Vec<Figure> {
    let figure = |label: &str, value: Value, note: String| Figure {
        label: label.to_owned(),
        value,
        note,
    };
    let epochs = journal.epochs.len();
    let mut all = vec![figure(
        "steps",
        Value::Count(journal.step),
        format!("{epochs} epochs done"),
    )];
    let elapsed = journal.ends.last().map(|end| end.elapsed);
    let elapsed = elapsed.or(journal.epochs.last().map(|epoch| epoch.elapsed));
    if let Some(seconds) = elapsed {
        let note = match journal.sittings {
            0 | 1 => "in one sitting".to_owned(),
            many => format!("in {many} sittings"),
        };
        all.push(figure("total time", Value::Text(time_words(seconds)), note));
    }
    if epochs > 0 {
        let sum: f64 = journal.epochs.iter().map(|epoch| epoch.seconds).sum();
        let mean = Value::Text(time_words(sum / epochs as f64));
        all.push(figure(
            "average epoch",
            mean,
            "with its validation".to_owned(),
        ));
    }
    let most = |of: fn(&crate::train::End) -> Option<u64>| journal.ends.iter().filter_map(of).max();
    let bytes = |most: Option<u64>| most.map_or(Value::Missing("not known"), Value::Bytes);
    all.push(figure(
        "peak memory, host",
        bytes(most(|end| end.peak_host_bytes)),
        "the whole process: Python, JAX, batches".to_owned(),
    ));
    all.push(figure(
        "peak memory, device",
        bytes(most(|end| end.peak_device_bytes)),
        match most(|end| end.peak_device_bytes) {
            Some(_) => "in use in JAX's pool, on the fullest device".to_owned(),
            None => "JAX counts none on this kind of device".to_owned(),
        },
    ));
    all
}

/// Returns a picture for each metric, the loss first.
fn curves(journal: &Journal) -> Vec<Section> {
    let mut names: Vec<&str> = vec!["loss"];
    let all = journal.train.iter().map(|(name, _)| name.as_str());
    let validated = journal.epochs.iter().flat_map(|epoch| &epoch.validation);
    for name in all.chain(validated.map(|(name, _)| name.as_str())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let pictures = names.into_iter().filter_map(|name| {
        let train = journal.train.iter().find(|(known, _)| known == name);
        let train = train.map(|(_, points)| points.clone()).unwrap_or_default();
        let validation: Vec<Point> = journal
            .epochs
            .iter()
            .filter_map(|epoch| {
                let found = epoch.validation.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| (epoch.step, *value))
            })
            .collect();
        let curve = |label: &str, points: Vec<Point>| {
            let known = points.into_iter().filter(|(_, value)| value.is_finite());
            let points = thinned(known.collect());
            (!points.is_empty()).then(|| Curve {
                label: label.to_owned(),
                points,
            })
        };
        let lines: Vec<Curve> = [curve("train", train), curve("validation", validation)]
            .into_iter()
            .flatten()
            .collect();
        let picture = Curves {
            unit: "step",
            lines,
        };
        (!picture.lines.is_empty()).then(|| section(name, Body::Curves(picture)))
    });
    pictures.collect()
}

/// Averages neighbours until few enough points are left.
fn thinned(points: Vec<Point>) -> Vec<Point> {
    let together = points.len().div_ceil(MAX_POINTS).max(1);
    if together == 1 {
        return points;
    }
    let mean = |part: &[Point]| {
        let sum: f64 = part.iter().map(|(_, value)| value).sum();
        (part[part.len() - 1].0, sum / part.len() as f64)
    };
    points.chunks(together).map(mean).collect()
}

/// Returns where the time went, of the sittings that tell.
fn time(journal: &Journal) -> Option<Section> {
    let timing = journal.timing();
    let of = |name: &str| {
        let found = timing.iter().find(|(known, _)| known == name);
        found.map_or(0.0, |(_, seconds)| *seconds)
    };
    let wall = of("wall");
    if wall <= 0.0 {
        return None;
    }
    let parts = [
        ("steps", of("step")),
        ("waiting for data", of("data_wait")),
        ("validation", of("eval")),
        ("compiling", of("compile")),
        ("checkpoints", of("checkpoint")),
    ];
    let known: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    let rest = ("starting and the rest", (wall - known).max(0.0));
    let portions = parts
        .into_iter()
        .chain([rest])
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(label, seconds)| Portion {
            label: label.to_owned(),
            share: seconds / wall.max(known),
            amount: time_words(seconds),
        })
        .collect();
    let untold = journal.sittings.saturating_sub(journal.ends.len() as u64);
    let title = match untold {
        0 => "where the time went".to_owned(),
        untold => format!("where the time went, without {untold} that did not end by themselves"),
    };
    Some(section(&title, Body::Split(portions)))
}

fn epochs(journal: &Journal) -> Table {
    let mut names: Vec<(&str, bool)> = Vec::new();
    for epoch in &journal.epochs {
        let train = epoch.train.iter().map(|(name, _)| (name.as_str(), false));
        let validation = epoch
            .validation
            .iter()
            .map(|(name, _)| (name.as_str(), true));
        for name in train.chain(validation) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.sort_by_key(|(name, _)| *name != "loss");
    let heading = |(name, validates): &(&str, bool)| match validates {
        true => format!("validation {name}"),
        false => format!("train {name}"),
    };
    let mut columns = vec!["epoch".to_owned()];
    columns.extend(names.iter().map(heading));
    columns.extend(["time", "elapsed"].map(str::to_owned));
    let best = journal.best().map(|epoch| epoch.number);
    let rows = journal.epochs.iter().map(|epoch| {
        let star = if best == Some(epoch.number) {
            " (best)"
        } else {
            ""
        };
        let mut row = vec![Value::Text(format!("{}{star}", epoch.number))];
        row.extend(names.iter().map(|(name, validates)| {
            let all = if *validates {
                &epoch.validation
            } else {
                &epoch.train
            };
            let found = all.iter().find(|(known, _)| known == name);
            found.map_or(Value::Missing("not known"), |(_, value)| {
                Value::Text(digits(*value))
            })
        }));
        row.push(Value::Text(time_words(epoch.seconds)));
        row.push(Value::Text(time_words(epoch.elapsed)));
        row
    });
    Table {
        columns,
        rows: rows.collect(),
        note: String::new(),
    }
}

fn facts(journal: &Journal) -> Vec<Figure> {
    let fact = |label: &str, text: String| Figure {
        label: label.to_owned(),
        value: Value::Text(text),
        note: String::new(),
    };
    let listed = |table: &serde_json::Map<String, serde_json::Value>| {
        let known = table.iter().filter(|(_, value)| !value.is_null());
        let pairs = known.map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name} {text}"),
            None => format!("{name} {value}"),
        });
        pairs.collect::<Vec<_>>().join(", ")
    };
    let mut facts = vec![fact("device", journal.device.clone())];
    for (label, table) in [
        ("configuration", &journal.config),
        ("versions", &journal.versions),
    ] {
        if !table.is_empty() {
            facts.push(fact(label, listed(table)));
        }
    }
    facts
}

fn record(journal: &Journal) -> serde_json::Value {
    let table = |all: &[(String, f64)]| -> serde_json::Value {
        let entries = all.iter().map(|(name, value)| (name.clone(), json!(value)));
        serde_json::Value::Object(entries.collect())
    };
    let epochs: Vec<_> = journal
        .epochs
        .iter()
        .map(|epoch| {
            json!({
                "number": epoch.number,
                "step": epoch.step,
                "train": table(&epoch.train),
                "validation": table(&epoch.validation),
                "best": epoch.best,
                "seconds": epoch.seconds,
                "elapsed_s": epoch.elapsed,
            })
        })
        .collect();
    json!({
        "schema": 1,
        "stopped": journal.stopped(),
        "steps": journal.step,
        "sittings": journal.sittings,
        "device": journal.device,
        "best_epoch": journal.best().map(|epoch| epoch.number),
        "timing_s": table(&journal.timing()),
        "epochs": epochs,
    })
}

/// Writes a metric with as many digits as are read.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (0.001..10_000.0).contains(&size) => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

/// Writes seconds as people say them.
fn time_words(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole / 3600 {
        0 => format!("{} min {} s", whole / 60, whole % 60),
        hours => format!("{hours} h {} min", whole % 3600 / 60),
    }
}
