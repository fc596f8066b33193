//! The file that describes a training run: `vramfit train CONFIG.toml`.
//!
//! One table ([`keys`]) defines the keys: reading, validation, the template of `--init` and the page
//! `docs/reference/training-config.md` are all derived from it. Nothing here opens a file.

mod batch;
mod config;
mod key;
mod keys;
mod location;
mod metrics_log;
mod overrides;
mod raw_config;
mod read;
mod rules;
mod run_record;
mod template;
#[cfg(test)]
#[path = "../../vramfit-model/src/testing.rs"]
mod testing;
#[cfg(test)]
mod tests;

pub use batch::{BatchSearchResult, Trial, largest_batch};
pub use config::{Checkpoint, Config, Data, Model, Optimizer, Training};
pub use key::{DefaultValue, Key, PythonName, ValueType};
pub use keys::{SECTIONS, Section, keys};
pub use metrics_log::{EpochLine, EvaluationLine, MetricsLog, Point, SessionEnd};
pub use run_record::{RecordedColumn, RecordedData, RunRecord, Session};
pub use template::{reference_page, template};
