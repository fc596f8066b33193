//! The only mouth: everything vramfit says passes through here.
//!
//! Standard output is data, standard error is talk. A reader that went away (`vramfit … | head`)
//! is no failure. Nothing is said by colour alone.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind as IoErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use vramfit_core::doctor::{self, Line};
use vramfit_core::{Error, ErrorKind, Result};

use crate::ascii;

const RED: Style = AnsiColor::Red.on_default().bold();
const CYAN: Style = AnsiColor::Cyan.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// What the global options say about the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputOptions {
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    pub(crate) color: ColorChoice,
    /// Whether errors are JSON too, because standard output holds JSON.
    pub(crate) json: bool,
}

/// The terminal, and what may be written to it.
#[derive(Debug)]
pub(crate) struct Output {
    quiet: bool,
    verbose: bool,
    color: bool,
    color_of_data: bool,
    json: bool,
    ascii: bool,
}

/// A bar that shows how far something is, or nothing.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Shows that `done` of `total` are done, `before` of them by an earlier attempt.
    pub(crate) fn show(&self, done: u64, before: u64, total: u64) {
        let Some(bar) = &self.bar else { return };
        if bar.length() != Some(total) {
            bar.set_length(total);
            bar.set_position(before);
            // The rate is that of this attempt.
            bar.reset_eta();
            bar.reset_elapsed();
        }
        bar.set_position(done);
    }

    /// Shows that so many are done, of which nobody knows how many there are.
    pub(crate) fn count(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    /// Removes the bar, so that what is said next has the line for itself.
    pub(crate) fn remove(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// An error as `--json` shows it.
#[derive(Serialize)]
struct JsonError<'a> {
    schema: u32,
    error: JsonErrorBody<'a>,
}

#[derive(Serialize)]
struct JsonErrorBody<'a> {
    id: &'static str,
    message: &'a str,
    cause: Option<&'a str>,
    hint: Option<&'a str>,
}

impl Output {
    pub(crate) fn new(options: OutputOptions) -> Self {
        Output {
            quiet: options.quiet,
            verbose: options.verbose,
            color: wants_color(options.color, std::io::stderr().is_terminal()),
            color_of_data: wants_color(options.color, std::io::stdout().is_terminal()),
            json: options.json,
            ascii: ascii::is_wanted(|name| std::env::var_os(name)),
        }
    }

    /// Returns an output for when the options could not be read.
    pub(crate) fn plain(color: ColorChoice) -> Self {
        Output {
            quiet: false,
            verbose: false,
            color: wants_color(color, std::io::stderr().is_terminal()),
            color_of_data: false,
            json: false,
            ascii: ascii::is_wanted(|name| std::env::var_os(name)),
        }
    }

    /// Returns an output that says nothing but errors, for a part of a command that speaks for it.
    pub(crate) fn hushed(&self) -> Self {
        Output {
            quiet: true,
            verbose: false,
            ..*self
        }
    }

    /// Says whether what is drawn on the terminal at standard output may have colours.
    pub(crate) fn colors_screen(&self) -> bool {
        self.color_of_data
    }

    /// Says whether what is drawn may only have ASCII in it.
    pub(crate) fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// Writes what is for people to standard output: in ASCII where the terminal shows no more.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        match self.ascii {
            true => self.data(&ascii::in_ascii(text)),
            false => self.data(text),
        }
    }

    /// Writes a table to standard output; its columns stay where they are.
    pub(crate) fn table(&mut self, text: &str) -> Result<()> {
        match self.ascii {
            true => self.data(&ascii::in_ascii_columns(text)),
            false => self.data(text),
        }
    }

    /// Writes one line of JSON behind whatever a program has written to the same standard output.
    ///
    /// A program may leave its last line open. Where standard output is a file, its last byte tells; where
    /// it cannot be told, an empty line more is better than a line that is no JSON.
    pub(crate) fn json_after_program(&mut self, line: &str) -> Result<()> {
        let begin = match line_is_open(&std::io::stdout()) {
            Some(false) => "",
            Some(true) | None => "\n",
        };
        self.data(&format!("{begin}{line}\n"))
    }

    /// Writes data to standard output, as it is.
    pub(crate) fn data(&mut self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != IoErrorKind::BrokenPipe => {
                Err(Error::new(ErrorKind::Io, "cannot write to standard output").cause(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes one value to standard output as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(value)
            .expect("our values have text keys and no numbers out of range");
        self.data(&format!("{line}\n"))
    }

    /// Writes the lines of an examination to standard output. The word says what the colour says.
    pub(crate) fn examination(&mut self, lines: &[Line]) -> Result<()> {
        let mut text = String::new();
        for line in lines {
            if let Some(status) = line.status {
                let style = match status {
                    doctor::Status::Pass => GREEN,
                    doctor::Status::Warn => YELLOW,
                    doctor::Status::Fail => RED,
                    doctor::Status::Skip => DIM,
                };
                text.push_str(&painted(self.color_of_data, style, status.word()));
            }
            text.push_str(&line.text);
            text.push('\n');
        }
        self.text(&text)
    }

    /// Says whether only errors and data are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Says whether every detail is wanted.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Passes on what the program said on its own standard error, as it is.
    pub(crate) fn of_program(&mut self, text: &[u8]) {
        // A closed standard error is nobody's business here.
        let _ = std::io::stderr().lock().write_all(text);
    }

    /// Says something that `--quiet` silences.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.quiet {
            self.talk(text);
        }
    }

    /// Says something that only `--verbose` shows.
    pub(crate) fn detail(&mut self, text: &str) {
        if self.verbose {
            self.talk(text);
        }
    }

    /// Says what could not be done.
    pub(crate) fn error(&mut self, error: &Error) {
        if self.json {
            let body = JsonErrorBody {
                id: error.kind().id(),
                message: error.message(),
                cause: error.cause_text(),
                hint: error.hint_text(),
            };
            let line = serde_json::to_string(&JsonError {
                schema: 1,
                error: body,
            });
            talk(&line.expect("an error is four strings"));
            return;
        }
        let head = self.paint(RED, &format!("error[{}]", error.kind().id()));
        let mut text = format!("{head}: {}", error.message());
        if let Some(cause) = error.cause_text() {
            text.push_str(&format!(
                "\n  cause: {}",
                cause.trim_end().replace('\n', "\n         ")
            ));
        }
        self.add_hint(&mut text, error.hint_text());
        self.talk(&text);
    }

    /// Returns a bar that shows how far a long piece of work is; on a terminal only, and never beside
    /// JSON or with `--quiet`. `unit` is what is counted.
    pub(crate) fn progress(&self, unit: &'static str) -> Progress {
        let wanted = !self.quiet && !self.json && std::io::stderr().is_terminal();
        Progress {
            bar: wanted.then(|| {
                let template = format!(
                    "{{percent:>3}} % [{{bar:32}}] {{human_pos}} of {{human_len}} {unit}  \
                     {{rate}}  {{eta}} left"
                );
                // ASCII, like every picture in the terminal; no more often than an eye can follow.
                let style = ProgressStyle::with_template(&template)
                    .expect("the template is ours")
                    .with_key(
                        "rate",
                        |state: &ProgressState, text: &mut dyn fmt::Write| {
                            // What cannot be written to a bar is not worth an error.
                            let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
                        },
                    )
                    .progress_chars("##-");
                let target = ProgressDrawTarget::stderr_with_hz(8);
                ProgressBar::with_draw_target(None, target).with_style(style)
            }),
        }
    }

    /// Returns a line that counts, where it is not known how many there are; shown as
    /// [`Output::progress`] is.
    pub(crate) fn count(&self, unit: &'static str) -> Progress {
        let wanted = !self.quiet && !self.json && std::io::stderr().is_terminal();
        Progress {
            bar: wanted.then(|| {
                let template = format!("{{human_pos}} {unit} read in {{elapsed}}");
                let style = ProgressStyle::with_template(&template).expect("the template is ours");
                let target = ProgressDrawTarget::stderr_with_hz(8);
                ProgressBar::with_draw_target(None, target).with_style(style)
            }),
        }
    }

    fn add_hint(&self, text: &mut String, hint: Option<&str>) {
        if let Some(hint) = hint {
            text.push_str(&format!("\n{}: {hint}", self.paint(CYAN, "hint")));
        }
    }

    fn talk(&self, text: &str) {
        match self.ascii {
            true => talk(&ascii::in_ascii(text)),
            false => talk(text),
        }
    }

    fn paint(&self, style: Style, text: &str) -> String {
        painted(self.color, style, text)
    }
}

fn painted(color: bool, style: Style, text: &str) -> String {
    if color {
        format!("{style}{text}{style:#}")
    } else {
        text.to_owned()
    }
}

/// Colours are for terminals; `NO_COLOR` (any value that is not empty) refuses them.
fn wants_color(choice: ColorChoice, on_terminal: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
            !refused && !dumb && on_terminal
        }
    }
}

/// Says whether what was written to a file ends within a line; `None` for what is no file that can be
/// read back.
fn line_is_open(stream: &impl AsFd) -> Option<bool> {
    let file = rustix::fs::fstat(stream).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(file.st_mode).is_file();
    let end = u64::try_from(file.st_size).ok().filter(|_| is_file)?;
    if end == 0 {
        return Some(false);
    }
    // The stream itself is only open for writing.
    let path = format!("/proc/self/fd/{}", stream.as_fd().as_raw_fd());
    let mut last = [0];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut last, end - 1));
    read.is_ok().then(|| last != *b"\n")
}

/// Writes one paragraph to standard error.
///
/// A failure is ignored: there is no other place left to tell it.
fn talk(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = err.write_all(b"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_program_left_open_is_seen_in_a_file_and_unknown_in_a_pipe() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(line_is_open(&file), Some(false));
        file.write_all(b"loss 0.1").expect("written");
        assert_eq!(line_is_open(&file), Some(true));
        file.write_all(b"\n").expect("written");
        assert_eq!(line_is_open(&file), Some(false));
        let (_reader, writer) = std::io::pipe().expect("a pipe");
        assert_eq!(line_is_open(&writer), None);
    }
}
