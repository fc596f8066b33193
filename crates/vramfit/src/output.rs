//! All output to the terminal.
//!
//! Standard output is for results, standard error for messages. A reader that closes its end
//! (`vramfit … | head`) is no failure. Colors never carry information that the text does not.

use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind as IoErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use serde::Serialize;
use serde_json::json;
use vramfit_advice::doctor::{self, Line};
use vramfit_analysis::report::{Extent, Report, TextStyle};
use vramfit_analysis::{Error, Result};
use vramfit_base::JSON_SCHEMA;

use crate::ascii;

mod messages;
mod progress;

pub(crate) use progress::Progress;

const RED: Style = AnsiColor::Red.on_default().bold();
const CYAN: Style = AnsiColor::Cyan.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const COMMAND: Style = AnsiColor::Cyan.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// What the global options say about the output.
#[derive(Clone, Copy, Debug, Default)]
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

    /// Returns an output for errors in the options themselves.
    pub(crate) fn plain(color: ColorChoice) -> Self {
        Output::new(OutputOptions { color, ..OutputOptions::default() })
    }

    /// Returns `true` if what is drawn on the terminal at standard output may have colors.
    pub(crate) fn colors_screen(&self) -> bool {
        self.color_of_data
    }

    /// Returns `true` if only ASCII may be drawn.
    pub(crate) fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// Writes text for people to standard output: in ASCII where the terminal shows no more.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        if self.ascii { self.data(&ascii::in_ascii(text)) } else { self.data(text) }
    }

    /// Writes a report to standard output, in the width of the terminal.
    pub(crate) fn report(&mut self, report: &Report, extent: Extent<'_>) -> Result<()> {
        let style = text_style(std::io::stdout(), self.color_of_data);
        self.text(&(report.to_styled_text(extent, style) + "\n"))
    }

    /// Prints a report as [`Self::info`] does, in the width of the terminal.
    pub(crate) fn report_info(&mut self, report: &Report, extent: Extent<'_>) {
        let style = text_style(std::io::stderr(), self.color);
        self.info(&report.to_styled_text(extent, style));
    }

    /// Writes text to standard output that begins with the answer: `yes` where it is the one that is hoped for.
    pub(crate) fn answer(&mut self, yes: Option<bool>, text: &str) -> Result<()> {
        let style = match yes {
            Some(true) => GREEN.bold(),
            Some(false) => RED,
            None => YELLOW,
        };
        let line = text.find('\n').unwrap_or(text.len());
        let end = text[..line].find(':').unwrap_or(line);
        let answer = styled(self.color_of_data, style, &text[..end]);
        let rest: Vec<String> =
            text[end..].split('\n').map(|line| paint_commands(self.color_of_data, line)).collect();
        self.text(&(answer + &rest.join("\n")))
    }

    /// Writes a table to standard output; its columns stay where they are.
    pub(crate) fn table(&mut self, text: &str) -> Result<()> {
        if self.ascii { self.data(&ascii::in_ascii_columns(text)) } else { self.data(text) }
    }

    /// Writes one line of JSON after whatever a program has written to the same standard output.
    ///
    /// A program may leave its last line without a line feed. Where standard output is a file, its last
    /// byte is known; elsewhere an extra empty line is better than a line that is not JSON.
    pub(crate) fn json_after_program(&mut self, line: &str) -> Result<()> {
        let break_line = match ends_within_line(&std::io::stdout()) {
            Some(false) => "",
            Some(true) | None => "\n",
        };
        self.data(&format!("{break_line}{line}\n"))
    }

    /// Writes data to standard output, as it is.
    pub(crate) fn data(&mut self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != IoErrorKind::BrokenPipe => {
                Err(Error::io("cannot write to standard output").cause(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes one value to standard output as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        self.data(&format!("{}\n", json_line(value)))
    }

    /// Writes the lines of a doctor's report to standard output.
    pub(crate) fn doctor_report(&mut self, lines: &[Line]) -> Result<()> {
        let mut text = String::new();
        for line in lines {
            if let Some(status) = line.status {
                let style = match status {
                    doctor::Status::Pass => GREEN,
                    doctor::Status::Warn => YELLOW,
                    doctor::Status::Fail => RED,
                    doctor::Status::Skip => DIM,
                };
                text.push_str(&styled(self.color_of_data, style, status.label()));
            }
            text.push_str(&line.text);
            text.push('\n');
        }
        self.text(&text)
    }

    /// Returns `true` if only errors and results are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns `true` if additional detail is printed.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Prints a message that `--quiet` suppresses.
    pub(crate) fn info(&self, text: &str) {
        if !self.quiet {
            self.write_stderr(text);
        }
    }

    /// Prints a message that only `--verbose` shows.
    pub(crate) fn verbose(&self, text: &str) {
        if self.verbose {
            self.write_stderr(text);
        }
    }

    /// Prints an error.
    pub(crate) fn error(&mut self, error: &Error) {
        if self.json {
            let line = json!({
                "schema": JSON_SCHEMA,
                "error": {
                    "id": error.kind().id(),
                    "message": error.message(),
                    "cause": error.cause_text(),
                    "hint": error.hint_text(),
                },
            });
            write_stderr(&line.to_string());
            return;
        }
        let head = self.paint(RED, &format!("error[{}]", error.kind().id()));
        let mut text = format!("{head}: {}", error.message());
        if let Some(cause) = error.cause_text() {
            text.push_str(&format!("\n  cause: {}", cause.trim_end().replace('\n', "\n         ")));
        }
        if let Some(hint) = error.hint_text() {
            let hint = paint_commands(self.color, hint);
            text.push_str(&format!("\n{}: {hint}", self.paint(CYAN, "hint")));
        }
        self.write_stderr(&text);
    }

    fn write_stderr(&self, text: &str) {
        if self.ascii {
            write_stderr(&ascii::in_ascii(text));
        } else {
            write_stderr(text);
        }
    }

    fn paint(&self, style: Style, text: &str) -> String {
        styled(self.color, style, text)
    }
}

/// Returns a value as one line of JSON, without a line feed.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our values have text keys and no numbers out of range")
}

fn styled(color: bool, style: Style, text: &str) -> String {
    if color { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// Colors commands of vramfit in a line: one that is the whole line, or stands between backticks.
fn paint_commands(color: bool, line: &str) -> String {
    let words = line.trim_start();
    if words.starts_with("vramfit ") {
        return line[..line.len() - words.len()].to_owned() + &styled(color, COMMAND, words);
    }
    let parts = line.split('`').enumerate().map(|(at, part)| match at % 2 {
        1 if part.starts_with("vramfit ") => styled(color, COMMAND, part),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Returns how a report is written to a stream. Long lines are hard to read, and columns need some room.
fn text_style(stream: impl AsFd + IsTerminal, is_colored: bool) -> TextStyle {
    let style = TextStyle::default();
    let columns = terminal_columns(stream).map_or(style.columns, |it| it.clamp(40, 120));
    TextStyle { columns, is_colored }
}

/// Colors are for terminals; a non-empty `NO_COLOR` turns them off.
fn wants_color(choice: ColorChoice, on_terminal: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
            !disabled && !dumb && on_terminal
        }
    }
}

/// Returns `true` if the contents of a file end within a line; `None` where it cannot be read back.
fn ends_within_line(stream: &impl AsFd) -> Option<bool> {
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

/// Writes what a program wrote to its own standard error, as it is, from any thread.
pub(crate) fn write_to_stderr(text: &[u8]) {
    // A closed standard error is no failure of ours.
    let _ = std::io::stderr().lock().write_all(text);
}

/// Writes one paragraph to standard error, in one call: other processes of the run write there too. A failure is
/// ignored: there is nowhere left to report it.
fn write_stderr(text: &str) {
    let line =
        if text.ends_with('\n') { Cow::Borrowed(text) } else { Cow::Owned(format!("{text}\n")) };
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Returns the width of the terminal that a stream is; none if it is no terminal.
pub(crate) fn terminal_columns(stream: impl AsFd + IsTerminal) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_colored_where_they_stand() {
        let painted =
            |line| paint_commands(true, line).replace("\x1b[36m", "<").replace("\x1b[0m", ">");
        assert_eq!(painted("  vramfit run -- x"), "  <vramfit run -- x>");
        assert_eq!(painted("see `vramfit gpus`, or `JAX`"), "see `<vramfit gpus>`, or `JAX`");
        assert_eq!(painted("vramfit's own"), "vramfit's own");
        assert_eq!(paint_commands(false, "`vramfit gpus`"), "`vramfit gpus`");
    }

    #[test]
    fn an_unfinished_line_is_found_in_a_file_and_unknown_in_a_pipe() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(ends_within_line(&file), Some(false));
        file.write_all(b"loss 0.1").expect("written");
        assert_eq!(ends_within_line(&file), Some(true));
        file.write_all(b"\n").expect("written");
        assert_eq!(ends_within_line(&file), Some(false));
        let (_reader, writer) = std::io::pipe().expect("a pipe");
        assert_eq!(ends_within_line(&writer), None);
    }
}
