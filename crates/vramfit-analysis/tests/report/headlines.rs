//! The short headline of the page: at most 25 words, and the verdict of the headline, whatever the run was.

use std::collections::BTreeMap;

use vramfit_analysis::analysis::{
    AbortInfo, HostSummary, HostsSummary, LeakSummary, NoContextSummary, OtherProcessesSummary,
    PeakGrowth, ReplicatedArrays, RunSummary, ScratchNeedSummary, ScratchShortage, ScratchSummary,
    StepSearch, StepStop,
};
use vramfit_analysis::replay::TotalRangeSummary;
use vramfit_analysis::report::Report;
use vramfit_model::program::{EstimateSource, ProgramSizes, ScratchPhase};
use vramfit_model::run_config::StepLimit;
use vramfit_model::trace::{
    CpuProgram, Event, Header, OtherProcess, ProcessExit, Purpose, UncaughtError,
};

use crate::recorder::{MIB, Recorder, header, summarize_run, summarize_trace};

const LINE: &str = "/home/me/project/train_transformer.py:1234 (Transformer.__call__)";

/// A program that allocates, and reads a value that was not computed.
fn run(blocks: &[u64], header: &Header) -> Recorder {
    let mut run = Recorder::new(header);
    let site = run.writer.text(LINE);
    run.event(Event::UnknownRead { site, bytes: 4 });
    for bytes in blocks {
        run.allocate(0, bytes * MIB, Purpose::Upload);
    }
    run.program(1, "jit_train_step", ProgramSizes { temp_bytes: MIB, ..ProgramSizes::default() });
    run.begin(1);
    run.end();
    run
}

fn fragmented() -> RunSummary {
    let mut run = Recorder::new(&Header { preallocate: false, ..header() });
    let first = run.upload(200 * MIB);
    let _wall = run.upload(220 * MIB);
    run.free(first);
    assert!(run.allocate(0, 400 * MIB, Purpose::Upload).is_none());
    summarize_run(run)
}

/// What decides: runs that end in every way.
fn bases() -> Vec<(&'static str, RunSummary)> {
    let fits = || summarize_run(run(&[100], &header()));
    let compiled = |temp_bytes| {
        let mut summary = fits();
        let mut program = summary.programs[0].clone();
        program.name = "jit_evaluate_everything".to_owned();
        program.calls = 0;
        program.sizes.temp_bytes = temp_bytes;
        summary.programs.push(program);
        summary
    };
    let mut aborted = fits();
    aborted.abort = Some(AbortInfo {
        device: 0,
        program: Some("jit_train_step".to_owned()),
        executions: 1,
        message: "F".to_owned(),
        event: 3,
    });
    let mut no_context = fits();
    no_context.no_context = Some(NoContextSummary {
        device: 0,
        context_bytes: 500 * MIB,
        free_bytes: 100 * MIB,
        used_by_others_bytes: 900 * MIB,
    });
    let mut outside = fits();
    outside.devices[0].outside_bytes = 900 * MIB;
    outside.programs[0].sizes.constant_bytes = 900 * MIB;
    let mut hangs = summarize_run(run(&[700, 900], &header()));
    hangs.failures[0].fatal = Some("hangs".to_owned());
    vec![
        ("fits", fits()),
        ("nothing", summarize_run(run(&[], &header()))),
        ("refused", summarize_run(run(&[700, 900], &header()))),
        ("fragmented", fragmented()),
        ("hangs", hangs),
        ("aborted", aborted),
        ("no context", no_context),
        ("outside", outside),
        ("compiled", compiled(200 * MIB)),
        ("compiled and too large", compiled(2000 * MIB)),
        ("cut off", summarize_trace(&run(&[100], &header()).kill())),
    ]
}

type Change = fn(&mut RunSummary);

/// Causes and conditions that any run may have.
const CHANGES: [(&str, Change); 12] = [
    ("leak", |it| {
        it.leaks.push(LeakSummary {
            device: 0,
            bytes_per_step: 156 * MIB,
            site: LINE.to_owned(),
            program: Some("jit_train_step".to_owned()),
            purpose: Purpose::Output,
            step: "jit_train_step".to_owned(),
            is_training: true,
            every_steps: 1,
            steps: 1382,
            arrays: 1382,
            bytes: 1382 * 156 * MIB,
            allocated_bytes: 1382 * 156 * MIB,
        });
    }),
    ("replicated", |it| {
        if let Some(attribution) = &mut it.attribution {
            let mut replicated = ReplicatedArrays::default();
            (replicated.devices, replicated.bytes, replicated.count) = (2048, 900 * MIB, 12);
            attribution.replicated = Some(replicated);
        }
    }),
    ("many GPUs", |it| {
        it.header.run.gpus.count = 16;
        it.header.devices = 8;
        let first = it.devices[0].clone();
        for device in 1..8 {
            let peak_bytes = first.peak_bytes / 2;
            it.devices.push(vramfit_analysis::analysis::DeviceSummary {
                device,
                peak_bytes,
                ..first.clone()
            });
        }
    }),
    ("hosts and processes", |it| {
        it.hosts = Some(HostsSummary {
            count: 128,
            gpus_per_host: 8,
            critical_host: 127,
            runs: vec![HostSummary::default()],
            not_run: Vec::new(),
            mismatches: Vec::new(),
        });
        it.header.pid = 4242;
        it.header.command =
            ["python", "-m", "project.train", "--config", "a b c"].map(str::to_owned).to_vec();
        it.processes = vec![it.as_process(), it.as_process()];
    }),
    ("stopped while it grows", |it| {
        it.step_search = Some(StepSearch {
            steps: Some(StepLimit::Calls(5)),
            stop: Some(StepStop {
                program: "jit_train_step".to_owned(),
                calls: 5,
                site: LINE.to_owned(),
                growth: Some(PeakGrowth { previous_peak_bytes: 10 * MIB, peak_bytes: 20 * MIB }),
            }),
            ..StepSearch::default()
        });
    }),
    ("a value decides", |it| {
        for line in &mut it.facts.unknown_reads.lines {
            line.decisions = 3;
            line.expression =
                Some("float(loss) < best and step > warmup or not converged".to_owned());
            line.value = Some("0.0".to_owned());
        }
    }),
    ("host memory", |it| {
        it.header.unified_memory = true;
        it.header.run.occupied_bytes = 1000 * MIB;
    }),
    ("scratch", |it| {
        it.scratch = Some(ScratchSummary {
            needs: vec![ScratchNeedSummary {
                library: "cuDNN".to_owned(),
                routine: "convolution, gradient of the filter f32[256,3,225,225]".to_owned(),
                program: "jit_train_step".to_owned(),
                site: LINE.to_owned(),
                low_bytes: 0,
                high_bytes: Some(4096 * MIB),
                source: EstimateSource::Estimated,
                phase: ScratchPhase::Plan,
            }],
            peak_bytes: vec![5000 * MIB],
            shortage: Some(ScratchShortage {
                device: 0,
                need: 0,
                high_bytes: 4096 * MIB,
                available_bytes: 100 * MIB,
                call: 1,
            }),
        });
    }),
    ("on the CPU", |it| {
        it.cpu_programs.push(CpuProgram {
            name: "jit_train_step".to_owned(),
            site: LINE.to_owned(),
            needed_bytes: 9000 * MIB,
            backward: true,
            products: true,
            selected_by: String::new(),
        });
    }),
    ("an error", |it| {
        it.process_exit = Some(ProcessExit { code: Some(1), signal: None });
        it.uncaught_error = Some(UncaughtError {
            name: "ValueError".to_owned(),
            message:
                "a message of very many words that says in detail what the program did not like"
                    .to_owned(),
            site: LINE.to_owned(),
        });
    }),
    ("another total", |it| {
        it.total_range = Some(TotalRangeSummary {
            max_total_memory_bytes: 1100 * MIB,
            limit_bytes: Some(825 * MIB),
            is_met: true,
        });
    }),
    ("others", |it| {
        it.others_at_failure = Some(OtherProcessesSummary {
            device: 0,
            used_bytes: 300 * MIB,
            processes: vec![OtherProcess {
                pid: 7,
                bytes: 300 * MIB,
                command: "python -m x y".to_owned(),
            }],
        });
        it.devices[0].used_by_others_bytes = 300 * MIB;
    }),
];

/// Returns the verdict that a headline begins with.
fn verdict(headline: &str) -> &str {
    let end = headline.find([',', ':']).unwrap_or(headline.len());
    match &headline[..end] {
        "cannot tell" => "unknown",
        verdict => verdict,
    }
}

#[test]
fn every_short_headline_has_at_most_25_words_and_the_verdict_of_the_headline() {
    let mut verdicts: BTreeMap<String, u32> = BTreeMap::new();
    for (base, summary) in bases() {
        for selected in 0..1_u32 << CHANGES.len() {
            // With none, one, two, all but one, and all of them.
            let count = selected.count_ones() as usize;
            if (3..CHANGES.len() - 1).contains(&count) {
                continue;
            }
            let changes = CHANGES.iter().enumerate().filter(|(at, _)| selected >> at & 1 == 1);
            let (mut changed, mut names) = (summary.clone(), vec![base]);
            for (_, (name, change)) in changes {
                change(&mut changed);
                names.push(name);
            }
            let report = Report::from_dryrun(&changed);
            let short = report.short_headline();
            let shown =
                format!("{names:?}:\n{}\n{:?}\n{}", short.text, short.below, report.headline);
            assert!(short.text.split_whitespace().count() <= 25, "{shown}");
            assert!(!short.text.contains('…'), "cut: {shown}");
            assert_eq!(verdict(&short.text), verdict(&report.headline), "{shown}");
            assert_eq!(short.text.contains(", if "), report.headline.contains(", if "), "{shown}");
            *verdicts.entry(verdict(&short.text).to_owned()).or_default() += 1;
        }
    }
    let found: Vec<&str> = verdicts.keys().map(String::as_str).collect();
    assert_eq!(found, ["does not fit", "expected to fit", "fits", "unknown"]);
}

#[test]
fn a_leak_is_the_answer_where_it_takes_what_is_missing() {
    let mut summary = summarize_run(run(&[700, 900], &header()));
    CHANGES[0].1(&mut summary);
    let report = Report::from_dryrun(&summary);
    assert_eq!(
        report.short_headline().text,
        "does not fit: memory leak, 156.0 MiB more in every step from train_transformer.py:1234, 210.5 GiB \
         after 1382 steps; limit 768.0 MiB on toy-1g"
    );
    let timeline =
        report.sections.iter().position(|it| it.title.starts_with("memory over the run"));
    let tree = report.sections.iter().position(|it| it.title.starts_with("memory by owner"));
    assert!(timeline < tree);
    // A small one beside a large need is not.
    summary.leaks[0].allocated_bytes = MIB;
    let report = Report::from_dryrun(&summary);
    assert!(!report.short_headline().text.contains("leak"), "{}", report.short_headline().text);
}

#[test]
fn a_routine_that_may_take_too_much_leaves_the_answer_open() {
    let mut summary = summarize_run(run(&[100], &header()));
    let (_, scratch) = CHANGES.iter().find(|(name, _)| *name == "scratch").unwrap();
    scratch(&mut summary);
    let short = Report::from_dryrun(&summary).short_headline();
    assert_eq!(
        short.text,
        "cannot tell: 100.0 of 768.0 MiB, and cuDNN may take 0 to 4.0 GiB more on toy-1g"
    );
    assert!(short.below[0].starts_with("the run fits only if cuDNN"), "{:?}", short.below);
}
