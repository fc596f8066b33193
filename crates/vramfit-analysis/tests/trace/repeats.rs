//! Repeats in a trace: each event counts as if it were written out, and hostile counts are refused.

use vramfit_analysis::ErrorKind;
use vramfit_analysis::analysis::{RunSummary, summarize, summarize_until};
use vramfit_model::allocator::PoolSpace;
use vramfit_model::program::ProgramSizes;
use vramfit_model::trace::{CallbackSkip, Event, Purpose, Reader};

use crate::recorder::{MIB, Recorder, header, program_event, refusal, upload_event};

fn summarize_to(trace: &[u8], last: u64) -> RunSummary {
    summarize_until(Reader::new(trace).unwrap(), last).unwrap()
}

/// Appends `repeat {distance, count}` to a trace that was cut off.
fn append_repeat(mut trace: Vec<u8>, distance: u64, count: u64) -> Vec<u8> {
    trace.push(12);
    for mut value in [distance, count] {
        while value >= 0x80 {
            trace.push(value as u8 | 0x80);
            value >>= 7;
        }
        trace.push(value as u8);
    }
    trace
}

fn sizes(bytes: u64) -> ProgramSizes {
    ProgramSizes { argument_bytes: bytes, ..ProgramSizes::default() }
}

/// A run that took its pool for one upload, which stays.
fn start_run() -> Recorder {
    let mut run = Recorder::new(&header());
    run.upload(MIB);
    run
}

#[test]
fn repeated_steps_are_counted() {
    const STEPS: u64 = 10_000;
    let mut run = start_run();
    let name = run.writer.text("jit_step");
    let site = run.writer.text("train.py:9 (main)");
    let error = run.writer.text("ValueError: made up");
    run.event(program_event(1, name, sizes(3 * MIB), 1));
    run.begin(1);
    let block = run.allocate(0, 2 * MIB, Purpose::Output).unwrap();
    run.event(Event::UnknownRead { site, bytes: 4 });
    run.event(Event::Callback { site, calls: 2, errors: 1, error });
    run.event(Event::CallbackSkipped { site, calls: 5, reason: CallbackSkip::Bound });
    run.free(block);
    run.end();
    run.event(Event::Unload { program: 1 });
    let summary = summarize_to(&append_repeat(run.kill(), 9, STEPS * 9), u64::MAX);
    // The region and the upload, then the steps.
    assert_eq!(summary.events, 2 + 9 * (STEPS + 1));
    assert_eq!(summary.executions, STEPS + 1);
    let program = &summary.programs[0];
    assert_eq!((program.calls, program.compilations), (STEPS + 1, STEPS + 1));
    assert_eq!(summary.compilations[0].count, STEPS + 1);
    assert_eq!(summary.compilations[0].after_first_step, STEPS);
    let reads = &summary.facts.unknown_reads.lines[0];
    assert_eq!((reads.reads, reads.bytes), (STEPS + 1, 4 * (STEPS + 1)));
    let callback = &summary.facts.callbacks[0];
    assert_eq!((callback.calls, callback.errors), (2 * (STEPS + 1), STEPS + 1));
    assert_eq!(
        (callback.error.as_str(), callback.skipped),
        ("ValueError: made up", 5 * (STEPS + 1))
    );
    let device = &summary.devices[0];
    assert_eq!((device.peak_bytes, device.at_end.in_use_bytes), (3 * MIB, MIB));
    let last = device.timeline.last().unwrap();
    assert_eq!(last.state.in_use_bytes, MIB);
    assert!(last.event > summary.events - summary.events / 256);
}

#[test]
fn a_cut_may_be_inside_of_repeated_steps() {
    let mut run = start_run();
    let block = run.upload(MIB);
    run.free(block);
    let trace = append_repeat(run.kill(), 2, 1 << 12);
    for last in [3, 4, 500, 501, 4098, 4099, 5000] {
        let summary = summarize_to(&trace, last);
        assert_eq!(summary.events, (last + 1).min(4 + (1 << 12)));
        // Every second event from the third on is an upload.
        let live = if last % 2 == 0 && last < 4100 { 2 } else { 1 };
        assert_eq!(summary.devices[0].at_end.in_use_bytes, live * MIB, "{last}");
    }
}

#[test]
fn what_only_grows_is_refused_before_it_takes_the_machine() {
    let mut nothing = start_run();
    nothing.event(upload_event(0, 0, 64, PoolSpace::Default));
    let mut answers = start_run();
    answers.event(Event::Driver { device: 0, asked: 1 << 20, address: 1 << 40, granted: 1 << 20 });
    let mut compiled = start_run();
    compiled.program(1, "jit_step", sizes(1));
    let mut arguments = start_run();
    arguments.program(1, "jit_step", sizes(1));
    arguments.begin(1);
    arguments.allocate(0, 2 * MIB, Purpose::Output);
    arguments.event(Event::Argument { parameter: 0, allocation: 0 });
    for (run, words) in [
        (nothing, "alive at once"),
        (answers, "results that no request caused"),
        (compiled, "the number of programs"),
        (arguments, "the number of arguments"),
    ] {
        let error = refusal(&append_repeat(run.kill(), 1, 1 << 30));
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn more_events_than_are_replayed_are_refused() {
    let run = |counts: &[u64]| {
        let mut run = start_run();
        let block = run.upload(MIB);
        run.free(block);
        counts.iter().fold(run.kill(), |trace, count| append_repeat(trace, 2, *count))
    };
    for counts in [&[1 << 31][..], &[u64::MAX], &[1 << 12, (1 << 31) - (1 << 12)]] {
        let trace = run(counts);
        let error = summarize(Reader::new(&trace[..]).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFeature, "{error}");
        assert!(error.message().contains("more than 2147483648 events"), "{error}");
    }
}
