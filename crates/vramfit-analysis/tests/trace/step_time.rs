//! How long a step takes: the programs between two executions of the step.

use vramfit_analysis::analysis::summarize;
use vramfit_model::program::{ProgramSizes, ProgramTime};
use vramfit_model::trace::{Note, Reader};

use crate::recorder::{MIB, Recorder, header};

/// Compiles a program of which it is known how long it takes.
fn compile_timed(run: &mut Recorder, program: u32, bytes: u64) {
    let sizes = ProgramSizes { argument_bytes: bytes, ..ProgramSizes::default() };
    run.program(program, &format!("jit_{program}"), sizes);
    let time = ProgramTime {
        model_us: f64::from(1000u32.pow(program)),
        unknown_us: f64::from(program % 2),
        ..ProgramTime::default()
    };
    run.writer.program_time(program, &time).unwrap();
}

#[test]
fn a_step_takes_as_long_as_the_programs_between_two_of_its_executions() {
    let mut run = Recorder::new(&header());
    for program in 1..4 {
        compile_timed(&mut run, program, MIB);
    }
    let note = Note::Program { program: 2, backward: true, named: false, returned_bytes: 1 };
    run.writer.add_note(&note).unwrap();
    // One program prepares, another runs twice in each step.
    for program in [3, 1, 2, 1, 1, 2, 1, 1, 2, 1] {
        run.begin(program);
        run.end();
    }
    let trace = run.finish();
    let summary = summarize(Reader::new(&trace[..]).unwrap()).unwrap();
    let time = summary.step_time.unwrap();
    assert_eq!((time.model_us, time.unknown_us), (1_002_000.0, 2.0));
}
