//! The timeline of a run: figures that one can count by hand, and what must add up.

use proptest::prelude::*;
use vramfit_analysis::analysis::{ArraySummary, DeviceSummary, LayoutSummary, summarize_until};
use vramfit_analysis::replay::PoolState;
use vramfit_analysis::report;
use vramfit_model::allocator::PoolSpace;
use vramfit_model::program::ProgramSizes;
use vramfit_model::run_config::RunConfig;
use vramfit_model::trace::{Event, Header, Purpose, Reader, TextId};

use crate::recorder::{Block, MIB, Recorder, header, summarize_run, summarize_trace, toy_gpus};

fn sizes(argument_bytes: u64, temp_bytes: u64) -> ProgramSizes {
    ProgramSizes { argument_bytes, temp_bytes, ..ProgramSizes::default() }
}

/// A step of 10 MiB of temporaries with a loss that is dropped; `kept` more outputs stay.
fn step(run: &mut Recorder, program: u32, kept: &[u64]) -> Vec<Block> {
    run.begin_at(program, "train.py:31 (main)");
    let temporary = run.allocate(0, 10 * MIB, Purpose::Temporary).unwrap();
    let loss = run.allocate(0, 4, Purpose::Output).unwrap();
    let outputs = kept.iter().map(|bytes| run.allocate(0, *bytes, Purpose::Output).unwrap());
    let outputs = outputs.collect();
    run.end();
    run.free(temporary);
    run.free(loss);
    outputs
}

fn loop_of(steps: u32, kept: impl Fn(u32) -> Vec<u64>) -> Recorder {
    let mut run = Recorder::new(&header());
    run.upload(100 * MIB);
    run.program(1, "jit_step", sizes(100 * MIB, 10 * MIB));
    for number in 0..steps {
        step(&mut run, 1, &kept(number));
    }
    run
}

// --- leaks ---------------------------------------------------------------------------------

#[test]
fn what_stays_from_every_step_is_found_with_its_line_and_bytes() {
    let summary = summarize_run(loop_of(6, |_| vec![4 * MIB]));
    let [leak] = &summary.leaks[..] else { panic!("{:?}", summary.leaks) };
    assert_eq!(leak.site, "train.py:31 (main)");
    assert_eq!(leak.program.as_deref(), Some("jit_step"));
    assert_eq!((leak.purpose, &leak.step[..]), (Purpose::Output, "jit_step"));
    // Six calls have five steps between them.
    assert_eq!((leak.steps, leak.arrays), (5, 5));
    assert_eq!((leak.bytes_per_step, leak.bytes), (4 * MIB, 20 * MIB));
    assert_eq!(leak.allocated_bytes, 20 * MIB);
    let shown = report::text(&summary);
    assert!(
        shown.contains("4.0 MiB more in every step: train.py:31 (main), output of `jit_step`"),
        "{shown}"
    );
    // 768 less 100, 24 that stay, 10 of temporaries, and the last loss: 634 MiB less 256 bytes.
    assert!(shown.contains("runs out after about 158 more steps"), "{shown}");
    let record: serde_json::Value = serde_json::from_str(&report::json(&summary)).unwrap();
    assert_eq!(record["leaks"][0]["bytes_per_step"], 4 * MIB);
    assert_eq!(record["leaks"][0]["site"], "train.py:31 (main)");
}

#[test]
fn each_device_has_its_own_leaks_and_the_text_tells_of_the_first() {
    let two = Header { devices: 2, ..header() };
    let mut run = Recorder::new(&two);
    run.program(1, "jit_step", sizes(MIB, 0));
    for _ in 0..5 {
        run.begin_at(1, "train.py:31 (main)");
        for device in 0..2 {
            run.allocate(device, 1000, Purpose::Output).unwrap();
        }
        run.end();
    }
    let summary = summarize_run(run);
    let found = summary.leaks.iter();
    let found: Vec<_> =
        found.map(|leak| (leak.device, leak.bytes_per_step, leak.allocated_bytes)).collect();
    // 1000 bytes take 1024, and four steps lie between five calls.
    assert_eq!(found, [(0, 1000, 4096), (1, 1000, 4096)]);
    let shown = report::text(&summary);
    assert!(shown.contains("only device 0 is shown"), "{shown}");
}

#[test]
fn what_stops_to_grow_or_shrinks_or_is_too_short_is_no_leak() {
    let none = |run: Recorder| assert_eq!(summarize_run(run).leaks, []);
    // Three steps between four calls are the least.
    none(loop_of(3, |_| vec![4 * MIB]));
    assert_eq!(summarize_run(loop_of(4, |_| vec![4 * MIB])).leaks.len(), 1);
    // A cache that fills up in five steps, and then is full.
    none(loop_of(7, |number| if number < 5 { vec![4 * MIB] } else { vec![] }));
    // Kept at distances that differ.
    none(loop_of(
        20,
        |number| if [1, 3, 6, 10, 15, 18].contains(&number) { vec![4 * MIB] } else { vec![] },
    ));
    none(loop_of(6, |_| vec![]));
    // A history that is thrown away every three steps.
    let mut run = Recorder::new(&header());
    run.program(1, "jit_step", sizes(0, 10 * MIB));
    let mut history = Vec::new();
    for number in 0..10 {
        if number % 3 == 0 {
            history.drain(..).for_each(|block| run.free(block));
        }
        history.extend(step(&mut run, 1, &[4 * MIB]));
    }
    none(run);
}

#[test]
fn what_grows_in_every_tenth_step_is_found_from_the_fourth_time_on() {
    let every = |period: u32, calls: u32| {
        let kept = move |number| if number % period == 0 { vec![4 * MIB] } else { vec![] };
        summarize_run(loop_of(calls, kept)).leaks
    };
    for period in [2, 3, 10] {
        // The first call is followed by the first step that is compared.
        let fourth = 3 * period + 2;
        assert_eq!(every(period, fourth - 1), []);
        for calls in fourth..fourth + period {
            let [leak] = &every(period, calls)[..] else { panic!("{period} {calls}") };
            assert_eq!((leak.every_steps, leak.steps), (u64::from(period), 4));
            assert_eq!(leak.bytes_per_step, 4 * MIB / u64::from(period));
            assert_eq!((leak.arrays, leak.bytes), (4, 16 * MIB));
        }
    }
    let summary =
        summarize_run(loop_of(12, |number| if number % 3 == 0 { vec![MIB] } else { vec![] }));
    let shown = report::text(&summary);
    assert!(shown.contains("1.0 MiB more every 3 steps: train.py:31"), "{shown}");
}

#[test]
fn outputs_that_are_replaced_do_not_hide_one_that_stays() {
    let mut run = Recorder::new(&header());
    run.program(1, "jit_step", sizes(100 * MIB, 10 * MIB));
    let mut state: Option<Block> = None;
    for number in 0..5 {
        let size = [30, 20, 10, 40, 5][number];
        let mut outputs = step(&mut run, 1, &[size * MIB, MIB]);
        outputs.truncate(1);
        let old = state.replace(outputs.remove(0));
        old.into_iter().for_each(|block| run.free(block));
    }
    // In the recorder all outputs have slot 0, so both are one group, which shrinks at times.
    assert_eq!(summarize_run(run).leaks, []);

    let mut run = Recorder::new(&header());
    run.program(1, "jit_step", sizes(100 * MIB, 10 * MIB));
    let mut state: Option<Block> = None;
    for number in 0..5 {
        let size = [30, 20, 10, 40, 5][number];
        run.begin_at(1, "train.py:31 (main)");
        let new = run.allocate_slot(0, size * MIB, Purpose::Output, 1).unwrap();
        run.allocate_slot(0, MIB, Purpose::Output, 2).unwrap();
        run.end();
        let old = state.replace(new);
        old.into_iter().for_each(|block| run.free(block));
    }
    let summary = summarize_run(run);
    let found: Vec<_> = summary.leaks.iter().map(|leak| leak.bytes_per_step).collect();
    assert_eq!(found, [MIB]);
}

#[test]
fn two_programs_of_the_same_need_in_turns_are_one_loop() {
    let mut run = Recorder::new(&header());
    run.program(1, "jit_a", sizes(100 * MIB, 10 * MIB));
    run.program(2, "jit_b", sizes(100 * MIB, 10 * MIB));
    for _ in 0..6 {
        step(&mut run, 1, &[]);
        step(&mut run, 2, &[MIB]);
    }
    let summary = summarize_run(run);
    assert_eq!(summary.leaks.len(), 1);
    assert_eq!(summary.leaks[0].program.as_deref(), Some("jit_b"));
    assert_eq!(summary.leaks[0].step, "jit_a");
    assert_eq!((summary.leaks[0].steps, summary.leaks[0].bytes), (5, 5 * MIB));
}

#[test]
fn an_array_that_is_replaced_by_a_longer_one_needs_more_steps_to_be_suspected() {
    for (steps, found) in [(8, 0), (9, 1)] {
        let mut run = Recorder::new(&header());
        run.program(1, "jit_step", sizes(0, 10 * MIB));
        let mut buffer = run.upload(MIB);
        for number in 0..steps {
            step(&mut run, 1, &[]);
            let longer = run.upload((number + 2) * MIB);
            run.free(std::mem::replace(&mut buffer, longer));
        }
        let leaks = summarize_run(run).leaks;
        assert_eq!(leaks.len(), found, "{steps} calls: {leaks:?}");
        assert!(leaks.iter().all(|leak| leak.arrays == 0 && leak.bytes_per_step == MIB));
    }
}

#[test]
fn growth_after_the_start_up_is_found_although_the_start_up_needed_more() {
    let mut run = Recorder::new(&header());
    run.program(1, "jit_init", sizes(0, 500 * MIB));
    run.begin(1);
    let block = run.allocate(0, 500 * MIB, Purpose::Temporary).unwrap();
    run.free(block);
    run.end();
    run.program(2, "jit_step", sizes(100 * MIB, 10 * MIB));
    // 5 x 110 MiB are more than 500; from the tenth call on it is twice as much.
    for _ in 0..14 {
        step(&mut run, 2, &[MIB]);
    }
    let summary = summarize_run(run);
    assert_eq!(summary.step().unwrap().name, "jit_step");
    assert_eq!(summary.leaks.len(), 1);
    assert_eq!((summary.leaks[0].steps, summary.leaks[0].bytes_per_step), (4, MIB));
}

// --- arrays and layouts --------------------------------------------------------------------

fn short(arrays: &[ArraySummary]) -> Vec<(&str, Purpose, u64, u64)> {
    let each = arrays.iter();
    each.map(|array| (&array.site[..], array.purpose, array.count, array.bytes)).collect()
}

#[test]
fn arrays_at_three_moments_are_those_that_one_counts_by_hand() {
    let summary = summarize_run(loop_of(3, |_| vec![4 * MIB]));
    let device = &summary.devices[0];
    let (upload, output) = (Purpose::Upload, Purpose::Output);
    let (main, called) = ("train.py:7 (main)", "train.py:31 (main)");
    // The peak is in the third call, with all that was kept, the temporaries and the loss.
    assert_eq!(
        short(&device.arrays_at_peak),
        [
            (main, upload, 1, 100 * MIB),
            (called, output, 4, 12 * MIB + 4),
            (called, Purpose::Temporary, 1, 10 * MIB),
        ]
    );
    assert_eq!(
        short(&device.arrays_between_steps),
        [(main, upload, 1, 100 * MIB), (called, output, 2, 8 * MIB)]
    );
    assert_eq!(
        short(&device.arrays_at_end),
        [(main, upload, 1, 100 * MIB), (called, output, 3, 12 * MIB)]
    );
    // The loss takes 256 bytes.
    assert_eq!(device.arrays_at_peak[1].allocated_bytes, 12 * MIB + 256);
}

fn bytes_of(layout: &LayoutSummary) -> u64 {
    let pieces = layout.regions.iter().flat_map(|region| &region.pieces);
    pieces.map(|piece| piece.bytes).sum()
}

#[test]
fn a_layout_shows_what_lies_between_what() {
    let mut run = Recorder::new(&header());
    let first = run.upload(100 * MIB);
    run.upload(50 * MIB);
    run.free(first);
    let summary = summarize_run(run);
    let device = &summary.devices[0];
    let pieces = |layout: &LayoutSummary| -> Vec<_> {
        let [region] = &layout.regions[..] else { panic!("one region") };
        assert_eq!(region.bytes, 768 * MIB);
        let pieces = region.pieces.iter();
        pieces.map(|piece| (piece.bytes / MIB, piece.blocks, piece.purpose)).collect()
    };
    // Neighbors of the same line are one piece.
    assert_eq!(pieces(&device.layout_at_peak), [(150, 2, Some(Purpose::Upload)), (618, 0, None)]);
    assert_eq!(
        pieces(&device.layout_at_end),
        [(100, 0, None), (50, 1, Some(Purpose::Upload)), (618, 0, None)]
    );
}

#[test]
fn a_region_that_came_after_the_peak_is_not_in_the_layout_of_the_peak() {
    let growing = Header {
        run: RunConfig { gpus: toy_gpus("toy-1g", 8192 * MIB, 1), ..header().run },
        preallocate: false,
        ..header()
    };
    let mut run = Recorder::new(&growing);
    // All of a first region of 512 MiB: what would be left is too little to be split off.
    let all = run.upload(400 * MIB);
    run.free(all);
    let low = run.upload(250 * MIB);
    run.upload(10 * MIB);
    run.free(low);
    // It fits on neither side, so that a region is added although less is in use than before.
    run.upload(300 * MIB);
    let summary = summarize_run(run);
    let device = &summary.devices[0];
    assert_eq!(device.peak_bytes, 512 * MIB);
    assert_eq!(bytes_of(&device.layout_at_peak), 512 * MIB);
    assert_eq!(device.layout_at_peak.regions.len(), 1);
    assert_eq!(device.layout_at_end.regions.len(), 2);
    assert_eq!(bytes_of(&device.layout_at_end), device.pool_bytes.unwrap());
}

#[test]
fn a_device_of_which_nothing_was_asked_has_an_empty_pool() {
    let two = Header { devices: 2, ..header() };
    let mut run = Recorder::new(&two);
    run.upload(MIB);
    let idle = &summarize_run(run).devices[1];
    assert_eq!((idle.pool_bytes, idle.at_end.free_bytes), (Some(0), Some(0)));
    assert_eq!((idle.at_peak, &idle.peak), (PoolState::default(), &None));
    assert!(idle.layout_at_end.regions.is_empty() && idle.timeline.is_empty());
}

#[test]
fn a_layout_of_very_many_pieces_is_bounded_and_loses_no_byte() {
    let mut run = Recorder::new(&header());
    let blocks: Vec<_> = (0..10_000).map(|number| run.upload(1000 + number)).collect();
    run.upload(100 * MIB);
    for (number, block) in blocks.into_iter().enumerate() {
        if number % 2 == 1 {
            run.free(block);
        }
    }
    let summary = summarize_run(run);
    let layout = &summary.devices[0].layout_at_end;
    let [region] = &layout.regions[..] else { panic!("one region") };
    assert!(region.pieces.len() <= 4096, "{}", region.pieces.len());
    assert_eq!(bytes_of(layout), 768 * MIB);
    let pieces = region.pieces.iter();
    assert_eq!(pieces.clone().map(|piece| piece.blocks).sum::<u64>(), 5001);
    let free: u64 = pieces.clone().map(|piece| piece.free_bytes).sum();
    assert_eq!(Some(free), summary.devices[0].at_end.free_bytes);
    // What is large is told for itself.
    assert!(pieces.clone().any(|piece| piece.bytes == 100 * MIB && piece.blocks == 1));
}

#[test]
fn a_run_can_be_reported_up_to_any_of_its_events() {
    let mut run = Recorder::new(&header());
    let first = run.upload(100 * MIB);
    run.upload(50 * MIB);
    run.free(first);
    run.upload(10 * MIB);
    let trace = run.finish();
    let until = |last| summarize_until(Reader::new(&trace[..]).unwrap(), last).unwrap();
    // The GPU is asked first, so the requests are events 1 to 4.
    let in_use: Vec<_> =
        (0..6).map(|last| until(last).devices[0].at_end.in_use_bytes / MIB).collect();
    assert_eq!(in_use, [0, 100, 150, 50, 60, 60]);
    let pieces = |last| {
        let layout = &until(last).devices[0].layout_at_end;
        let pieces = layout.regions[0].pieces.iter();
        pieces.map(|piece| (piece.bytes / MIB, piece.blocks)).collect::<Vec<_>>()
    };
    assert_eq!(pieces(2), [(150, 2), (618, 0)]);
    assert_eq!(pieces(3), [(100, 0), (50, 1), (618, 0)]);
    assert!(!until(3).complete && until(u64::MAX).complete);
    assert_eq!((until(3).until, until(u64::MAX).until), (Some(3), None));
}

// --- compilations --------------------------------------------------------------------------

fn compile(run: &mut Recorder, number: u32, name: &str, argument_bytes: u64, line: &str) {
    let name = run.writer.text(name);
    let site = run.writer.text(line);
    run.event(Event::Program {
        program: number,
        name,
        sizes: sizes(argument_bytes, 0),
        devices: 1,
        loaded: false,
        compile_attempt: TextId(0),
        site,
    });
}

#[test]
fn a_function_that_is_compiled_for_many_sizes_is_reported_with_its_line() {
    let mut run = Recorder::new(&header());
    run.upload(MIB);
    for number in 0..12 {
        compile(&mut run, number, "jit_step", (20 + u64::from(number)) * MIB, "train.py:40 (fit)");
        run.begin(number);
        run.end();
    }
    let shown = report::text(&summarize_run(run));
    let shown: Vec<_> = shown.split_whitespace().collect();
    let shown = shown.join(" ");
    assert!(
        shown.contains("`jit_step` 12 times, with 12 different argument sizes")
            && shown.contains("at train.py:40 (fit)"),
        "{shown}"
    );
}

#[test]
fn small_helpers_of_the_start_up_are_counted_and_not_reported() {
    let mut run = Recorder::new(&header());
    for number in 0..9 {
        compile(&mut run, number, "jit_convert", u64::from(number), "");
    }
    compile(&mut run, 20, "jit_step", 100 * MIB, "train.py:3 (main)");
    run.begin(20);
    run.end();
    // Three after the first step are not many yet.
    for number in 30..33 {
        compile(&mut run, number, "jit_late", 4, "");
    }
    let before = summarize_run(run);
    let counted: Vec<_> = before
        .compilations
        .iter()
        .map(|one| (&one.name[..], one.count, one.argument_sizes, one.after_first_step))
        .collect();
    assert_eq!(counted, [("jit_convert", 9, 9, 0), ("jit_late", 3, 1, 3)]);
    assert!(!report::text(&before).contains("repeated compilations"));
}

#[test]
fn a_function_that_is_compiled_in_every_step_is_reported() {
    let mut run = Recorder::new(&header());
    compile(&mut run, 0, "jit_step", 100 * MIB, "train.py:3 (main)");
    for number in 1..6 {
        run.begin(0);
        run.end();
        compile(&mut run, number, "jit_lambda", 4, "train.py:9 (log)");
    }
    let summary = summarize_run(run);
    let shown = report::text(&summary);
    assert!(shown.contains("`jit_lambda` 5 times, always with"), "{shown}");
}

// --- the timeline, and laws ----------------------------------------------------------------

#[test]
fn refusals_and_the_peak_are_points_of_the_timeline() {
    let mut run = loop_of(3000, |_| vec![]);
    assert!(run.allocate(0, 700 * MIB, Purpose::Upload).is_none());
    let summary = summarize_run(run);
    let device = &summary.devices[0];
    assert!(device.timeline.len() <= 2049, "{}", device.timeline.len());
    let at = |event: u64| device.timeline.iter().find(|point| point.event == event);
    let peak = at(device.peak.as_ref().unwrap().event).unwrap();
    assert_eq!(peak.state, device.at_peak);
    let refusal = &summary.failures[0];
    assert_eq!(at(refusal.context.event).unwrap().state, refusal.pool);
}

#[test]
fn the_full_report_has_what_the_short_one_leaves_out() {
    let report = report::Report::from_dryrun(&summarize_run(loop_of(5, |_| vec![MIB])));
    let titles = |detail| -> Vec<_> {
        let sections = report.sections.iter().filter(move |section| section.detail == detail);
        sections.map(|section| &section.title[..]).collect()
    };
    assert_eq!(
        titles(true),
        [
            "memory by owner, path and line",
            "the pool",
            "possible memory leaks: memory that grows from step to step",
            "memory over the run",
            "memory map at the peak",
            "arrays by allocation site",
            "memory map at the end",
            "largest buffers and arrays",
            "programs, per device",
            "not included",
        ]
    );
    let (short, full) = (report.to_text(), report.to_full_text());
    for title in titles(true) {
        let has = |text: &str| text.lines().any(|line| line == title);
        assert!(has(&full) && !has(&short), "{title}");
    }
}

/// Does something that depends on the number alone.
fn random(run: &mut Recorder, alive: &mut Vec<Block>, choice: u64) {
    let device = (choice % 2) as u32;
    match choice / 2 % 8 {
        0..=3 => {
            let bytes = 1 << (choice / 16 % 28);
            let space = match choice / 1024 % 5 {
                0 => PoolSpace::Collective,
                _ => PoolSpace::Default,
            };
            let purpose = [Purpose::Upload, Purpose::Copy][choice as usize / 4096 % 2];
            alive.extend(run.allocate_in(device, bytes + choice % 999, space, purpose));
        }
        4 | 5 if !alive.is_empty() => {
            let index = choice as usize / 16 % alive.len();
            run.free(alive.swap_remove(index));
        }
        6 => {
            run.begin_at(1, "train.py:31 (main)");
            alive.extend(run.allocate(device, 1000 * (choice % 99), Purpose::Output));
            run.end();
        }
        _ => {}
    }
}

fn check(device: &DeviceSummary, allocator: &str) -> Result<(), TestCaseError> {
    let held =
        |arrays: &[ArraySummary]| arrays.iter().map(|array| array.allocated_bytes).sum::<u64>();
    prop_assert_eq!(held(&device.arrays_at_peak), device.peak_bytes);
    prop_assert_eq!(held(&device.arrays_at_end), device.at_end.in_use_bytes);
    let highest = device.timeline.iter().map(|point| point.state.in_use_bytes).max();
    prop_assert_eq!(highest.unwrap_or(0), device.peak_bytes);
    prop_assert!(device.timeline.is_sorted_by_key(|point| point.event));
    if allocator == "bfc" {
        let free = |layout: &LayoutSummary| {
            let pieces = layout.regions.iter().flat_map(|region| &region.pieces);
            pieces.map(|piece| piece.free_bytes).sum::<u64>()
        };
        prop_assert_eq!(Some(free(&device.layout_at_end)), device.at_end.free_bytes);
        if device.peak.is_some() {
            prop_assert_eq!(Some(free(&device.layout_at_peak)), device.at_peak.free_bytes);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn groups_layouts_and_timelines_add_up(
        choices in prop::collection::vec(any::<u64>(), 1..300),
        allocator in prop::sample::select(vec!["bfc", "platform", "cuda_async", "vmm"]),
        jax in prop::sample::select(vec!["0.10.2", "0.12.0"]),
        preallocate: bool,
    ) {
        let header = Header {
            allocator: allocator.into(),
            jax: jax.into(),
            devices: 2,
            preallocate,
            spatial_partitioning: true,
            ..header()
        };
        let mut run = Recorder::new(&header);
        run.program(1, "jit_step", sizes(MIB, 0));
        let mut alive = Vec::new();
        for choice in choices {
            random(&mut run, &mut alive, choice);
        }
        let trace = run.finish();
        let summary = summarize_trace(&trace);
        for device in &summary.devices {
            check(device, allocator)?;
        }
        prop_assert_eq!(summarize_trace(&trace), summary);
    }
}
