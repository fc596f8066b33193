//! What is on the screen: the last board, and what the person has chosen. Pure: events in, state out.

use super::snapshot::{ProcessRow, Snapshot};

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
    OnlyJax,
    StartFilter,
    /// A letter of the filter.
    Letter(char),
    Erase,
    /// The filter is complete.
    Accept,
    /// One step back: out of help, of details, of the filter.
    Back,
}

/// Rows that a page key moves by.
const PAGE: usize = 10;

/// The state of the screen.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) snapshot: Snapshot,
    /// What is watched, where it is not this machine.
    pub(super) source: Option<String>,
    pub(super) interval_text: String,
    pub(super) filter: String,
    pub(super) is_editing: bool,
    pub(super) only_jax: bool,
    pub(super) group_by_gpu: bool,
    pub(super) shows_details: bool,
    pub(super) shows_help: bool,
    pub(super) has_ended: bool,
    pub(super) color: bool,
    selected: usize,
}

impl State {
    pub(super) fn new(source: Option<String>, interval_text: String, color: bool) -> Self {
        State {
            snapshot: Snapshot::default(),
            source,
            interval_text,
            filter: String::new(),
            is_editing: false,
            only_jax: false,
            group_by_gpu: true,
            shows_details: false,
            shows_help: false,
            has_ended: false,
            color,
            selected: 0,
        }
    }

    /// Takes a new board; the same process stays selected.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
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
        self.selected = same
            .unwrap_or(self.selected)
            .min(rows.len().saturating_sub(1));
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
            Action::GroupByGpu => self.group_by_gpu = !self.group_by_gpu,
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
        if !self.group_by_gpu {
            rows.sort_by_key(|(_, row)| {
                std::cmp::Reverse(row.driver.bytes().or(row.reserved.bytes()))
            });
        }
        rows
    }

    /// Returns the selected process and its GPU.
    pub(super) fn selected(&self) -> Option<(usize, &ProcessRow)> {
        self.rows().get(self.selected).copied()
    }

    pub(super) fn selected_position(&self) -> usize {
        self.selected
    }

    fn matches_filter(&self, row: &ProcessRow) -> bool {
        let wanted = self.filter.to_lowercase();
        let texts = [&row.command, &row.user, &row.container];
        wanted.is_empty()
            || row.pid.to_string().contains(&wanted)
            || texts
                .into_iter()
                .flatten()
                .any(|text| text.to_lowercase().contains(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{GpuRow, PoolRow, Reading};
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
                gpu(
                    "GPU 0",
                    vec![
                        process(1, "Xorg", 1, false),
                        process(2, "train.py", 9, true),
                    ],
                ),
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
        assert_eq!(state.selected().map(|(_, row)| row.pid), Some(1));
        state.act(Action::PageDown);
        assert_eq!(state.selected().map(|(_, row)| row.pid), Some(3));
        let mut snapshot = state.snapshot.clone();
        snapshot.gpus[0].processes.remove(0);
        state.update(snapshot);
        assert_eq!(state.selected().map(|(_, row)| row.pid), Some(3));
        state.update(Snapshot::default());
        assert_eq!(state.selected(), None);
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
