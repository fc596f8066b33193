//! Holding through JAX: arrays in its pool, in a child process that is ended to give them back.
//!
//! The child is `vramfit._hold`. It answers each line that it is sent with a line of JSON, and ends
//! when there are no more lines, so that it cannot outlive us.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;
use vramfit_core::{Error, ErrorKind, Result};

use super::holder::{Holder, Other, Room, Verdict};
use crate::context::Context;
use crate::failure::Failure;

/// What the child answers; each request fills in its own fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HoldReply {
    /// What could not be done, with the id of the error.
    error: Option<Failure>,
    /// What the GPU is called.
    gpu_name: String,
    /// Bytes that arrays take, as JAX's allocator counts.
    in_use_bytes: Option<u64>,
    /// Bytes that the pool may take.
    limit_bytes: Option<u64>,
    /// Whether the array was made.
    taken: bool,
    /// Whether what was written was read back.
    read_back: Option<bool>,
    /// Why not, or what was wrong.
    note: Option<String>,
}

/// Starts JAX and asks it for its pool.
///
/// # Errors
/// `compiler-missing` when there is no JAX, or one without a GPU; `invalid-argument` when it has no
/// such GPU.
pub(super) fn start(gpu: &str, context: &Context) -> Result<Box<dyn Holder>> {
    let index: u32 = gpu.parse().map_err(|_| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("`{gpu}` is not a number, and JAX knows its GPUs by number only"),
        )
        .hint("write `--gpu 0`, or hide the other GPUs with `CUDA_VISIBLE_DEVICES`")
    })?;
    let mut process = JaxProcess::start(context)?;
    let answer = process.ask(&format!("open {index}"))?;
    let (in_use, limit) = (answer.in_use_bytes, answer.limit_bytes);
    Ok(Box::new(ByJax {
        room: Room {
            gpu: index,
            gpu_name: answer.gpu_name,
            whose: "JAX's pool",
            total_bytes: limit,
            free_bytes: limit.map_or(u64::MAX, |limit| limit.saturating_sub(in_use.unwrap_or(0))),
        },
        process,
        in_use_before: in_use,
        held: 0,
    }))
}

#[derive(Debug)]
struct ByJax {
    room: Room,
    process: JaxProcess,
    in_use_before: Option<u64>,
    held: u64,
}

impl Holder for ByJax {
    fn room(&self) -> &Room {
        &self.room
    }

    fn others(&self) -> Vec<Other> {
        // The pool is the process's own: nobody else is in it.
        Vec::new()
    }

    fn take(&mut self, bytes: u64) -> Result<bool> {
        let taken = self.process.ask(&format!("take {bytes}"))?.taken;
        self.held += if taken { bytes } else { 0 };
        Ok(taken)
    }

    fn free_bytes(&mut self) -> Result<Option<u64>> {
        let answer = self.process.ask("free")?;
        Ok(answer
            .limit_bytes
            .zip(answer.in_use_bytes)
            .map(|(limit, in_use)| limit.saturating_sub(in_use)))
    }

    fn verify(&mut self) -> Result<Verdict> {
        let answer = self.process.ask("verify")?;
        let counted = answer.in_use_bytes.zip(self.in_use_before);
        let no_books = "this allocator of JAX keeps no count".to_owned();
        Ok(Verdict {
            held_bytes: self.held,
            // Where nothing is counted, nothing contradicts.
            counted_bytes: counted.map_or(self.held, |(now, before)| now.saturating_sub(before)),
            read_back: answer.read_back,
            note: answer
                .note
                .or_else(|| counted.is_none().then_some(no_books)),
        })
    }
}

/// A Python with JAX that we talk to.
#[derive(Debug)]
struct JaxProcess {
    child: Child,
    /// Dropped first, which ends the child.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl JaxProcess {
    fn start(context: &Context) -> Result<JaxProcess> {
        let python = context.python.clone().unwrap_or_else(|| "python3".into());
        let mut child = Command::new(&python)
            .args(["-m", "vramfit._hold"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let shown = python.display();
                Error::new(
                    ErrorKind::CommandNotFound,
                    format!("`{shown}` cannot be started"),
                )
                .cause(error)
                .hint("name a Python that has JAX and vramfit with `--python`")
            })?;
        let requests = child.stdin.take();
        let answers = child.stdout.take().expect("standard output was piped");
        Ok(JaxProcess {
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    /// Sends a request and waits for its answer.
    fn ask(&mut self, request: &str) -> Result<HoldReply> {
        let mut line = String::new();
        if let Some(requests) = &mut self.requests {
            // A child that is gone does not answer either, which is told below.
            let _ = writeln!(requests, "{request}");
        }
        let read = self.answers.read_line(&mut line);
        let answer = read.ok().and_then(|_| serde_json::from_str(&line).ok());
        let answer: HoldReply = answer.ok_or_else(|| {
            Error::new(
                ErrorKind::CompilerMissing,
                "the Python that was to hold memory ended without an answer",
            )
            .hint("it needs JAX and vramfit; what it said is above, and `--python` names another")
        })?;
        match answer.error {
            None => Ok(answer),
            Some(failure) => Err(failure.into()),
        }
    }
}

impl Drop for JaxProcess {
    fn drop(&mut self) {
        drop(self.requests.take());
        // It is gone in any case; its memory goes with it.
        let _ = self.child.wait();
    }
}
