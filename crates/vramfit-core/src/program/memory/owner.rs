//! Who owns a buffer: the rules, in the order in which they are tried.
//!
//! What JAX knows decides first: whether a buffer is an argument, an output or a temporary, and
//! what the argument is called. Where names do not say it, use does: a parameter is state that the
//! differentiated function reads; an optimiser's state is state that only the update reads.

use serde::{Deserialize, Serialize};

use super::phase::{Phase, Users};

/// Who owns a buffer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// State of the model that gradients are taken of.
    Parameters,
    /// What the optimiser keeps for each parameter.
    OptimizerState,
    /// Any other argument that comes back as an output: statistics, keys, counters.
    OtherState,
    /// Arguments that are not state.
    Batch,
    /// Outputs with memory of their own.
    Outputs,
    /// What the forward part keeps for the backward part.
    Activations,
    /// What the backward part makes for the update.
    Gradients,
    /// Everything else that operations need while they run.
    #[default]
    Temporaries,
    /// Constants of the program.
    Constants,
    /// What alignment and fragmentation leave unused inside the temporary block.
    Padding,
}

impl Owner {
    /// All of them, in the order in which they are told.
    pub const ALL: [Owner; 10] = [
        Owner::Parameters,
        Owner::OptimizerState,
        Owner::OtherState,
        Owner::Batch,
        Owner::Activations,
        Owner::Gradients,
        Owner::Temporaries,
        Owner::Outputs,
        Owner::Constants,
        Owner::Padding,
    ];

    /// Returns the word for programs, such as `optimizer_state`.
    pub fn id(self) -> &'static str {
        match self {
            Owner::Parameters => "parameters",
            Owner::OptimizerState => "optimizer_state",
            Owner::OtherState => "other_state",
            Owner::Batch => "batch",
            Owner::Outputs => "outputs",
            Owner::Activations => "activations",
            Owner::Gradients => "gradients",
            Owner::Temporaries => "temporaries",
            Owner::Constants => "constants",
            Owner::Padding => "padding",
        }
    }

    /// Returns the words for people.
    pub fn label(self) -> &'static str {
        match self {
            Owner::Parameters => "parameters",
            Owner::OptimizerState => "optimiser state",
            Owner::OtherState => "other state",
            Owner::Batch => "batch and other inputs",
            Owner::Outputs => "outputs",
            Owner::Activations => "saved activations",
            Owner::Gradients => "gradients",
            Owner::Temporaries => "temporaries",
            Owner::Constants => "constants",
            Owner::Padding => "padding",
        }
    }
}

/// Words that libraries use in the paths of what they keep. Along a path the first one decides: the
/// outermost container says most (`params['mu']` is a layer called `mu`).
const WORDS: &[(Owner, &[&str])] = &[
    (
        Owner::OptimizerState,
        &[
            "opt_state",
            "optimizer",
            "optimiser",
            "optim",
            "opt",
            "mu",
            "nu",
            "momentum",
            "velocity",
        ],
    ),
    (
        Owner::OtherState,
        &[
            "batch_stats",
            "batchstats",
            "running_mean",
            "running_var",
            "cache",
            "rngs",
        ],
    ),
    (
        Owner::Parameters,
        &[
            "params",
            "param",
            "parameters",
            "weights",
            "weight",
            "kernel",
            "bias",
            "embedding",
            "model",
        ],
    ),
];

/// Kinds of variables of flax's nnx that are neither parameters nor an optimiser's: the name of such
/// a variable ends with its kind (`model.norm.mean (BatchStat)`).
const OTHER_KINDS: &[&str] = &[
    "BatchStat",
    "Cache",
    "Intermediate",
    "Perturbation",
    "RngCount",
    "RngKey",
    "RngState",
];

/// What is known of an argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument<'a> {
    /// Its pytree path, as JAX writes it: `state.params['dense']['kernel']`.
    pub(super) path: &'a str,
    /// Whether an output of the same path and shape, or one that reuses its memory, comes back.
    pub(super) returned: bool,
    /// Whether it holds floating point numbers.
    pub(super) is_float: bool,
    pub(super) users: Users,
}

/// Decides who owns an argument.
pub(super) fn of_argument(argument: Argument<'_>) -> Owner {
    let differentiated = argument.users.forward || argument.users.backward;
    match (named(argument.path), argument.returned) {
        (Some(Owner::OptimizerState), _) => Owner::OptimizerState,
        // Keys, counters: whatever they are kept with, no gradient is taken of them.
        (_, true) if !argument.is_float => Owner::OtherState,
        (Some(Owner::Parameters), _) if !argument.is_float => Owner::Batch,
        (Some(owner), _) => owner,
        (None, true) if differentiated => Owner::Parameters,
        (None, true) if argument.users.outside => Owner::OptimizerState,
        (None, true) => Owner::OtherState,
        (None, false) => Owner::Batch,
    }
}

/// Returns the owner that a path names.
fn named(path: &str) -> Option<Owner> {
    let kind = path
        .strip_suffix(')')
        .and_then(|path| path.rsplit_once(" ("));
    if kind.is_some_and(|(_, kind)| OTHER_KINDS.contains(&kind)) {
        return Some(Owner::OtherState);
    }
    words(path).iter().find_map(|word| {
        let found = WORDS
            .iter()
            .find(|(_, words)| words.contains(&word.as_str()));
        found.map(|(owner, _)| *owner)
    })
}

/// Decides who owns a value of the temporary block.
pub(super) fn of_temporary(made_in: Phase, users: Users) -> Owner {
    match made_in {
        Phase::Forward if users.backward => Owner::Activations,
        Phase::Backward if users.outside || users.returned => Owner::Gradients,
        _ => Owner::Temporaries,
    }
}

/// Splits a pytree path into its words: `state.params['layer_0'][3]` is `state`, `params`,
/// `layer_0`, `3`.
fn words(path: &str) -> Vec<String> {
    path.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(path: &str, returned: bool, users: Users) -> Owner {
        of_argument(Argument {
            path,
            returned,
            is_float: true,
            users,
        })
    }

    const FORWARD: Users = Users {
        forward: true,
        backward: true,
        outside: true,
        returned: false,
    };
    const UPDATE: Users = Users {
        forward: false,
        backward: false,
        outside: true,
        returned: false,
    };

    #[test]
    fn names_decide_where_they_say_it() {
        for (path, owner) in [
            ("state.params['dense']['kernel']", Owner::Parameters),
            (
                "state.opt_state[0].mu['dense']['kernel']",
                Owner::OptimizerState,
            ),
            ("variables['batch_stats']['mean']", Owner::OtherState),
            ("state.params['mu']['kernel']", Owner::Parameters),
            ("model.norm.mean (BatchStat)", Owner::OtherState),
            ("model.head.kernel (LoRAParam)", Owner::Parameters),
            (
                "state.params['attention']['key']['kernel']",
                Owner::Parameters,
            ),
        ] {
            assert_eq!(argument(path, true, FORWARD), owner, "{path}");
        }
    }

    #[test]
    fn whole_numbers_that_come_back_are_counters_and_keys() {
        for (path, returned, owner) in [
            ("state.step", true, Owner::OtherState),
            ("state.params['n']", true, Owner::OtherState),
            ("tokens", false, Owner::Batch),
        ] {
            let users = FORWARD;
            let argument = Argument {
                path,
                returned,
                is_float: false,
                users,
            };
            assert_eq!(of_argument(argument), owner, "{path}");
        }
    }

    #[test]
    fn use_decides_where_names_do_not() {
        assert_eq!(argument("w[0]", true, FORWARD), Owner::Parameters);
        assert_eq!(argument("m[0]", true, UPDATE), Owner::OptimizerState);
        assert_eq!(argument("x", false, FORWARD), Owner::Batch);
    }

    #[test]
    fn parameters_that_do_not_come_back_are_parameters_still() {
        assert_eq!(argument("params['w']", false, UPDATE), Owner::Parameters);
    }

    #[test]
    fn an_activation_is_made_forward_and_used_backward() {
        assert_eq!(of_temporary(Phase::Forward, FORWARD), Owner::Activations);
        assert_eq!(of_temporary(Phase::Forward, UPDATE), Owner::Temporaries);
        assert_eq!(of_temporary(Phase::Backward, UPDATE), Owner::Gradients);
        assert_eq!(of_temporary(Phase::Outside, FORWARD), Owner::Temporaries);
    }
}
