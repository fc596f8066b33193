//! The command line, for the console script that the wheel installs.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs one command line, program name first, and returns its exit code.
///
/// The interpreter is released meanwhile, though nothing else runs in it: a console script has one
/// thread, and the user's program is another process.
#[pyfunction]
#[pyo3(signature = (args, *, package, python, in_session = false))]
pub(crate) fn run_cli(
    py: Python<'_>,
    args: Vec<OsString>,
    package: PathBuf,
    python: Option<PathBuf>,
    in_session: bool,
) -> u8 {
    // An embedded interpreter has no `sys.executable`: it is an empty string.
    let python = python.filter(|path| !path.as_os_str().is_empty());
    let context = vramfit::Context {
        package: Some(package),
        python,
        in_session,
        ..vramfit::Context::default()
    };
    py.detach(|| vramfit::run(args, &context))
}
