//! A development container: the variables in a file of their own, and the JSON that uses it.

use serde_json::json;

use super::{File, Start, notes, refuse_line_breaks, variables};
use crate::error::Result;

const HEADER: &str = "\
# Settings for JAX's memory in the development container. One NAME=VALUE a line, and nothing is
# quoted: a quote here is part of the value. Rebuild the container after a change.
";

pub(super) fn write(start: &Start) -> Result<Vec<File>> {
    refuse_line_breaks(start, "a file of variables")?;
    let lines = variables(start, "# ", |variable| {
        format!("{}={}", variable.name, variable.value)
    });
    let install = format!(
        "pip install \"jax[{}]=={}\" vramfit",
        start.cuda_extra, start.jax
    );
    let container = json!({
        "name": "jax",
        "image": start.image,
        // Without a card the container shall not start and fall to the CPU in silence.
        "hostRequirements": { "gpu": true },
        "runArgs": [
            "--gpus=all",
            "--shm-size=8g",
            "--env-file=.devcontainer/devcontainer.env",
        ],
        "postCreateCommand": install,
        // At each start, and without taking a pool beside a program's.
        "postStartCommand":
            "XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu",
    });
    let container =
        serde_json::to_string_pretty(&container).expect("texts and truth values are always JSON");
    Ok(vec![
        File {
            path: ".devcontainer/devcontainer.env",
            text: format!("{HEADER}{}\n{lines}", notes(start, "# ")),
        },
        File {
            path: ".devcontainer/devcontainer.json",
            text: container + "\n",
        },
    ])
}
