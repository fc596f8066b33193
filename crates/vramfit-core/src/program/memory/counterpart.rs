//! Which output replaces which argument: the new state for the old one.
//!
//! JAX names both by their pytree paths, and donation leaves no doubt only where it was asked for. An
//! argument and the output that replaces it have the same path behind its first name, and the same
//! shape.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Names, Undonated};
use crate::program::{ElementType, MemorySpace, Program, Shape};

/// Longest way down a pytree that is compared.
const DEEPEST: usize = 64;

/// Finds for each argument the output that replaces it. Each output replaces one argument, and what is
/// marked in `gradients` replaces none.
pub(super) fn counterparts(
    program: &Program,
    names: &Names,
    gradients: &[bool],
) -> Vec<Option<usize>> {
    // The outputs by each path that an argument may have, in their order.
    let mut waiting: FxHashMap<(&str, Kind<'_>), VecDeque<usize>> = FxHashMap::default();
    let outputs = program.outputs.iter().zip(&names.outputs);
    for (number, (shape, name)) in outputs.enumerate() {
        if gradients.get(number) == Some(&false) {
            for path in ends(name) {
                let queue = waiting.entry((path, kind(shape)));
                queue.or_default().push_back(number);
            }
        }
    }
    let mut taken: FxHashSet<usize> = FxHashSet::default();
    let mut counterparts = Vec::with_capacity(program.parameters.len());
    for (shape, name) in program.parameters.iter().zip(&names.arguments) {
        let queue = ends(name)
            .last()
            .and_then(|path| waiting.get_mut(&(path, kind(shape))));
        // An output stands in several queues, and is taken out of one.
        let free = queue.and_then(|queue| {
            std::iter::from_fn(|| queue.pop_front()).find(|number| taken.insert(*number))
        });
        counterparts.push(free);
    }
    counterparts.resize(program.parameters.len(), None);
    counterparts
}

/// Finds the arguments that are kept beside the outputs that replace them.
pub(super) fn undonated(
    program: &Program,
    names: &Names,
    counterparts: &[Option<usize>],
) -> Vec<Undonated> {
    let aliases = program.aliases.iter();
    let parameters: FxHashSet<usize> = aliases.clone().map(|alias| alias.parameter).collect();
    let outputs: FxHashSet<usize> = aliases.map(|alias| alias.output).collect();
    let kept = counterparts.iter().enumerate();
    let kept = kept.filter_map(|(parameter, output)| {
        let output = (*output)?;
        let shape = program.outputs.get(output)?;
        let reused = parameters.contains(&parameter) || outputs.contains(&output);
        let is_kept = !reused && shape.space != MemorySpace::Host && shape.bytes() > 0;
        is_kept.then(|| Undonated {
            argument: names.arguments.get(parameter).cloned().unwrap_or_default(),
            output: names.outputs.get(output).cloned().unwrap_or_default(),
            bytes: shape.bytes(),
        })
    });
    kept.collect()
}

/// Finds the arguments that were donated and that no output takes the place of: those that JAX itself
/// found no output for, and those that it left to XLA, which found none either.
pub(super) fn donated_in_vain(
    program: &Program,
    donors: &[usize],
    names: &Names,
) -> Vec<Undonated> {
    let aliases = program.aliases.iter();
    let reused: FxHashSet<usize> = aliases.map(|alias| alias.parameter).collect();
    let left = donors.iter().filter(|donor| !reused.contains(donor));
    let left = left.filter_map(|&donor| {
        let shape = program.parameters.get(donor)?;
        let name = names.arguments.get(donor).filter(|name| !name.is_empty());
        let name = name.cloned().unwrap_or_else(|| format!("argument {donor}"));
        (shape.space != MemorySpace::Host).then(|| (name, shape.bytes()))
    });
    let all = names.donated_in_vain.iter().cloned().chain(left);
    let told = all.filter(|(_, bytes)| *bytes > 0);
    told.map(|(argument, bytes)| Undonated {
        argument,
        output: String::new(),
        bytes,
    })
    .collect()
}

type Kind<'a> = (ElementType, &'a [i64]);

fn kind(shape: &Shape) -> Kind<'_> {
    (shape.element_type, &shape.dims)
}

/// Returns the ways in which a pytree path ends, from the shortest, the last without its first name
/// only, which differs between arguments and outputs: of `result[0]['w']` these are `['w']` and
/// `[0]['w']`.
fn ends(path: &str) -> impl Iterator<Item = &str> {
    let starts = path.rmatch_indices(['[', '.']).take(DEEPEST);
    starts.map(|(at, _)| &path[at..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Alias;

    fn program(arguments: &[(&str, i64)], outputs: &[(&str, i64)]) -> (Program, Names) {
        let shapes = |list: &[(&str, i64)]| -> Vec<Shape> {
            let dense = |(_, size): &(&str, i64)| Shape::dense(ElementType(11), &[*size]);
            list.iter().map(dense).collect()
        };
        let names = |list: &[(&str, i64)]| list.iter().map(|(name, _)| (*name).into()).collect();
        let program = Program {
            parameters: shapes(arguments),
            outputs: shapes(outputs),
            ..Program::default()
        };
        let names = Names {
            arguments: names(arguments),
            outputs: names(outputs),
            donated_in_vain: Vec::new(),
        };
        (program, names)
    }

    #[test]
    fn path_and_shape_tell_what_replaces_what() {
        let (program, names) = program(
            &[("p['a']", 4), ("p['b']", 4), ("m['a']", 4), ("x", 9)],
            &[
                ("result[0]['b']", 4),
                ("result[0]['a']", 4),
                ("[1]['a']", 4),
            ],
        );
        let found = counterparts(&program, &names, &[false; 3]);
        assert_eq!(found, [Some(1), Some(0), Some(2), None]);
        let found = counterparts(&program, &names, &[false, true, true]);
        assert_eq!(found, [None, Some(0), None, None]);
    }

    #[test]
    fn another_shape_is_another_thing() {
        let (program, names) = program(&[("p['a']", 4)], &[("['a']", 8), ("[0]['a']", 4)]);
        assert_eq!(counterparts(&program, &names, &[false; 2]), [Some(1)]);
    }

    #[test]
    fn what_is_donated_and_not_reused_is_in_vain() {
        let (mut program, mut names) = program(&[("a", 4), ("b", 5)], &[("['a']", 4)]);
        program.aliases.push(Alias {
            output: 0,
            parameter: 0,
            must: false,
        });
        names.donated_in_vain.push(("c".to_owned(), 24));
        let lost = donated_in_vain(&program, &[0, 1, 9], &names);
        let lost: Vec<_> = lost
            .iter()
            .map(|one| (one.argument.as_str(), one.output.as_str(), one.bytes))
            .collect();
        assert_eq!(lost, [("c", "", 24), ("b", "", 20)]);
    }

    #[test]
    fn what_is_donated_is_not_kept() {
        let (mut program, names) = program(
            &[("p['a']", 4), ("p['b']", 4)],
            &[("['a']", 4), ("['b']", 4)],
        );
        let found = counterparts(&program, &names, &[false; 2]);
        program.aliases.push(Alias {
            output: 0,
            parameter: 0,
            must: false,
        });
        let kept = undonated(&program, &names, &found);
        let kept: Vec<_> = kept
            .iter()
            .map(|one| (one.argument.as_str(), one.output.as_str(), one.bytes))
            .collect();
        assert_eq!(kept, [("p['b']", "['b']", 16)]);
    }
}
