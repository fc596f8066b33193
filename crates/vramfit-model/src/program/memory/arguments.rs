//! The arguments of a program: whose they are, and which output replaces each.

use rustc_hash::{FxHashMap, FxHashSet};

use super::counterpart::{counterparts, gradients_of};
use super::owner::Meaning;
use super::owner::{Argument, is_training_program, of_argument};
use super::path::meaning_of;
use super::update::{Update, trace_update};
use super::users::{Users, readers_of};
use super::value::producer_of_output;
use super::{Names, Owner};
use crate::program::Program;
use crate::program::hlo::{HloGraph, WHOLE};
use crate::program::phase::Phase;

/// What is known of a program's arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    /// For each argument, whose it is.
    pub(super) owners: Vec<Owner>,
    /// For each argument, the output that replaces it.
    pub(super) counterparts: Vec<Option<usize>>,
    /// Whether gradients are taken of arguments, and no model is trained: forces on bodies, the slope of a cost.
    pub(super) has_other_gradients: bool,
}

/// Returns the arguments that are weights by their sisters: nothing in their container is trained (`base` of LoRA),
/// and the names of others in it say that they are weights.
fn frozen_weights(known: &[Argument], owners: &[Owner], names: &[String]) -> Vec<usize> {
    // `base['out']` is in `base`; an argument that is no container has no sisters.
    let container = |number: usize| {
        let path = names.get(number)?;
        path.find(['[', '.']).map(|end| &path[..end])
    };
    let are_frozen = |name: &str| {
        let mut sisters = (0..known.len()).filter(|&other| container(other) == Some(name));
        let mut has_weight = false;
        let all = sisters.all(|other| {
            let one = &known[other];
            has_weight |= owners[other] == Owner::Parameters && one.elements > 1;
            one.is_float && !one.returned && !one.has_gradient
        });
        all && has_weight
    };
    let mut decided: FxHashMap<&str, bool> = FxHashMap::default();
    let weights = (0..known.len()).filter(|&number| {
        let one = &known[number];
        owners[number] == Owner::Batch
            && one.meaning == Meaning::Unknown
            && one.is_differentiated()
            && container(number)
                .is_some_and(|name| *decided.entry(name).or_insert_with(|| are_frozen(name)))
    });
    weights.collect()
}

impl Arguments {
    /// Finds out whose the arguments of a program are.
    pub(super) fn classify(graph: &HloGraph<'_>, program: &Program, names: &Names) -> Self {
        let mut readers: Vec<Users> = (0..program.parameters.len())
            .map(|number| graph.entry_parameter(number as i64))
            .map(|at| at.map_or(Users::default(), |at| readers_of(graph, (at, WHOLE))))
            .collect();
        if !names.differentiated.is_empty() {
            // JAX does not mark the operations of a forward pass that is a program of its own.
            readers.iter_mut().for_each(|readers| readers.forward |= readers.outside);
        }
        let outputs = 0..program.outputs.len();
        let gradients: Vec<bool> = outputs
            .clone()
            .map(|output| producer_of_output(graph, output))
            .map(|maker| maker.is_some_and(|at| graph.phase(at) == Phase::Backward))
            .collect();
        let mut updates: Vec<Update> = outputs.map(|output| trace_update(graph, output)).collect();
        // A gradient may have the argument itself as a summand, that of a penalty for large weights.
        for update in updates.iter_mut().filter(|update| update.has_joined_sum) {
            update
                .arguments
                .retain(|&argument| readers.get(argument).is_none_or(|readers| !readers.forward));
        }
        let differentiated: Vec<bool> =
            readers.iter().map(|readers| readers.forward || readers.backward).collect();
        let counterparts = counterparts(program, names, &gradients, &differentiated, &updates);
        let have_gradients =
            gradients_of(program, names, &gradients, &differentiated, &counterparts);
        let donated: FxHashSet<usize> =
            program.aliases.iter().map(|alias| alias.parameter).collect();
        let known: Vec<Argument> = program
            .parameters
            .iter()
            .enumerate()
            .map(|(number, shape)| {
                let counterpart = counterparts[number];
                let update = counterpart.and_then(|output| updates.get(output));
                Argument {
                    meaning: names
                        .arguments
                        .get(number)
                        .map_or(Meaning::Unknown, |path| meaning_of(path)),
                    returned: counterpart.is_some() || donated.contains(&number),
                    has_gradient: have_gradients[number]
                        || names.differentiated.contains(&number)
                        || update.is_some_and(|update| update.has_gradient),
                    is_updated: update.is_some_and(|update| update.arguments.contains(&number)),
                    is_float: shape.element_type.is_float(),
                    elements: shape
                        .dims
                        .iter()
                        .fold(1, |all, size| i64::saturating_mul(all, *size)),
                    readers: readers[number],
                }
            })
            .collect();
        let trains = is_training_program(&known);
        let is_slope = |one: &Argument| one.has_gradient && one.is_differentiated();
        let has_other_gradients = !trains && known.iter().any(is_slope);
        let mut owners: Vec<Owner> = known.iter().map(|one| of_argument(*one, trains)).collect();
        if trains {
            for number in frozen_weights(&known, &owners, &names.arguments) {
                owners[number] = Owner::Parameters;
            }
        }
        Arguments { owners, counterparts, has_other_gradients }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(path: &str, has_gradient: bool, is_float: bool) -> Argument {
        Argument {
            meaning: meaning_of(path),
            returned: has_gradient,
            has_gradient,
            is_updated: has_gradient,
            is_float,
            elements: 64,
            readers: Users { forward: true, backward: true, ..Users::default() },
        }
    }

    /// Returns the paths of frozen weights among arguments: path, whether it is trained, whether it is a float.
    fn frozen<'a>(arguments: &[(&'a str, bool, bool)]) -> Vec<&'a str> {
        let known: Vec<Argument> = arguments.iter().map(|it| argument(it.0, it.1, it.2)).collect();
        let names: Vec<String> = arguments.iter().map(|it| it.0.to_owned()).collect();
        let owners: Vec<Owner> = known.iter().map(|one| of_argument(*one, true)).collect();
        let weights = frozen_weights(&known, &owners, &names);
        weights.into_iter().map(|number| arguments[number].0).collect()
    }

    #[test]
    fn weights_that_are_not_trained_are_weights() {
        let lora = [
            ("lora['a']", true, true),
            ("base['w1']", false, true),
            ("base['out']", false, true),
            ("x", false, true),
        ];
        assert_eq!(frozen(&lora), ["base['out']"]);
    }

    #[test]
    fn data_beside_weights_stay_data() {
        // Something in the container is trained, holds whole numbers, or is called as data are.
        for data in [
            [("d['w']", true, true), ("d['x']", false, true)],
            [("d['w']", false, true), ("d['ids']", false, false)],
            [("batch['w']", false, true), ("batch['x']", false, true)],
            [("w", false, true), ("x", false, true)],
        ] {
            assert!(frozen(&data).is_empty(), "{data:?}");
        }
    }
}
