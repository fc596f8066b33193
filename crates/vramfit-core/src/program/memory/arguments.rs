//! The arguments of a program: whose they are, and which output replaces each.

use rustc_hash::FxHashSet;

use super::counterpart::{counterparts, gradients_of};
use super::index::{ModuleIndex, WHOLE};
use super::owner::{Argument, is_training_program, of_argument};
use super::path::{Meaning, meaning_of};
use super::phase::{Phase, Users, readers_of};
use super::update::{Update, trace_update};
use super::value::producer_of_output;
use super::{Names, Owner};
use crate::program::Program;

/// What is known of a program's arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    /// For each argument, whose it is.
    pub(super) owners: Vec<Owner>,
    /// For each argument, the output that replaces it.
    pub(super) counterparts: Vec<Option<usize>>,
}

impl Arguments {
    /// Finds out whose the arguments of a program are.
    pub(super) fn classify(index: &ModuleIndex<'_>, program: &Program, names: &Names) -> Self {
        let readers: Vec<Users> = (0..program.parameters.len())
            .map(|number| index.entry_parameter(number as i64))
            .map(|at| at.map_or(Users::default(), |at| readers_of(index, (at, WHOLE))))
            .collect();
        let outputs = 0..program.outputs.len();
        let gradients: Vec<bool> = outputs
            .clone()
            .map(|output| producer_of_output(index, output))
            .map(|maker| maker.is_some_and(|at| index.phase(at) == Phase::Backward))
            .collect();
        let updates: Vec<Update> = outputs.map(|output| trace_update(index, output)).collect();
        let differentiated: Vec<bool> = readers
            .iter()
            .map(|readers| readers.forward || readers.backward)
            .collect();
        let counterparts = counterparts(program, names, &gradients, &differentiated, &updates);
        let have_gradients =
            gradients_of(program, names, &gradients, &differentiated, &counterparts);
        let donated: FxHashSet<usize> = program
            .aliases
            .iter()
            .map(|alias| alias.parameter)
            .collect();
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
        Arguments {
            owners: known.iter().map(|one| of_argument(*one, trains)).collect(),
            counterparts,
        }
    }
}
