//! Who owns a buffer: the rules, in the order in which they are tried.
//!
//! What JAX knows decides first: whether a buffer is an argument, an output or a temporary, and
//! what the argument is called. Where names do not settle it, evidence does: a parameter is what a
//! gradient is taken of, in a program that trains a model; an optimizer's state is what gradients go
//! into without the differentiated function reading it. What comes back without such evidence is other
//! state, and what does not come back an input.

use serde::{Deserialize, Serialize};

use super::users::Users;
use crate::program::phase::Phase;

/// Who owns a buffer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// State of the model that gradients are taken of.
    Parameters,
    /// What the optimizer keeps for each parameter.
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
            Owner::OptimizerState => "optimizer state",
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

/// What is known of an argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    /// What its path says.
    pub(super) meaning: Meaning,
    /// Whether an output replaces it, or reuses its memory.
    pub(super) returned: bool,
    /// Whether a gradient of its shape goes into what replaces it, or is returned for it.
    pub(super) has_gradient: bool,
    /// Whether what replaces it is made of it value by value, outside of the differentiated function.
    pub(super) is_updated: bool,
    /// Whether it holds floating point numbers.
    pub(super) is_float: bool,
    /// How many numbers it holds.
    pub(super) elements: i64,
    /// Who reads it.
    pub(super) readers: Users,
}

impl Argument {
    /// Returns `true` if the differentiated function reads it.
    pub(super) fn is_differentiated(&self) -> bool {
        self.readers.forward || self.readers.backward
    }

    /// Returns `true` if a gradient is taken with respect to it.
    fn is_trained(&self) -> bool {
        self.is_float && self.has_gradient && self.is_differentiated()
    }
}

/// Returns `true` if a program trains a model: if what it takes gradients of are parameters. Forces on
/// bodies are gradients, too, and a step of molecular dynamics does what an optimizer does. So there must
/// be a name that says so, or several arrays that gradients are taken of, or data that outweigh the one.
pub(super) fn is_training_program(arguments: &[Argument]) -> bool {
    let trained = arguments.iter().filter(|argument| argument.is_trained());
    let mut nameless = Vec::new();
    for argument in trained {
        match argument.meaning {
            Meaning::Settled(Owner::Parameters) | Meaning::Model => return true,
            Meaning::Unknown => nameless.push(argument),
            _ => {}
        }
    }
    let is_data = |one: &&Argument| {
        one.is_float && !one.returned && one.readers.forward && one.meaning != Meaning::Body
    };
    let data = arguments.iter().filter(is_data).map(|one| one.elements);
    match nameless[..] {
        [] => false,
        [only] => data.max().is_some_and(|data| data > only.elements),
        _ => true,
    }
}

/// Decides who owns an argument of a program that trains a model, or does not.
pub(super) fn of_argument(argument: Argument, trains: bool) -> Owner {
    let Argument { meaning, returned, is_float, .. } = argument;
    match meaning {
        Meaning::Settled(Owner::OptimizerState) => return Owner::OptimizerState,
        // Keys, counters: whatever they are kept with, no gradient is taken of them.
        Meaning::Settled(Owner::Parameters) if !is_float && returned => return Owner::OtherState,
        Meaning::Settled(owner) => return owner,
        _ => {}
    }
    let otherwise = match returned {
        true => Owner::OtherState,
        false => Owner::Batch,
    };
    match meaning {
        // Weights that are quantized, and tables of a model.
        Meaning::Model if !is_float && !returned => Owner::Parameters,
        _ if !is_float || argument.has_gradient && !trains => otherwise,
        _ if argument.is_trained() => Owner::Parameters,
        _ if argument.has_gradient => Owner::OptimizerState,
        Meaning::Moment if returned && trains => Owner::OptimizerState,
        // What changes without a gradient where others have one is no parameter.
        Meaning::Model if !returned || !trains || argument.readers.returned => Owner::Parameters,
        // Not every optimizer changes a value by its own gradient alone.
        _ if trains
            && argument.is_differentiated()
            && argument.is_updated
            && argument.elements > 1 =>
        {
            Owner::Parameters
        }
        _ => otherwise,
    }
}

/// Decides who owns a value of the temporary block, of a program whose gradients are those of a model, or not.
pub(super) fn of_temporary(made_in: Phase, users: Users, of_model: bool) -> Owner {
    match made_in {
        Phase::Forward if users.backward => Owner::Activations,
        Phase::Backward if of_model && (users.outside || users.returned) => Owner::Gradients,
        _ => Owner::Temporaries,
    }
}

/// What the path of a leaf says of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Whose it is, whatever the program does.
    Settled(Owner),
    /// A part of a model, unless the program treats it as something else.
    Model,
    /// What an optimizer keeps, if the program trains.
    Moment,
    /// The state of a simulated body: no evidence for a training, whatever gradients are taken.
    Body,
    /// Nothing.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORWARD: Users = Users { forward: true, backward: true, outside: true, returned: false };
    const UPDATE: Users = Users { forward: false, backward: false, outside: true, returned: false };

    /// An array of 100 numbers that is read by `readers`, and that nothing is known of.
    fn argument(meaning: Meaning, readers: Users) -> Argument {
        Argument {
            meaning,
            returned: false,
            has_gradient: false,
            is_updated: false,
            is_float: true,
            elements: 100,
            readers,
        }
    }

    fn updated(meaning: Meaning, readers: Users) -> Argument {
        Argument {
            returned: true,
            has_gradient: true,
            is_updated: true,
            ..argument(meaning, readers)
        }
    }

    fn owners(arguments: &[Argument]) -> Vec<Owner> {
        let trains = is_training_program(arguments);
        let owners = arguments.iter().map(|one| of_argument(*one, trains));
        owners.collect()
    }

    #[test]
    fn use_decides_where_names_do_not() {
        let step = [
            updated(Meaning::Unknown, FORWARD),
            updated(Meaning::Unknown, FORWARD),
            updated(Meaning::Unknown, UPDATE),
            argument(Meaning::Unknown, FORWARD),
        ];
        let [parameters, optimizer] = [Owner::Parameters, Owner::OptimizerState];
        assert_eq!(owners(&step), [parameters, parameters, optimizer, Owner::Batch]);
    }

    #[test]
    fn a_gradient_alone_is_no_training() {
        let positions = updated(Meaning::Body, FORWARD);
        let velocities = updated(Meaning::Moment, UPDATE);
        assert_eq!(owners(&[positions, velocities]), [Owner::OtherState; 2]);
        // Without names there is one array that gradients are taken of, and no data for it.
        let nameless = [updated(Meaning::Unknown, FORWARD), updated(Meaning::Unknown, UPDATE)];
        let cell = Argument { elements: 9, ..argument(Meaning::Unknown, FORWARD) };
        assert_eq!(
            owners(&[nameless[0], nameless[1], cell]),
            [Owner::OtherState, Owner::OtherState, Owner::Batch]
        );
        let data = Argument { elements: 1000, ..cell };
        assert_eq!(
            owners(&[nameless[0], nameless[1], data]),
            [Owner::Parameters, Owner::OptimizerState, Owner::Batch]
        );
    }

    #[test]
    fn what_comes_back_without_a_gradient_is_other_state() {
        let carry = Argument { returned: true, ..argument(Meaning::Unknown, FORWARD) };
        assert_eq!(owners(&[carry]), [Owner::OtherState]);
        let parameters = updated(Meaning::Model, FORWARD);
        assert_eq!(owners(&[parameters, carry]), [Owner::Parameters, Owner::OtherState]);
        // A statistic that is called as if it were a part of the model.
        let mean = Argument { meaning: Meaning::Model, ..carry };
        assert_eq!(owners(&[parameters, mean]), [Owner::Parameters, Owner::OtherState]);
    }

    #[test]
    fn names_hold_where_nothing_is_differentiated() {
        let outside = UPDATE;
        let layers = argument(Meaning::Model, outside);
        let weights = argument(Meaning::Settled(Owner::Parameters), outside);
        let moment = Argument { returned: true, ..argument(Meaning::Moment, outside) };
        assert_eq!(
            owners(&[layers, weights, moment]),
            [Owner::Parameters, Owner::Parameters, Owner::OtherState]
        );
    }

    #[test]
    fn whole_numbers_that_come_back_are_counters_and_keys() {
        for (meaning, returned, owner) in [
            (Meaning::Unknown, true, Owner::OtherState),
            (Meaning::Settled(Owner::Parameters), true, Owner::OtherState),
            (Meaning::Settled(Owner::Parameters), false, Owner::Parameters),
            (Meaning::Settled(Owner::OptimizerState), true, Owner::OptimizerState),
            (Meaning::Model, false, Owner::Parameters),
            (Meaning::Model, true, Owner::OtherState),
            (Meaning::Unknown, false, Owner::Batch),
        ] {
            let number = Argument { returned, is_float: false, ..argument(meaning, FORWARD) };
            assert_eq!(of_argument(number, true), owner, "{meaning:?}");
        }
    }

    #[test]
    fn an_activation_is_made_forward_and_used_backward() {
        for (phase, users, of_model, owner) in [
            (Phase::Forward, FORWARD, true, Owner::Activations),
            (Phase::Forward, UPDATE, true, Owner::Temporaries),
            (Phase::Backward, UPDATE, true, Owner::Gradients),
            (Phase::Outside, FORWARD, true, Owner::Temporaries),
            (Phase::Forward, FORWARD, false, Owner::Activations),
            // Forces are no gradients of a model.
            (Phase::Backward, UPDATE, false, Owner::Temporaries),
        ] {
            assert_eq!(of_temporary(phase, users, of_model), owner, "{phase:?} {of_model}");
        }
    }
}
