//! All that the rules are allowed to know: plain values, gathered by whoever asks.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::Machine;
use crate::settings::Version;

/// What a program is started with, or runs with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// The environment variables.
    pub environment: BTreeMap<String, String>,
    /// The installed release of JAX; `None`: not known. The rules then assume the newest they know.
    pub jax: Option<Version>,
    /// What the driver says of the cards; without cards, nothing is known of them.
    pub machine: Machine,
    /// How far the program has come.
    pub moment: Moment,
    /// Variables that are set only now, in the running program: by `os.environ`, or by us. They are
    /// part of `environment`, too.
    pub set_now: BTreeSet<String>,
    /// What is installed beside JAX; `None`: nobody looked.
    pub packages: Option<Packages>,
}

/// How far a program has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// It has not begun: every variable still counts.
    #[default]
    BeforeStart,
    /// `import jax` is done.
    AfterImport {
        /// Where JAX was imported, such as `model.py:3`, where that is known.
        culprit: Option<String>,
    },
    /// JAX has a backend: what decides the pool was read.
    AfterBackend {
        /// Where JAX was used for the first time, where that is known.
        culprit: Option<String>,
    },
}

/// Installed packages that matter to the memory of a card, with their versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages {
    /// TensorFlow as it is installed by default: with its code for GPUs.
    pub tensorflow: Option<String>,
    /// TensorFlow without its code for GPUs.
    pub tensorflow_cpu: Option<String>,
    /// PyTorch.
    pub torch: Option<String>,
    /// Whether JAX has a plugin for CUDA.
    pub cuda_plugin: bool,
}
