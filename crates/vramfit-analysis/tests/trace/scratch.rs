//! Scratch memory of library routines: the least is in the figures of a run, the most is asked for at the
//! moments when the routines would ask. All figures are counted by hand for a pool of 768 MiB.

use vramfit_analysis::analysis::{
    Condition, EntryKind, RunSummary, ScratchShortage, ScratchSummary,
};
use vramfit_analysis::report;
use vramfit_model::program::{EstimateSource, ProgramSizes, ScratchPhase};
use vramfit_model::trace::{Event, Header, Purpose};

use crate::recorder::{MIB, Recorder, header, summarize_run};

const SITE: &str = "fft.py:12 (main)";

/// The report as text, its lines put together.
fn shown(summary: &RunSummary) -> String {
    let text = report::text(summary);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn scratch(summary: &RunSummary) -> &ScratchSummary {
    summary.scratch.as_ref().unwrap()
}

/// Says that the program takes scratch memory.
fn need(run: &mut Recorder, program: u32, phase: ScratchPhase, range: [u64; 2]) {
    let (library, routine) = match phase {
        ScratchPhase::Execution => ("cuFFT", "rfft f32[1024]"),
        ScratchPhase::Plan => ("cuDNN", "convolution f32[1,8,8,1]"),
        ScratchPhase::Compilation => ("XLA's autotuner", "inputs and outputs of a kernel,"),
        ScratchPhase::OutsidePool => ("cuSOLVER", "csrlsvqr f32[9]"),
    };
    let [low_bytes, high_bytes] = range;
    let event = Event::Scratch {
        program,
        library: run.writer.text(library),
        routine: run.writer.text(routine),
        site: run.writer.text(SITE),
        low_bytes,
        high_bytes,
        source: EstimateSource::Documented,
        phase,
    };
    run.event(event);
}

fn program(run: &mut Recorder, number: u32, name: &str, temporaries: u64) {
    let sizes = ProgramSizes {
        output_bytes: 100 * MIB,
        temp_bytes: temporaries,
        ..ProgramSizes::default()
    };
    run.program(number, name, sizes);
}

/// An execution that takes 100 MiB of output, temporaries, and scratch memory beside both.
fn execute(run: &mut Recorder, number: u32, temporaries: u64, least: u64) -> bool {
    run.begin(number);
    let output = run.allocate(0, 100 * MIB, Purpose::Output).unwrap();
    let block =
        (temporaries > 0).then(|| run.allocate(0, temporaries, Purpose::Temporary).unwrap());
    let taken = match least {
        0 => true,
        least => match run.allocate(0, least, Purpose::Scratch) {
            Some(scratch) => {
                run.free(scratch);
                true
            }
            None => false,
        },
    };
    block.into_iter().for_each(|block| run.free(block));
    run.end();
    run.free(output);
    taken
}

/// Three executions beside 200 MiB of parameters, with temporaries of 50 MiB.
fn run_of(header: &Header, phase: ScratchPhase, range: [u64; 2]) -> RunSummary {
    let mut run = Recorder::new(header);
    run.upload(200 * MIB);
    program(&mut run, 1, "jit_transform", 50 * MIB);
    need(&mut run, 1, phase, range);
    for _ in 0..3 {
        let least = match phase {
            ScratchPhase::Execution => range[0],
            _ => 0,
        };
        assert!(execute(&mut run, 1, 50 * MIB, least));
    }
    summarize_run(run)
}

#[test]
fn the_least_is_in_the_peak_and_the_most_beside_it() {
    let summary = run_of(&header(), ScratchPhase::Execution, [150 * MIB, 300 * MIB]);
    assert_eq!(summary.devices[0].peak_bytes, (200 + 100 + 50 + 150) * MIB);
    assert_eq!(scratch(&summary).peak_bytes, [(200 + 100 + 50 + 300) * MIB]);
    assert_eq!(scratch(&summary).shortage, None);
    assert_eq!(summary.fits(), Some(true));
    let moment = summary.devices[0].peak.as_ref().unwrap();
    assert_eq!(moment.purpose, Purpose::Scratch);
    // The part is named by library and line.
    let attribution = summary.attribution.as_ref().unwrap();
    let part = attribution.parts.iter().find(|part| part.kind == EntryKind::Scratch);
    let part = part.unwrap();
    assert_eq!(part.bytes, 150 * MIB);
    assert_eq!((&part.made_by[..], &part.site[..]), ("cuFFT rfft f32[1024]", SITE));
    let shown = shown(&summary);
    assert!(shown.contains("150.0 MiB to 300.0 MiB"), "{shown}");
    assert!(shown.contains("cuFFT rfft f32[1024], at fft.py:12 (main)"), "{shown}");
    assert!(shown.contains("peak is 650.0 MiB"), "{shown}");
}

#[test]
fn whether_a_run_fits_is_open_when_the_most_does_not_fit() {
    let summary = run_of(&header(), ScratchPhase::Execution, [150 * MIB, 500 * MIB]);
    let shortage = ScratchShortage {
        device: 0,
        need: 0,
        high_bytes: 500 * MIB,
        available_bytes: (768 - 200 - 100 - 50) * MIB,
        call: 1,
    };
    assert_eq!(scratch(&summary).shortage, Some(shortage));
    assert_eq!(scratch(&summary).peak_bytes, [850 * MIB]);
    let verdict = summary.verdict();
    assert_eq!(verdict.fits, None);
    let [Condition::LibraryScratch { available_bytes, .. }] = &verdict.conditions[..] else {
        panic!("{verdict:?}");
    };
    assert_eq!(*available_bytes, 418 * MIB);
    let shown = shown(&summary);
    assert!(shown.contains("418.0 MiB"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&report::json(&summary)).unwrap();
    assert_eq!(json["fits"], serde_json::Value::Null);
    assert_eq!(json["scratch"]["shortage"]["available_bytes"], 418 * MIB);
}

#[test]
fn the_least_that_cannot_be_had_does_not_fit() {
    let mut run = Recorder::new(&header());
    run.upload(500 * MIB);
    program(&mut run, 1, "jit_transform", 50 * MIB);
    need(&mut run, 1, ScratchPhase::Execution, [150 * MIB, 300 * MIB]);
    assert!(!execute(&mut run, 1, 50 * MIB, 150 * MIB));
    let summary = summarize_run(run);
    assert_eq!(summary.fits(), Some(false));
    let refusal = summary.out_of_memory().unwrap();
    assert_eq!(refusal.context.purpose, Purpose::Scratch);
    assert_eq!(refusal.short_bytes(), (150 - (768 - 650)) * MIB);
    let attribution = summary.attribution.as_ref().unwrap();
    assert!(attribution.parts.iter().any(|part| part.kind == EntryKind::Scratch));
}

#[test]
fn workspaces_of_a_plan_make_the_temporaries_larger() {
    // One block of 50 MiB and the workspace, where 768 - 200 - 100 MiB are free.
    for (most, fits) in [(418 * MIB, Some(true)), (418 * MIB + 256, None)] {
        let summary = run_of(&header(), ScratchPhase::Plan, [0, most]);
        assert_eq!(summary.devices[0].peak_bytes, 350 * MIB);
        assert_eq!(summary.fits(), fits, "{most}");
        assert_eq!(scratch(&summary).peak_bytes, [350 * MIB + most]);
    }
}

#[test]
fn a_program_without_temporaries_gets_the_workspace_beside_its_outputs() {
    for (most, fits) in [(668 * MIB, Some(true)), (669 * MIB, None)] {
        let mut run = Recorder::new(&header());
        program(&mut run, 1, "jit_convolve", 0);
        need(&mut run, 1, ScratchPhase::Plan, [0, most]);
        execute(&mut run, 1, 0, 0);
        assert_eq!(summarize_run(run).fits(), fits);
    }
}

#[test]
fn the_autotuner_asks_once_before_the_first_execution() {
    // Its arguments are there, its outputs are not: 768 - 200 MiB.
    for (most, fits) in [(568 * MIB, Some(true)), (569 * MIB, None)] {
        let summary = run_of(&header(), ScratchPhase::Compilation, [0, most]);
        assert_eq!(summary.fits(), fits);
    }
}

#[test]
fn the_moment_that_leaves_least_decides() {
    let mut run = Recorder::new(&header());
    program(&mut run, 1, "jit_transform", 50 * MIB);
    need(&mut run, 1, ScratchPhase::Execution, [0, 700 * MIB]);
    execute(&mut run, 1, 50 * MIB, 0);
    run.upload(100 * MIB);
    execute(&mut run, 1, 50 * MIB, 0);
    let summary = summarize_run(run);
    let shortage = scratch(&summary).shortage.as_ref().unwrap();
    assert_eq!((shortage.available_bytes, shortage.call), (518 * MIB, 2));
}

#[test]
fn a_growing_pool_has_what_it_may_grow_by() {
    let growing = Header { preallocate: false, ..header() };
    // Regions of 256 MiB for 200 and for 100 MiB leave 768 - 512 to grow by.
    for (most, fits) in [(256 * MIB, Some(true)), (257 * MIB, None)] {
        let summary = run_of(&growing, ScratchPhase::Execution, [MIB, most]);
        assert_eq!(summary.fits(), fits, "{most}");
    }
}

#[test]
fn routines_without_a_bound_are_a_warning() {
    let mut run = Recorder::new(&header());
    program(&mut run, 1, "jit_call", 0);
    let event = Event::Scratch {
        program: 1,
        library: run.writer.text("custom call"),
        routine: run.writer.text("my_kernel f32[8]"),
        site: run.writer.text(SITE),
        low_bytes: 0,
        high_bytes: 0,
        source: EstimateSource::Unknown,
        phase: ScratchPhase::Execution,
    };
    run.event(event);
    execute(&mut run, 1, 0, 0);
    let summary = summarize_run(run);
    assert_eq!(summary.fits(), Some(true));
    assert_eq!(scratch(&summary).needs[0].high_bytes, None);
    let shown = shown(&summary);
    assert!(shown.contains("custom call my_kernel f32[8]"), "{shown}");
    assert!(shown.contains("no upper bound is known"), "{shown}");
}

#[test]
fn programs_that_were_never_executed_take_nothing() {
    let mut run = Recorder::new(&header());
    program(&mut run, 1, "jit_transform", 0);
    need(&mut run, 1, ScratchPhase::Execution, [MIB, 2 * MIB]);
    assert_eq!(summarize_run(run).scratch, None);
}

#[test]
fn a_program_that_only_compiles_needs_its_scratch_memory_as_one_that_runs() {
    let shown = |phase| {
        let mut run = Recorder::new(&header());
        program(&mut run, 1, "jit_fft", 50 * MIB);
        need(&mut run, 1, phase, [30 * MIB, 90 * MIB]);
        need(&mut run, 1, phase, [20 * MIB, 20 * MIB]);
        summarize_run(run).plan().expect("it did not run").needed_bytes
    };
    // Routines run one after the other, and a run takes the least of each.
    assert_eq!(shown(ScratchPhase::Execution), (100 + 50 + 30) * MIB);
    assert_eq!(shown(ScratchPhase::OutsidePool), (100 + 50) * MIB);
}

#[test]
fn a_larger_fraction_is_offered_without_what_libraries_may_take_beside_it() {
    let said = |high_bytes| {
        let mut run = Recorder::new(&header());
        program(&mut run, 1, "jit_transform", 750 * MIB);
        need(&mut run, 1, ScratchPhase::Execution, [0, high_bytes]);
        run.begin(1);
        assert!(run.allocate(0, 750 * MIB, Purpose::Temporary).is_some());
        assert!(run.allocate(0, 100 * MIB, Purpose::Output).is_none());
        shown(&summarize_run(run))
    };
    // With 0.92 of the GPU's 1024 MiB, 92 MiB are left.
    let offered = "the pool then has 942.1 MiB, and what failed needs 850.0 MiB; anything after that is not included";
    let little = said(50 * MIB);
    assert!(little.contains(offered) && !little.contains("nor the"), "{little}");
    let much = said(200 * MIB);
    let expected = format!("{offered}, nor the up to 200.0 MiB of scratch memory of cuFFT");
    assert!(much.contains(&expected), "{much}");
}
