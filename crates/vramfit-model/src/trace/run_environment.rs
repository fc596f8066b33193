//! The settings of a run as its process had them: what JAX read, and what the program set too late.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::settings::LateChange;
use crate::settings::is_jax_related;

/// The settings of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEnvironment {
    /// The variables that JAX, XLA and their neighbors read, each with the value it had then.
    pub variables: BTreeMap<String, String>,
    /// Those of them that the command set itself, and not the user.
    pub set_by_vramfit: Vec<String>,
    /// Changes that the program made once JAX had begun to read.
    pub late: Vec<LateChange>,
    /// Versions of the installed libraries that use JAX, by the name that they are imported by.
    pub libraries: BTreeMap<String, String>,
    /// Versions of imported libraries that allocate GPU memory of their own, by the name that they are imported by.
    pub gpu_libraries: BTreeMap<String, String>,
}

impl RunEnvironment {
    /// Gathers them from the whole environment of a process; what concerns neither JAX nor its
    /// neighbors is left out.
    pub fn of_process(
        environment: impl IntoIterator<Item = (String, String)>,
        set_by_vramfit: Vec<String>,
        late: Vec<LateChange>,
    ) -> RunEnvironment {
        let environment = environment.into_iter();
        RunEnvironment {
            variables: environment.filter(|(name, _)| is_jax_related(name)).collect(),
            set_by_vramfit,
            late: late.into_iter().filter(|change| is_jax_related(&change.name)).collect(),
            libraries: BTreeMap::new(),
            gpu_libraries: BTreeMap::new(),
        }
    }
}
