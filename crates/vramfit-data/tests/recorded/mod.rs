//! The recorded files of `fixtures/hdf5`, and what is to be read of them.

use std::path::PathBuf;

use serde_json::Value;

/// One recorded file.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) dataset: String,
    pub(crate) field: Option<String>,
    entry: Value,
}

impl Case {
    /// Returns shape, type and bytes of what must be read, if it is read.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn values(&self) -> Option<(Vec<u64>, &str, Vec<u8>)> {
        let shape = self.entry["shape"].as_array()?;
        let shape = shape
            .iter()
            .map(|length| length.as_u64().unwrap())
            .collect();
        let bytes = std::fs::read(folder().join(format!("{}.bin", self.name))).unwrap();
        Some((shape, self.entry["dtype"].as_str()?, bytes))
    }

    /// Returns what the message says and the id of the error, if it is refused.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn refusal(&self) -> Option<(&str, &str)> {
        Some((
            self.entry["refused"].as_str()?,
            self.entry["kind"].as_str()?,
        ))
    }
}

/// Returns where the files are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hdf5")
}

/// Returns every recorded file.
pub(crate) fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("cases.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let entries = all["cases"].as_array().unwrap().iter();
    entries
        .map(|entry| Case {
            name: entry["name"].as_str().unwrap().to_owned(),
            dataset: entry["dataset"].as_str().unwrap().to_owned(),
            field: entry["field"].as_str().map(str::to_owned),
            entry: entry.clone(),
        })
        .collect()
}
