//! How long a program takes, and what takes it.

use serde::{Deserialize, Serialize};

/// How many operations of a program are kept.
const MAX_OPERATIONS: usize = 10;

/// Times of which more than this part is unknown say nothing about which of two is shorter.
pub const MAX_UNKNOWN_SHARE: f64 = 0.2;

/// How long one execution of a program takes on one device. Time between kernels, on the host and for
/// input is not part of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramTime {
    /// Microseconds that no execution stays below.
    pub low_us: f64,
    /// Microseconds by XLA's cost model, what is unknown included.
    pub model_us: f64,
    /// Microseconds of `model_us` that XLA estimated; the rest is a roofline. 0 for GPUs that it has no
    /// model of.
    pub xla_us: f64,
    /// Microseconds of `model_us` for operations whose time is not known; they may take longer.
    pub unknown_us: f64,
    /// Microseconds of `model_us` for what XLA's own rematerialization pass computes a second time.
    pub xla_remat_us: f64,
    /// Microseconds of `model_us` that kernels wait for transfers to and from host memory.
    pub host_wait_us: f64,
    /// Bytes that are transferred to host memory and back, both directions added.
    pub host_bytes: u64,
    /// Bytes of pinned host memory that its temporaries take during an execution.
    pub host_memory_bytes: u64,
    /// Whether it is estimated with rates that were measured on such a GPU.
    pub calibrated: bool,
    /// The operations that take most, the longest first.
    pub operations: Vec<OperationTime>,
}

/// How long the operations of one name take that one line asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationTime {
    /// The user's line; empty where it is not known.
    pub site: String,
    /// What JAX calls it, such as `dot_general`; without a name the opcode.
    pub operation: String,
    /// Microseconds by XLA's cost model.
    pub model_us: f64,
    /// Whether its time is known; otherwise it may take longer.
    pub known: bool,
}

impl ProgramTime {
    /// Adds several executions of a program to the time of a sequence of programs.
    pub fn add(&mut self, other: &ProgramTime, executions: u64) {
        let times = executions as f64;
        self.low_us += times * other.low_us;
        self.model_us += times * other.model_us;
        self.xla_us += times * other.xla_us;
        self.unknown_us += times * other.unknown_us;
        self.xla_remat_us += times * other.xla_remat_us;
        self.host_wait_us += times * other.host_wait_us;
        self.host_bytes += executions * other.host_bytes;
        self.host_memory_bytes = self.host_memory_bytes.max(other.host_memory_bytes);
        self.calibrated |= other.calibrated;
        for one in &other.operations {
            let mut own = self.operations.iter_mut();
            let same = own.find(|it| {
                (&it.site, &it.operation, it.known) == (&one.site, &one.operation, one.known)
            });
            match same {
                Some(same) => same.model_us += times * one.model_us,
                None => self
                    .operations
                    .push(OperationTime { model_us: times * one.model_us, ..one.clone() }),
            }
        }
        self.sort_operations();
    }

    /// Returns it as it is kept in files.
    pub fn to_stored(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads what [`ProgramTime::to_stored`] returned; `None` for anything else.
    pub fn from_stored(stored: &[u8]) -> Option<Self> {
        serde_json::from_slice(stored).ok()
    }

    /// Returns the part of the time that is unknown, from 0 to 1.
    pub fn unknown_share(&self) -> f64 {
        if self.model_us > 0.0 { self.unknown_us / self.model_us } else { 0.0 }
    }

    pub(super) fn sort_operations(&mut self) {
        let order = |a: &OperationTime, b: &OperationTime| {
            let names = (&a.site, &a.operation).cmp(&(&b.site, &b.operation));
            b.model_us.total_cmp(&a.model_us).then(names)
        };
        self.operations.sort_by(order);
        self.operations.truncate(MAX_OPERATIONS);
    }
}
