//! Arrays that are created one after the other are a set; what other programs are executed between is growth.

use vramfit_analysis::analysis::RunSummary;
use vramfit_analysis::report;
use vramfit_model::program::ProgramSizes;
use vramfit_model::trace::{Note, Purpose};

use crate::recorder::{MIB, Recorder, header, summarize_run};

/// Programs, by what they take and return, and the line that calls them.
const ZEROS: (u32, &str, u64) = (1, "jit_broadcast_in_dim", 0);
const SPLIT: (u32, &str, u64) = (2, "jit__threefry_split", 8);
const FIT: (u32, &str, u64) = (3, "jit_fit", 64 * MIB);
const SINE: (u32, &str, u64) = (4, "jit_sin", 4 * MIB);
const SIMULATE: (u32, &str, u64) = (5, "jit_simulate", 4);
const UNIFORM: (u32, &str, u64) = (6, "jit__uniform", 16);
const MULTIPLY: (u32, &str, u64) = (7, "jit_multiply", 4 * MIB);
const LINE: &str = "x.py:5 (<module>)";

/// Calls of programs, each with the bytes of an output that stays, repeated.
fn run(times: u32, calls: &[((u32, &str, u64), u64)]) -> RunSummary {
    let mut run = Recorder::new(&header());
    run.note(&Note::Search { steps: None, name: None });
    for (program, name, argument_bytes) in [ZEROS, SPLIT, FIT, SINE, SIMULATE, UNIFORM, MULTIPLY] {
        let sizes = ProgramSizes { argument_bytes, ..ProgramSizes::default() };
        run.program(program, name, sizes);
    }
    for _ in 0..times {
        for ((program, ..), kept) in calls {
            run.begin_at(*program, LINE);
            let loss = run.allocate(0, 4, Purpose::Output).unwrap();
            if *kept > 0 {
                run.allocate_slot(0, *kept, Purpose::Output, 1).unwrap();
            }
            run.end();
            run.free(loss);
        }
    }
    summarize_run(run)
}

#[test]
fn arrays_that_are_created_in_a_row_are_a_set_of_arrays() {
    for calls in [
        &[(ZEROS, 4 * MIB)][..],
        &[(SPLIT, 0), (ZEROS, 4 * MIB)],
        &[(UNIFORM, 0), (MULTIPLY, 4 * MIB)],
    ] {
        let summary = run(20, calls);
        assert_eq!(summary.leaks, []);
        let [created] = &summary.created[..] else { panic!("{:?}", summary.created) };
        assert_eq!((created.device, &created.site[..]), (0, LINE));
        // At the peak the last is an output of the call that creates it.
        let shown = report::text(&summary);
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = "19 arrays of 4.0 MiB, created one after the other at x.py:5 (<module>)";
        assert!(shown.contains(text), "{shown}");
        assert!(!shown.contains("memory grows"), "{shown}");
    }
}

#[test]
fn what_stays_of_each_call_of_another_program_grows() {
    for (what, calls) in [
        ("a history beside a fit", &[(ZEROS, 4 * MIB), (FIT, 0)][..]),
        ("a cache of a computation", &[(ZEROS, 0), (SINE, 4 * MIB)]),
        ("multiples of one array", &[(MULTIPLY, 4 * MIB)]),
        ("results of a function that is given a seed", &[(SIMULATE, 4 * MIB)]),
    ] {
        let summary = run(20, calls);
        let [leak] = &summary.leaks[..] else { panic!("{what}: {:?}", summary.leaks) };
        assert_eq!((leak.bytes_per_step, leak.is_training), (4 * MIB, false), "{what}");
        assert_eq!(summary.created, [], "{what}");
    }
}
