//! Which output replaces which argument: the new state for the old one.
//!
//! JAX names both by their pytree paths: an argument and the output that replaces it have the same path
//! behind its first name, and the same shape. Where there are no such paths, the graph tells what is an
//! update of what. Donation does not: JAX pairs donated arguments with outputs by shape alone.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::arguments::Arguments;
use super::owner::Meaning;
use super::path::meaning_of;
use super::update::Update;
use super::{Names, Owner, Undonated};
use crate::program::{ElementType, MemorySpace, Program, Shape};

/// Longest way down a pytree that is compared.
const MAX_DEPTH: usize = 64;

/// Finds for each argument the output that replaces it. Each output replaces one argument at most.
///
/// Paths decide first. What is marked in `gradients` is a gradient of what the differentiated function
/// reads (marked in `differentiated`), and its path is that of the parameter: it replaces none of those.
/// Where paths do not match, the way in which an output is computed does.
pub(super) fn counterparts(
    program: &Program,
    names: &Names,
    gradients: &[bool],
    differentiated: &[bool],
    updates: &[Update],
) -> Vec<Option<usize>> {
    let is_differentiated = |argument: usize| differentiated.get(argument) == Some(&true);
    let is_gradient = |output: usize| gradients.get(output) != Some(&false);
    // XLA adds the gradient of an embedding to its old moment in one operation, that of the gradient.
    let is_moment = |argument: usize| {
        let path = names.arguments.get(argument);
        let meaning = path.map_or(Meaning::Unknown, |path| meaning_of(path));
        matches!(meaning, Meaning::Moment | Meaning::Settled(Owner::OptimizerState))
    };
    let of_parameters: FxHashSet<usize> = by_path(program, names, |argument, output| {
        is_gradient(output) && is_differentiated(argument) && !is_moment(argument)
    })
    .into_iter()
    .flatten()
    .collect();
    let mut found = by_path(program, names, |argument, output| {
        // A state may keep a gradient: the forces on bodies.
        let is_kept = !is_differentiated(argument) && !of_parameters.contains(&output);
        !is_gradient(output) || is_kept || is_moment(argument)
    });
    // A function that returns gradients before moments has them in another order than its arguments.
    for argument in 0..found.len() {
        let is_before = |other: &Option<usize>| *other > found[argument];
        let is_crossed = found[..argument].iter().any(is_before);
        let output = found[argument].filter(|output| is_moment(argument) && is_gradient(*output));
        if output.is_some() && is_crossed {
            found[argument] = None;
        }
    }
    by_update(program, updates, &mut found);
    found
}

/// Finds for each argument that a gradient is returned for: an output of the backward part that has its
/// path and shape; without a path, the only one that has its shape. What replaces an argument (see
/// [`counterparts`]) is none of them.
pub(super) fn gradients_of(
    program: &Program,
    names: &Names,
    gradients: &[bool],
    differentiated: &[bool],
    counterparts: &[Option<usize>],
) -> Vec<bool> {
    let is_differentiated = |argument: usize| differentiated.get(argument) == Some(&true);
    let replacing: FxHashSet<usize> = counterparts.iter().flatten().copied().collect();
    let is_gradient =
        |output: usize| gradients.get(output) == Some(&true) && !replacing.contains(&output);
    let matches = by_path(program, names, |argument, output| {
        is_gradient(output) && is_differentiated(argument)
    });
    let mut found: Vec<bool> = matches.iter().map(Option::is_some).collect();
    let taken: FxHashSet<usize> = matches.into_iter().flatten().collect();
    let mut by_shape: FxHashMap<ShapeKey<'_>, (Vec<usize>, usize)> = FxHashMap::default();
    for (argument, shape) in program.parameters.iter().enumerate() {
        if is_differentiated(argument) && !found[argument] {
            by_shape.entry(shape_key(shape)).or_default().0.push(argument);
        }
    }
    for (output, shape) in program.outputs.iter().enumerate() {
        if is_gradient(output) && !taken.contains(&output) {
            by_shape.entry(shape_key(shape)).or_default().1 += 1;
        }
    }
    for (arguments, outputs) in by_shape.into_values() {
        if let ([only], 1) = (&arguments[..], outputs) {
            found[*only] = true;
        }
    }
    found
}

/// Matches arguments with outputs by path and shape.
fn by_path(
    program: &Program,
    names: &Names,
    may_be: impl Fn(usize, usize) -> bool,
) -> Vec<Option<usize>> {
    // The outputs by each path that an argument may have, in their order.
    let mut waiting: FxHashMap<(&str, ShapeKey<'_>), VecDeque<usize>> = FxHashMap::default();
    let outputs = program.outputs.iter().zip(&names.outputs);
    for (number, (shape, name)) in outputs.enumerate() {
        for path in suffixes(name) {
            let queue = waiting.entry((path, shape_key(shape)));
            queue.or_default().push_back(number);
        }
    }
    let mut taken: FxHashSet<usize> = FxHashSet::default();
    let mut found = Vec::with_capacity(program.parameters.len());
    for (argument, (shape, name)) in program.parameters.iter().zip(&names.arguments).enumerate() {
        let queue =
            suffixes(name).last().and_then(|path| waiting.get_mut(&(path, shape_key(shape))));
        // An output stands in several queues, and is taken out of one.
        let free = queue.and_then(|queue| {
            while queue.front().is_some_and(|first| taken.contains(first)) {
                queue.pop_front();
            }
            let free = |output: &&usize| !taken.contains(output) && may_be(argument, **output);
            queue.iter().find(free).copied()
        });
        taken.extend(free);
        found.push(free);
    }
    found.resize(program.parameters.len(), None);
    found
}

/// Matches what is left by how outputs are computed: of gradients and of the argument, value by value. The
/// new parameter is made of the old moments, too; they have an output of their own, which is made of less.
/// Without a gradient nothing is matched: an output of the shape of an argument may be any function of it.
fn by_update(program: &Program, updates: &[Update], found: &mut [Option<usize>]) {
    let mut taken: FxHashSet<usize> = found.iter().flatten().copied().collect();
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    for (output, update) in updates.iter().enumerate() {
        let shape = program.outputs.get(output);
        let is_open = update.has_gradient && !taken.contains(&output);
        let Some(shape) = shape.filter(|_| is_open) else {
            continue;
        };
        let same_shape = |argument: &usize| {
            let parameter = program.parameters.get(*argument);
            parameter.is_some_and(|parameter| shape_key(parameter) == shape_key(shape))
        };
        open.push((output, update.arguments.iter().copied().filter(same_shape).collect()));
    }
    // Those with one candidate first, since each match leaves the others with fewer.
    while !open.is_empty() {
        for (_, candidates) in &mut open {
            candidates.retain(|&argument| found[argument].is_none());
        }
        open.retain(|(_, candidates)| !candidates.is_empty());
        open.sort_by_key(|(output, candidates)| (candidates.len(), *output));
        let certain = open.iter().filter(|(_, candidates)| candidates.len() == 1).count();
        for (output, candidates) in open.drain(..certain.max(1).min(open.len())) {
            let argument = candidates[0];
            if found[argument].is_none() && taken.insert(output) {
                found[argument] = Some(output);
            }
        }
    }
}

/// Finds the arguments that are kept beside the outputs that replace them. A batch is not among them: what
/// has its path and shape is made of it, and does not replace it.
pub(super) fn undonated(program: &Program, names: &Names, arguments: &Arguments) -> Vec<Undonated> {
    let aliases = program.aliases.iter();
    let parameters: FxHashSet<usize> = aliases.clone().map(|alias| alias.parameter).collect();
    let outputs: FxHashSet<usize> = aliases.map(|alias| alias.output).collect();
    let kept = arguments.counterparts.iter().zip(&arguments.owners).enumerate();
    let kept = kept.filter(|(_, (_, owner))| **owner != Owner::Batch);
    let kept = kept.filter_map(|(parameter, (output, _))| {
        let output = (*output)?;
        let shape = program.outputs.get(output)?;
        let reused = parameters.contains(&parameter) || outputs.contains(&output);
        let is_kept = !reused && shape.space != MemorySpace::Host && shape.bytes() > 0;
        is_kept.then(|| Undonated {
            argument: names.arguments.get(parameter).cloned().unwrap_or_default(),
            output: output_name(names, output),
            bytes: shape.bytes(),
            parameter: Some(parameter as u32),
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
        let name = names.arguments.get(donor).cloned().unwrap_or_default();
        (shape.space != MemorySpace::Host).then(|| (name, shape.bytes(), Some(donor as u32)))
    });
    let left_out = names.donated_in_vain.iter().cloned();
    let left_out = left_out.map(|(name, bytes)| (name, bytes, None));
    let told = left_out.chain(left).filter(|(_, bytes, _)| *bytes > 0);
    told.map(|(argument, bytes, parameter)| Undonated {
        argument,
        output: String::new(),
        bytes,
        parameter,
    })
    .collect()
}

/// Returns the path of an output, or its number where it has none: an argument with no output at all was donated in vain.
fn output_name(names: &Names, output: usize) -> String {
    let name = names.outputs.get(output).filter(|name| !name.is_empty());
    name.cloned().unwrap_or_else(|| format!("output {output}"))
}

type ShapeKey<'a> = (ElementType, &'a [i64]);

fn shape_key(shape: &Shape) -> ShapeKey<'_> {
    (shape.element_type, &shape.dims)
}

/// Returns the ways in which a pytree path ends, from the shortest, the last without its first name
/// only, which differs between arguments and outputs: of `result[0]['w']` these are `['w']` and
/// `[0]['w']`.
fn suffixes(path: &str) -> impl Iterator<Item = &str> {
    let starts = path.rmatch_indices(['[', '.']).take(MAX_DEPTH);
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
        let names =
            Names { arguments: names(arguments), outputs: names(outputs), ..Names::default() };
        (program, names)
    }

    #[test]
    fn a_moment_that_a_gradient_is_added_to_is_replaced() {
        let (program, names) = program(
            &[("p['emb']", 4), ("o[0].trace['emb']", 4)],
            &[("result[0]['emb']", 4), ("result[1][0].trace['emb']", 4)],
        );
        let found = counterparts(&program, &names, &[false, true], &[true; 2], &[]);
        assert_eq!(found, [Some(0), Some(1)]);
        // Gradients that are returned before a moment do not replace it.
        let (program, names) = super::tests::program(
            &[("p['emb']", 4), ("mu['emb']", 4)],
            &[("result[0]['emb']", 4), ("result[1]['emb']", 4)],
        );
        let found = counterparts(&program, &names, &[true, false], &[true; 2], &[]);
        assert_eq!(found, [Some(1), None]);
    }

    #[test]
    fn path_and_shape_tell_what_replaces_what() {
        let (program, names) = program(
            &[("p['a']", 4), ("p['b']", 4), ("m['a']", 4), ("x", 9)],
            &[("result[0]['b']", 4), ("result[0]['a']", 4), ("[1]['a']", 4)],
        );
        let found = counterparts(&program, &names, &[false; 3], &[], &[]);
        assert_eq!(found, [Some(1), Some(0), Some(2), None]);
        let gradients = [false, true, true];
        let found = counterparts(&program, &names, &gradients, &[true; 4], &[]);
        assert_eq!(found, [None, Some(0), None, None]);
        // A state that keeps a gradient, and is not what it is taken of.
        let found = counterparts(&program, &names, &gradients, &[true, true, false, true], &[]);
        assert_eq!(found, [None, Some(0), Some(2), None]);
        let differentiated = [true, true, false, true];
        let of = gradients_of(&program, &names, &gradients, &differentiated, &found);
        assert_eq!(of, [true, false, false, false]);
    }

    #[test]
    fn another_shape_is_another_thing() {
        let (program, names) = program(&[("p['a']", 4)], &[("['a']", 8), ("[0]['a']", 4)]);
        let found = counterparts(&program, &names, &[false; 2], &[], &[]);
        assert_eq!(found, [Some(1)]);
    }

    #[test]
    fn without_paths_the_way_an_output_is_computed_tells() {
        let arguments = [("args[0]", 4), ("args[1]", 4), ("args[2]", 4), ("args[3]", 9)];
        let outputs = [("result[0]", 1), ("result[7]", 4), ("result[8]", 4), ("result[9]", 4)];
        let (program, names) = program(&arguments, &outputs);
        let made_of = |arguments: &[usize]| Update {
            has_gradient: true,
            arguments: arguments.to_vec(),
            ..Update::default()
        };
        // Adam: the parameter is made of both moments, too.
        let updates = [made_of(&[]), made_of(&[0, 1, 2]), made_of(&[1]), made_of(&[2])];
        let found = counterparts(&program, &names, &[false; 4], &[], &updates);
        assert_eq!(found, [Some(1), Some(2), Some(3), None]);
        // Without a gradient it may be any function of its arguments.
        let updates = updates.map(|update| Update { has_gradient: false, ..update });
        let found = counterparts(&program, &names, &[false; 4], &[], &updates);
        assert_eq!(found, [None; 4]);
    }

    #[test]
    fn a_gradient_without_a_path_is_that_of_the_only_one_of_its_shape() {
        let (program, names) =
            program(&[("w", 4), ("b", 5), ("x", 4)], &[("result[0]", 4), ("result[1]", 5)]);
        let of = gradients_of(&program, &names, &[true; 2], &[true, true, false], &[]);
        assert_eq!(of, [true, true, false]);
        let of = gradients_of(&program, &names, &[true; 2], &[true; 3], &[]);
        assert_eq!(of, [false, true, false]);
    }

    #[test]
    fn what_is_donated_and_not_reused_is_in_vain() {
        let (mut program, mut names) = program(&[("a", 4), ("b", 5)], &[("['a']", 4)]);
        program.aliases.push(Alias { output: 0, parameter: 0, must: false });
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
        let (mut program, names) =
            program(&[("p['a']", 4), ("p['b']", 4)], &[("['a']", 4), ("['b']", 4)]);
        let found = counterparts(&program, &names, &[false; 2], &[], &[]);
        program.aliases.push(Alias { output: 0, parameter: 0, must: false });
        let mut arguments = Arguments {
            owners: vec![Owner::Parameters; 2],
            counterparts: found,
            ..Arguments::default()
        };
        let kept = undonated(&program, &names, &arguments);
        arguments.owners[1] = Owner::Batch;
        assert!(undonated(&program, &names, &arguments).is_empty());
        let kept: Vec<_> = kept
            .iter()
            .map(|one| (one.argument.as_str(), one.output.as_str(), one.bytes))
            .collect();
        assert_eq!(kept, [("p['b']", "['b']", 16)]);
    }

    #[test]
    fn without_names_what_is_replaced_was_not_donated_in_vain() {
        let (program, names) = program(&[("p['a']", 4)], &[("['a']", 4)]);
        let arguments = Arguments {
            owners: vec![Owner::Parameters],
            counterparts: counterparts(&program, &names, &[false], &[], &[]),
            ..Arguments::default()
        };
        let [kept] = &undonated(&program, &Names::default(), &arguments)[..] else {
            panic!("one argument is kept");
        };
        assert_eq!((kept.label().as_str(), kept.output.as_str()), ("argument 0", "output 0"));
        assert_eq!(kept.argument_name(), "");
        assert!(donated_in_vain(&program, &[], &Names::default()).is_empty());
        let [lost] = &donated_in_vain(&program, &[0], &Names::default())[..] else {
            panic!("one argument is donated in vain");
        };
        assert_eq!((lost.label().as_str(), lost.output.as_str()), ("argument 0", ""));
    }
}
