//! The program that a user names after the options of vramfit.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use vramfit_core::{Error, Result};

use crate::child;
use crate::context::Context;

/// Splits a command into a program that exists and its arguments; a file that ends in `.py` is run with
/// the context's Python. What is not in `PATH` is relative to `directory`, else to the current one.
///
/// # Errors
/// `command-not-found`, and `invalid-argument` for an unknown option.
pub(crate) fn split_program(
    words: Vec<OsString>,
    directory: Option<&Path>,
    context: &Context,
) -> Result<(PathBuf, Vec<OsString>)> {
    let mut words = words.into_iter();
    let first = words.next().expect("clap requires one word");
    if first.as_encoded_bytes().starts_with(b"-") {
        let shown = first.to_string_lossy();
        return Err(Error::invalid_argument(format!("unknown option `{shown}`"))
            .hint("`--help` lists the options; they come before the program"));
    }
    let located = directory.map_or_else(|| PathBuf::from(&first), |it| it.join(&first));
    let is_script = Path::new(&first).extension() == Some(OsStr::new("py"));
    if !is_script {
        let has_folder = first.as_encoded_bytes().contains(&b'/');
        let program = if has_folder { located.as_os_str() } else { &first };
        return Ok((child::resolve_command(program)?, words.collect()));
    }
    if !located.is_file() {
        return Err(child::does_not_exist(&first.to_string_lossy()));
    }
    let python = context.python.clone().unwrap_or_default();
    let arguments = std::iter::once(first).chain(words).collect();
    Ok((child::resolve_command(python.as_os_str())?, arguments))
}

/// Returns words as one line that a shell splits into them again.
pub(crate) fn shell_line<'w>(words: impl IntoIterator<Item = &'w OsStr>) -> String {
    let words: Vec<_> = words.into_iter().map(OsStr::to_string_lossy).collect();
    let words = || words.iter().map(AsRef::as_ref);
    // No word of a command line has a NUL byte, which nothing can quote.
    shlex::try_join(words()).unwrap_or_else(|_| words().collect::<Vec<_>>().join(" "))
}
