//! The settings of a run as its process had them: what JAX read, and what the program set too late.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lint::{LateChange, concerns_jax};

/// The settings of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEnvironment {
    /// The variables that JAX, XLA and their neighbors read, each with the value it had then.
    pub variables: BTreeMap<String, String>,
    /// Those of them that the command set itself, and not the user.
    pub own: Vec<String>,
    /// Changes that the program made once JAX had begun to read.
    pub late: Vec<LateChange>,
}

impl RunEnvironment {
    /// Gathers them from the whole environment of a process; what concerns neither JAX nor its
    /// neighbors is left out.
    pub fn of_process(
        environment: impl IntoIterator<Item = (String, String)>,
        own: Vec<String>,
        late: Vec<LateChange>,
    ) -> RunEnvironment {
        let environment = environment.into_iter();
        RunEnvironment {
            variables: environment.filter(|(name, _)| concerns_jax(name)).collect(),
            own,
            late: late
                .into_iter()
                .filter(|change| concerns_jax(&change.name))
                .collect(),
        }
    }
}
