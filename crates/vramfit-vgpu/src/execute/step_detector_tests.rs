//! Scripts as the detector sees them: programs with arguments and results.

use super::super::program_history::StepArgument;
use super::*;
use crate::buffer::origin::Origin;

const MIB: u64 = 1 << 20;

/// A script that is being run: arrays by name, programs by number.
#[derive(Default)]
struct Script {
    detector: StepDetector,
    steps: Option<StepLimit>,
    name: Option<&'static str>,
    arrays: FxHashMap<&'static str, (Origin, u64)>,
    run_progress: RunProgress,
    cut_at: Option<(u32, u64)>,
    notes: Vec<Note>,
}

impl Script {
    /// Makes a script that has uploaded arrays.
    fn new(steps: u64, uploads: &[(&'static str, u64)]) -> Script {
        let mut script = Script { steps: Some(StepLimit::Calls(steps)), ..Script::default() };
        for (name, bytes) in uploads {
            script.upload(name, *bytes);
        }
        script
    }

    fn upload(&mut self, name: &'static str, bytes: u64) {
        self.arrays.insert(name, (Origin::from_upload(), bytes));
    }

    fn run(
        &mut self,
        (program, backward, needed): (u32, bool, u64),
        takes: &[&'static str],
        returns: &[(&'static str, u64)],
    ) -> bool {
        let argument = |name: &&'static str| {
            let (origin, bytes) = self.arrays[*name];
            StepArgument { origin, bytes, float: !name.starts_with("key") }
        };
        let arguments: Vec<StepArgument> = takes.iter().map(argument).collect();
        let in_use: u64 = self.arrays.values().map(|(_, bytes)| bytes).sum();
        let execution = Execution {
            program,
            name: match program {
                2 | 8 => "jit_train",
                7 => "jit_seven",
                _ => "jit_other",
            },
            needed_bytes: needed,
            backward,
            arguments: &arguments,
        };
        let options = StepOptions { limit: self.steps, name: self.name };
        let decision = self.detector.on_execution(&execution, &options, &InUse(in_use));
        for (name, bytes) in returns {
            let origin = Origin::from_program(program, decision.lineage);
            self.arrays.insert(name, (origin, *bytes));
        }
        self.run_progress = decision.run_progress;
        self.notes.extend(decision.notes);
        let finished = self.detector.finished.as_ref();
        self.cut_at = finished.map(|step| (step.program, step.calls));
        self.run_progress == RunProgress::Finished
    }
}

/// What a script holds; its peak is that.
struct InUse(u64);

impl RunMemory for InUse {
    fn in_use_bytes(&self) -> u64 {
        self.0
    }

    fn peaks(&self) -> Vec<u64> {
        vec![self.0]
    }
}

/// Returns with which call of a program the run is finished.
fn finishing_call(
    script: &mut Script,
    program: (u32, bool, u64),
    takes: &[&'static str],
    returns: &[(&'static str, u64)],
) -> Option<u64> {
    (1..999).find(|_| script.run(program, takes, returns))
}

const VALIDATE: (u32, bool, u64) = (1, false, 900 * MIB);
const TRAIN: (u32, bool, u64) = (2, true, 500 * MIB);
const UPDATE: (u32, bool, u64) = (3, false, 300 * MIB);
const ROLLOUT: (u32, bool, u64) = (4, false, 50 * MIB);

#[test]
fn a_validation_before_training_is_not_the_step() {
    // As nanoGPT: 20 batches of validation, larger than the step, then training.
    for steps in [2, 3, 7] {
        let mut script = Script::new(steps, &[("params", 100 * MIB)]);
        for _ in 0..20 {
            script.upload("batch", MIB);
            assert!(!script.run(VALIDATE, &["params", "batch"], &[("loss", 4)]));
        }
        let train = |script: &mut Script| {
            script.upload("batch", MIB);
            script.run(TRAIN, &["params", "batch"], &[("params", 100 * MIB), ("loss", 4)])
        };
        let finished = (1..99).find(|_| train(&mut script));
        assert_eq!(finished, Some(steps));
        assert_eq!(script.cut_at, Some((2, steps)));
    }
}

#[test]
fn a_rollout_before_its_update_is_not_the_step() {
    let mut script = Script::new(3, &[("params", 4 * MIB), ("state", 300 * MIB)]);
    for _ in 0..3 {
        for _ in 0..1000 {
            let finished = script.run(ROLLOUT, &["params", "state"], &[("state", 300 * MIB)]);
            assert!(!finished, "the environment's state comes back, and no training goes on");
        }
        if script.run(TRAIN, &["params", "state"], &[("params", 4 * MIB)]) {
            break;
        }
    }
    assert_eq!(script.cut_at, Some((2, 3)));
}

#[test]
fn an_environment_in_a_program_without_its_policy_is_not_the_step() {
    let mut script = Script::new(3, &[("params", 4 * MIB), ("state", 300 * MIB)]);
    for _ in 0..1000 {
        script.run((5, false, MIB), &["params", "state"], &[("action", 4096)]);
        let finished = script.run(ROLLOUT, &["state", "action"], &[("state", 300 * MIB)]);
        assert!(!finished, "the policy's parameters are alive and do not come back");
    }
}

#[test]
fn a_recurrent_evaluation_and_a_sampler_are_not_the_step() {
    let mut script = Script::new(3, &[("params", 4 * MIB), ("cache", 100 * MIB)]);
    for _ in 0..1000 {
        let finished =
            script.run(ROLLOUT, &["params", "cache"], &[("cache", 100 * MIB), ("token", 4)]);
        assert!(!finished);
    }
}

#[test]
fn gradients_and_update_in_two_programs_count_as_a_step() {
    let mut script = Script::new(3, &[("params", 100 * MIB), ("moments", 200 * MIB)]);
    let round = |script: &mut Script| {
        let finished = script.run(TRAIN, &["params"], &[("grads", 100 * MIB)]);
        let arguments = ["params", "moments", "grads"];
        script.run(UPDATE, &arguments, &[("params", 100 * MIB), ("moments", 200 * MIB)]);
        finished
    };
    assert_eq!((1..99).find(|_| round(&mut script)), Some(3));
}

#[test]
fn accumulated_gradients_do_not_end_the_run_before_their_update() {
    // Eight calls before the optimizer has run at all; the parameters return to the ninth.
    let mut script = Script::new(3, &[("params", 100 * MIB)]);
    let mut calls = 0;
    'run: loop {
        for _ in 0..8 {
            calls += 1;
            script.run(TRAIN, &["params"], &[("grads", 100 * MIB)]);
            if script.run_progress == RunProgress::Finished {
                break 'run;
            }
            script.run((6, false, MIB), &["grads"], &[("sum", 100 * MIB)]);
        }
        script.run(UPDATE, &["params", "sum"], &[("params", 100 * MIB)]);
    }
    assert_eq!(calls, 17, "two updates are behind it");
}

#[test]
fn training_adapters_of_a_frozen_model_counts_as_a_step() {
    let mut script = Script::new(3, &[("base", 1000 * MIB), ("adapters", MIB)]);
    let call = finishing_call(&mut script, TRAIN, &["base", "adapters"], &[("adapters", MIB)]);
    assert_eq!(call, Some(3));
}

#[test]
fn repeated_updates_from_the_same_batch_count_as_steps() {
    // As PPO: several updates from one rollout, which is far larger than the parameters.
    let mut script = Script::new(3, &[("params", MIB), ("rollout", 500 * MIB)]);
    let call = finishing_call(&mut script, TRAIN, &["params", "rollout"], &[("params", MIB)]);
    assert_eq!(call, Some(3));
}

#[test]
fn gradients_accumulated_in_one_program_need_more_calls() {
    // The sum returns while parameters of the same sizes wait for their update.
    let mut script = Script::new(3, &[("params", 100 * MIB), ("sum", 100 * MIB)]);
    let call = finishing_call(&mut script, TRAIN, &["params", "sum"], &[("sum", 100 * MIB)]);
    assert_eq!(call, Some(90));
}

#[test]
fn a_returned_key_is_not_state() {
    // The norm of the gradients over a data set, before training.
    let mut script = Script::new(2, &[("params", 4096), ("key", 16)]);
    for _ in 0..1000 {
        let finished = script.run(TRAIN, &["params", "key"], &[("key", 16), ("norm", 4)]);
        assert!(!finished);
    }
}

#[test]
fn a_program_without_a_backward_pass_counts_if_it_covers_all_live_memory() {
    let mut script = Script::new(3, &[("w", 4 * MIB), ("x", 4 * MIB)]);
    let returns = [("w", 4 * MIB), ("x", 4 * MIB)];
    let call = finishing_call(&mut script, (9, false, 9 * MIB), &["w", "x"], &returns);
    assert_eq!(call, Some(3));
}

#[test]
fn a_loop_over_keys_at_the_beginning_does_not_end_the_run() {
    let mut script = Script::new(3, &[("key", 16)]);
    for _ in 0..250 {
        assert!(!script.run((0, false, 48), &["key"], &[("key", 16)]));
    }
    script.upload("params", 100 * MIB);
    let call = finishing_call(&mut script, TRAIN, &["params"], &[("params", 100 * MIB)]);
    assert_eq!(call, Some(3));
}

#[test]
fn the_run_is_not_finished_while_new_programs_are_executed_between_steps() {
    let mut script = Script::new(2, &[("params", 100 * MIB)]);
    for new in 100..150 {
        script.upload("batch", MIB);
        script.run((new, false, MIB), &["batch"], &[("batch", MIB)]);
        assert!(!script.run(TRAIN, &["params", "batch"], &[("params", 100 * MIB)]));
    }
}

#[test]
fn a_run_is_steady_when_many_steps_in_a_row_execute_nothing_new() {
    let phase = |program, step_calls| Note::Phase { program, step_calls, peak_bytes: 101 * MIB };
    for name in [None, Some("train")] {
        let mut script = Script::new(0, &[("params", 100 * MIB), ("batch", MIB)]);
        (script.steps, script.name) = (Some(StepLimit::Steady), name);
        let train = |script: &mut Script, calls: u64| {
            for _ in 0..calls {
                assert!(!script.run(TRAIN, &["params", "batch"], &[("params", 100 * MIB)]));
            }
        };
        train(&mut script, 150);
        // A validation that comes again is no news.
        script.run(VALIDATE, &["params"], &[("loss", 4)]);
        train(&mut script, 150);
        script.run(VALIDATE, &["params"], &[("loss", 4)]);
        train(&mut script, 50);
        // With the next call, 200 have been executed since the first one that came after it.
        assert!(script.run(TRAIN, &["params", "batch"], &[("params", 100 * MIB)]));
        assert_eq!(script.cut_at, Some((2, 351)));
        let phases = |note: &&Note| matches!(note, Note::Phase { .. });
        let noted: Vec<Note> = script.notes.iter().filter(phases).cloned().collect();
        assert_eq!(noted, [phase(1, 150)], "{name:?}");
    }
}

#[test]
fn one_step_cannot_be_detected_so_two_are_run() {
    let mut script = Script::new(1, &[("params", 100 * MIB)]);
    let call = finishing_call(&mut script, TRAIN, &["params"], &[("params", 100 * MIB)]);
    assert_eq!(call, Some(2));
}

#[test]
fn a_named_program_needs_no_evidence_and_no_other_program_counts() {
    let mut script = Script::new(2, &[("params", 100 * MIB)]);
    script.name = Some("seven");
    for _ in 0..9 {
        assert!(!script.run(TRAIN, &["params"], &[("params", 100 * MIB)]));
    }
    assert!(!script.run((7, false, MIB), &["params"], &[("loss", 4)]));
    assert!(script.run((7, false, MIB), &["params"], &[("loss", 4)]));
    assert_eq!(script.cut_at, Some((7, 2)));
}

#[test]
fn after_the_end_only_programs_as_large_as_the_step_are_extra_steps() {
    let mut script = Script::new(2, &[("params", 100 * MIB)]);
    script.run(TRAIN, &["params"], &[("params", 100 * MIB)]);
    assert!(script.run(TRAIN, &["params"], &[("params", 100 * MIB)]));
    // An evaluation, although it is larger; the step once more, and the step recompiled.
    script.run(VALIDATE, &["params"], &[("loss", 4)]);
    assert_eq!(script.run_progress, RunProgress::Continue);
    script.run(TRAIN, &["params"], &[("params", 100 * MIB)]);
    assert_eq!(script.run_progress, RunProgress::Over);
    script.run((8, true, 500 * MIB), &["params"], &[("params", 100 * MIB)]);
    assert_eq!(script.run_progress, RunProgress::Extra);
}

#[test]
fn a_step_is_over_when_the_next_one_begins() {
    let mut script = Script::new(3, &[("params", 100 * MIB)]);
    for _ in 0..3 {
        script.run(TRAIN, &["params"], &[("params", 100 * MIB)]);
    }
    assert_eq!(script.run_progress, RunProgress::Finished);
    // The update is a program of its own, and the first one that is as large as the step.
    script.upload("gradients", 50 * MIB);
    script.run((9, true, 600 * MIB), &["params"], &[("params", 100 * MIB)]);
    assert_eq!(script.run_progress, RunProgress::Continue);
    assert!(!script.notes.iter().any(is_stop));
    script.run((8, true, 500 * MIB), &["params"], &[("params", 100 * MIB)]);
    assert_eq!(script.run_progress, RunProgress::Over);
    let stopped = Note::Stopped {
        program: 2,
        calls: 3,
        previous_peak_bytes: 100 * MIB,
        peak_bytes: 150 * MIB,
    };
    assert_eq!(script.notes.last(), Some(&stopped));
    script.run(TRAIN, &["params"], &[("params", 100 * MIB)]);
    assert_eq!(script.run_progress, RunProgress::Extra);
    assert_eq!(script.notes.iter().filter(|note| is_stop(note)).count(), 1);
}

fn is_stop(note: &Note) -> bool {
    matches!(note, Note::Stopped { .. })
}

#[test]
fn evidence_for_the_step_is_noted_once() {
    let mut script = Script::new(9, &[("params", 100 * MIB)]);
    for _ in 0..5 {
        script.run(TRAIN, &["params"], &[("params", 100 * MIB)]);
    }
    let program =
        |returned_bytes| Note::Program { program: 2, backward: true, named: false, returned_bytes };
    let search = Note::Search { steps: Some(StepLimit::Calls(9)), name: None };
    assert_eq!(script.notes, [search, program(0), program(100 * MIB)]);
}

#[test]
fn operations_on_a_few_numbers_are_not_evidence_of_a_step() {
    // An eager `key & mask`: it returns all live memory.
    let mut script = Script::new(3, &[("bits", 1024)]);
    let notes = |script: &Script| script.notes.len() - 1;
    for calls in 1..=200 {
        script.run((0, false, 3072), &["bits"], &[("bits", 1024)]);
        assert_eq!(notes(&script), usize::from(calls == 200), "{calls} calls");
    }
}
