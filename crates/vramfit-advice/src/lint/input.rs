//! The input of the rules: plain values.

use std::collections::BTreeMap;

use crate::host::Host;
use crate::settings::{LateChange, Version};

/// The environment of a program that starts or runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LintInput {
    /// The environment variables.
    pub environment: BTreeMap<String, String>,
    /// The installed JAX release; if `None`, the rules assume the latest they know.
    pub jax: Option<Version>,
    /// The GPUs that the driver reports; none if they are unknown.
    pub host: Host,
    /// Changes that the running program made to its environment after JAX began to read it, in order.
    /// `environment` is what JAX has read, without them.
    pub late: Vec<LateChange>,
    /// Packages installed next to JAX; `None` if unknown.
    pub packages: Option<Packages>,
}

/// Installed packages that affect GPU memory, with their versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages {
    /// TensorFlow with GPU support, as installed by default.
    pub tensorflow: Option<String>,
    /// TensorFlow without GPU support.
    pub tensorflow_cpu: Option<String>,
    /// PyTorch.
    pub torch: Option<String>,
    /// Whether JAX has a CUDA plugin.
    pub cuda_plugin: bool,
}
