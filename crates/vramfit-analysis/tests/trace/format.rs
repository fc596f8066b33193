//! A trace comes back exactly as it was written, whatever is in it, wherever it is cut off, and
//! however it is damaged; and what repeats costs nothing.

use std::io::{self, Write};

use proptest::prelude::*;
use vramfit_analysis::ErrorKind;
use vramfit_model::allocator::PoolSpace;
use vramfit_model::program::{
    EstimateSource, ProgramMemory, ProgramSizes, ProgramTime, ScratchPhase,
};
use vramfit_model::run_config::RunConfig;
use vramfit_model::settings::{LateChange, ProcessStage};
use vramfit_model::trace::{
    CallbackSkip, Event, Footer, Header, Purpose, Reader, RunEnvironment, TextId, Writer,
};

use crate::recorder::File;

fn header() -> Header {
    Header {
        run: RunConfig::new("h100-80g".parse().unwrap()),
        jax: "0.10.2".into(),
        devices: 2,
        allocator: "default".into(),
        memory_fraction: f64::from(0.9f32),
        memory_cap: Some(0.95),
        preallocate: true,
        command: vec!["python".into(), "train.py".into(), "two\nlines".into()],
        ..Header::default()
    }
}

fn footer() -> Footer {
    Footer { bytes_in_use: vec![1, u64::MAX], executions: 7, ..Footer::default() }
}

fn writer() -> (Writer, File) {
    let file = File::default();
    (Writer::new(file.clone(), &header()).unwrap(), file)
}

fn allocate(bytes: u64, slot: u32, site: TextId) -> Event {
    Event::Allocate {
        device: 0,
        bytes,
        alignment: 256,
        space: PoolSpace::Default,
        purpose: if slot == 0 { Purpose::Temporary } else { Purpose::Output },
        slot,
        site,
    }
}

/// A run as a plugin would write it, keeping what it wrote.
struct Run {
    writer: Writer,
    file: File,
    written: Vec<Event>,
    keep: bool,
    allocations: u64,
}

impl Run {
    fn new(keep: bool) -> Run {
        let (writer, file) = writer();
        Run { writer, file, written: Vec::new(), keep, allocations: 0 }
    }

    fn event(&mut self, event: Event) {
        self.writer.event(&event).unwrap();
        self.allocations += u64::from(matches!(event, Event::Allocate { .. }));
        if self.keep {
            self.written.push(event);
        }
    }

    /// One call of a program that makes `outputs` arrays and frees those of its last call.
    fn step(&mut self, program: u32, outputs: u32) {
        self.event(Event::Begin { program, site: TextId(0) });
        let first = self.allocations;
        for slot in 0..=outputs {
            self.event(allocate(1000 * u64::from(slot + program), slot, TextId(0)));
        }
        self.event(Event::Free { allocation: first });
        self.event(Event::End);
        for slot in 1..=outputs {
            self.event(Event::Free { allocation: first + u64::from(slot) });
        }
    }

    fn finish(mut self) -> (Vec<u8>, Vec<Event>) {
        self.writer.finish(&footer()).unwrap();
        (self.file.bytes(), self.written)
    }
}

fn read(bytes: &[u8]) -> (Vec<Event>, Option<Footer>) {
    let mut reader = Reader::new(bytes).unwrap();
    assert_eq!(reader.header(), &header());
    let events = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (events, reader.footer().cloned())
}

#[test]
fn every_kind_of_event_comes_back() {
    let (mut writer, file) = writer();
    let name = writer.text("jit_step");
    let site = writer.text("zug.py:7 (größe)");
    assert_eq!(writer.text("jit_step"), name);
    assert_eq!(writer.text(""), TextId(0));
    let sizes = ProgramSizes {
        argument_bytes: 1,
        output_bytes: 2,
        alias_bytes: 3,
        temp_bytes: u64::MAX,
        constant_bytes: 5,
        code_bytes: 6,
    };
    let events = [
        Event::Program {
            program: 9,
            name,
            sizes,
            devices: 8,
            loaded: true,
            compile_attempt: site,
            site,
        },
        Event::Variant { program: 9, name: site, sizes },
        Event::Begin { program: 9, site },
        Event::Driver { device: 1, asked: 1 << 40, address: 0x7f00_0000_0000, granted: 0 },
        Event::Allocate {
            device: 1,
            bytes: 12_345,
            alignment: 64,
            space: PoolSpace::Collective,
            purpose: Purpose::Tuple,
            slot: u32::MAX,
            site,
        },
        Event::AllocationFailure {
            device: 0,
            bytes: u64::MAX,
            alignment: 1,
            space: PoolSpace::Default,
            purpose: Purpose::Constant,
            slot: 3,
            site: TextId(0),
            message: name,
        },
        Event::AllocationFailure {
            device: 0,
            bytes: 1,
            alignment: 1,
            space: PoolSpace::Default,
            purpose: Purpose::Upload,
            slot: 0,
            site: name,
            message: name,
        },
        Event::End,
        Event::Unread { allocation: 0 },
        Event::Free { allocation: 0 },
        Event::OutsidePool { device: 1, bytes: 77 },
        Event::UnknownRead { site, bytes: 4 },
        Event::ShapeRead { site, bytes: 8 },
        Event::Callback { site, calls: 7, errors: 2, error: name },
        Event::CallbackSkipped { site, calls: 1, reason: CallbackSkip::Bound },
        Event::Scratch {
            program: 3,
            library: site,
            routine: site,
            site,
            low_bytes: 5,
            high_bytes: u64::MAX,
            source: EstimateSource::Published,
            phase: ScratchPhase::OutsidePool,
        },
        Event::ClearPeak { device: 1 },
        Event::FreeAborts { allocation: 0, message: site },
        Event::Unload { program: 9 },
    ];
    for event in &events {
        writer.event(event).unwrap();
    }
    writer.finish(&footer()).unwrap();
    assert!(writer.event(&Event::End).is_err(), "nothing is added after the end");

    let bytes = file.bytes();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let read: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(read, events);
    assert_eq!(reader.footer(), Some(&footer()));
    assert_eq!(reader.text(name), "jit_step");
    assert_eq!(reader.text(site), "zug.py:7 (größe)");
    assert_eq!(reader.text(TextId(99)), "");
}

#[test]
fn purposes_and_spaces_come_back() {
    let (mut writer, file) = writer();
    let mut events = Vec::new();
    for space in [PoolSpace::Default, PoolSpace::Collective] {
        for purpose in [
            Purpose::Upload,
            Purpose::Output,
            Purpose::Temporary,
            Purpose::Tuple,
            Purpose::Copy,
            Purpose::Constant,
        ] {
            let (bytes, alignment, site) = (1, 1, TextId(0));
            events.push(Event::Allocate {
                device: 0,
                bytes,
                alignment,
                space,
                purpose,
                slot: 0,
                site,
            });
        }
    }
    for event in &events {
        writer.event(event).unwrap();
    }
    writer.finish(&footer()).unwrap();
    assert_eq!(read(&file.bytes()).0, events);
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let (mut writer, file) = writer();
    let id = writer.text(&format!("x{}", "ß".repeat(3 << 20)));
    writer.finish(&footer()).unwrap();
    let bytes = file.bytes();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.next_event().unwrap(), None);
    assert_eq!(reader.text(id).len(), (4 << 20) - 1);
}

#[test]
fn a_million_equal_steps_cost_one() {
    let size = |steps: u32| {
        let mut run = Run::new(false);
        for _ in 0..steps {
            run.step(1, 8);
        }
        run.finish().0
    };
    let (three, million) = (size(3), size(1_000_000));
    assert!(million.len() <= three.len() + 8, "{} against {}", million.len(), three.len());

    let mut reader = Reader::new(&million[..]).unwrap();
    let mut frees = 0;
    while let Some(event) = reader.next_event().unwrap() {
        frees += u64::from(matches!(event, Event::Free { .. }));
    }
    assert_eq!(frees, 9 * 1_000_000);
    assert_eq!(reader.events_read(), 20 * 1_000_000);
    assert_eq!(reader.footer(), Some(&footer()));
}

#[test]
fn loops_inside_loops_cost_one() {
    let bytes = |outer: u32| {
        let mut run = Run::new(false);
        for _ in 0..outer {
            for _ in 0..64 {
                run.step(1, 5);
            }
            run.step(2, 3);
            for _ in 0..3 {
                run.step(3, 1);
            }
        }
        run.finish().0
    };
    let (few, many) = (bytes(4), bytes(10_000));
    assert!(many.len() <= few.len() + 8, "{} against {}", many.len(), few.len());
}

#[test]
fn epochs_longer_than_the_window_cost_a_few_bytes_each() {
    let bytes = |epochs: u32| {
        let mut run = Run::new(false);
        for _ in 0..epochs {
            for _ in 0..10_000 {
                run.step(1, 5);
            }
            for _ in 0..100 {
                run.step(2, 3);
            }
            run.step(3, 20);
        }
        run.finish().0.len()
    };
    let (few, many) = (bytes(5), bytes(25));
    assert!((many - few) / 20 <= 64, "{} bytes an epoch", (many - few) / 20);
}

#[test]
fn steps_around_every_bound_come_back() {
    // Periods around the row, what is kept of a repeat (16 Ki) and the window (64 Ki).
    for outputs in [1, 2, 3, 8_190, 8_191, 8_192, 20_000, 32_765, 32_766, 32_767, 32_768, 40_000] {
        let mut run = Run::new(true);
        for repeat in 0..5 {
            run.step(1, outputs);
            run.step(2, 1);
            if repeat == 3 {
                run.writer.flush().unwrap();
            }
        }
        run.step(3, 2);
        run.step(1, outputs);
        let (bytes, written) = run.finish();
        let (events, footer) = read(&bytes);
        assert!(events == written, "{outputs} outputs");
        assert!(footer.is_some());
    }
}

#[test]
fn flushing_keeps_a_match_alive() {
    let mut run = Run::new(true);
    for _ in 0..10 {
        run.step(1, 8);
    }
    run.writer.flush().unwrap();
    let before = run.file.len();
    run.writer.flush().unwrap();
    assert_eq!(run.file.len(), before, "nothing new, nothing written");
    for flush in 1..=100 {
        for _ in 0..50 {
            run.step(1, 8);
        }
        run.writer.flush().unwrap();
        let grown = run.file.len() - before;
        assert!(grown <= flush * 12, "{grown} bytes for {flush} flushes");
        // What is there now is what a reader sees if the process dies here.
        if flush % 25 == 0 {
            let (events, footer) = read(&run.file.bytes());
            assert_eq!(events, run.written);
            assert_eq!(footer, None);
        }
    }
}

#[test]
fn a_dropped_writer_has_flushed() {
    let mut run = Run::new(true);
    for _ in 0..100 {
        run.step(1, 2);
    }
    let Run { writer, file, written, .. } = run;
    drop(writer);
    assert_eq!(read(&file.bytes()), (written, None));
}

#[test]
fn freeing_what_was_never_allocated_is_refused() {
    let (mut writer, _) = writer();
    let error = writer.event(&Event::Free { allocation: 0 }).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    writer.event(&allocate(1, 0, TextId(0))).unwrap();
    writer.event(&Event::Free { allocation: 0 }).unwrap();
}

#[test]
fn a_full_disk_is_reported_and_nothing_piles_up() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Full(10_000), &header()).unwrap();
    let mut failed = 0;
    for bytes in 0..100_000 {
        let result = writer.event(&allocate(bytes * bytes, 0, TextId(0)));
        if let Err(error) = result {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            failed += 1;
        }
    }
    assert!(failed > 80_000, "{failed}");
    assert!(writer.flush().is_err() && writer.finish(&footer()).is_err());
}

/// A short trace with every kind of record in it.
fn sample() -> (Vec<u8>, Vec<Event>) {
    let mut run = Run::new(true);
    let name = run.writer.text("jit_step");
    run.event(Event::Program {
        program: 1,
        name,
        sizes: ProgramSizes { temp_bytes: 5_000, ..ProgramSizes::default() },
        devices: 1,
        loaded: false,
        compile_attempt: TextId(0),
        site: TextId(0),
    });
    for _ in 0..20 {
        run.step(1, 2);
    }
    run.writer.flush().unwrap();
    run.event(Event::OutsidePool { device: 0, bytes: 3 });
    run.step(1, 1);
    run.finish()
}

#[test]
fn cut_off_anywhere_gives_the_complete_records() {
    let (bytes, written) = sample();
    let header_end = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(1).unwrap().0;
    let mut last = 0;
    for end in 0..bytes.len() {
        let reader = Reader::new(&bytes[..end]);
        if end <= header_end {
            assert_eq!(reader.unwrap_err().kind(), ErrorKind::InvalidFile, "cut at {end}");
            continue;
        }
        let mut reader = reader.unwrap();
        let events = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(reader.footer(), None, "cut at {end}");
        assert_eq!(events, written[..events.len()], "cut at {end}");
        assert!(events.len() >= last, "cut at {end}");
        last = events.len();
    }
    assert_eq!(last, written.len());
    assert_eq!(read(&bytes), (written, Some(footer())));
}

#[test]
fn a_changed_byte_is_noticed() {
    let (bytes, _) = sample();
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let Ok(mut reader) = Reader::new(&bytes[..]) else {
                continue;
            };
            // Bounded, since a damaged repeat may be very long.
            let failed = reader.by_ref().take(100_000).any(|event| event.is_err());
            let ended = reader.next_event().is_ok_and(|event| event.is_none());
            assert!(failed || !ended || reader.footer().is_none(), "byte {at} xor {flip}");
        }
    }
}

#[test]
fn what_is_no_trace_says_so() {
    for (bytes, words) in [
        (&b""[..], "not a vramfit trace"),
        (b"\x89HDF\r\n\x1a\n", "not a vramfit trace"),
        (b"vramfit trace ", "inside its header"),
        (b"vramfit trace 1\n{}\n", "format version `1`"),
        (b"vramfit trace 2\nhello\n", "header is invalid"),
        (b"vramfit trace 2\n{}", "inside its header"),
    ] {
        let error = Reader::new(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidFile);
        assert!(error.message().contains(words), "{error}");
    }
}

fn records(records: &[&[u8]]) -> Vec<u8> {
    [b"vramfit trace 2\n{}\n", &records.concat()[..]].concat()
}

#[test]
fn each_kind_of_damage_has_its_sentence() {
    for (bytes, words) in [
        (&[0][..], "an unknown record"),
        (&[5, 99], "an unknown record"),
        (&[5, 12, 2, 1], "the distance of a repeat"),
        (&[5, 12, 0, 1], "the distance of a repeat"),
        (&[5, 12, 1, 0], "a repeat of no events"),
        (&[7, 1], "does not exist is freed"),
        (&[7, 0], "does not exist is freed"),
        (&[4, 1, 1], "before it is defined"),
        (&[1, 2, 0xff, 0xff], "not UTF-8"),
        (&[1, 0xff, 0xff, 0xff, 0xff, 0x7f], "exceeds the maximum length"),
        (&[3, 0xff, 0xff, 0xff, 0xff, 0x7f], "longer than 32 bits"),
        (&[13, 0, 0, 0, 0], "checksum does not match"),
        (&[14, 2, b'{', b'}', 5], "no checksum"),
        (&[6, 0, 1, 1, 2, 0, 0, 0], "memory space"),
        (&[6, 0, 1, 1, 0, 7, 0, 0], "purpose"),
        (&[20, 1, 0, 0, 0, 1, 2, 4, 0], "source of an estimate"),
        (&[20, 1, 0, 0, 0, 1, 2, 0, 4], "phase of scratch memory"),
        (&[2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0], "neither 0 nor 1"),
    ] {
        let bytes = records(&[bytes]);
        let failed = Reader::new(&bytes[..]).unwrap().find_map(Result::err);
        let error = failed.unwrap_or_else(|| panic!("{words}"));
        assert_eq!(error.kind(), ErrorKind::InvalidFile);
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn records_from_the_future_are_passed_over() {
    let bytes = records(&[&[200, 3, 1, 2, 3], &[5], &[255, 0]]);
    let events: Vec<_> = Reader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
    assert_eq!(events, [Event::End]);
}

#[test]
fn a_huge_repeat_is_unfolded_as_it_is_read() {
    // 2^30 events in a file of a few bytes: read some, never all.
    let bytes = records(&[&[5, 12, 1, 0x80, 0x80, 0x80, 0x80, 0x04]]);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(
        reader.by_ref().take(100_000).filter(|e| *e.as_ref().unwrap() == Event::End).count(),
        100_000
    );
}

/// One act of a made-up run.
#[derive(Clone, Debug)]
enum Act {
    Event(u8, u16),
    /// Says the last events once more, this many times.
    Again(u8, u8),
    Text(u8),
    Flush,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0u8..10, 0u16..4).prop_map(|(kind, value)| Act::Event(kind, value)),
        1 => any::<(u8, u16)>().prop_map(|(kind, value)| Act::Event(kind, value)),
        4 => (1u8..20, 1u8..40).prop_map(|(last, times)| Act::Again(last, times)),
        1 => (0u8..6).prop_map(Act::Text),
        1 => Just(Act::Flush),
    ]
}

#[test]
fn what_is_said_of_a_programs_memory_comes_back_and_does_not_disturb_repeats() {
    let mut run = Run::new(true);
    let memory = ProgramMemory { temp_bytes: 77, ..ProgramMemory::default() };
    let time = ProgramTime { model_us: 0.1, ..ProgramTime::default() };
    for round in 0..9 {
        if round == 4 {
            run.writer.program_memory(7, &memory.to_stored()).unwrap();
            run.writer.program_time(7, &time).unwrap();
        }
        run.step(1, 3);
    }
    let (file, written) = run.finish();
    let mut reader = Reader::new(&file[..]).unwrap();
    let mut read = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        read.push(event);
    }
    assert_eq!(read, written);
    assert_eq!(reader.program_memory(7).unwrap(), Some(memory));
    assert_eq!(reader.program_memory(1).unwrap(), None);
    assert_eq!(reader.program_time(7), Some(&time));
    assert_eq!(reader.program_time(1), None);
}

/// Plays acts into a run and gives what was written.
fn play(acts: &[Act]) -> Run {
    let mut run = Run::new(true);
    let mut site = TextId(0);
    for act in acts {
        match *act {
            Act::Event(kind, value) => {
                let event = match kind {
                    0..=2 => allocate(value.into(), value.into(), site),
                    3..=4 | 7..=9 if run.allocations > 0 => {
                        let last = run.allocations - 1;
                        let allocation = run.allocations.saturating_sub(value.into()).min(last);
                        let message = site;
                        match kind {
                            7 => Event::FreeAborts { allocation, message },
                            8 => Event::Argument { parameter: value.into(), allocation },
                            9 => Event::Unread { allocation },
                            _ => Event::Free { allocation },
                        }
                    }
                    5 => Event::Begin { program: value.into(), site },
                    6 => Event::UnknownRead { site, bytes: value.into() },
                    _ => Event::End,
                };
                run.event(event);
            }
            Act::Again(last, times) => {
                let mut back = usize::from(last).min(run.written.len());
                back -= usize::from(back > 1 && times % 7 == 0);
                for _ in 0..usize::from(times) * back {
                    // Equal in relative form, as a loop would be.
                    let index = run.written.len() - back;
                    let shift = || {
                        let before = run.written[..index].iter();
                        let then = before.filter(|e| matches!(e, Event::Allocate { .. })).count();
                        run.allocations - then as u64
                    };
                    let event = match run.written[index] {
                        Event::Free { allocation } => {
                            Event::Free { allocation: allocation + shift() }
                        }
                        Event::Unread { allocation } => {
                            Event::Unread { allocation: allocation + shift() }
                        }
                        Event::FreeAborts { allocation, message } => {
                            Event::FreeAborts { allocation: allocation + shift(), message }
                        }
                        other => other,
                    };
                    run.event(event);
                }
            }
            Act::Text(number) => site = run.writer.text(&"t".repeat(number.into())),
            Act::Flush => run.writer.flush().unwrap(),
        }
    }
    run
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_run_comes_back(acts in prop::collection::vec(act(), 0..60)) {
        let (bytes, written) = play(&acts).finish();
        let (events, read_footer) = read(&bytes);
        prop_assert_eq!(events, written);
        prop_assert_eq!(read_footer, Some(footer()));
    }

    #[test]
    fn any_cut_gives_a_beginning(acts in prop::collection::vec(act(), 0..30), cut in 0.0..1.0) {
        let (bytes, written) = play(&acts).finish();
        let end = (bytes.len() as f64 * cut) as usize;
        if let Ok(mut reader) = Reader::new(&bytes[..end]) {
            let events = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
            prop_assert_eq!(&events[..], &written[..events.len()]);
            prop_assert_eq!(reader.footer(), None);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Reader::new(&noise[..]);
        let bytes = records(&[&noise]);
        for event in Reader::new(&bytes[..]).unwrap().take(100_000) {
            let _ = event;
        }
    }

    #[test]
    fn no_damage_makes_it_panic(
        acts in prop::collection::vec(act(), 0..30),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut bytes, _) = play(&acts).finish();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(reader) = Reader::new(&bytes[..]) {
            for event in reader.take(100_000) {
                let _ = event;
            }
        }
    }
}

#[test]
fn the_settings_that_were_written_last_count() {
    let file = File::default();
    let mut writer = Writer::new(file.clone(), &Header::default()).unwrap();
    let variable = |name: &str| (name.to_owned(), "1".to_owned());
    let change = |name: &str| LateChange {
        name: name.to_owned(),
        new: Some("1".to_owned()),
        site: "train.py:7 (main)".to_owned(),
        stage: ProcessStage::Started,
        ..LateChange::default()
    };
    // What concerns nobody is no part of a trace.
    let all = [variable("JAX_ENABLE_X64"), variable("AWS_SECRET_ACCESS_KEY")];
    let late = vec![change("JAX_DISABLE_JIT"), change("HOME")];
    let settings = RunEnvironment::of_process(all, vec!["JAX_PLATFORMS".to_owned()], late);
    writer.settings(&RunEnvironment::default()).unwrap();
    writer.settings(&settings).unwrap();
    writer.finish(&Footer::default()).unwrap();

    let bytes = file.bytes();
    assert!(!bytes.windows(6).any(|window| window == b"SECRET"));
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.next_event().unwrap(), None);
    assert!(reader.footer().is_some());
    let read = reader.settings().unwrap();
    assert_eq!(read, &settings);
    assert_eq!((read.variables.len(), read.late.len()), (1, 1));
}
