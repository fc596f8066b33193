//! What the Python that is examined has installed.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use vramfit_core::doctor::{Inventory, Missing};
use vramfit_core::gpu;
use vramfit_core::{Error, ErrorKind, Result};

use crate::commands::dryrun::check_compiler;
use crate::context::Context;
use crate::python::{self, Interpreter, MARKER};

/// The script that the Python is asked with; see its own first lines.
const INVENTORY: &str = include_str!("inventory.py");

/// Asks a Python for its inventory.
///
/// # Errors
/// `command-not-found` when it cannot be started or does not answer: then nothing can be examined.
pub(super) fn inventory(python: &Path, limit: Duration) -> Result<Inventory> {
    let shown = python.display();
    let refuse = |message: String| {
        Error::new(ErrorKind::CommandNotFound, message)
            .hint("name the Python that runs your programs with `--python`")
    };
    let mut child = Command::new(python)
        .args(["-c", INVENTORY])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| refuse(format!("`{shown}` cannot be started")).cause(error))?;
    let mut pipe = child.stdout.take().expect("standard output was piped");
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // A half-read answer does not parse, which says the same as an error here.
        let _ = pipe.read_to_end(&mut text);
        let _ = sender.send(text);
    });
    let answer = receiver.recv_timeout(limit);
    if answer.is_err() {
        // It may have ended meanwhile; either way it is reaped in the next line.
        let _ = child.kill();
    }
    let _ = child.wait();
    let Ok(answer) = answer else {
        return Err(refuse(format!(
            "`{shown}` gave no answer within {} s",
            limit.as_secs()
        )));
    };
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().find_map(|line| line.strip_prefix(MARKER));
    line.and_then(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| refuse(format!("`{shown}` does not answer as a Python does")))
}

/// Says what is missing for a dry run with that Python; `None` when it does not tell.
pub(super) fn dry_run(
    python: &Path,
    context: &Context,
) -> Option<std::result::Result<(), Missing>> {
    let interpreter = Interpreter {
        program: python.to_owned(),
        options: Vec::new(),
    };
    let installed = python::query(&interpreter, |command| {
        // The question takes the first directory for that of the stand-in modules.
        if let Some(package) = &context.package {
            let mut path = package.join("_standin").into_os_string();
            if let Some(users) = std::env::var_os("PYTHONPATH").filter(|path| !path.is_empty()) {
                path.push(":");
                path.push(users);
            }
            command.env("PYTHONPATH", path);
        }
    })?;
    // A GPU that the compilers of CUDA 12 and 13 both know.
    let gpu = gpu::find("h100-80g").ok()?;
    let checked = check_compiler(&interpreter, &installed, &gpu);
    Some(checked.map_err(|error| Missing {
        message: error.message().to_owned(),
        fix: error.hint_text().unwrap_or_default().to_owned(),
    }))
}
