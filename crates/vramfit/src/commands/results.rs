//! Options about results, the same in every command that has them: JSON for programs, a page, the whole report.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vramfit_analysis::Result;
use vramfit_analysis::report::{Extent, Report};
use vramfit_runner::files::cannot_write;

use crate::files::{writable, write};
use crate::output::{Output, json_line};

/// Results as JSON.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct JsonArgs {
    /// Write the results as JSON to a file, or with `-` to standard output instead of the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Results as JSON, of a command that writes no other file.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct JsonFileArgs {
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// Overwrite existing files
    #[arg(long)]
    pub(crate) force: bool,
}

/// The report as a page.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PageArgs {
    /// Write the report as a self-contained HTML file
    #[arg(long, value_name = "FILE", alias = "report")]
    pub(crate) html: Option<PathBuf>,
}

/// The report with everything that is known.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct FullArgs {
    /// Print all of the report, not only the most important lines
    #[arg(long, alias = "all")]
    pub(crate) full: bool,
}

impl FullArgs {
    /// Returns how much of a report a text has.
    pub(crate) fn extent(self) -> Extent<'static> {
        if self.full { Extent::Full } else { Extent::Brief { option: "--full" } }
    }
}

impl JsonArgs {
    /// Returns what was given.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Returns `true` if JSON takes the place of the text on standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.path() == Some(Path::new("-"))
    }

    /// Returns the file to write, if one is named, as [`writable`] does.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn file(&self, force: bool) -> Result<Option<PathBuf>> {
        let named = self.path().filter(|_| !self.is_stdout());
        named.map(|path| writable(path, force)).transpose()
    }

    /// Returns where one value goes.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn target(&self, force: bool) -> Result<JsonTarget> {
        Ok(match self.file(force)? {
            Some(path) => JsonTarget::File { path, force },
            None if self.is_stdout() => JsonTarget::Stdout,
            None => JsonTarget::None,
        })
    }
}

impl JsonFileArgs {
    /// As [`JsonArgs::target`].
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn target(&self) -> Result<JsonTarget> {
        self.json.target(self.force)
    }

    /// Returns where values go, one in each line, as they come.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn lines(&self) -> Result<JsonLines> {
        Ok(match self.json.file(self.force)? {
            Some(path) => {
                let file = File::create(&path).map_err(|error| cannot_write(&path, error))?;
                JsonLines::File { path, file }
            }
            None if self.json.is_stdout() => JsonLines::Stdout,
            None => JsonLines::None,
        })
    }
}

impl PageArgs {
    /// Returns the file to write, if one is named, as [`writable`] does.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn file(&self, force: bool) -> Result<Option<PathBuf>> {
        self.html.as_deref().map(|path| writable(path, force)).transpose()
    }
}

/// Where one value goes as JSON.
#[derive(Clone, Debug)]
pub(crate) enum JsonTarget {
    /// Nobody wants it.
    None,
    /// To standard output, instead of text.
    Stdout,
    File {
        path: PathBuf,
        force: bool,
    },
}

impl JsonTarget {
    /// Returns `true` if JSON takes the place of the text on standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, JsonTarget::Stdout)
    }

    /// Writes the value.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn write(&self, value: &impl Serialize, output: &mut Output) -> Result<()> {
        match self {
            JsonTarget::None => Ok(()),
            JsonTarget::Stdout => output.json(value),
            JsonTarget::File { path, force } => {
                write(path, &json_line(value), *force)?;
                output.info(&format!("JSON written to {}", path.display()));
                Ok(())
            }
        }
    }
}

/// Where values go as JSON, one in each line. Each is there when [`Self::write`] returns.
#[derive(Debug)]
pub(crate) enum JsonLines {
    /// Nobody wants them.
    None,
    /// To standard output, instead of text.
    Stdout,
    File {
        path: PathBuf,
        file: File,
    },
}

impl JsonLines {
    /// Returns `true` if JSON takes the place of the text on standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, JsonLines::Stdout)
    }

    /// Writes a value.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn write(&mut self, value: &impl Serialize, output: &mut Output) -> Result<()> {
        match self {
            JsonLines::None => Ok(()),
            JsonLines::Stdout => output.json(value),
            JsonLines::File { path, file } => {
                let line = json_line(value) + "\n";
                file.write_all(line.as_bytes()).map_err(|error| cannot_write(path, error))
            }
        }
    }
}

/// Prints a report, all of it or what fits on a screen, and writes it as JSON.
///
/// # Errors
/// `io`.
pub(crate) fn print_report(
    report: &Report,
    full: bool,
    json: &JsonTarget,
    output: &mut Output,
) -> Result<()> {
    if !json.is_stdout() {
        output.report(report, FullArgs { full }.extent())?;
    }
    json.write(&report.json, output)
}

/// Writes a report as a page, if a file is named.
///
/// # Errors
/// `io`.
pub(crate) fn write_page(
    report: &Report,
    path: Option<&Path>,
    force: bool,
    output: &mut Output,
) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    write(path, &report.to_html(), force)?;
    output.info(&format!("report written to {}", path.display()));
    Ok(())
}
