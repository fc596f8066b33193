//! `vramfit train --init --data FILE`: values of the template for this data.

use std::path::Path;

use vramfit_analysis::{Bytes, Error, Result};
use vramfit_data::inspect::{DatasetInfo, InspectOptions, inspect_file};

/// Common names of datasets of targets.
const TARGET_NAMES: &[&str] = &["targets", "target", "labels", "label", "y"];

/// Returns values for keys of the file at `config`, as TOML.
///
/// # Errors
/// `invalid-argument` when the data has neither inputs with targets nor tokens; the errors of opening a file.
pub(super) fn propose(config: &Path, data: &Path) -> Result<Vec<(&'static str, String)>> {
    let report = inspect_file(data, &InspectOptions::new(Bytes(256 << 20)))?;
    let readable = report.entries.iter().filter(|entry| entry.problem.is_none());
    let all: Vec<(&str, &DatasetInfo)> = readable
        .filter_map(|entry| Some((entry.path.trim_start_matches('/'), entry.dataset.as_ref()?)))
        .filter(|(_, facts)| is_number(&facts.dtype) && !facts.shape.is_empty())
        .collect();
    let is_target = |path: &str| TARGET_NAMES.contains(&path.rsplit('/').next().unwrap_or(path));
    // Of several groups, not the one for tests.
    let candidates = all.iter().filter(|(path, _)| is_target(path));
    let targets = candidates.min_by_key(|(path, _)| is_held_out(path));
    let largest = |of: &dyn Fn(&str, &DatasetInfo) -> bool| {
        let fitting = all.iter().filter(|(path, facts)| of(path, facts));
        fitting.max_by_key(|(_, facts)| facts.memory_bytes)
    };
    let inputs = match targets {
        Some((name, targets)) => {
            let group = |path: &str| path.rsplit_once('/').map(|(group, _)| group.to_owned());
            largest(&|path, facts| {
                !is_target(path) && facts.shape[0] == targets.shape[0] && group(path) == group(name)
            })
        }
        None => largest(&|_, facts| is_tokens(facts)),
    };
    let Some((path, facts)) = inputs else {
        let message = format!(
            "`{}` has neither inputs with a dataset named `{}`, nor tokens",
            data.display(),
            TARGET_NAMES.join("`, `")
        );
        return Err(Error::invalid_argument(message)
            .hint("omit `--data`, and enter the datasets in the file"));
    };
    // JSON strings are TOML strings.
    let text = |text: &str| serde_json::Value::from(text).to_string();
    // In the file a path is relative to the file.
    let shown = match config.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => std::path::absolute(data).ok(),
        _ => None,
    };
    let shown = shown.unwrap_or_else(|| data.to_owned());
    let target = targets.map_or(*path, |(target, _)| *target);
    let is_pixels = targets.is_some() && facts.dtype == "uint8";
    let is_sequence = targets.is_none() || facts.shape.len() == 3 && !is_pixels;
    let is_image = is_pixels && matches!(facts.shape.len(), 3 | 4);
    let kind = match (is_sequence, is_image) {
        (true, _) => "gru",
        (_, true) => "cnn",
        _ => "mlp",
    };
    let mut proposed = vec![
        ("data.path", text(&shown.to_string_lossy())),
        ("data.inputs", text(path)),
        ("data.targets", text(target)),
        ("model.kind", text(kind)),
    ];
    // Several integers in a row are not one label.
    if let Some((_, facts)) = targets
        && !facts.dtype.contains("float")
        && matches!(facts.shape[..], [_, count] if count > 1)
    {
        proposed.push(("training.loss", text("binary_cross_entropy")));
    }
    if is_image {
        proposed.push(("model.hidden_sizes", "[16, 32]".to_owned()));
    }
    if is_pixels {
        proposed.push(("data.scale", text("1/255")));
    }
    // Integers may be tokens or categories.
    let normalizes_inputs = facts.dtype.contains("float");
    let normalizes_targets = targets.is_some_and(|(_, facts)| facts.dtype.contains("float"));
    match (normalizes_inputs, normalizes_targets) {
        (true, true) => proposed.push(("data.normalize", text("both"))),
        (true, false) => proposed.push(("data.normalize", text("inputs"))),
        (false, true) => proposed.push(("data.normalize", text("targets"))),
        (false, false) => {}
    }
    Ok(proposed)
}

/// Whether a dataset is probably for validation or tests.
fn is_held_out(path: &str) -> bool {
    const WORDS: [&str; 7] = ["test", "tests", "val", "valid", "validation", "eval", "dev"];
    path.to_ascii_lowercase().split(['/', '_', '-', '.']).any(|part| WORDS.contains(&part))
}

fn is_number(dtype: &str) -> bool {
    vramfit_data::hdf5::Scalar::from_name(dtype).is_some()
}

/// Whether a dataset may have rows of tokens.
fn is_tokens(facts: &DatasetInfo) -> bool {
    matches!(facts.shape[..], [_, length] if length > 1) && facts.dtype.contains("int")
}
