//! All keys. A new one is an entry in the file of its table and a field in `config.rs`.

mod checkpoint;
mod data;
mod model;
mod optimizer;
mod training;

use super::key::Key;

/// A table of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub description: &'static str,
}

/// The tables, in the order of the template.
pub const SECTIONS: &[Section] = &[
    Section { name: "data", description: "Training data." },
    Section {
        name: "model",
        description: "Model. The source of each is short: `python/vramfit/train/models/`.",
    },
    Section { name: "optimizer", description: "Optimizer, from optax." },
    Section { name: "training", description: "Training loop." },
    Section { name: "checkpoint", description: "Checkpoints, from which a run resumes." },
];

/// Returns all keys, in the order of the template.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    [data::KEYS, model::KEYS, optimizer::KEYS, training::KEYS, checkpoint::KEYS]
        .into_iter()
        .flatten()
}
