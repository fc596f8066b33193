//! `vramfit train --init --data FILE`: what a file to begin with says of this data.

use std::path::Path;

use vramfit_core::{Bytes, Error, ErrorKind, Result};
use vramfit_data::inspect::{DatasetInfo, InspectOptions, inspect_file};

/// What people call what is to be predicted.
const TARGETS: &[&str] = &["targets", "target", "labels", "label", "y"];

/// Returns values for keys of the file at `config`, as TOML.
///
/// # Errors
/// `invalid-argument` when the data has no two datasets that belong together, nor one of tokens; what opening
/// a file can fail with.
pub(super) fn propose(config: &Path, data: &Path) -> Result<Vec<(&'static str, String)>> {
    let options = InspectOptions {
        paths: Vec::new(),
        sample: None,
        rows: None,
        seed: 0,
        budget: Bytes(256 << 20),
        measure: false,
    };
    let report = inspect_file(data, &options)?;
    let readable = report
        .entries
        .iter()
        .filter(|entry| entry.problem.is_none());
    let all: Vec<(&str, &DatasetInfo)> = readable
        .filter_map(|entry| Some((entry.path.trim_start_matches('/'), entry.dataset.as_ref()?)))
        .filter(|(_, facts)| is_number(&facts.dtype) && !facts.shape.is_empty())
        .collect();
    let is_target = |path: &str| TARGETS.contains(&path.rsplit('/').next().unwrap_or(path));
    let targets = all.iter().find(|(path, _)| is_target(path));
    let largest = |of: &dyn Fn(&str, &DatasetInfo) -> bool| {
        let fitting = all.iter().filter(|(path, facts)| of(path, facts));
        fitting.max_by_key(|(_, facts)| facts.memory_bytes)
    };
    let inputs = match targets {
        Some((_, targets)) => {
            largest(&|path, facts| !is_target(path) && facts.shape[0] == targets.shape[0])
        }
        None => largest(&|_, facts| is_tokens(facts)),
    };
    let Some((path, facts)) = inputs else {
        let message = format!(
            "`{}` has no dataset of inputs beside one called `{}`, and none of tokens",
            data.display(),
            TARGETS.join("`, `")
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .hint("leave `--data` out, and name the datasets in the file"));
    };
    // Texts of JSON are texts of TOML.
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
    let kind = if is_sequence { "gru" } else { "mlp" };
    let mut proposed = vec![
        ("data.path", text(&shown.to_string_lossy())),
        ("data.inputs", text(path)),
        ("data.targets", text(target)),
        ("model.kind", text(kind)),
    ];
    if is_pixels {
        proposed.push(("data.scale", text("1/255")));
    }
    Ok(proposed)
}

fn is_number(dtype: &str) -> bool {
    vramfit_data::hdf5::Scalar::from_name(dtype).is_some()
}

/// Whether a dataset may have rows of tokens.
fn is_tokens(facts: &DatasetInfo) -> bool {
    matches!(facts.shape[..], [_, length] if length > 1) && facts.dtype.contains("int")
}
