//! Memory settings in the format of the place where a program will run: a shell, an image, a cluster.
//!
//! One source file per format. The text is complete and commented, ready to be pasted or written to a
//! file, and every value is quoted as the format requires. [`crate::settings`] decides which variables
//! are set.

mod compose;
mod devcontainer;
mod dockerfile;
mod kubernetes;
mod quote;
mod shell;
mod slurm;
mod systemd;

use std::str::FromStr;

use crate::error::{Error, Result};

/// The format of the settings, after the place where the program will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A POSIX shell.
    Shell,
    /// A container image.
    Dockerfile,
    /// Docker Compose.
    Compose,
    /// A development container.
    Devcontainer,
    /// A SLURM batch job.
    Slurm,
    /// A Kubernetes job.
    Kubernetes,
    /// A systemd service.
    Systemd,
}

impl Format {
    /// Every format, in the order in which they are listed.
    pub const ALL: [Format; 7] = [
        Format::Shell,
        Format::Dockerfile,
        Format::Compose,
        Format::Devcontainer,
        Format::Slurm,
        Format::Kubernetes,
        Format::Systemd,
    ];

    /// Returns its name, as on the command line.
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

    /// Parses [`Format::name`], in any case.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for any other name.
    fn from_str(text: &str) -> Result<Self> {
        let name = text.to_ascii_lowercase();
        let found = Format::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Format::ALL.map(|format| format!("`{}`", format.name())).into();
            Error::invalid_argument(format!("unknown format `{text}`"))
                .hint(format!("choose one of {}", names.join(", ")))
        })
    }
}

/// CPUs of a job for each process on GPUs.
const CPUS_PER_PROCESS: u32 = 8;

/// Host memory of a job for each GPU, in GiB, where whole hosts are requested.
const HOST_MEMORY_PER_GPU: u32 = 64;

/// A variable to be set, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The variable's name.
    pub name: String,
    /// The value, unquoted.
    pub value: String,
    /// Why, as one clause in lower case without a full stop; empty where there is nothing to say.
    pub reason: String,
}

/// How a program is started, and with which settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The variables, each name once.
    pub variables: Vec<Variable>,
    /// What else the user should know, one clause each.
    pub notes: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Number of GPUs of a host.
    pub gpus: u32,
    /// Number of hosts that run the program together; `None` for a program that knows of no others.
    pub hosts: Option<u32>,
    /// Release of JAX to install in an image, such as `0.10.2`.
    pub jax: String,
    /// Extra of JAX that includes CUDA: `cuda12` or `cuda13`.
    pub cuda_extra: String,
    /// Base image of a container.
    pub image: String,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Relative path, such as `.devcontainer/devcontainer.json`.
    pub path: &'static str,
    /// Contents, with a line feed at the end.
    pub text: String,
}

/// Returns the files with the settings.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] for a name that is invalid, for a value that the format cannot
/// represent, and for several hosts in a format that starts a program on one.
pub fn write(format: Format, launch: &Launch) -> Result<Vec<GeneratedFile>> {
    if launch.hosts.is_some() && !matches!(format, Format::Slurm | Format::Kubernetes) {
        return Err(Error::invalid_argument(format!(
            "the format `{}` starts a program on one host",
            format.name()
        ))
        .hint("`slurm` and `kubernetes` start it on several; elsewhere, set the same variables on each"));
    }
    for variable in &launch.variables {
        check_name(&variable.name)?;
        if variable.value.contains('\0') {
            return Err(unrepresentable(
                &variable.name,
                "a NUL character",
                "an environment variable",
            ));
        }
    }
    let one = |path, text| vec![GeneratedFile { path, text }];
    Ok(match format {
        Format::Shell => one("jax-env.sh", shell::write(launch)),
        Format::Dockerfile => one("Dockerfile", dockerfile::write(launch)?),
        Format::Compose => one("compose.yaml", compose::write(launch)),
        Format::Devcontainer => devcontainer::write(launch)?,
        Format::Slurm => one("job.sh", slurm::write(launch)),
        Format::Kubernetes => one("job.yaml", kubernetes::write(launch)),
        Format::Systemd => one("jax-program.service", systemd::write(launch)),
    })
}

/// Rejects what is not a name for a shell.
fn check_name(name: &str) -> Result<()> {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_valid = name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit());
    if is_valid {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("`{name}` is not a valid variable name")).hint(
        "a name consists of letters, digits and underscores, and does not start with a digit",
    ))
}

fn unrepresentable(name: &str, what: &str, format: &str) -> Error {
    Error::invalid_argument(format!(
        "the value of `{name}` contains {what}, which {format} cannot contain"
    ))
    .hint("set the variable in the script that starts the program")
}

/// Rejects a line break in a format that has one variable a line and cannot escape one.
fn reject_line_breaks(launch: &Launch, format: &str) -> Result<()> {
    let broken = |variable: &&Variable| variable.value.contains(['\n', '\r']);
    match launch.variables.iter().find(broken) {
        Some(variable) => Err(unrepresentable(&variable.name, "a line break", format)),
        None => Ok(()),
    }
}

/// Returns a text as comment lines, each with a prefix such as `# `.
fn comment_lines(prefix: &str, text: &str) -> String {
    const MAX_COLUMNS: usize = 90;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() + prefix.len() > MAX_COLUMNS {
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
        .map(|line| format!("{prefix}{line}\n"))
        .collect()
}

/// Returns each variable with its reason above it. `line` formats one, without a line feed.
fn variables(launch: &Launch, prefix: &str, line: impl Fn(&Variable) -> String) -> String {
    let mut text = String::new();
    for variable in &launch.variables {
        text.push_str(&comment_lines(prefix, &variable.reason));
        text.push_str(&line(variable));
        text.push('\n');
    }
    text
}

/// Returns the notes as comment lines.
fn notes(launch: &Launch, prefix: &str) -> String {
    launch.notes.iter().map(|note| comment_lines(prefix, &format!("Note: {note}."))).collect()
}

#[cfg(test)]
mod tests;
