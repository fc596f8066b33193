//! Progress bars.

use std::fmt;
use std::io::IsTerminal;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::Output;

/// A progress bar, or nothing where none is shown. The next message has the line to itself when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Shows that `done` of `total` are done, `before` of them by an earlier run.
    pub(crate) fn show(&self, done: u64, before: u64, total: u64) {
        let Some(bar) = &self.bar else { return };
        if bar.length() != Some(total) {
            bar.set_length(total);
            bar.set_position(before);
            // The rate is that of this run.
            bar.reset_eta();
            bar.reset_elapsed();
        }
        bar.set_position(done);
    }

    /// Shows that so many are done, of an unknown total.
    pub(crate) fn count(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Output {
    /// Returns a progress bar; shown on a terminal only, and never together with JSON or `--quiet`.
    /// `unit` is what is counted.
    pub(crate) fn progress_bar(&self, unit: &'static str) -> Progress {
        self.start_progress(&format!(
            "{{percent:>3}} % [{{bar:32}}] {{human_pos}} of {{human_len}} {unit}  {{rate}}  {{eta}} left"
        ))
    }

    /// Returns a line that counts towards an unknown total; shown as [`Progress`] is.
    pub(crate) fn count(&self, unit: &'static str) -> Progress {
        self.start_progress(&format!("{{human_pos}} {unit} read in {{elapsed}}"))
    }

    fn start_progress(&self, template: &str) -> Progress {
        let wanted = !self.quiet && !self.json && std::io::stderr().is_terminal();
        let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
            // What cannot be written to a bar is not worth an error.
            let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
        };
        Progress {
            bar: wanted.then(|| {
                // ASCII, like every drawing in the terminal.
                let style = ProgressStyle::with_template(template)
                    .expect("the template is ours")
                    .with_key("rate", rate)
                    .progress_chars("##-");
                let target = ProgressDrawTarget::stderr_with_hz(8);
                ProgressBar::with_draw_target(None, target).with_style(style)
            }),
        }
    }
}
