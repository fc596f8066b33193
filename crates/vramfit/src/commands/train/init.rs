//! `vramfit train --init`: a file to begin with.

use std::path::Path;

use vramfit_core::train::starting_file;
use vramfit_core::{Error, Result};

use super::proposal;
use crate::files::{is_standard_output, writable, write};
use crate::output::Output;
use crate::status::Status;

/// Writes the file, never over one that exists.
pub(super) fn run(path: &Path, data: Option<&Path>, output: &mut Output) -> Result<Status> {
    let proposed = match data {
        Some(data) => proposal::propose(path, data)?,
        None => Vec::new(),
    };
    let text = starting_file(&proposed);
    if is_standard_output(Some(path)) {
        output.data(&text)?;
        return Ok(Status::Yes);
    }
    let file = writable(path, false).map_err(|error| match path.is_file() {
        true => Error::new(error.kind(), error.message())
            .hint("name another one: `vramfit train --init other.toml`"),
        false => error,
    })?;
    write(&file, &text, false)?;
    let shown = path.display();
    let to_do = match data {
        Some(_) => "read what it proposes",
        None => "name your data in it",
    };
    output.info(&format!(
        "wrote `{shown}`: {to_do}, then `vramfit train {shown} --check`"
    ));
    Ok(Status::Yes)
}
