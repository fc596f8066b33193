//! What is on the screen: a sample, and what the person has chosen. Pure: events in, state out.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::order::SortOrder;
use super::snapshot::{ProcessRow, Reading, Snapshot};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Help,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Details,
    GroupByGpu,
    /// Sort by the next column.
    Sort,
    OnlyJax,
    /// Stop at what is shown, or go on.
    Pause,
    /// Show the sample before, or after.
    StepBack,
    StepForward,
    StartFilter,
    /// A letter of the filter.
    Letter(char),
    Erase,
    /// The filter is complete.
    Accept,
    /// One step back: out of help, of details, of the filter.
    Back,
}

/// Samples that one can go back by.
const MAX_PAST: usize = 600;

/// Rows that a page key moves by.
const PAGE: usize = 10;

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) snapshot: Snapshot,
    /// What is watched, where it is not this machine.
    pub(super) source: Option<String>,
    pub(super) interval_text: String,
    pub(super) filter: String,
    pub(super) is_editing: bool,
    pub(super) only_jax: bool,
    pub(super) order: SortOrder,
    pub(super) shows_details: bool,
    pub(super) shows_help: bool,
    pub(super) has_ended: bool,
    pub(super) color: bool,
    /// The last samples, the newest last.
    past: VecDeque<Snapshot>,
    /// How many samples before the newest one is shown; `None` unless paused.
    pub(super) samples_behind: Option<usize>,
    /// Position of the selected process.
    pub(super) selected: usize,
}

impl State {
    pub(super) fn new(source: Option<String>, interval_text: String, color: bool) -> Self {
        State { source, interval_text, color, ..State::default() }
    }

    /// Takes a new sample; while paused, it is only kept.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        self.past.push_back(snapshot);
        if self.past.len() > MAX_PAST {
            self.past.pop_front();
        }
        if let Some(back) = &mut self.samples_behind {
            *back = (*back + 1).min(self.past.len() - 1);
        } else if let Some(newest) = self.past.back() {
            self.show(newest.clone());
        }
    }

    /// Returns a reading of a process in the samples up to the one that is shown, the newest last.
    pub(super) fn history(
        &self,
        gpu: &str,
        pid: u32,
        reading: fn(&ProcessRow) -> &Reading,
    ) -> Vec<u64> {
        let shown = self.past.len() - self.samples_behind.unwrap_or(0).min(self.past.len());
        let rows = self.past.iter().take(shown).filter_map(|snapshot| {
            let gpu = snapshot.gpus.iter().find(|one| one.label == gpu)?;
            let row = gpu.processes.iter().find(|row| row.pid == pid)?;
            reading(row).bytes()
        });
        rows.collect()
    }

    /// Shows an older or newer sample, and pauses.
    fn step(&mut self, back: usize) {
        let back = back.min(self.past.len().saturating_sub(1));
        self.samples_behind = Some(back);
        if let Some(snapshot) = self.past.get(self.past.len().wrapping_sub(back + 1)) {
            self.show(snapshot.clone());
        }
    }

    /// Shows a sample; the same process stays selected.
    fn show(&mut self, snapshot: Snapshot) {
        let identity = |state: &State| {
            let rows = state.rows();
            rows.get(state.selected)
                .map(|(gpu, row)| (state.snapshot.gpus[*gpu].label.clone(), row.pid))
        };
        let before = identity(self);
        self.snapshot = snapshot;
        let rows = self.rows();
        let same = before.and_then(|(label, pid)| {
            rows.iter()
                .position(|(gpu, row)| row.pid == pid && self.snapshot.gpus[*gpu].label == label)
        });
        self.selected = same.unwrap_or(self.selected).min(rows.len().saturating_sub(1));
    }

    /// Does what a key asks for; returns whether to end.
    pub(super) fn act(&mut self, action: Action) -> bool {
        let last = self.rows().len().saturating_sub(1);
        match action {
            Action::Quit => return true,
            Action::Help => self.shows_help = !self.shows_help,
            Action::Up => self.selected = self.selected.saturating_sub(1),
            Action::Down => self.selected = (self.selected + 1).min(last),
            Action::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            Action::PageDown => self.selected = (self.selected + PAGE).min(last),
            Action::First => self.selected = 0,
            Action::Last => self.selected = last,
            Action::Details => self.shows_details = !self.shows_details,
            Action::GroupByGpu => {
                self.order = match self.order {
                    SortOrder::Gpu => SortOrder::Driver,
                    _ => SortOrder::Gpu,
                };
            }
            Action::Sort => self.order = self.order.next(),
            Action::Pause if self.samples_behind.is_some() => {
                self.step(0);
                self.samples_behind = None;
            }
            Action::Pause => self.samples_behind = Some(0),
            Action::StepBack => self.step(self.samples_behind.unwrap_or(0) + 1),
            Action::StepForward => self.step(self.samples_behind.unwrap_or(0).saturating_sub(1)),
            Action::OnlyJax => self.only_jax = !self.only_jax,
            Action::StartFilter => self.is_editing = true,
            Action::Letter(letter) => self.filter.push(letter),
            Action::Erase => drop(self.filter.pop()),
            Action::Accept => self.is_editing = false,
            Action::Back if self.shows_help => self.shows_help = false,
            Action::Back if self.shows_details => self.shows_details = false,
            Action::Back => {
                self.is_editing = false;
                self.filter.clear();
            }
        }
        self.selected = self.selected.min(self.rows().len().saturating_sub(1));
        false
    }

    /// Returns the processes that are shown, in order, each with the position of its GPU.
    pub(super) fn rows(&self) -> Vec<(usize, &ProcessRow)> {
        let gpus = self.snapshot.gpus.iter().enumerate();
        let mut rows: Vec<(usize, &ProcessRow)> = gpus
            .flat_map(|(at, gpu)| gpu.processes.iter().map(move |row| (at, row)))
            .filter(|(_, row)| !self.only_jax || row.pool.is_some())
            .filter(|(_, row)| self.matches_filter(row))
            .collect();
        if self.order != SortOrder::Gpu {
            rows.sort_by_key(|(_, row)| Reverse(self.order.bytes(row)));
        }
        rows
    }

    /// Returns the selected process and its GPU.
    pub(super) fn selected_row(&self) -> Option<(usize, &ProcessRow)> {
        self.rows().get(self.selected).copied()
    }

    fn matches_filter(&self, row: &ProcessRow) -> bool {
        let wanted = self.filter.to_lowercase();
        let texts = [&row.command, &row.user, &row.container];
        wanted.is_empty()
            || row.pid.to_string().contains(&wanted)
            || texts.into_iter().flatten().any(|text| text.to_lowercase().contains(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{GpuRow, PoolRow};
    use super::*;

    fn process(pid: u32, command: &str, gib: u64, published: bool) -> ProcessRow {
        ProcessRow {
            pid,
            command: Some(command.to_owned()),
            driver: Reading::Bytes(gib << 30),
            pool: published.then(PoolRow::default),
            ..ProcessRow::default()
        }
    }

    fn state() -> State {
        let gpu = |label: &str, processes| GpuRow {
            label: label.to_owned(),
            processes,
            ..GpuRow::default()
        };
        let mut state = State::new(None, "1 s".to_owned(), false);
        state.update(Snapshot {
            gpus: vec![
                gpu("GPU 0", vec![process(1, "Xorg", 1, false), process(2, "train.py", 9, true)]),
                gpu("GPU 1", vec![process(3, "serve.py", 30, true)]),
            ],
            ..Snapshot::default()
        });
        state
    }

    fn pids(state: &State) -> Vec<u32> {
        state.rows().iter().map(|(_, row)| row.pid).collect()
    }

    #[test]
    fn rows_are_by_gpu_or_by_size_and_all_or_only_jax() {
        let mut state = state();
        assert_eq!(pids(&state), [1, 2, 3]);
        state.act(Action::GroupByGpu);
        assert_eq!(pids(&state), [3, 2, 1]);
        state.act(Action::OnlyJax);
        assert_eq!(pids(&state), [3, 2]);
    }

    #[test]
    fn each_column_sorts_in_turn() {
        let mut state = state();
        assert_eq!(state.order.column(), None);
        for name in ["DRIVER", "RESERVED", "IN USE", "PEAK", "LRG FREE"] {
            state.act(Action::Sort);
            assert_eq!(state.order.column(), Some(name));
        }
        state.act(Action::Sort);
        assert_eq!(state.order, SortOrder::Gpu);
    }

    #[test]
    fn a_pause_keeps_what_is_shown_and_steps_go_back() {
        let mut state = state();
        let first = state.snapshot.clone();
        let later = |at_unix_ms| Snapshot { at_unix_ms, ..first.clone() };
        state.update(later(1));
        state.act(Action::Pause);
        state.update(later(2));
        assert_eq!((state.snapshot.at_unix_ms, state.samples_behind), (1, Some(1)));
        state.act(Action::StepBack);
        assert_eq!(state.snapshot.at_unix_ms, 0);
        state.act(Action::StepBack);
        assert_eq!(state.samples_behind, Some(2));
        state.act(Action::StepForward);
        assert_eq!(state.snapshot.at_unix_ms, 1);
        state.act(Action::Pause);
        assert_eq!((state.snapshot.at_unix_ms, state.samples_behind), (2, None));
    }

    #[test]
    fn the_history_of_a_process_ends_with_what_is_shown() {
        let mut state = State::new(None, "1 s".to_owned(), false);
        for bytes in [1, 2, 3] {
            let row =
                ProcessRow { in_use: Reading::Bytes(bytes), ..process(7, "train.py", 1, true) };
            state.update(Snapshot {
                gpus: vec![GpuRow {
                    label: "GPU 0".to_owned(),
                    processes: vec![row],
                    ..GpuRow::default()
                }],
                ..Snapshot::default()
            });
        }
        let history = |state: &State, pid| state.history("GPU 0", pid, |row| &row.in_use);
        assert_eq!(history(&state, 7), [1, 2, 3]);
        state.act(Action::StepBack);
        assert_eq!(history(&state, 7), [1, 2]);
        assert_eq!(history(&state, 8), [] as [u64; 0]);
    }

    #[test]
    fn the_filter_looks_into_every_text_and_the_number() {
        let mut state = state();
        state.act(Action::StartFilter);
        for letter in "TRAIN".chars() {
            state.act(Action::Letter(letter));
        }
        assert_eq!(pids(&state), [2]);
        state.act(Action::Back);
        assert_eq!((state.is_editing, pids(&state).len()), (false, 3));
        state.act(Action::Letter('3'));
        assert_eq!(pids(&state), [3]);
        state.act(Action::Erase);
        assert_eq!(pids(&state).len(), 3);
    }

    #[test]
    fn the_selection_stays_inside_and_with_its_process() {
        let mut state = state();
        state.act(Action::Up);
        assert_eq!(state.selected_row().map(|(_, row)| row.pid), Some(1));
        state.act(Action::PageDown);
        assert_eq!(state.selected_row().map(|(_, row)| row.pid), Some(3));
        let mut snapshot = state.snapshot.clone();
        snapshot.gpus[0].processes.remove(0);
        state.update(snapshot);
        assert_eq!(state.selected_row().map(|(_, row)| row.pid), Some(3));
        state.update(Snapshot::default());
        assert_eq!(state.selected_row(), None);
    }

    #[test]
    fn back_leaves_one_thing_at_a_time_and_only_quit_ends() {
        let mut state = state();
        state.act(Action::Details);
        state.act(Action::Help);
        state.act(Action::Back);
        assert_eq!((state.shows_help, state.shows_details), (false, true));
        assert!(!state.act(Action::Back));
        assert!(!state.shows_details);
        assert!(state.act(Action::Quit));
    }
}
