//! The recorded files of `fixtures/hdf5`, and what is to be read of them.

use std::path::PathBuf;

use serde::Deserialize;

/// One recorded file.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) dataset: String,
    pub(crate) field: Option<String>,
    shape: Option<Vec<u64>>,
    dtype: Option<String>,
    refused: Option<String>,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Recorded {
    cases: Vec<Case>,
}

impl Case {
    /// Returns shape, type and bytes of what must be read, if it is read.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn values(&self) -> Option<(&[u64], &str, Vec<u8>)> {
        let bytes = std::fs::read(self.path("bin")).unwrap_or_default();
        Some((self.shape.as_deref()?, self.dtype.as_deref()?, bytes))
    }

    /// Returns what the message says and the id of the error, if it is refused.
    #[allow(dead_code, reason = "not every test needs it")]
    pub(crate) fn refusal(&self) -> Option<(&str, &str)> {
        Some((self.refused.as_deref()?, self.kind.as_deref()?))
    }

    /// Returns where one of its files is: `h5`, or the bytes of its rows in `bin`.
    pub(crate) fn path(&self, ending: &str) -> PathBuf {
        folder().join(format!("{}.{ending}", self.name))
    }
}

/// Returns where the files are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hdf5")
}

/// Returns every recorded file.
pub(crate) fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("cases.json")).expect("the list is recorded");
    let recorded: Recorded = serde_json::from_str(&text).expect("the list is as it is recorded");
    recorded.cases
}
