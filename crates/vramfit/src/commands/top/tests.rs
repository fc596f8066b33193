//! Screens of the recorded demo, at the sizes that people have, against those in `fixtures/top/`.
//!
//! `TRYCMD=overwrite cargo test -p vramfit top` records them; read the difference.

use std::path::{Path, PathBuf};

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::snapshot::{GpuRow, ProcessRow, Reading, Snapshot};
use super::state::{Action, State};
use super::{recording, view};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/top")
}

fn demo(at: usize) -> State {
    let samples = recording::read(&fixtures().join("demo.jsonl")).expect("a recording");
    let mut state = State::new(None, "1s".to_owned(), true);
    state.update(Snapshot::of(&samples[at]));
    state
}

fn screen(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| view::draw(frame, state)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let lines = (0..height).map(|y| {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

fn expect_screen(name: &str, state: &State, width: u16, height: u16) {
    let shown = screen(state, width, height);
    let file = fixtures().join(format!("{name}-{width}x{height}.txt"));
    if std::env::var_os("TRYCMD").is_some_and(|value| value == "overwrite") {
        std::fs::write(&file, shown).expect("written");
        return;
    }
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(shown, recorded, "{}", file.display());
}

#[test]
fn s17_the_screen_at_the_sizes_people_have() {
    for (width, height) in [(80, 24), (120, 40), (40, 12)] {
        expect_screen("screen", &demo(0), width, height);
    }
}

#[test]
fn s17_details_and_help_and_a_filter() {
    let mut state = demo(0);
    state.act(Action::Down);
    state.act(Action::Details);
    expect_screen("details", &state, 120, 40);
    state.act(Action::Back);
    state.act(Action::Help);
    expect_screen("help", &state, 80, 24);
    state.act(Action::Back);
    state.act(Action::StartFilter);
    for letter in "serve".chars() {
        state.act(Action::Letter(letter));
    }
    expect_screen("filter", &state, 80, 24);
}

#[test]
fn v7_without_a_driver_virtual_gpus_are_shown_and_why_there_are_no_others() {
    expect_screen("no-driver", &demo(1), 80, 24);
}

#[test]
fn a_pool_that_needs_attention_is_marked() {
    const GIB: u64 = 1 << 30;
    let process = |pid, in_use, largest_free| ProcessRow {
        pid,
        in_use: Reading::Bytes(in_use),
        reserved: Reading::Bytes(10 * GIB),
        limit: Reading::Bytes(10 * GIB),
        largest_free: Reading::Bytes(largest_free),
        ..ProcessRow::default()
    };
    let full = process(1, 975 * GIB / 100, GIB / 4);
    assert_eq!(full.warnings(), ["the pool is 97 % full"]);
    let fragmented = process(2, 6 * GIB, GIB / 2);
    assert_eq!(fragmented.warnings(), ["the largest free block has 512.0 MiB of 4.0 GiB free"]);
    let fine = process(3, 6 * GIB, 3 * GIB);
    assert_eq!(fine.warnings(), [] as [&str; 0]);
    let mut state = State::new(None, "1s".to_owned(), false);
    state.update(Snapshot {
        gpus: vec![GpuRow {
            label: "GPU 0".to_owned(),
            processes: vec![full, fragmented, fine],
            ..GpuRow::default()
        }],
        ..Snapshot::default()
    });
    state.act(Action::Details);
    let shown = screen(&state, 100, 30);
    assert_eq!(shown.matches("- [!]").count(), 2);
    assert!(shown.contains("[!] 1 on GPU 0: the pool is 97 % full"), "{shown}");
    assert!(shown.contains("in use     █ of 10.0 GiB, samples: 1"), "{shown}");
}

#[test]
fn nothing_is_said_by_color_alone() {
    let mut colored = demo(0);
    let shown = screen(&colored, 120, 40);
    colored.color = false;
    assert_eq!(screen(&colored, 120, 40), shown);
}

#[test]
fn no_size_makes_it_fall_over() {
    let mut state = demo(0);
    state.act(Action::Details);
    state.act(Action::Help);
    for (width, height) in [(1, 1), (2, 50), (300, 2), (59, 5), (60, 5), (400, 100)] {
        assert!(!screen(&state, width, height).is_empty());
    }
}
