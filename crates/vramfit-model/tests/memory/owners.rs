//! Whose the arguments of recorded training steps are: the same with their names and without.

use std::collections::BTreeMap;

use vramfit_model::program::ProgramMemory;
use vramfit_model::program::memory::{Names, Owner, Undonated};

use super::recorded::{self, Recorded};

/// Returns the recorded programs that train something, of all releases of JAX.
fn training_steps() -> Vec<&'static Recorded> {
    let mut steps: Vec<&Recorded> = recorded::all().iter().collect();
    steps.retain(|step| step.names.arguments.iter().any(|name| name.contains("params")));
    assert!(steps.len() >= 20, "only {}", steps.len());
    steps
}

/// Returns `true` if the graph of a step does not tell by itself what is trained. JAX 0.6.2 marks operations of
/// the backward part inside of loops only. In a loop inside of a loop the evidence is not found.
fn is_without_marks(step: &Recorded) -> bool {
    let marks = step.dump.windows(14).any(|text| text == b"transpose(jvp(");
    !marks || step.name.ends_with("nested_scan")
}

/// Returns names that say nothing, and whose paths match nothing.
fn nameless(step: &Recorded) -> Names {
    let count = |letter: char, names: &[String]| {
        let names = (0..names.len()).map(|number| format!("{letter}{number}"));
        names.collect()
    };
    Names {
        arguments: count('q', &step.names.arguments),
        outputs: count('r', &step.names.outputs),
        ..Names::default()
    }
}

/// Returns the owners of the arguments that hold floating point numbers, by number.
fn owners(memory: &ProgramMemory) -> BTreeMap<u32, Owner> {
    let arguments = memory.buffers.iter();
    let arguments = arguments.filter_map(|buffer| Some((buffer.parameter?, buffer)));
    let floats = arguments.filter(|(_, one)| one.shape.starts_with(['f', 'b']));
    floats.map(|(number, one)| (number, one.owner)).collect()
}

#[test]
fn without_names_the_graph_tells_the_same() {
    let mut different = Vec::new();
    for step in training_steps() {
        let mut named = owners(&step.memory());
        for (number, name) in step.names.arguments.iter().enumerate() {
            // The forward part makes new statistics: without names nothing tells what they replace.
            if let Some(owner) = named.get_mut(&(number as u32))
                && name.contains("batch_stats")
            {
                assert_eq!(*owner, Owner::OtherState);
                *owner = Owner::Batch;
            }
        }
        let found = ProgramMemory::from_dump(&step.program, &step.dump, &nameless(step));
        let found = owners(&found.expect(&step.name));
        assert!(named.values().any(|owner| *owner == Owner::Parameters));
        let same = match is_without_marks(step) {
            // Nothing is invented.
            true => found.values().all(|owner| matches!(owner, Owner::Batch | Owner::OtherState)),
            false => found == named,
        };
        if !same {
            different.push((&step.name, found, named));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

#[test]
fn without_names_what_is_not_donated_is_reported_too() {
    for step in training_steps() {
        let kept = |names: &Names| {
            let memory = ProgramMemory::from_dump(&step.program, &step.dump, names);
            let memory = memory.expect(&step.name);
            let is_kept =
                |one: &&Undonated| !one.output.is_empty() && !one.argument.contains("batch_stats");
            let kept = memory.undonated.iter().filter(is_kept);
            kept.map(|one| one.bytes).collect::<Vec<_>>()
        };
        let (named, found) = (kept(&step.names), kept(&nameless(step)));
        let expected = if step.name.ends_with("_kept") { 6 } else { 0 };
        assert_eq!(named.len(), expected, "{}", step.name);
        if !is_without_marks(step) {
            assert_eq!(found, named, "{}", step.name);
        }
    }
}

#[test]
fn what_trains_nothing_has_no_parameters_and_no_optimizer() {
    for program in recorded::all() {
        if program.names.arguments.iter().any(|name| name.contains("params")) {
            continue;
        }
        for (number, owner) in owners(&program.memory()) {
            let neutral = matches!(owner, Owner::Batch | Owner::OtherState);
            assert!(neutral, "{}: argument {number} is {owner:?}", program.name);
        }
    }
}
