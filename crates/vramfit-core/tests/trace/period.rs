//! Repeats that bring the pool back to the same state are skipped, and the answer is that of a replay
//! of every event.

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use vramfit_core::Result;
use vramfit_core::allocator::{AllocatorKind, PoolSpace};
use vramfit_core::analysis::{ReplayOverrides, RunSummary, compare, summarize_events};
use vramfit_core::program::{EstimateSource, ProgramMemory, ProgramTime, ScratchPhase};
use vramfit_core::replay::replay_at_max_total;
use vramfit_core::settings::Options;
use vramfit_core::trace::{
    CallbackSkip, CompilerWarning, Event, EventSource, Footer, Header, NotComputed, Note,
    ProgramSizes, Purpose, Reader, Repetition, RunEnvironment, StepLimit, TextId,
};

use crate::recorder::{self, MIB, Recorder, header, program_event, refusal, upload_event};

/// A trace that counts the events taken from it; without `skips` it does not say what repeats.
struct Counted<'a> {
    reader: Reader<&'a [u8]>,
    skips: bool,
    taken: Rc<Cell<u64>>,
}

impl<'a> Counted<'a> {
    fn new(trace: &'a [u8], skips: bool) -> Counted<'a> {
        Counted { reader: Reader::new(trace).unwrap(), skips, taken: Rc::default() }
    }
}

impl EventSource for Counted<'_> {
    fn header(&self) -> &Header {
        self.reader.header()
    }

    fn next_event(&mut self) -> Result<Option<Event>> {
        self.taken.set(self.taken.get() + 1);
        self.reader.next_event()
    }

    fn repetition(&self) -> Option<Repetition> {
        self.skips.then(|| self.reader.repetition())?
    }

    fn skip_passes(&mut self, passes: u64) -> Result<()> {
        self.reader.skip_passes(passes)
    }

    fn text(&self, id: TextId) -> &str {
        self.reader.text(id)
    }

    fn footer(&self) -> Option<&Footer> {
        self.reader.footer()
    }

    fn program_memory(&self, program: u32) -> Option<ProgramMemory> {
        self.reader.program_memory(program).ok().flatten()
    }

    fn program_time(&self, program: u32) -> Option<&ProgramTime> {
        self.reader.program_time(program)
    }

    fn compiler_warnings(&self) -> &[CompilerWarning] {
        self.reader.compiler_warnings()
    }

    fn notes(&self) -> &[Note] {
        self.reader.notes()
    }

    fn settings(&self) -> Option<&RunEnvironment> {
        self.reader.settings()
    }

    fn not_computed(&self) -> &[NotComputed] {
        self.reader.not_computed()
    }
}

/// Returns the answer and how many events were taken for it.
fn answer(trace: &[u8], skips: bool, last: u64) -> (RunSummary, u64) {
    let mut source = Counted::new(trace, skips);
    let answer = summarize_events(&mut source, last).unwrap();
    (answer, source.taken.get())
}

/// Appends `repeat {distance, count}` to a trace that was cut off.
fn repeated(mut trace: Vec<u8>, distance: u64, count: u64) -> Vec<u8> {
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
fn begun() -> Recorder {
    let mut run = Recorder::new(&header());
    run.upload(MIB);
    run
}

#[test]
fn a_million_million_steps_are_counted_at_once() {
    let mut run = begun();
    run.program(1, "jit_step", sizes(3 * MIB));
    run.begin(1);
    let block = run.allocate(0, 2 * MIB, Purpose::Output).unwrap();
    let site = run.writer.text("train.py:9 (main)");
    run.event(Event::UnknownRead { site, bytes: 4 });
    run.free(block);
    run.end();
    let steps = (1 << 40) / 5 - 10;
    let trace = repeated(run.kill(), 5, steps * 5);
    let (answer, taken) = answer(&trace, true, u64::MAX);
    assert!(taken < 200, "{taken} events were replayed");
    assert_eq!(answer.executions, steps + 1);
    assert_eq!(answer.programs[0].calls, steps + 1);
    assert_eq!(answer.unknown_reads[0].reads, steps + 1);
    assert_eq!(answer.unknown_reads[0].bytes, 4 * (steps + 1));
    // The region and the upload, the program, and the steps.
    assert_eq!(answer.events, 3 + 5 * (steps + 1));
    let device = &answer.devices[0];
    assert_eq!(device.peak_bytes, 3 * MIB);
    assert_eq!(device.at_end.in_use_bytes, MIB);
    assert_eq!(device.timeline.last().unwrap().state.in_use_bytes, MIB);
    assert!(device.timeline.last().unwrap().event > answer.events - answer.events / 256);
}

#[test]
fn calls_of_functions_are_counted_in_skipped_steps() {
    let mut run = begun();
    run.program(1, "jit_step", sizes(3 * MIB));
    let site = run.writer.text("train.py:9 (main)");
    let error = run.writer.text("ValueError: made up");
    run.begin(1);
    run.event(Event::Callback { site, calls: 2, errors: 1, error });
    run.event(Event::CallbackSkipped { site, calls: 5, reason: CallbackSkip::Bound });
    run.end();
    let steps = 1 << 36;
    let trace = repeated(run.kill(), 4, steps * 4);
    let (answer, taken) = answer(&trace, true, u64::MAX);
    assert!(taken < 200, "{taken} events were replayed");
    let callback = &answer.callbacks[0];
    assert_eq!(callback.calls, 2 * (steps + 1));
    assert_eq!(callback.errors, steps + 1);
    assert_eq!(callback.error, "ValueError: made up");
    assert_eq!(callback.skipped, 5 * (steps + 1));
}

#[test]
fn a_refusal_after_skipped_steps_is_replayed_at_the_highest_total_at_once() {
    let mut run = Recorder::new(&Header { max_total_memory_bytes: 1100 * MIB, ..header() });
    for _ in 0..20_000 {
        let block = run.upload(MIB);
        run.free(block);
    }
    assert!(run.allocate(0, 800 * MIB, Purpose::Upload).is_none());
    let trace = run.kill();
    let mut source = Counted::new(&trace, true);
    let found = replay_at_max_total(&mut source).unwrap().unwrap();
    assert!(found.is_met, "{found:?}");
    assert!(source.taken.get() < 100, "{}", source.taken.get());
}

#[test]
fn a_program_that_is_compiled_in_every_step_is_counted() {
    let mut run = begun();
    let name = run.writer.text("jit_step");
    run.event(program_event(1, name, sizes(1), 1));
    run.begin(1);
    run.end();
    run.event(Event::Unload { program: 1 });
    let steps = 1 << 30;
    let trace = repeated(run.kill(), 4, steps * 4);
    let (answer, taken) = answer(&trace, true, u64::MAX);
    assert!(taken < 200, "{taken} events were replayed");
    assert_eq!(answer.programs[0].compilations, steps + 1);
    assert_eq!(answer.compilations[0].count, steps + 1);
    assert_eq!(answer.compilations[0].after_first_step, steps);
}

#[test]
fn a_cut_inside_skipped_steps_is_where_it_was_asked_for() {
    let mut run = begun();
    let block = run.upload(MIB);
    run.free(block);
    let trace = repeated(run.kill(), 2, 1 << 12);
    for last in [3, 4, 500, 501, 4099, 4100, 5000] {
        let (quick, taken) = answer(&trace, true, last);
        assert_eq!(quick, answer(&trace, false, last).0, "{last}");
        assert!(taken < 100, "{taken} events for {last}");
    }
}

#[test]
fn what_only_grows_is_refused_before_it_takes_the_machine() {
    let mut nothing = begun();
    nothing.event(upload_event(0, 0, 64, PoolSpace::Default));
    let mut answers = begun();
    answers.event(Event::Driver { device: 0, asked: 1 << 20, address: 1 << 40, granted: 1 << 20 });
    let mut compiled = begun();
    compiled.program(1, "jit_step", sizes(1));
    let mut arguments = begun();
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
        let error = refusal(&repeated(run.kill(), 1, 1 << 39));
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn more_events_than_any_run_has_are_refused_although_they_are_skipped() {
    let mut run = begun();
    let block = run.upload(MIB);
    run.free(block);
    let error = refusal(&repeated(run.kill(), 2, 1 << 40));
    assert!(error.message().contains("the number of events"), "{error}");
}

/// What a made-up program does again and again.
#[derive(Clone, Copy, Debug)]
enum Act {
    Allocate { device: u32, bytes: u64, collective: bool },
    FreeOldest,
    FreeNewest,
    Begin(u32),
    End,
    Read { line: u8, is_shape: bool },
    ClearPeak(u32),
    OutsidePool(u32, u64),
    Compile(u32),
    Argument,
    Callback { line: u8, errors: u64 },
    CallbackSkipped(u8, CallbackSkip),
    Scratch { program: u32, high_bytes: u64, phase: ScratchPhase, is_known: bool },
    AllocateScratch(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    let bytes = prop_oneof![1u64..5000, (0u32..28).prop_map(|shift| 1 << shift), Just(300 * MIB)];
    prop_oneof![
        6 => (0u32..2, bytes, prop::bool::weighted(0.1)).prop_map(|(device, bytes, collective)| {
            Act::Allocate { device, bytes, collective }
        }),
        6 => Just(Act::FreeOldest),
        3 => Just(Act::FreeNewest),
        3 => (1u32..4).prop_map(Act::Begin),
        3 => Just(Act::End),
        1 => (any::<bool>(), 0u8..3).prop_map(|(is_shape, line)| Act::Read { line, is_shape }),
        1 => (0u32..2).prop_map(Act::ClearPeak),
        1 => (0u32..2, 0u64..3).prop_map(|(device, bytes)| Act::OutsidePool(device, bytes)),
        1 => (1u32..4).prop_map(Act::Compile),
        1 => Just(Act::Argument),
        1 => (0u8..3, 0u64..2).prop_map(|(line, errors)| Act::Callback { line, errors }),
        1 => (0u8..3, prop::sample::select(CallbackSkip::ALL.to_vec()))
            .prop_map(|(line, reason)| Act::CallbackSkipped(line, reason)),
        1 => (1u32..4, 0u64..900 * MIB, any_phase(), prop::bool::weighted(0.8)).prop_map(
            |(program, high_bytes, phase, is_known)| {
                Act::Scratch { program, high_bytes, phase, is_known }
            },
        ),
        1 => (1u64..MIB).prop_map(Act::AllocateScratch),
    ]
}

fn any_phase() -> impl Strategy<Value = ScratchPhase> {
    prop::sample::select(vec![
        ScratchPhase::Execution,
        ScratchPhase::Plan,
        ScratchPhase::Compilation,
    ])
}

/// A run of acts; what is alive, and which executions go on.
struct Acting {
    run: Recorder,
    live: Vec<recorder::Block>,
    depth: u32,
    sizes: Vec<u64>,
}

impl Acting {
    fn act(&mut self, act: Act) {
        let run = &mut self.run;
        match act {
            Act::Allocate { device, bytes, collective } => {
                let space = if collective { PoolSpace::Collective } else { PoolSpace::Default };
                let purpose = if self.depth > 0 { Purpose::Temporary } else { Purpose::Upload };
                self.live.extend(run.allocate_in(device, bytes, space, purpose));
            }
            Act::FreeOldest if !self.live.is_empty() => run.free(self.live.remove(0)),
            Act::FreeNewest => {
                if let Some(block) = self.live.pop() {
                    run.free(block);
                }
            }
            Act::Begin(program) if self.depth < 3 => {
                run.begin_at(program, "train.py:31 (main)");
                self.depth += 1;
            }
            Act::End if self.depth > 0 => {
                run.end();
                self.depth -= 1;
            }
            Act::Read { line, is_shape } => {
                let site = run.writer.text(&format!("train.py:{line} (main)"));
                run.event(match is_shape {
                    true => Event::ShapeRead { site, bytes: 4 },
                    false => Event::UnknownRead { site, bytes: 8 },
                });
            }
            Act::ClearPeak(device) => run.event(Event::ClearPeak { device }),
            Act::OutsidePool(device, bytes) => run.event(Event::OutsidePool { device, bytes }),
            Act::Compile(program) => self.compile(program),
            Act::Callback { line, errors } => {
                let site = run.writer.text(&format!("train.py:{line} (main)"));
                let error = run.writer.text("ValueError: made up");
                let error = if errors > 0 { error } else { TextId(0) };
                run.event(Event::Callback { site, calls: 2, errors, error });
            }
            Act::CallbackSkipped(line, reason) => {
                let site = run.writer.text(&format!("train.py:{line} (main)"));
                run.event(Event::CallbackSkipped { site, calls: 3, reason });
            }
            Act::Scratch { program, high_bytes, phase, is_known } => {
                let library = run.writer.text("cuFFT");
                run.event(Event::Scratch {
                    program,
                    library,
                    routine: library,
                    site: TextId(0),
                    low_bytes: 0,
                    high_bytes,
                    source: match is_known {
                        true => EstimateSource::Estimated,
                        false => EstimateSource::Unknown,
                    },
                    phase,
                });
            }
            Act::AllocateScratch(bytes) if self.depth > 0 => {
                self.live.extend(run.allocate(0, bytes, Purpose::Scratch));
            }
            Act::Argument if self.depth > 0 && !self.live.is_empty() => {
                let allocation = self.live[0].number();
                run.event(Event::Argument { parameter: 0, allocation });
            }
            _ => {}
        }
    }

    fn compile(&mut self, program: u32) {
        let sizes = sizes(self.sizes[program as usize]);
        self.run.event(Event::Unload { program });
        self.run.program(program, &format!("jit_{program}"), sizes);
    }
}

/// Compiles a program of which it is known how long it takes.
fn compile_timed(run: &mut Recorder, program: u32, bytes: u64) {
    run.program(program, &format!("jit_{program}"), sizes(bytes));
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
    let (summary, _) = answer(&run.finish(), true, u64::MAX);
    let time = summary.step_time.unwrap();
    assert_eq!((time.model_us, time.unknown_us), (1_002_000.0, 2.0));
}

/// What is learnt of a program: its number, whether it has a backward pass, and what came back.
type Learnt = (u32, bool, u64);

/// A loop: its body, how many times, and what is learnt of programs before it.
type Loop = (Vec<Act>, u64, Vec<Learnt>);

fn any_loops() -> impl Strategy<Value = Vec<Loop>> {
    let body = prop::collection::vec(any_act(), 1..14);
    let learnt = prop::collection::vec((1u32..4, any::<bool>(), 0u64..2), 0..2);
    prop::collection::vec((body, prop_oneof![1u64..4, 10u64..150], learnt), 1..5)
}

fn recorded(header: &Header, is_searched: bool, sizes_of: &[u64], loops: &[Loop]) -> Vec<u8> {
    let mut acting =
        Acting { run: Recorder::new(header), live: Vec::new(), depth: 0, sizes: sizes_of.to_vec() };
    if is_searched {
        let note = Note::Search { steps: Some(StepLimit::Calls(3)), name: None };
        acting.run.writer.add_note(&note).unwrap();
    }
    for program in 1..4 {
        compile_timed(&mut acting.run, program, sizes_of[program as usize]);
    }
    for (body, times, learnt) in loops {
        for (program, backward, returned_bytes) in learnt {
            let note = Note::Program {
                program: *program,
                backward: *backward,
                named: false,
                returned_bytes: *returned_bytes,
            };
            acting.run.writer.add_note(&note).unwrap();
        }
        for _ in 0..*times {
            body.iter().for_each(|act| acting.act(*act));
        }
    }
    // Clearing the peak is counted by the process, which is not here.
    acting.run.kill()
}

fn any_machine() -> impl Strategy<Value = Header> {
    let allocator = prop::sample::select(vec!["bfc", "bfc", "platform", "cuda_async", "vmm"]);
    let jax = prop::sample::select(vec!["0.10.2", "0.12.0"]);
    (allocator, jax, any::<(bool, bool, bool)>()).prop_map(
        |(allocator, jax, (preallocate, autotune_range, spatial))| Header {
            allocator: allocator.into(),
            jax: jax.into(),
            devices: 2,
            max_total_memory_bytes: 1100 * MIB,
            preallocate,
            autotune_range,
            spatial_partitioning: spatial && jax == "0.12.0",
            ..header()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// What is skipped makes no difference, in the run and elsewhere.
    #[test]
    fn skipping_changes_no_answer(
        header in any_machine(),
        is_searched in any::<bool>(),
        sizes in prop::collection::vec(1u64..6, 4),
        loops in any_loops(),
    ) {
        let trace = recorded(&header, is_searched, &sizes, &loops);
        let whole = summarize_events(&mut Counted::new(&trace, false), u64::MAX);
        let quick = summarize_events(&mut Counted::new(&trace, true), u64::MAX);
        prop_assert!(whole.is_ok(), "{:?}", whole);
        prop_assert_eq!(quick.unwrap(), whole.unwrap());
        let whole = replay_at_max_total(&mut Counted::new(&trace, false));
        let quick = replay_at_max_total(&mut Counted::new(&trace, true));
        prop_assert_eq!(quick.unwrap(), whole.unwrap());
        for allocator in [None, Some(AllocatorKind::Platform)] {
            let settings = ReplayOverrides {
                options: Options { allocator, ..Options::default() },
                occupied_bytes: Some(100 * MIB),
                ..ReplayOverrides::default()
            };
            let whole = compare(&mut Counted::new(&trace, false), &settings);
            let quick = compare(&mut Counted::new(&trace, true), &settings);
            prop_assert_eq!(quick.unwrap(), whole.unwrap());
        }
    }
}

#[test]
fn random_runs_are_skipped_in_part() {
    // The property above says nothing where nothing is skipped.
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut events, mut taken) = (0, 0);
    for _ in 0..512 {
        let strategy =
            (any_machine(), any::<bool>(), prop::collection::vec(1u64..6, 4), any_loops());
        let (header, is_searched, sizes, loops) = strategy.new_tree(&mut runner).unwrap().current();
        let trace = recorded(&header, is_searched, &sizes, &loops);
        let (answer, of_it) = answer(&trace, true, u64::MAX);
        events += answer.events;
        taken += of_it;
    }
    // A body that grows with each pass is never skipped, and 3 of 5 events belong to such ones.
    assert!(events - taken > events / 4, "{taken} of {events} events were replayed");
}
