//! Variables that a running program changes, which JAX may have read before.

use serde::{Deserialize, Serialize};

/// A variable that a running program sets or removes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LateChange {
    /// The variable.
    pub name: String,
    /// Its value before; `None` if it was not set.
    pub old: Option<String>,
    /// Its value from then on; `None` if it is removed.
    pub new: Option<String>,
    /// The line that changes it, such as `train.py:7 (main)`; empty if unknown.
    pub site: String,
    /// The stage of JAX at that time.
    pub stage: ProcessStage,
}

/// How far JAX has been initialized in a process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ProcessStage {
    /// Not imported: every variable still takes effect.
    #[default]
    Before,
    /// `import jax` has read its own options.
    Imported,
    /// The plugins were discovered, and the options of their clients were read.
    Discovered,
    /// A backend exists: the plugin has read its own variables, too.
    Started,
}
