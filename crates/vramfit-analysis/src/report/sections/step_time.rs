//! How long a step takes by XLA's cost model, and what takes it.

use crate::analysis::RunSummary;
use crate::program::cost::{MAX_UNKNOWN_SHARE, OperationTime, ProgramTime};
use crate::report::phrases::{at_line, estimated_range, estimated_time};
use crate::report::{Metric, Section, Value};

/// More than these would hide the rest of the report; the JSON has more.
const MAX_SHOWN: usize = 3;

/// Less is nothing beside the error of the estimate.
const MIN_UNKNOWN_SHARE: f64 = 0.005;

/// From the bound to XLA's estimate.
pub(in crate::report) fn metric(summary: &RunSummary) -> Option<Metric> {
    let time = summary.step_time.as_ref()?;
    let mut note = format!("estimated ({})", source(time));
    if time.unknown_share() >= MIN_UNKNOWN_SHARE {
        note += &format!("; {} of it unknown", Value::Fraction(time.unknown_share()));
    }
    if time.unknown_share() > MAX_UNKNOWN_SHARE {
        note += ", too much to compare times";
    }
    Some(Metric::new("step time", Value::Text(estimated_range(time.low_us, time.model_us)), note))
}

/// The operations that take most.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let time = summary.step_time.as_ref()?;
    let shown = time.operations.iter().take(MAX_SHOWN);
    let points = shown.map(|it| point(it, time)).collect();
    let title = format!("longest operations of a step, estimated ({})", source(time));
    Section::list(&title, points)
}

fn source(time: &ProgramTime) -> &'static str {
    match (time.xla_us > 0.0, time.calibrated) {
        (true, false) => "XLA's model",
        (false, false) => "roofline",
        (true, true) => "XLA's model and calibrated rates",
        (false, true) => "roofline of calibrated rates",
    }
}

fn point(one: &OperationTime, step: &ProgramTime) -> String {
    let share = Value::Fraction(one.model_us / step.model_us.max(f64::MIN_POSITIVE));
    let known = if one.known { "" } else { ", or longer" };
    let (operation, line) = (&one.operation, at_line(&one.site));
    let duration = estimated_time(one.model_us);
    format!("{duration} ({share}{known}): `{operation}`{line}")
}
