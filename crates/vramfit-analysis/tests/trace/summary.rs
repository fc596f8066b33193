//! The figures of a summary are those that one can count by hand, and those that the allocators of
//! the run had; and a summary is refused when they differ.

use proptest::prelude::*;
use vramfit_analysis::analysis::summarize;
use vramfit_analysis::replay::PoolState;
use vramfit_analysis::report::Report;
use vramfit_model::allocator::PoolSpace;
use vramfit_model::program::ProgramSizes;
use vramfit_model::run_config::RunConfig;
use vramfit_model::trace::{CallbackSkip, Event, Header, ProcessExit, Purpose, Reader, TextId};

use crate::recorder::{
    self, MIB, Recorder, header, program_event, refusal, summarize_run, summarize_trace, toy_gpus,
    two_regions, upload_event,
};

fn sizes(temp_bytes: u64) -> ProgramSizes {
    ProgramSizes { temp_bytes, ..ProgramSizes::default() }
}

/// Parameters of 100 MiB, an optimizer's 200 MiB, one small program, three training steps.
fn training() -> Recorder {
    let mut run = Recorder::new(&header());
    let _parameters = run.upload(100 * MIB);
    let _moments = run.upload(200 * MIB);
    run.program(1, "jit_init", ProgramSizes { output_bytes: 10 * MIB, code_bytes: 7, ..sizes(0) });
    run.begin(1);
    let small = run.allocate(0, 10 * MIB, Purpose::Output).unwrap();
    run.end();
    run.free(small);
    run.event(Event::Unload { program: 1 });
    run.program(2, "jit_step", ProgramSizes { code_bytes: 9, ..sizes(250 * MIB) });
    run.event(Event::OutsidePool { device: 0, bytes: 33 });
    run.event(Event::OutsidePool { device: 0, bytes: 11 });
    for _ in 0..3 {
        let batch = run.upload(20 * MIB);
        run.begin(2);
        let temporary = run.allocate(0, 250 * MIB, Purpose::Temporary).unwrap();
        let loss = run.allocate(0, MIB / 2, Purpose::Output).unwrap();
        run.end();
        run.free(temporary);
        run.free(loss);
        run.free(batch);
    }
    run
}

#[test]
fn a_training_run_comes_to_what_one_counts_by_hand() {
    let summary = summarize_run(training());
    assert!(summary.fits() == Some(true) && summary.complete);
    assert_eq!(summary.executions, 4);
    let [device] = &summary.devices[..] else { panic!("one device") };
    assert_eq!(device.limit_bytes, Some(768 * MIB));
    assert_eq!(device.pool_bytes, Some(768 * MIB));
    // 100 + 200 state, 20 batch, 250 temporaries, 0.5 loss.
    assert_eq!(device.peak_bytes, 570 * MIB + MIB / 2);
    let peak = device.peak.as_ref().unwrap();
    assert_eq!((peak.program.as_deref(), peak.call), (Some("jit_step"), 1));
    assert_eq!((peak.purpose, peak.requested_bytes), (Purpose::Output, MIB / 2));
    // One question to the GPU, two uploads, six events of jit_init; then Program, Outside,
    // Outside, batch, Begin, temporary, loss.
    assert_eq!(peak.event, 1 + 2 + 6 + 6);
    assert_eq!(
        device.at_peak,
        PoolState {
            in_use_bytes: device.peak_bytes,
            free_bytes: Some(197 * MIB + MIB / 2),
            largest_free_block_bytes: Some(197 * MIB + MIB / 2),
        }
    );
    assert_eq!(device.at_peak.fragmentation(), Some(0.0));
    assert_eq!(device.at_end.in_use_bytes, 300 * MIB);
    assert_eq!(device.steady_state_bytes, 300 * MIB);
    assert_eq!(device.outside_bytes, 33);
    let rows: Vec<_> = summary.programs.iter().map(|p| (&p.name[..], p.calls)).collect();
    assert_eq!(rows, [("jit_step", 3), ("jit_init", 1)]);
    assert_eq!(summary.step().unwrap().name, "jit_step");
    assert_eq!(summary.critical_device().unwrap().device, 0);
}

#[test]
fn what_is_held_between_steps_leaves_out_what_comes_and_goes() {
    // No donation: each step makes new state while the old one is alive, then drops the old.
    let mut run = Recorder::new(&header());
    run.program(1, "jit_step", sizes(0));
    let mut state = run.upload(100 * MIB);
    for _ in 0..3 {
        run.begin(1);
        let new = run.allocate(0, 100 * MIB, Purpose::Output).unwrap();
        run.end();
        run.free(std::mem::replace(&mut state, new));
    }
    let device = summarize_run(run).devices.remove(0);
    assert_eq!(device.peak_bytes, 200 * MIB);
    assert_eq!(device.steady_state_bytes, 100 * MIB);
}

#[test]
fn a_single_execution_is_reported_with_what_it_began_with() {
    let mut run = Recorder::new(&header());
    run.program(1, "jit_step", sizes(0));
    let state = run.upload(100 * MIB);
    run.begin(1);
    run.end();
    run.free(state);
    assert_eq!(summarize_run(run).devices[0].steady_state_bytes, 100 * MIB);
}

#[test]
fn the_step_is_not_the_small_program_that_is_called_most() {
    let mut run = Recorder::new(&header());
    run.program(1, "jit_convert", sizes(4));
    run.program(2, "jit_step", sizes(200 * MIB));
    run.program(3, "jit_init", sizes(300 * MIB));
    for program in [3, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1] {
        run.begin(program);
        run.end();
    }
    assert_eq!(summarize_run(run).step().unwrap().name, "jit_step");
    let idle = summarize_run(Recorder::new(&header()));
    assert_eq!(idle.step(), None);
}

#[test]
fn a_refusal_in_pieces_is_fragmentation() {
    let mut run = Recorder::new(&header());
    run.program(1, "jit_step", sizes(300 * MIB));
    let first = run.upload(200 * MIB);
    let _wall = run.upload(100 * MIB);
    let _last = run.upload(200 * MIB);
    run.free(first);
    run.begin(1);
    assert!(run.allocate(0, 300 * MIB, Purpose::Temporary).is_none());
    run.end();
    let summary = summarize_run(run);
    assert_eq!(summary.fits(), Some(false));
    let refusal = summary.out_of_memory().unwrap();
    assert_eq!(refusal.pool.free_bytes, Some(468 * MIB));
    assert_eq!(refusal.pool.largest_free_block_bytes, Some(268 * MIB));
    assert_eq!((refusal.growth_bytes, refusal.available_bytes()), (Some(0), 268 * MIB));
    assert_eq!((refusal.short_bytes(), refusal.fragmented()), (32 * MIB, true));
    assert_eq!(refusal.context.program.as_deref(), Some("jit_step"));
    assert_eq!(refusal.message, "Out of memory while trying to allocate 300.00MiB.");
    assert!(!refusal.recovered && refusal.fatal.is_none());
    let device = &summary.devices[0];
    assert_eq!(device.peak_bytes, 500 * MIB);
    assert_eq!(device.at_peak.largest_free_block_bytes, Some(268 * MIB));
    assert_eq!(device.at_peak.fragmentation(), Some(0.0), "nothing was freed by then");
    assert!((device.at_end.fragmentation().unwrap() - 200.0 / 468.0).abs() < 1e-12);
}

#[test]
fn what_a_whole_execution_lacks_is_counted() {
    let mut run = Recorder::new(&header());
    // Three outputs of 200 MiB, and one in the memory of an argument; then the temporaries.
    let sizes = ProgramSizes {
        argument_bytes: 100 * MIB,
        output_bytes: 700 * MIB,
        alias_bytes: 100 * MIB,
        temp_bytes: 150 * MIB,
        ..ProgramSizes::default()
    };
    run.program(1, "jit_step", sizes);
    let _state = run.upload(200 * MIB);
    run.begin(1);
    for _ in 0..2 {
        run.allocate(0, 200 * MIB, Purpose::Output).unwrap();
    }
    assert!(run.allocate(0, 200 * MIB, Purpose::Output).is_none());
    run.end();
    let summary = summarize_run(run);
    let refusal = summary.out_of_memory().unwrap();
    assert_eq!(refusal.available_bytes(), 168 * MIB);
    assert_eq!(refusal.remaining_bytes, (200 + 150) * MIB);
    assert_eq!((refusal.short_bytes(), refusal.fragmented()), ((350 - 168) * MIB, false));
    assert_eq!(summary.needed_bytes(), (200 + 600 + 150) * MIB);
    assert_eq!(summary.attribution.unwrap().total_bytes, (200 + 600 + 150) * MIB);
}

#[test]
fn a_refusal_beyond_all_that_is_free_is_not_fragmentation() {
    let mut run = Recorder::new(&header());
    let _state = run.upload(400 * MIB);
    assert!(run.allocate(0, 500 * MIB, Purpose::Upload).is_none());
    run.program(1, "jit_step", sizes(0));
    run.begin(1);
    run.end();
    let summary = summarize_run(run);
    let refusal = summary.out_of_memory().unwrap();
    assert_eq!((refusal.short_bytes(), refusal.fragmented()), (132 * MIB, false));
    assert_eq!((refusal.context.program.as_deref(), refusal.context.call), (None, 0));
    assert!(refusal.recovered);
    assert_eq!(summary.critical_device().unwrap().failures, 1);
}

#[test]
fn a_free_total_that_is_one_block_to_rounding_is_no_fragmentation() {
    let mut run = Recorder::new(&header());
    let hole = run.upload(256);
    let _wall = run.upload(256);
    let large = run.upload(40 * MIB - 256);
    let _rest = run.upload(728 * MIB - 256);
    run.free(hole);
    run.free(large);
    assert!(run.allocate(0, 40 * MIB, Purpose::Upload).is_none());
    let refusal = summarize_run(run).failures.remove(0);
    assert_eq!(refusal.pool.free_bytes, Some(40 * MIB));
    assert_eq!(refusal.pool.largest_free_block_bytes, Some(40 * MIB - 256));
    assert_eq!((refusal.short_bytes(), refusal.fragmented()), (256, false));
}

#[test]
fn a_growing_pool_counts_what_it_could_still_take() {
    let mut run = Recorder::new(&Header { preallocate: false, ..header() });
    // Regions: 512 MiB for the first (2 MiB doubled until it fits), then at most 256 MiB are left.
    let _state = run.upload(300 * MIB);
    assert_eq!(run.stats(0).pool_bytes, Some(512 * MIB));
    assert!(run.allocate(0, 260 * MIB, Purpose::Upload).is_none());
    let refusal = summarize_run(run).failures.remove(0);
    assert_eq!(refusal.pool.largest_free_block_bytes, Some(212 * MIB));
    assert_eq!(refusal.growth_bytes, Some(256 * MIB));
    assert_eq!((refusal.short_bytes(), refusal.fragmented()), (4 * MIB, true));
}

#[test]
fn a_gpu_that_is_taken_leaves_less_room_to_grow() {
    let mut run = Recorder::new(&Header {
        run: RunConfig { occupied_bytes: 600 * MIB, ..header().run },
        preallocate: false,
        ..header()
    });
    // A region of 16 MiB, handed out whole since it is less than twice the request; one more of
    // which 14 MiB are left. Of the GPU, 1024 - 600 - 32 = 392 MiB.
    let (_first, _second) = (run.upload(10 * MIB), run.upload(2 * MIB));
    assert!(run.allocate(0, 400 * MIB, Purpose::Upload).is_none());
    let refusal = summarize_run(run).failures.remove(0);
    // What XLA asks for is first 512 MiB, and then a tenth less until the GPU has it.
    let growth = refusal.growth_bytes.unwrap();
    assert!(growth > 352 * MIB && growth <= 392 * MIB, "{growth}");
    assert_eq!(refusal.available_bytes(), growth);
    assert_eq!(refusal.free_bytes(), Some(growth + 14 * MIB));
}

#[test]
fn without_a_pool_the_gpu_itself_is_what_there_is() {
    let mut run = Recorder::new(&Header {
        run: RunConfig { context_bytes: 24 * MIB, ..header().run },
        allocator: "platform".into(),
        ..header()
    });
    let _state = run.upload(600 * MIB);
    assert!(run.allocate(0, 500 * MIB, Purpose::Upload).is_none());
    let summary = summarize_run(run);
    let device = &summary.devices[0];
    assert_eq!((device.limit_bytes, device.pool_bytes), (None, None));
    assert_eq!(device.at_peak.free_bytes, None);
    assert_eq!(device.peak_bytes, 600 * MIB);
    let refusal = summary.out_of_memory().unwrap();
    assert_eq!(refusal.gpu_free_bytes, Some(400 * MIB));
    assert_eq!((refusal.short_bytes(), refusal.fragmented()), (100 * MIB, false));
}

#[test]
fn whole_pages_are_missing_from_what_is_available() {
    // Of 1,000 MiB, 3 x 3 MiB take 12 MiB of pages: 988 MiB, which is not enough for 989.
    for allocator in ["platform", "cuda_async"] {
        let mut run = Recorder::new(&Header {
            run: RunConfig { context_bytes: 24 * MIB, ..header().run },
            allocator: allocator.into(),
            preallocate: false,
            ..header()
        });
        let _three = [(); 3].map(|()| run.upload(3 * MIB));
        assert!(run.allocate(0, 989 * MIB, Purpose::Upload).is_none());
        let failure = summarize_run(run).failures.remove(0);
        assert_eq!(
            (failure.available_bytes(), failure.short_bytes()),
            (988 * MIB, MIB),
            "{allocator}"
        );
    }
}

#[test]
fn a_pool_that_others_made_smaller_is_not_fragmented() {
    // The limit is 768 MiB. Of 1024 - 300 = 724 MiB XLA gets 0.9 x 768 MiB.
    let mut run = Recorder::new(&Header {
        run: RunConfig { occupied_bytes: 300 * MIB, ..header().run },
        ..header()
    });
    let first = run.upload(MIB);
    run.free(first);
    assert!(run.allocate(0, 692 * MIB, Purpose::Upload).is_none());
    let summary = summarize_run(run);
    let failure = &summary.failures[0];
    let pool = summary.devices[0].pool_bytes.unwrap();
    assert_eq!(pool, 768 * MIB / 10 * 9 / 256 * 256);
    assert!(failure.growth_bytes.unwrap() <= 724 * MIB - pool);
    assert_eq!(failure.free_bytes(), Some(pool));
    assert_eq!((failure.short_bytes(), failure.fragmented()), (692 * MIB - pool, false));
}

#[test]
fn a_summary_holds_only_if_values_that_were_not_computed_are_as_assumed() {
    let shown = |lines: &[&str], requested| {
        let mut run = Recorder::new(&header());
        let _state = run.upload(requested);
        run.event(Event::UnknownRead { site: TextId(0), bytes: 4 });
        for line in lines {
            let event = Event::DecisiveRead {
                site: run.writer.text(line),
                bytes: 4,
                expression: run.writer.text("int(cache.position)"),
                value: run.writer.text("0"),
            };
            run.event(event);
        }
        Report::from_dryrun(&summarize_run(run)).headline
    };
    assert!(shown(&[], MIB).starts_with("fits: "));
    let headline = shown(&["serve.py:41 (main)"], MIB);
    assert!(
        headline.starts_with("fits, if `int(cache.position)` at serve.py:41 (main) is 0: peak"),
        "{headline}"
    );
    let headline = shown(&["a.py:1 (f)", "b.py:2 (g)", "c.py:3 (h)"], MIB);
    assert!(headline.contains(" is 0 (and 2 more assumptions): "), "{headline}");
}

#[test]
fn the_worst_device_decides() {
    let mut run = Recorder::new(&Header { devices: 3, ..header() });
    for (device, mib) in [(0, 100), (1, 300), (2, 300)] {
        run.allocate(device, mib * MIB, Purpose::Upload).unwrap();
    }
    let fitting = summarize_run(run);
    assert_eq!(fitting.critical_device().unwrap().device, 1);

    let mut run = Recorder::new(&Header { devices: 2, ..header() });
    run.allocate(0, 300 * MIB, Purpose::Upload).unwrap();
    assert!(run.allocate(1, 800 * MIB, Purpose::Upload).is_none());
    let failing = summarize_run(run);
    assert_eq!(failing.critical_device().unwrap().device, 1);
    assert_eq!(failing.devices[1].peak, None);
}

#[test]
fn programs_of_one_name_are_distinguished_by_their_sizes() {
    let mut run = Recorder::new(&header());
    run.program(1, "jit_step", sizes(5));
    run.program(2, "jit_step", sizes(6));
    run.program(3, "jit_step", sizes(5));
    // Loaded twice, dropped twice.
    run.program(3, "jit_step", sizes(5));
    for program in [1, 2, 3, 3] {
        run.begin(program);
        run.end();
    }
    run.event(Event::Unload { program: 3 });
    run.event(Event::Unload { program: 3 });
    let rows: Vec<_> = summarize_run(run)
        .programs
        .into_iter()
        .map(|row| (row.sizes.temp_bytes, row.calls, row.compilations))
        .collect();
    assert_eq!(rows, [(6, 1, 1), (5, 3, 3)]);
}

#[test]
fn reads_of_unknown_values_are_counted_by_line() {
    let mut run = Recorder::new(&header());
    let (loss, shape) = (run.writer.text("a.py:1 (f)"), run.writer.text("b.py:2 (g)"));
    for site in [shape, loss, loss, TextId(0)] {
        run.event(Event::UnknownRead { site, bytes: 4 });
    }
    run.event(Event::ShapeRead { site: shape, bytes: 8 });
    let reads: Vec<_> = summarize_run(run)
        .facts
        .unknown_reads
        .lines
        .into_iter()
        .map(|r| (r.site, r.reads, r.bytes, r.shapes))
        .collect();
    let expected = [("b.py:2 (g)", 2, 12, 1), ("a.py:1 (f)", 2, 8, 0), ("", 1, 4, 0)];
    assert_eq!(
        reads,
        expected.map(|(site, reads, bytes, shapes)| (site.to_owned(), reads, bytes, shapes))
    );
}

#[test]
fn calls_of_python_functions_are_counted_by_line() {
    let mut run = Recorder::new(&header());
    let (often, seldom) = (run.writer.text("a.py:1 (f)"), run.writer.text("b.py:2 (g)"));
    let error = run.writer.text("ValueError: 0");
    for (errors, error) in [(0, TextId(0)), (1, error), (0, TextId(0))] {
        run.event(Event::Callback { site: often, calls: 2, errors, error });
    }
    run.event(Event::CallbackSkipped { site: seldom, calls: 1, reason: CallbackSkip::Results });
    run.writer.not_computed("jit_search", "program_budget", 10_000).expect("it is kept in memory");
    let shown = summarize_run(run);
    let [row, other] = &shown.facts.callbacks[..] else {
        panic!("{:?}", shown.facts.callbacks);
    };
    assert_eq!((row.site.as_str(), row.calls, row.errors), ("a.py:1 (f)", 6, 1));
    assert_eq!((row.error.as_str(), row.skip_reason), ("ValueError: 0", None));
    assert_eq!((other.calls, other.skipped), (0, 1));
    assert_eq!(other.skip_reason, Some(CallbackSkip::Results));
    assert_eq!(shown.not_computed[0].spent_ms, 10_000);
}

#[test]
fn a_failure_after_a_made_up_read_has_a_likely_cause() {
    let shown = |reads: &[&str], code| {
        let mut run = Recorder::new(&header());
        for site in reads {
            let site = run.writer.text(site);
            run.event(Event::UnknownRead { site, bytes: 4 });
        }
        let mut shown = summarize_run(run);
        shown.process_exit = Some(ProcessExit { code: Some(code), signal: None });
        assert_eq!(shown.likely_cause(), None, "not without proof");
        shown.is_placeholder_cause = true;
        shown.likely_cause().map(str::to_owned)
    };
    let reads = ["a.py:1 (f)", "b.py:2 (g)"];
    assert_eq!(shown(&reads, 1).as_deref(), Some("b.py:2 (g)"));
    assert_eq!(shown(&reads, 0), None);
    assert_eq!(shown(&[], 1), None);
}

#[test]
fn a_cleared_peak_changes_the_closing_figure_and_not_the_summary() {
    let mut run = Recorder::new(&header());
    let large = run.upload(500 * MIB);
    run.free(large);
    run.event(Event::ClearPeak { device: 0 });
    let _small = run.upload(MIB);
    run.close();
    run.footer.peak_bytes_in_use = vec![MIB];
    let summary = summarize_trace(&run.finish_as_is());
    assert_eq!(summary.devices[0].peak_bytes, 500 * MIB);
}

#[test]
fn a_run_that_was_killed_is_reported_up_to_there() {
    let summary = summarize_trace(&training().kill());
    // A reader does not know what came after.
    assert!(!summary.complete && summary.fits().is_none());
    assert_eq!(summary.devices[0].peak_bytes, 570 * MIB + MIB / 2);
    assert_eq!(summary.evaluated, None);
}

#[test]
fn refusals_by_the_thousand_are_counted_and_not_kept() {
    let mut run = Recorder::new(&header());
    for _ in 0..5_000 {
        assert!(run.allocate(0, 800 * MIB, Purpose::Upload).is_none());
    }
    let summary = summarize_run(run);
    assert_eq!((summary.failure_count, summary.failures.len()), (5_000, 100));
}

#[test]
fn an_allocator_that_would_abort_is_no_fit() {
    let summary = summarize_trace(&two_regions(&header(), false));
    assert!(summary.fits() == Some(false) && summary.failure_count == 0);
    let abort = summary.abort.as_ref().unwrap();
    assert_eq!((abort.program.as_deref(), abort.executions), (Some("jit_step"), 1));
    assert!(abort.message.contains("would abort"), "{}", abort.message);
    assert_eq!(summary.critical_device().unwrap().device, 0);
}

#[test]
fn any_closing_figure_that_differs_refuses_the_summary() {
    type Change = fn(&mut vramfit_model::trace::Footer);
    let changes: [(Change, &str); 6] = [
        (|f| f.bytes_in_use[0] += 1, "bytes in use of device 0"),
        (|f| f.peak_bytes_in_use[0] -= 256, "peak bytes in use of device 0"),
        (|f| f.pool_bytes[0] = 0, "pool bytes of device 0"),
        (|f| f.num_allocs[0] += 1, "allocations of device 0"),
        (|f| f.executions += 1, "but 5 in the run"),
        (|f| f.pool_bytes.push(0), "of 2 devices, expected 1"),
    ];
    for (change, words) in changes {
        let mut run = training();
        run.close();
        change(&mut run.footer);
        let error = refusal(&run.finish_as_is());
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn events_that_cannot_have_happened_refuse_the_summary() {
    let allocate = |device, bytes| upload_event(device, bytes, 64, PoolSpace::Default);
    let driver = |asked| Event::Driver { device: 0, asked, address: 1 << 30, granted: asked };
    let refuse = Event::AllocationFailure {
        device: 0,
        bytes: 1,
        alignment: 64,
        space: PoolSpace::Default,
        purpose: Purpose::Upload,
        slot: 0,
        site: TextId(0),
        message: TextId(0),
    };
    let program = |program, temp| program_event(program, TextId(0), sizes(temp), 1);
    let begin = Event::Begin { program: 1, site: TextId(0) };
    let pool = 768 * MIB;
    let beyond = Event::Driver { device: 0, asked: pool, address: u64::MAX - 5, granted: pool };
    let cases: [(&[Event], &str); 16] = [
        (&[upload_event(0, 1, u64::MAX, PoolSpace::Default)], "exceeds 2^60"),
        (&[allocate(0, u64::MAX)], "exceeds 2^60"),
        (&[beyond], "exceeds 2^60"),
        (&[allocate(1, 1)], "a device that does not exist"),
        (&[Event::ClearPeak { device: 1 }], "a device that does not exist"),
        (
            &[
                driver(pool),
                allocate(0, 1),
                Event::Free { allocation: 0 },
                Event::Free { allocation: 0 },
            ],
            "does not exist is freed",
        ),
        (&[Event::End], "did not start"),
        (&[begin], "an unknown program is executed"),
        (&[program(1, 1), Event::Unload { program: 1 }, begin], "an unknown program is executed"),
        (&[Event::Unload { program: 1 }], "an unknown program is unloaded"),
        (&[program(1, 1), program(1, 2)], "the same number"),
        // The GPU was not asked in the run, or for something else, or once more.
        (&[allocate(0, 1)], "succeeded in the run, but fails in the replay"),
        (&[driver(pool - 256), allocate(0, 1)], "fails in the replay"),
        (&[driver(pool), driver(pool), allocate(0, 1)], "requests to the GPU differ"),
        (&[driver(pool), refuse], "failed in the run, but succeeds in the replay"),
        (&[refuse], "requests to the GPU differ"),
    ];
    for (events, words) in cases {
        let mut run = Recorder::new(&header());
        for event in events {
            run.event(*event);
        }
        let error = refusal(&run.finish_as_is());
        assert!(error.message().contains(words), "{error}");
    }
    let nested = [program(1, 1)].into_iter().chain(std::iter::repeat_n(begin, 5_000));
    let mut run = Recorder::new(&header());
    nested.for_each(|event| run.event(event));
    let error = refusal(&run.finish_as_is());
    assert!(error.message().contains("nested too deeply"), "{error}");
}

#[test]
fn headers_that_describe_no_machine_are_refused() {
    for header in [
        Header { allocator: "jemalloc".into(), ..header() },
        Header { devices: u32::MAX, ..header() },
        Header {
            run: RunConfig { gpus: toy_gpus("toy-1g", u64::MAX, 1), ..header().run },
            ..header()
        },
    ] {
        let file = recorder::File::default();
        drop(vramfit_model::trace::Writer::new(file.clone(), &header).unwrap());
        refusal(&file.bytes());
    }
}

/// A header of any allocator that a client can ask for.
fn any_header() -> impl Strategy<Value = Header> {
    let allocator = prop::sample::select(vec!["bfc", "platform", "cuda_async", "vmm", "address"]);
    let jax = prop::sample::select(vec!["0.6.2", "0.10.2", "0.11.0"]);
    let taken = prop_oneof![Just(0), (0u64..900).prop_map(|mib| mib * MIB)];
    (allocator, jax, any::<(bool, bool)>(), taken, 1u32..4, 0.1f64..1.0).prop_map(
        |(allocator, jax, (preallocate, spatial), occupied_bytes, devices, memory_fraction)| {
            Header {
                run: RunConfig { occupied_bytes, ..header().run },
                allocator: allocator.into(),
                jax: jax.into(),
                preallocate,
                spatial_partitioning: spatial && jax == "0.11.0",
                devices,
                memory_fraction,
                ..header()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the allocators did in the run, they do again, and the peak is the run's.
    #[test]
    fn any_run_is_replayed_to_the_byte(
        header in any_header(),
        acts in prop::collection::vec((any::<u8>(), any::<u32>(), 0u32..29), 0..300),
    ) {
        let mut run = Recorder::new(&header);
        let mut live = Vec::new();
        let mut peaks = vec![0; header.devices as usize];
        let mut refused = 0;
        for (act, value, shift) in acts {
            let device = value % header.devices;
            if act % 3 < 2 || live.is_empty() {
                let space = if act % 16 == 0 { PoolSpace::Collective } else { PoolSpace::Default };
                let bytes = u64::from(value >> 3 >> (28 - shift)) + 1;
                match run.allocate_in(device, bytes, space, Purpose::Output) {
                    Some(block) => live.push(block),
                    None => refused += 1,
                }
                let peak = &mut peaks[device as usize];
                *peak = run.stats(device).bytes_in_use.max(*peak);
            } else {
                let block = live.swap_remove(value as usize % live.len());
                run.free(block);
            }
        }
        let stats: Vec<_> = (0..header.devices).map(|device| run.stats(device)).collect();
        let summary = summarize_run(run);
        prop_assert_eq!(summary.failure_count, refused);
        for (device, stats) in summary.devices.iter().zip(stats) {
            prop_assert_eq!(device.peak_bytes, peaks[device.device as usize]);
            prop_assert_eq!(device.at_end.in_use_bytes, stats.bytes_in_use);
            prop_assert_eq!(device.limit_bytes, stats.bytes_limit);
            if stats.peak_pool_bytes.is_some() {
                prop_assert_eq!(device.pool_bytes, stats.peak_pool_bytes);
            }
            let state = device.at_peak;
            if let Some((free, largest)) = state.free_bytes.zip(state.largest_free_block_bytes) {
                prop_assert!(largest <= free, "{} of {}", largest, free);
            }
        }
    }

    /// Events that no run made give an error or a summary, never a panic.
    #[test]
    fn no_events_make_it_panic(
        header in any_header().prop_map(|header| Header { memory_fraction: 0.75, ..header }),
        events in prop::collection::vec(any_event(), 0..60),
        footer in any::<bool>(),
    ) {
        let mut run = Recorder::new(&header);
        for event in events {
            // The writer refuses to free what was never allocated.
            let _ = run.writer.event(&event);
        }
        let trace = if footer { run.finish_as_is() } else { run.kill() };
        if let Ok(summary) = summarize(Reader::new(&trace[..]).unwrap()) {
            vramfit_analysis::report::text(&summary);
            vramfit_analysis::report::json(&summary);
        }
    }
}

#[test]
fn a_region_larger_than_a_chunk_can_be_is_not_believed() {
    let mut run = Recorder::new(&header());
    for event in [
        Event::Driver { device: 0, asked: 768 * MIB, address: 768 * MIB, granted: 1 << 48 },
        upload_event(0, 768 * MIB, 0, PoolSpace::Default),
    ] {
        run.writer.event(&event).unwrap();
    }
    refusal(&run.kill());
}

/// Numbers at the edges of what fits, and small ones.
fn any_number() -> BoxedStrategy<u64> {
    let numbers = prop_oneof![
        4 => 0u64..4096,
        2 => (0u32..64).prop_map(|shift| 1 << shift),
        1 => (0u32..64).prop_map(|shift| u64::MAX >> shift),
        1 => any::<u64>(),
        // What a pool of the GPU asks for.
        2 => Just(768 * MIB),
    ];
    numbers.boxed()
}

fn any_event() -> impl Strategy<Value = Event> {
    let space = prop::sample::select(vec![PoolSpace::Default, PoolSpace::Collective]);
    let number = any_number;
    let request = (number(), number(), space);
    prop_oneof![
        4 => request.clone().prop_map(|(bytes, alignment, space)| {
            upload_event(0, bytes, alignment, space)
        }),
        2 => request.prop_map(|(bytes, alignment, space)| Event::AllocationFailure {
            device: 0,
            bytes,
            alignment,
            space,
            purpose: Purpose::Upload,
            slot: 0,
            site: TextId(0),
            message: TextId(0),
        }),
        4 => (number(), number(), number()).prop_map(|(asked, address, granted)| Event::Driver {
            device: 0,
            asked,
            address,
            granted,
        }),
        4 => (number(), number()).prop_map(|(address, granted)| Event::Driver {
            device: 0,
            asked: 768 * MIB,
            address,
            granted,
        }),
        4 => (0u64..8).prop_map(|allocation| Event::Free { allocation }),
        1 => (0u64..8).prop_map(|allocation| Event::FreeAborts {
            allocation,
            message: TextId(0),
        }),
        1 => (0u32..3, number(), number()).prop_map(|(program, temp_bytes, code_bytes)| {
            let sizes = ProgramSizes {
                code_bytes,
                argument_bytes: code_bytes,
                ..sizes(temp_bytes)
            };
            program_event(program, TextId(0), sizes, 1)
        }),
        1 => (0u32..3).prop_map(|program| Event::Unload { program }),
        1 => (0u32..3).prop_map(|program| Event::Begin { program, site: TextId(0) }),
        1 => Just(Event::End),
        1 => number().prop_map(|bytes| Event::OutsidePool { device: 0, bytes }),
        1 => Just(Event::ClearPeak { device: 0 }),
    ]
}
