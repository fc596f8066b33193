//! Allocates arrays in JAX's pool, in a child process that frees them when it exits.
//!
//! The child, `vramfit._functions._hold`, answers each line of input with a line of JSON, and exits at the end of its
//! input, so that it cannot outlive this process.

use serde::Deserialize;
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_runner::Context;
use vramfit_runner::python_child::{PythonChild, PythonFailure};

use super::backend::{Backend, MemoryStatus, OtherProcess, Verification};

/// An answer of the child; each request sets its own fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HoldReply {
    error: Option<PythonFailure>,
    gpu_name: String,
    /// Memory that arrays use, as JAX's allocator reports it.
    in_use_bytes: Option<u64>,
    /// Maximum size of the pool.
    limit_bytes: Option<u64>,
    allocated: bool,
    read_back: Option<bool>,
    note: Option<String>,
}

/// Starts JAX and queries its pool.
///
/// # Errors
/// `compiler-missing` if there is no JAX, or JAX has no GPU; `invalid-argument` if it has no such GPU.
pub(super) fn start(gpu: &str, context: &Context) -> Result<Box<dyn Backend>> {
    let index: u32 = gpu.parse().map_err(|_| {
        Error::invalid_argument(format!(
            "`{gpu}` is not an index, and JAX only identifies GPUs by index"
        ))
        .hint("use `--gpu 0`, and hide the other GPUs with `CUDA_VISIBLE_DEVICES`")
    })?;
    let python = context.python.clone().unwrap_or_else(|| "python3".into());
    let mut child = PythonChild::spawn_module(&python, "vramfit._functions._hold", &[])?;
    let reply = request(&mut child, &format!("open {index}"))?;
    let (in_use, limit) = (reply.in_use_bytes, reply.limit_bytes);
    Ok(Box::new(JaxBackend {
        status: MemoryStatus {
            gpu: index,
            gpu_name: reply.gpu_name,
            source: "JAX's pool",
            total_bytes: limit,
            free_bytes: limit.map_or(u64::MAX, |limit| limit.saturating_sub(in_use.unwrap_or(0))),
        },
        child,
        in_use_before: in_use,
        allocated: 0,
    }))
}

/// Sends a request and waits for the answer.
fn request(child: &mut PythonChild, line: &str) -> Result<HoldReply> {
    child.send(&format!("{line}\n"));
    let reply: Option<HoldReply> = child.receive_message(None);
    let reply = reply.ok_or_else(|| {
        Error::new(
            ErrorKind::CompilerMissing,
            "the Python process that allocates memory exited unexpectedly",
        )
        .hint("it requires JAX and vramfit; its output is above, and `--python` selects another")
    })?;
    match reply.error {
        None => Ok(reply),
        Some(failure) => Err(failure.into()),
    }
}

#[derive(Debug)]
struct JaxBackend {
    status: MemoryStatus,
    child: PythonChild,
    in_use_before: Option<u64>,
    allocated: u64,
}

impl Backend for JaxBackend {
    fn status(&self) -> &MemoryStatus {
        &self.status
    }

    fn other_processes(&self) -> Vec<OtherProcess> {
        // The pool belongs to one process.
        Vec::new()
    }

    fn allocate(&mut self, bytes: u64) -> Result<bool> {
        let reply = request(&mut self.child, &format!("allocate {bytes}"))?;
        self.allocated += if reply.allocated { bytes } else { 0 };
        Ok(reply.allocated)
    }

    fn free_bytes(&mut self) -> Result<Option<u64>> {
        let reply = request(&mut self.child, "stats")?;
        Ok(reply
            .limit_bytes
            .zip(reply.in_use_bytes)
            .map(|(limit, in_use)| limit.saturating_sub(in_use)))
    }

    fn verify(&mut self) -> Result<Verification> {
        let reply = request(&mut self.child, "verify")?;
        let counted = reply.in_use_bytes.zip(self.in_use_before);
        let no_statistics = "this JAX allocator keeps no statistics".to_owned();
        Ok(Verification {
            allocated_bytes: self.allocated,
            // Without statistics nothing contradicts.
            counted_bytes: counted
                .map_or(self.allocated, |(now, before)| now.saturating_sub(before)),
            read_back: reply.read_back,
            note: reply.note.or_else(|| counted.is_none().then_some(no_statistics)),
        })
    }
}
