//! A run under other settings comes to what a run with those settings comes to, as far as it is known.

use proptest::prelude::*;
use vramfit_analysis::ErrorKind;
use vramfit_analysis::analysis::{Comparison, ReplayOverrides, compare};
use vramfit_analysis::report::{Outcome, Report};
use vramfit_model::allocator::{AllocatorKind, PoolSpace};
use vramfit_model::gpu;
use vramfit_model::program::ProgramSizes;
use vramfit_model::run_config::RunConfig;
use vramfit_model::settings::{FractionPolicy, Options};
use vramfit_model::trace::{Event, Header, Purpose, Reader, RequestList};

use crate::recorded;
use crate::recorder::{
    Block, MIB, Recorder, header, summarize_run, summarize_trace, toy_gpus, two_regions,
};

fn replay(trace: &[u8], settings: &ReplayOverrides) -> Comparison {
    compare(&mut Reader::new(trace).unwrap(), settings).unwrap()
}

fn with(options: Options) -> ReplayOverrides {
    ReplayOverrides { options, ..ReplayOverrides::default() }
}

fn share(fraction: f64) -> ReplayOverrides {
    with(Options { fraction: Some(fraction), ..Options::default() })
}

fn growing() -> ReplayOverrides {
    with(Options { preallocate: Some(false), ..Options::default() })
}

fn on_allocator(allocator: AllocatorKind) -> ReplayOverrides {
    with(Options { allocator: Some(allocator), ..Options::default() })
}

fn with_policy(policy: &str) -> ReplayOverrides {
    let policy = FractionPolicy::parse(policy).expect("a policy");
    ReplayOverrides { policy: Some(policy), ..ReplayOverrides::default() }
}

/// 300 MiB of state, and three steps with 250 MiB of temporaries.
fn training(header: &Header) -> Recorder {
    let mut run = Recorder::new(header);
    run.upload(100 * MIB);
    run.upload(200 * MIB);
    let sizes = ProgramSizes {
        argument_bytes: 300 * MIB,
        temp_bytes: 250 * MIB,
        ..ProgramSizes::default()
    };
    run.program(1, "jit_train_step", sizes);
    for _ in 0..3 {
        run.begin_at(1, "train.py:31 (main)");
        let temporary = run.allocate(0, 250 * MIB, Purpose::Temporary).unwrap();
        let loss = run.allocate(0, 4, Purpose::Output).unwrap();
        run.end();
        run.free(temporary);
        run.free(loss);
    }
    run
}

#[test]
fn nothing_changed_is_the_same_run() {
    let trace = training(&header()).finish();
    let same = replay(&trace, &ReplayOverrides::default());
    assert_eq!(same.fits(), Some(true));
    assert_eq!(same.before, Some(summarize_trace(&trace)));
    assert_eq!(same.after, summarize_trace(&trace));
    assert_eq!((same.newly_granted, same.ends_at_refusal, same.notes.len()), (None, false, 0));
}

#[test]
fn other_settings_come_to_what_a_run_with_them_comes_to() {
    let trace = training(&header()).finish();
    for (settings, changed) in [
        (share(0.6875), Header { memory_fraction: 0.6875, ..header() }),
        (growing(), Header { preallocate: false, ..header() }),
        (
            ReplayOverrides { occupied_bytes: Some(200 * MIB), ..ReplayOverrides::default() },
            Header { run: RunConfig { occupied_bytes: 200 * MIB, ..header().run }, ..header() },
        ),
        (
            with_policy("0.25+"),
            Header {
                memory_fraction: 0.25,
                memory_cap: Some(1.0),
                spatial_partitioning: true,
                jax: "0.12.1".into(),
                ..header()
            },
        ),
        (
            on_allocator(AllocatorKind::Platform),
            Header { allocator: "platform".into(), ..header() },
        ),
    ] {
        let real = summarize_run(training(&changed));
        // What the GPU was asked for are events, too; a replay has those of its run.
        let there = replay(&trace, &settings).after;
        assert_eq!(there.header, real.header);
        let (there, real) = (&there.devices[0], &real.devices[0]);
        assert_eq!(there.limit_bytes, real.limit_bytes, "{settings:?}");
        assert_eq!(there.pool_bytes, real.pool_bytes, "{settings:?}");
        assert_eq!(there.peak_bytes, real.peak_bytes, "{settings:?}");
        assert_eq!(there.at_peak, real.at_peak, "{settings:?}");
        assert_eq!(there.at_end, real.at_end, "{settings:?}");
    }
}

#[test]
fn the_request_that_fails_is_named_and_the_replay_ends_there() {
    let trace = training(&header()).finish();
    // Half of 1024 MiB: 300 of state leave 212 for 250 of temporaries.
    let half = replay(&trace, &share(0.5));
    assert_eq!((half.fits(), half.ends_at_refusal), (Some(false), true));
    let refusal = half.after.out_of_memory().unwrap();
    assert_eq!(refusal.context.program.as_deref(), Some("jit_train_step"));
    assert_eq!((refusal.context.call, refusal.context.purpose), (1, Purpose::Temporary));
    assert_eq!((refusal.available_bytes(), refusal.short_bytes()), (212 * MIB, 38 * MIB));
    // One question to the GPU, two uploads, the program, Begin.
    assert_eq!(refusal.context.event, 5);
    assert_eq!((half.after.executions, half.after.events), (1, 6));
    assert_eq!(half.before.unwrap().fits(), Some(true));
}

#[test]
fn a_pool_that_grows_meets_what_a_fixed_one_refused() {
    let trace = refused().finish();
    let limit = |policy: &str| {
        let replayed = replay(&trace, &with_policy(policy));
        (replayed.fits(), replayed.newly_granted.is_some(), replayed.after.devices[0].limit_bytes)
    };
    // 600 and 200 MiB of 1024.
    assert_eq!(limit("0.5"), (Some(false), false, Some(512 * MIB)));
    assert_eq!(limit("0.75"), (Some(false), false, Some(768 * MIB)));
    assert_eq!(limit("0.75-0.78"), (Some(false), false, Some(798 * MIB)));
    assert_eq!(limit("0.75+"), (None, true, Some(1024 * MIB)));
    let notes = replay(&trace, &with_policy("0.75+")).notes;
    assert!(
        notes.iter().any(|note| note.contains("no release of JAX up to 0.12.0.1")),
        "{notes:?}"
    );
}

/// A run that is refused 200 MiB, and takes less then.
fn refused() -> Recorder {
    let mut run = Recorder::new(&header());
    run.upload(600 * MIB);
    assert!(run.allocate(0, 200 * MIB, Purpose::Upload).is_none());
    let less = run.upload(50 * MIB);
    run.free(less);
    run
}

#[test]
fn what_the_run_was_refused_may_be_met_and_what_follows_is_not_known() {
    let trace = refused().finish();
    let whole = replay(&trace, &share(1.0));
    assert_eq!(whole.fits(), None);
    assert_eq!(whole.newly_granted.as_ref().unwrap().requested_bytes, 200 * MIB);
    assert_eq!(whole.after.devices[0].peak_bytes, 600 * MIB);
    let report = Report::from_replay(&whole);
    assert!(
        report.outcome == Outcome::Unknown && report.headline.starts_with("unknown: the 200.0 MiB"),
        "{}",
        report.headline
    );
    assert_eq!(report.json["fits"], serde_json::Value::Null);
    // Where it is refused again the program goes on as it did.
    let same = replay(&trace, &share(0.77));
    assert_eq!((same.fits(), same.ends_at_refusal), (Some(false), false));
    assert_eq!(same.after.failure_count, 1);
    assert_eq!(same.after.devices[0].at_end.in_use_bytes, 600 * MIB);
}

#[test]
fn what_the_allocator_would_have_died_of_may_not_come_to_pass() {
    let alone = ReplayOverrides { occupied_bytes: Some(0), ..ReplayOverrides::default() };
    // The dry run went on after the abort, so its events are all there.
    let aborts = replay(&two_regions(&header(), false), &alone);
    assert_eq!((aborts.fits(), &aborts.after.abort), (Some(true), &None));
    assert!(aborts.before.unwrap().abort.is_some());
    // A request that a real process never returned from is met: nothing is known from there on.
    let hangs = replay(&two_regions(&header(), true), &alone);
    let refusal = hangs.before.as_ref().unwrap().out_of_memory().unwrap();
    assert!(refusal.fatal.is_some());
    assert_eq!((hangs.fits(), hangs.newly_granted.is_some()), (None, true));
    // The other way round, they do.
    let same = replay(&two_regions(&header(), false), &ReplayOverrides::default());
    assert_eq!(same.fits(), Some(false));
    assert!(same.after.abort.is_some());
}

#[test]
fn names_can_do_nothing_to_the_terminal() {
    let hostile = "jit_\x1b]0;owned\x07\u{202e}\nsecond line\u{9b}31m".repeat(9);
    let mut run = Recorder::new(&Header {
        run: RunConfig { gpus: toy_gpus(&hostile, 1024 * MIB, 1), ..header().run },
        command: vec![hostile.clone()],
        ..header()
    });
    run.program(1, &hostile, ProgramSizes::default());
    for _ in 0..6 {
        run.begin_at(1, &hostile);
        run.allocate(0, 100 * MIB, Purpose::Output).unwrap();
        run.end();
    }
    let there = replay(&run.finish(), &share(0.5));
    assert_eq!(there.fits(), Some(false));
    for text in [Report::from_replay(&there).to_text(), Report::from_replay(&there).to_full_text()]
    {
        for line in text.lines() {
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
    }
    let text = Report::from_replay(&there).to_full_text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_gpu_of_the_catalog_brings_its_memory_and_its_context() {
    let gpu = gpu::find("t4").unwrap();
    let settings = ReplayOverrides { gpu: Some(gpu.clone()), ..ReplayOverrides::default() };
    let after = replay(&training(&header()).finish(), &settings).after;
    assert_eq!(after.header.gpu().name, "t4");
    assert_eq!(after.header.run.context_bytes, gpu.context_bytes_estimate);
    let limit = after.devices[0].limit_bytes.unwrap();
    assert_eq!(limit, (gpu.total_memory_bytes / 4 * 3).next_multiple_of(2 * MIB));
}

#[test]
fn settings_that_cannot_be_are_refused_as_in_a_dry_run() {
    let trace = training(&header()).finish();
    let refused = |settings: &ReplayOverrides| {
        let error = compare(&mut Reader::new(&trace[..]).unwrap(), settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    };
    refused(&share(1.5));
    let vmm = |jax: &str| {
        let header = Header { jax: jax.into(), ..header() };
        let trace = training(&header).finish();
        let settings = on_allocator(AllocatorKind::Vmm);
        compare(&mut Reader::new(&trace[..]).unwrap(), &settings).is_ok()
    };
    assert!(vmm("0.10.2") && !vmm("0.9.2"));
}

#[test]
fn a_pool_that_can_be_partitioned_is_and_that_is_reported() {
    let header = Header { jax: "0.11.0".into(), preallocate: false, ..header() };
    let trace = training(&header).finish();
    let mut settings = growing();
    settings.options.preallocate = Some(true);
    let there = replay(&trace, &settings);
    assert!(there.after.header.spatial_partitioning);
    assert!(there.notes[0].contains("partitioned"), "{:?}", there.notes);
    assert!(replay(&trace, &growing()).notes.is_empty());
}

#[test]
fn a_replay_is_reported_with_both_sides() {
    let half = replay(&training(&header()).finish(), &share(0.5));
    let report = Report::from_replay(&half);
    let text = report.to_text();
    let expected = [
        "does not fit: short by 38.0 MiB in `jit_train_step` on toy-1g",
        "fits                              yes         no",
        "limit                       768.0 MiB  512.0 MiB",
        "peak in use                 550.0 MiB  300.0 MiB",
        "first failure in the replay",
        "XLA schedules and rematerializes",
    ];
    for line in expected {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let record: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(record["before"]["fits"], true);
    assert_eq!(record["after"]["fits"], false);
    assert_eq!(record["after"]["oom"]["event"], 5);
    assert_eq!(record["after"]["limit_bytes"], 512 * MIB);
}

/// The traces that the command line is tested with, so that they can be made again.
#[test]
fn the_traces_of_the_command_line_tests_are_these_runs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../vramfit/tests/cli/replay.in");
    for (name, run) in [("run", training(&header())), ("refused", refused())] {
        let path = format!("{folder}/{name}.trace");
        let trace = run.finish();
        if std::env::var_os("TRYCMD").is_some_and(|value| value == "overwrite") {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&path, &trace).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == trace, "{path} is another run");
    }
}

// --- lists of requests ---------------------------------------------------------------------

/// Recordings on a GPU without limits of its own, whose pool is taken at once or grows freely: what
/// the GPU is like cannot be seen in what the pool does.
#[test]
fn recorded_lists_come_to_the_recorded_figures() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC", "bfc");
    let mut compared = 0;
    for scenario in recorded::scenarios(&folder, "scenarios.csv") {
        let column = |name: &str| &scenario.columns[name][..];
        let plain = column("capacity") == "0"
            && column("granule") == "1"
            && scenario.alignment == 256
            && scenario.fragmentation_fraction == 0.0
            && !scenario.garbage_collection
            && !scenario.allow_growth
            && scenario.total_memory.is_multiple_of(2 * MIB);
        // Limits are in whole pages since JAX 0.10.2.
        let Some(gpu) = plain.then(|| gpu_of(scenario.total_memory)) else {
            continue;
        };
        compared += 1;
        let settings = ReplayOverrides { gpu: Some(gpu), ..share(1.0) };
        let text = scenario.read("trace.txt");
        let ours = compare(&mut RequestList::new(text.as_bytes()), &settings).unwrap();
        assert!(ours.before.is_none() && ours.newly_granted.is_none() && !ours.ends_at_refusal);
        let name = &scenario.name;
        assert_eq!(ours.after.failure_count.to_string(), column("failures"), "{name}");
        let stats = scenario.read("stats.csv");
        let last: Vec<_> = stats.lines().last().unwrap().split(',').collect();
        let device = &ours.after.devices[0];
        let figures = [ours.after.events, device.at_end.in_use_bytes, device.peak_bytes];
        let figures: Vec<_> = figures.iter().map(u64::to_string).collect();
        assert_eq!(figures[..], last[..3], "{name}");
        let largest = device.at_end.largest_free_block_bytes.unwrap();
        assert_eq!(largest.to_string(), last[7], "{name}");
        assert_eq!(device.pool_bytes.unwrap().to_string(), last[6], "{name}");
    }
    assert!(compared >= 5, "{compared}");
}

/// A GPU that is one pool of that size.
fn gpu_of(total_memory_bytes: u64) -> gpu::Gpu {
    gpu::Gpu {
        name: "made-up".into(),
        total_memory_bytes,
        context_bytes_estimate: 0,
        ..gpu::find("t4").unwrap()
    }
}

// --- laws ----------------------------------------------------------------------------------

/// Does something that depends on the number alone.
fn random(run: &mut Recorder, alive: &mut Vec<Block>, choice: u64) {
    match choice % 8 {
        0..=4 => {
            let bytes = (1 << (choice / 16 % 28)) + choice % 999;
            let space = match choice / 1024 % 5 {
                0 => PoolSpace::Collective,
                _ => PoolSpace::Default,
            };
            alive.extend(run.allocate_in(0, bytes, space, Purpose::Upload));
        }
        5 | 6 if !alive.is_empty() => {
            let index = choice as usize / 16 % alive.len();
            run.free(alive.swap_remove(index));
        }
        _ => {
            run.begin(1);
            alive.extend(run.allocate(0, 1000 * (choice % 99), Purpose::Output));
            run.end();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_settings_give_the_same_figures(
        choices in prop::collection::vec(any::<u64>(), 1..300),
        allocator in prop::sample::select(AllocatorKind::ALL.to_vec()),
        jax in prop::sample::select(vec!["0.10.2", "0.11.1", "0.12.0"]),
        preallocate: bool,
    ) {
        let header = Header { run: RunConfig { context_bytes: 100 * MIB, ..header().run }, allocator: allocator.name().into(), jax: jax.into(), preallocate, spatial_partitioning: preallocate, ..header() };
        let mut run = Recorder::new(&header);
        run.program(1, "jit_step", ProgramSizes::default());
        let mut alive = Vec::new();
        for choice in choices {
            random(&mut run, &mut alive, choice);
        }
        run.event(Event::OutsidePool { device: 0, bytes: 7 });
        let trace = run.finish();
        let same = replay(&trace, &ReplayOverrides::default());
        prop_assert_eq!(same.before.as_ref(), Some(&same.after));
        prop_assert_eq!(&same.after, &summarize_trace(&trace));
        // Asking for what there is anyway changes nothing either.
        let settings = ReplayOverrides {
            options: Options {
                fraction: Some(0.75),
                allocator: Some(allocator),
                preallocate: Some(preallocate),
                ..Options::default()
            },
            occupied_bytes: Some(0),
            ..ReplayOverrides::default()
        };
        if jax != "0.10.2" || allocator != AllocatorKind::Address {
            prop_assert_eq!(&replay(&trace, &settings).after, &same.after);
        }
    }
}
