//! The settings of a program as text for the place where it will run: a shell, an image, a cluster.
//!
//! One file here a format. Each is complete and commented, made to be pasted or written to a file, and
//! every value is quoted as its format wants it, whatever the value holds. Which variables there are
//! is decided elsewhere ([`crate::settings`]).

mod compose;
mod devcontainer;
mod dockerfile;
mod kubernetes;
mod quote;
mod shell;
mod slurm;
mod systemd;

use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// Where a program will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A shell that follows POSIX.
    Shell,
    /// An image.
    Dockerfile,
    /// Docker Compose.
    Compose,
    /// A container of a development environment.
    Devcontainer,
    /// A batch job of SLURM.
    Slurm,
    /// A job of Kubernetes.
    Kubernetes,
    /// A service of systemd.
    Systemd,
}

impl Format {
    /// Every format, in the order in which they are told.
    pub const ALL: [Format; 7] = [
        Format::Shell,
        Format::Dockerfile,
        Format::Compose,
        Format::Devcontainer,
        Format::Slurm,
        Format::Kubernetes,
        Format::Systemd,
    ];

    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Shell => "shell",
            Format::Dockerfile => "dockerfile",
            Format::Compose => "compose",
            Format::Devcontainer => "devcontainer",
            Format::Slurm => "slurm",
            Format::Kubernetes => "kubernetes",
            Format::Systemd => "systemd",
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    /// Parses the words of [`Format::name`], in any case.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for any other word.
    fn from_str(text: &str) -> Result<Self> {
        let word = text.to_ascii_lowercase();
        let found = Format::ALL.into_iter().find(|format| format.name() == word);
        found.ok_or_else(|| {
            let names: Vec<_> = Format::ALL
                .map(|format| format!("`{}`", format.name()))
                .into();
            Error::new(
                ErrorKind::InvalidArgument,
                format!("`{text}` is not a place that vramfit writes settings for"),
            )
            .hint(format!("choose one of {}", names.join(", ")))
        })
    }
}

/// A variable to be set, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value, unquoted.
    pub value: String,
    /// Why, as one clause in lower case without a full stop; empty where there is nothing to say.
    pub reason: String,
}

/// What is to be started, and with which settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The variables, each name once.
    pub variables: Vec<Variable>,
    /// What else whoever pastes it should know, one clause each.
    pub notes: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The cards that it gets.
    pub gpus: u32,
    /// The release of JAX that is installed in an image, such as `0.10.2`.
    pub jax: String,
    /// The extra of JAX that brings CUDA: `cuda12` or `cuda13`.
    pub cuda_extra: String,
    /// The image that a container is made from or of.
    pub image: String,
}

/// A file, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it belongs, such as `.devcontainer/devcontainer.json`.
    pub path: &'static str,
    /// What it holds, with a line feed at the end.
    pub text: String,
}

/// Writes the settings for a place.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a name that no environment can hold, and for a value that the
/// format has no way to write, which is told.
pub fn write(format: Format, start: &Start) -> Result<Vec<File>> {
    for variable in &start.variables {
        check_name(&variable.name)?;
        if variable.value.contains('\0') {
            return Err(unwritable(&variable.name, "a NUL", "any environment"));
        }
    }
    let one = |path, text| vec![File { path, text }];
    Ok(match format {
        Format::Shell => one("jax-env.sh", shell::write(start)),
        Format::Dockerfile => one("Dockerfile", dockerfile::write(start)?),
        Format::Compose => one("compose.yaml", compose::write(start)),
        Format::Devcontainer => devcontainer::write(start)?,
        Format::Slurm => one("job.sh", slurm::write(start)),
        Format::Kubernetes => one("job.yaml", kubernetes::write(start)),
        Format::Systemd => one("jax-program.service", systemd::write(start)),
    })
}

/// Refuses what a shell would not take for a name.
fn check_name(name: &str) -> Result<()> {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let good = name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit());
    if good {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!("`{name}` is not the name of a variable"),
    )
    .hint("a name has letters, digits and underscores, and does not begin with a digit"))
}

fn unwritable(name: &str, what: &str, format: &str) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("the value of `{name}` holds {what}, which {format} cannot hold"),
    )
    .hint("set the variable in the program's own start script")
}

/// Refuses a line break in a format that has one variable a line and no way to write one.
fn refuse_line_breaks(start: &Start, format: &str) -> Result<()> {
    let broken = |variable: &&Variable| variable.value.contains(['\n', '\r']);
    match start.variables.iter().find(broken) {
        Some(variable) => Err(unwritable(&variable.name, "a line break", format)),
        None => Ok(()),
    }
}

/// Writes the lines that say why, each behind a mark such as `# `.
fn comment(mark: &str, text: &str) -> String {
    const COLUMNS: usize = 90;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() + mark.len() > COLUMNS {
            lines.push(word.to_owned());
        } else {
            let space = if line.is_empty() { "" } else { " " };
            line.push_str(space);
            line.push_str(word);
        }
    }
    lines
        .into_iter()
        .filter(|line| !line.is_empty())
        .map(|line| format!("{mark}{line}\n"))
        .collect()
}

/// Writes each variable with its reason above it. `line` writes one, without a line feed.
fn variables(start: &Start, mark: &str, line: impl Fn(&Variable) -> String) -> String {
    let mut text = String::new();
    for variable in &start.variables {
        text.push_str(&comment(mark, &variable.reason));
        text.push_str(&line(variable));
        text.push('\n');
    }
    text
}

/// Writes the notes, if there are any.
fn notes(start: &Start, mark: &str) -> String {
    start
        .notes
        .iter()
        .map(|note| comment(mark, &format!("Note: {note}.")))
        .collect()
}

#[cfg(test)]
mod tests;
