//! A development container: the variables in a file of their own, and the JSON that uses it.

use serde_json::json;

use super::{GeneratedFile, Launch, notes, reject_line_breaks, variables};
use crate::error::Result;

const HEADER: &str = "\
# Memory settings for JAX in the development container: one NAME=VALUE a line, without quotes, since
# a quote would be part of the value. Rebuild the container after a change.
";

pub(super) fn write(launch: &Launch) -> Result<Vec<GeneratedFile>> {
    reject_line_breaks(launch, "an env file")?;
    let lines = variables(launch, "# ", |variable| format!("{}={}", variable.name, variable.value));
    // No package index has vramfit: the wheel is a file in the workspace, or a URL.
    let install = format!(
        "pip install \"jax[{}]=={}\" \"${{VRAMFIT:?name its wheel in this variable of the host}}\"",
        launch.cuda_extra, launch.jax
    );
    let container = json!({
        "name": "jax",
        "image": launch.image,
        // Without a GPU the container must not start: JAX would silently fall back to the CPU.
        "hostRequirements": { "gpu": true },
        "runArgs": [
            "--gpus=all",
            "--shm-size=8g",
            "--env-file=.devcontainer/devcontainer.env",
        ],
        "containerEnv": { "VRAMFIT": "${localEnv:VRAMFIT}" },
        "postCreateCommand": install,
        // At each start, and without preallocating a second pool next to a program's.
        "postStartCommand":
            "XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu",
    });
    let container =
        serde_json::to_string_pretty(&container).expect("strings and booleans are always JSON");
    Ok(vec![
        GeneratedFile {
            path: ".devcontainer/devcontainer.env",
            text: format!("{HEADER}{}\n{lines}", notes(launch, "# ")),
        },
        GeneratedFile { path: ".devcontainer/devcontainer.json", text: container + "\n" },
    ])
}
