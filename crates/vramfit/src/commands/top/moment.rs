//! One look at everything: what `top` shows, records and replays. Plain values.

use serde::{Deserialize, Serialize};
use vramfit_core::host::{Host, Process};
use vramfit_core::published::{Header, Live, Liveness};

/// What was seen at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Moment {
    /// Version of this form.
    pub(super) schema: u32,
    /// Milliseconds since 1970.
    pub(super) at_unix_ms: u64,
    /// What the driver says; `None` where there is none.
    pub(super) machine: Option<Host>,
    /// Why there is no driver.
    pub(super) no_driver: Option<NoDriver>,
    /// What JAX processes say of themselves.
    pub(super) pages: Vec<Page>,
}

/// Why the driver was not asked, and what cures it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NoDriver {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// The page of one JAX process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) header: Header,
    pub(super) live: Live,
    pub(super) liveness: Liveness,
    /// Whether its process number means the same here as there.
    pub(super) same_namespace: bool,
    /// What the system knows of the process; `None` if there is none of that number here.
    pub(super) process: Option<Process>,
}

/// The version of [`Moment`] that is written.
pub(super) const SCHEMA: u32 = 1;
