//! Traces of a process that shares its GPUs with others: what it could have had, and who is to blame.

use vramfit_analysis::analysis::{Condition, ReplayOverrides, RunSummary, compare, summarize};
use vramfit_analysis::replay::is_met_alone;
use vramfit_analysis::report::Report;
use vramfit_model::run_config::{RunConfig, Sharing};
use vramfit_model::trace::{Header, Note, OtherProcess, Purpose, Reader, UncaughtError};

use crate::recorder::{MIB, Recorder, header, toy_gpus};

/// A process on GPU 1 of 2, of which others hold 600 of 1024 MiB.
fn shared() -> Header {
    Header {
        run: RunConfig {
            gpus: toy_gpus("toy-1g", 1024 * MIB, 2),
            sharing: Sharing::Run,
            context_bytes: 24 * MIB,
            ..header().run
        },
        gpus: vec![1],
        pid: 77,
        ..header()
    }
}

fn reader(trace: &[u8]) -> Reader<&[u8]> {
    Reader::new(trace).expect("a whole header")
}

fn others(held: u64, max_held: u64) -> Note {
    Note::Others {
        device: 0,
        used_bytes: held * MIB,
        max_used_bytes: max_held * MIB,
        processes: vec![OtherProcess {
            pid: 55,
            bytes: held * MIB,
            command: "/usr/bin/python3 serve.py".into(),
        }],
    }
}

fn run(asked: u64) -> Vec<u8> {
    let mut run = Recorder::beside(&shared(), 600 * MIB);
    run.writer.add_note(&others(600, 600)).expect("a file in memory");
    let _ = run.allocate(0, asked * MIB, Purpose::Upload);
    run.finish()
}

/// Returns the summary of a trace, with whether it fits on a GPU of its own.
fn summarize_alone(trace: &[u8]) -> RunSummary {
    let mut summary = summarize(reader(trace)).expect("a whole trace");
    if summary.others_at_failure.is_some() {
        summary.fits_alone = Some(is_met_alone(&mut reader(trace), 0).expect("a whole trace"));
    }
    summary
}

#[test]
fn what_others_hold_is_not_to_spare() {
    let summary = summarize_alone(&run(100));
    let device = &summary.devices[0];
    // 1024 less 24 of context and 600 that others hold; the pool is what 10 % steps leave of it.
    assert_eq!(device.capacity_bytes, 400 * MIB);
    assert_eq!(device.used_by_others_bytes, 600 * MIB);
    assert_eq!(summary.fits(), Some(true));
    assert!(summary.others_at_failure.is_none());
    let report = Report::from_dryrun(&summary);
    assert_eq!(
        report.headline,
        "fits: peak 100.0 MiB of 400.0 MiB on GPU 1 of 2 x toy-1g, 300.0 MiB to spare; other \
         processes of this run use up to 600.0 MiB of 1.0 GiB"
    );
    assert_eq!(report.json["devices"][0]["gpu"], 1);
    assert_eq!(report.json["processes"][0]["pid"], 77);
}

#[test]
fn a_request_that_others_leave_no_room_for_is_put_down_to_them() {
    let summary = summarize_alone(&run(500));
    let conditions = summary.verdict().conditions;
    let [
        Condition::SharedGpu {
            gpu: 1,
            used_bytes,
            total_bytes,
            processes,
            fits_alone: Some(true),
            of_this_run: true,
        },
    ] = &conditions[..]
    else {
        panic!("{conditions:?}");
    };
    assert_eq!((*used_bytes, *total_bytes), (600 * MIB, 1024 * MIB));
    assert_eq!(processes[0].pid, 55);
    assert_eq!(summary.failures[0].used_by_others_bytes, 600 * MIB);
    let report = Report::from_dryrun(&summary);
    assert!(
        report.headline.contains(
            "in process 77 (`python train.py`); other processes of this run use 600.0 MiB of 1.0 GiB"
        ),
        "{}",
        report.headline
    );
    let condition = &report.json["verdict"]["conditions"][0];
    assert_eq!(condition["kind"], "shared_gpu");
    let text = condition["text"].as_str().unwrap();
    assert!(text.contains("process 55 (`python3 serve.py`): 600.0 MiB"), "{text}");
    assert!(text.contains("without them it succeeds"), "{text}");
}

#[test]
fn a_request_that_is_too_large_anyway_is_said_to_be() {
    assert_eq!(summarize_alone(&run(900)).fits_alone, Some(false));
}

#[test]
fn what_others_held_later_counts_for_a_pool_that_can_grow() {
    let growing = Header { preallocate: false, ..shared() };
    let mut run = Recorder::beside(&growing, 100 * MIB);
    run.writer.add_note(&others(100, 100)).unwrap();
    run.upload(50 * MIB);
    run.writer.add_note(&others(30, 700)).unwrap();
    let summary = summarize_alone(&run.finish());
    assert_eq!(summary.devices[0].used_by_others_bytes, 700 * MIB);
    assert_eq!(summary.devices[0].capacity_bytes, 300 * MIB);
}

#[test]
fn a_context_without_room_is_no_fit() {
    let mut run = Recorder::new(&shared());
    run.writer.add_note(&others(1010, 1010)).unwrap();
    let note = Note::NoContext { device: 0, context_bytes: 24 * MIB, free_bytes: 14 * MIB };
    run.writer.add_note(&note).unwrap();
    let summary = summarize_alone(&run.kill());
    assert_eq!(summary.fits(), Some(false));
    assert!(summary.used_gpu());
    assert_eq!(summary.fits_alone, Some(true));
    let report = Report::from_dryrun(&summary);
    let expected = "does not fit: the CUDA context needs about 24 MiB, but only 14.0 MiB are free on GPU 1 of \
         2 x toy-1g in process 77";
    assert!(report.headline.starts_with(expected), "{}", report.headline);
    assert_eq!(report.json["no_context"]["used_by_others_bytes"], 1010 * MIB);
}

#[test]
fn a_replay_has_the_gpu_to_itself_and_says_so() {
    let trace = run(100);
    let comparison = compare(&mut reader(&trace), &ReplayOverrides::default()).unwrap();
    let before = comparison.before.as_ref().unwrap();
    assert_eq!(before.devices[0].used_by_others_bytes, 600 * MIB);
    assert_eq!(comparison.after.devices[0].used_by_others_bytes, 0);
    assert_eq!(comparison.after.devices[0].pool_bytes, Some(768 * MIB));
    let text = Report::from_replay(&comparison).to_text();
    assert!(text.contains("other processes on the GPU"), "{text}");
}

#[test]
fn notes_about_devices_that_are_not_there_are_passed_over() {
    let mut run = Recorder::new(&shared());
    let stray = Note::Others {
        device: 9,
        used_bytes: u64::MAX,
        max_used_bytes: u64::MAX,
        processes: Vec::new(),
    };
    run.writer.add_note(&stray).unwrap();
    run.upload(MIB);
    assert_eq!(summarize_alone(&run.finish()).devices[0].used_by_others_bytes, 0);
}

#[test]
fn an_exception_of_refused_memory_is_no_error_of_the_program() {
    for (message, conditions) in
        [("RESOURCE_EXHAUSTED: Out of memory while trying", 0), ("no data", 1)]
    {
        let mut run = Recorder::new(&header());
        assert!(run.allocate(0, 900 * MIB, Purpose::Upload).is_none());
        let error = UncaughtError {
            name: "JaxRuntimeError".into(),
            message: message.into(),
            site: "train.py:7 (main)".into(),
        };
        run.writer.add_note(&Note::Error(error)).expect("a file in memory");
        let verdict = summarize_alone(&run.finish()).verdict();
        assert_eq!(verdict.fits, Some(false), "{message}");
        assert_eq!(verdict.conditions.len(), conditions, "{message}");
    }
}
