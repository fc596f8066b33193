//! What the Python that is checked has installed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use vramfit_advice::doctor::{Inventory, MissingReason};
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_model::gpu;
use vramfit_runner::Context;
use vramfit_runner::dryrun::check_compiler;
use vramfit_runner::python::{self, Interpreter};
use vramfit_runner::python_child::PythonChild;

/// The script, see its own first lines.
const INVENTORY: &str = include_str!("inventory.py");

/// How long an interpreter that has closed its output may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Queries the inventory of a Python interpreter.
///
/// # Errors
/// `command-not-found` if it cannot be started or does not respond.
pub(super) fn inventory(python: &Path, timeout: Duration) -> Result<Inventory> {
    let shown = python.display();
    let not_found = |message: String| {
        Error::new(ErrorKind::CommandNotFound, message)
            .hint("select the Python that runs your programs with `--python`")
    };
    let mut command = Command::new(python);
    command.args(["-c", &(python::PACKAGES.to_owned() + INVENTORY)]).stderr(Stdio::null());
    let mut child = PythonChild::spawn(&mut command)
        .map_err(|error| not_found(format!("`{shown}` cannot be started")).cause(error))?;
    child.close_stdin();
    child.receive_message(Some(timeout)).ok_or_else(|| {
        not_found(if child.wait(EXIT_TIMEOUT).is_some() {
            format!("`{shown}` is not a working Python interpreter")
        } else {
            format!("`{shown}` did not respond within {} s", timeout.as_secs())
        })
    })
}

/// Returns what is missing for a dry run with that Python; `None` if that cannot be determined.
pub(super) fn dry_run(
    python: &Path,
    context: &Context,
) -> Option<std::result::Result<(), MissingReason>> {
    let interpreter = Interpreter { program: python.to_owned(), options: Vec::new() };
    let installed = python::query(&interpreter, |command| {
        // The script takes the first directory for that of vramfit's shim.
        if let Some(package) = &context.package {
            let users = std::env::var_os("PYTHONPATH");
            let path = python::prepend_python_path(python::shim_of(package), users);
            command.env("PYTHONPATH", path);
        }
    })?;
    // A GPU that the compilers of both CUDA 12 and 13 support.
    let gpu = gpu::find("h100-80g").ok()?;
    let checked = check_compiler(&interpreter, &installed, &gpu);
    Some(checked.map_err(|error| MissingReason {
        message: error.message().to_owned(),
        fix: error.hint_text().unwrap_or_default().to_owned(),
    }))
}
