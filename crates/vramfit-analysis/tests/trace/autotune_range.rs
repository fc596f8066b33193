//! The run once more with other temporaries comes to what a run with those temporaries comes to.

use vramfit_analysis::analysis::AutotuneRange;
use vramfit_analysis::report;
use vramfit_model::program::ProgramSizes;
use vramfit_model::run_config::RunConfig;
use vramfit_model::trace::{Event, Header, Purpose};

use crate::recorder::{MIB, Recorder, header, summarize_run};

const VARIANT: &str = "without Triton GEMM";

fn asked() -> Header {
    Header { run: RunConfig { autotune_range: true, ..header().run }, ..header() }
}

fn autotune_range(run: Recorder) -> AutotuneRange {
    summarize_run(run).autotune_range.unwrap()
}

fn sizes(temp_bytes: u64) -> ProgramSizes {
    ProgramSizes { output_bytes: MIB, temp_bytes, ..ProgramSizes::default() }
}

fn program(run: &mut Recorder, number: u32, name: &str, temporaries: u64, other: Option<u64>) {
    run.program(number, name, sizes(temporaries));
    if let Some(other) = other {
        let name = run.writer.text(VARIANT);
        let (program, sizes) = (number, sizes(other));
        run.event(Event::Variant { program, name, sizes });
    }
}

/// An execution that takes these blocks of temporaries and one output.
fn execute(run: &mut Recorder, number: u32, temporaries: &[u64]) -> bool {
    run.begin(number);
    let mut blocks = Vec::new();
    for bytes in temporaries {
        blocks.extend(run.allocate(0, *bytes, Purpose::Temporary));
    }
    let output = run.allocate(0, MIB, Purpose::Output);
    let executed = output.is_some() && blocks.len() == temporaries.len();
    for block in blocks {
        run.free(block);
    }
    run.end();
    output.into_iter().for_each(|output| run.free(output));
    executed
}

/// Three steps beside 100 MiB of parameters, with an evaluation before them.
fn training(header: &Header, step: u64, evaluation: u64, others: [Option<u64>; 2]) -> Recorder {
    let mut run = Recorder::new(header);
    run.upload(100 * MIB);
    program(&mut run, 1, "jit_evaluate", evaluation, others[1]);
    execute(&mut run, 1, &[evaluation]);
    program(&mut run, 2, "jit_step", step, others[0]);
    for _ in 0..3 {
        assert!(execute(&mut run, 2, &[step]));
    }
    run
}

#[test]
fn without_other_temporaries_it_is_the_same_run() {
    let plain = summarize_run(training(&asked(), 200 * MIB, 50 * MIB, [None; 2]));
    let autotune_range = plain.autotune_range.clone().unwrap();
    assert_eq!(autotune_range.peak_bytes, [plain.devices[0].peak_bytes]);
    assert_eq!((autotune_range.fits, autotune_range.measured), (Some(true), 0));
    // 1 % of 768 MiB is less than either needs, and neither was measured.
    assert_eq!(autotune_range.unmeasured, 2);
    assert_eq!(autotune_range.variant, "");
}

#[test]
fn a_run_that_was_not_asked_has_no_bracket() {
    let others = [Some(300 * MIB), None];
    let summary = summarize_run(training(&header(), 200 * MIB, 50 * MIB, others));
    assert_eq!(summary.autotune_range, None);
    assert!(report::text(&summary).contains("`--autotune-range`"));
}

#[test]
fn other_temporaries_come_to_what_a_run_with_them_comes_to() {
    // Also when another program then has the peak, and when nothing is left of the block.
    for (step, evaluation) in [(333, 50), (90, 50), (10, 50), (10, 400), (0, 50)] {
        let (step, evaluation) = (step * MIB + 512, evaluation * MIB);
        let others = [Some(step), Some(evaluation)];
        let what_if = summarize_run(training(&asked(), 200 * MIB, 60 * MIB, others));
        let real = summarize_run(training(&header(), step, evaluation, [None; 2]));
        let autotune_range = what_if.autotune_range.unwrap();
        assert_eq!(autotune_range.peak_bytes, [real.devices[0].peak_bytes], "{step}");
        assert_eq!((autotune_range.fits, autotune_range.measured), (Some(true), 2));
        assert_eq!((&autotune_range.variant[..], autotune_range.unmeasured), (VARIANT, 0));
        assert_eq!(what_if.programs[0].variant_temp_bytes, Some(step));
    }
}

#[test]
fn the_first_of_several_temporary_blocks_takes_it_all() {
    let mut run = Recorder::new(&asked());
    program(&mut run, 1, "jit_step", 30 * MIB, Some(50 * MIB));
    execute(&mut run, 1, &[10 * MIB, 20 * MIB]);
    assert_eq!(autotune_range(run).peak_bytes, [51 * MIB]);
}

#[test]
fn a_program_without_temporaries_may_have_some_then() {
    let two = Header { devices: 2, ..asked() };
    let mut run = Recorder::new(&two);
    program(&mut run, 1, "jit_step", 0, Some(32 * MIB));
    execute(&mut run, 1, &[]);
    // On the second device everything is reused, so that nothing is allocated there.
    assert_eq!(autotune_range(run).peak_bytes, [33 * MIB, 32 * MIB]);
}

#[test]
fn it_may_not_fit_then() {
    let others = [Some(700 * MIB), None];
    let summary = summarize_run(training(&asked(), 200 * MIB, 50 * MIB, others));
    assert_eq!(summary.fits(), Some(true));
    let autotune_range = summary.autotune_range.as_ref().unwrap();
    assert_eq!(autotune_range.fits, Some(false));
    assert_eq!(autotune_range.peak_bytes, [151 * MIB], "up to the request refused");
    let shown = report::text(&summary);
    assert!(shown.contains("does not fit without Triton GEMM"), "{shown}");
}

#[test]
fn what_was_refused_may_be_met_then_and_what_follows_is_not_known() {
    for (other, fits) in [(300, None), (800, Some(false))] {
        let mut run = Recorder::new(&asked());
        run.upload(100 * MIB);
        program(&mut run, 1, "jit_step", 700 * MIB, Some(other * MIB));
        assert!(!execute(&mut run, 1, &[700 * MIB]));
        let summary = summarize_run(run);
        assert_eq!(summary.fits(), Some(false));
        assert_eq!(summary.autotune_range.unwrap().fits, fits, "{other}");
    }
}

#[test]
fn the_bracket_is_reported_with_both_ends() {
    let summary = summarize_run(training(&asked(), 200 * MIB, 4 * MIB, [Some(300 * MIB), None]));
    let shown = report::text(&summary);
    assert!(shown.contains("301.0 MiB to 401.0 MiB"), "{shown}");
    assert!(shown.contains("100.0 MiB more without"), "{shown}");
    let record: serde_json::Value = serde_json::from_str(&report::json(&summary)).unwrap();
    let expected = serde_json::json!({
        "variants": [
            {"name": "default", "peak_bytes": 301 * MIB, "fits": true},
            {"name": VARIANT, "peak_bytes": 401 * MIB, "fits": true},
        ],
        "programs_measured": 1,
        "programs_not_measured": 0,
        // The program that makes the state, too small to be compiled a second way.
        "small_programs": 1,
        "small_programs_temp_bytes": 4 * MIB,
    });
    assert_eq!(record["autotune_range"], expected);
    assert_eq!(record["devices"][0]["variant_peak_bytes"], 401 * MIB);
    assert_eq!(record["programs"][0]["variant_temp_bytes"], 300 * MIB);
}
