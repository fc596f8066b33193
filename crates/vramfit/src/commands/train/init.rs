//! `vramfit train --init`: a file to begin with.

use std::path::Path;

use vramfit_core::train::starting_file;
use vramfit_core::{Error, Result};

use crate::commands::Status;
use crate::files::{is_standard_output, writable, write};
use crate::output::Output;

/// Writes the file, never over one that exists.
pub(super) fn run(path: &Path, output: &mut Output) -> Result<Status> {
    if is_standard_output(Some(path)) {
        output.data(&starting_file())?;
        return Ok(Status::Yes);
    }
    let file = writable(path, false).map_err(|error| match path.is_file() {
        true => Error::new(error.kind(), error.message())
            .hint("name another one: `vramfit train --init other.toml`"),
        false => error,
    })?;
    write(&file, &starting_file(), false)?;
    let shown = path.display();
    output.say(&format!(
        "wrote `{shown}`: name your data in it, then `vramfit train {shown} --check`"
    ));
    Ok(Status::Yes)
}
