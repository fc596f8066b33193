//! `vramfit train --init`: a configuration template.

use std::path::Path;

use vramfit_analysis::{Error, Result};
use vramfit_train::template;

use super::proposal;
use crate::files::{is_standard_output, writable, write};
use crate::output::Output;
use crate::status::Status;

/// Writes the template, never over an existing file.
pub(super) fn run(path: &Path, data: Option<&Path>, output: &mut Output) -> Result<Status> {
    let proposed = match data {
        Some(data) => proposal::propose(path, data)?,
        None => Vec::new(),
    };
    let text = template(&proposed);
    if is_standard_output(Some(path)) {
        output.data(&text)?;
        return Ok(Status::Yes);
    }
    let file = writable(path, false).map_err(|error| match path.is_file() {
        true => Error::new(error.kind(), error.message())
            .hint("choose another name: `vramfit train --init other.toml`"),
        false => error,
    })?;
    write(&file, &text, false)?;
    let shown = path.display();
    let next_step = match data {
        Some(_) => "review the proposed values",
        None => "enter the path of your data",
    };
    output.info(&format!("wrote `{shown}`: {next_step}, then `vramfit train {shown} --check`"));
    Ok(Status::Yes)
}
