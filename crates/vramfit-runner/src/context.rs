//! Where the command line was started from.

use std::ffi::OsString;
use std::path::PathBuf;

/// Where the command line was started from, as far as its caller knows.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The directory of the Python package `vramfit`, with the modules that JAX discovers.
    pub package: Option<PathBuf>,
    /// The Python interpreter that started us.
    pub python: Option<PathBuf>,
    /// Whether a Python session waits for the result: nobody else sees what goes on when that is gone.
    pub in_session: bool,
    /// The words of the command line after the name of the program; known once it is parsed.
    pub arguments: Vec<OsString>,
    /// A name of Python in the user's command, and the interpreter that it stands for instead of the first on the `PATH`.
    pub replaced_python: Option<(OsString, PathBuf)>,
}

impl Context {
    /// Returns what a plain binary knows: the Python of the virtual environment it was started in.
    pub fn from_environment() -> Self {
        let root = std::env::var_os("VIRTUAL_ENV").filter(|root| !root.is_empty());
        Context {
            python: root.map(|root| PathBuf::from(root).join("bin/python")),
            ..Context::default()
        }
    }

    /// Returns a context that names the Python to use where the user's command does not: `--python`,
    /// else `VRAMFIT_PYTHON`, else the one that started us, else `python3`.
    pub fn with_python(&self, option: Option<PathBuf>) -> Context {
        let variable = std::env::var_os("VRAMFIT_PYTHON").filter(|name| !name.is_empty());
        let python = option
            .or_else(|| variable.map(PathBuf::from))
            .or_else(|| self.python.clone())
            .unwrap_or_else(|| "python3".into());
        Context { python: Some(python), ..self.clone() }
    }
}
