//! Reports what happens: lines for people, or one JSON object per event.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use vramfit_analysis::{Bytes, Result};
use vramfit_base::JSON_SCHEMA;

use super::backend::{MemoryStatus, OtherProcess, Verification};
use crate::commands::results::JsonLines;
use crate::output::Output;

/// Describes a process in one line.
fn process_line(process: &OtherProcess) -> String {
    let used = bytes_or_unknown(process.used_bytes);
    let command = process.command.as_deref().unwrap_or("(unknown command)");
    let mut line = format!("{used:>10}  pid {}  {command}", process.pid);
    for detail in [&process.user, &process.container].into_iter().flatten() {
        line.push_str(&format!(", {detail}"));
    }
    line
}

fn bytes_or_unknown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), |bytes| Bytes(bytes).to_string())
}

/// One event in JSON.
#[derive(Serialize)]
struct Event<'a, T: Serialize> {
    schema: u32,
    event: &'a str,
    #[serde(flatten)]
    details: T,
}

/// Reports events as text or JSON.
#[derive(Debug)]
pub(super) struct HoldReporter<'a> {
    output: &'a mut Output,
    json: JsonLines,
}

impl<'a> HoldReporter<'a> {
    pub(super) fn new(output: &'a mut Output, json: JsonLines) -> Self {
        HoldReporter { output, json }
    }

    /// Reports that less memory is free than was requested, and what uses the rest.
    pub(super) fn on_insufficient(
        &mut self,
        requested_bytes: u64,
        memory: &MemoryStatus,
        other_processes: &[OtherProcess],
    ) -> Result<()> {
        let insufficient = json!({
            "gpu": memory.gpu,
            "requested_bytes": requested_bytes,
            "free_bytes": memory.free_bytes,
            "total_bytes": memory.total_bytes,
            "other_processes": other_processes,
        });
        self.write_event("insufficient_memory", insufficient)?;
        if self.json.is_stdout() {
            return Ok(());
        }
        let total = memory
            .total_bytes
            .map_or(String::new(), |total| format!(" of {} usable memory", Bytes(total)));
        let mut text = format!(
            "cannot allocate {}: {} has {} free{total}\n",
            Bytes(requested_bytes),
            memory.source,
            Bytes(memory.free_bytes),
        );
        for process in other_processes {
            text.push_str(&format!("  {}\n", process_line(process)));
        }
        self.output.text(&text)
    }

    /// Reports the memory before the first step.
    pub(super) fn on_start(&mut self, requested_bytes: u64, memory: &MemoryStatus) -> Result<()> {
        let is_known = memory.total_bytes.is_some();
        let free_bytes = is_known.then_some(memory.free_bytes);
        let start = json!({
            "gpu": memory.gpu,
            "gpu_name": memory.gpu_name,
            "requested_bytes": requested_bytes,
            "free_bytes": free_bytes,
            "total_bytes": memory.total_bytes,
        });
        self.write_event("start", start)?;
        if self.json.is_stdout() {
            return Ok(());
        }
        let size = memory.total_bytes.map_or(String::new(), |total| {
            format!(", {} has {} free of {}", memory.source, Bytes(memory.free_bytes), Bytes(total))
        });
        let head = format!("GPU {}: {}{size}\n", memory.gpu, memory.gpu_name);
        self.output.data(&format!("{head}{:>10}  {:>10}\n", "allocated", "free"))
    }

    pub(super) fn on_step(&mut self, allocated_bytes: u64, free_bytes: Option<u64>) -> Result<()> {
        self.write_step("step", allocated_bytes, free_bytes)?;
        if self.json.is_stdout() {
            return Ok(());
        }
        let allocated = Bytes(allocated_bytes).to_string();
        let free = bytes_or_unknown(free_bytes);
        self.output.data(&format!("{allocated:>10}  {free:>10}\n"))
    }

    /// Reports the result of `--verify`.
    pub(super) fn on_verified(&mut self, verification: &Verification) -> Result<()> {
        self.write_event("verified", verification)?;
        if self.json.is_stdout() {
            return Ok(());
        }
        let mut text = match verification.read_back {
            Some(true) => "verified: all data was written and read back".to_owned(),
            Some(false) => "verification failed: the data that was read back differs".to_owned(),
            None => "verified by memory statistics only".to_owned(),
        };
        if let Some(note) = &verification.note {
            text.push_str(&format!("; {note}"));
        }
        let counted = Bytes(verification.counted_bytes);
        text.push_str(&format!("\n  free memory decreased by {counted}"));
        if verification.counted_bytes < verification.allocated_bytes {
            text.push_str(&format!(
                ", less than the {} that are allocated: not all of it is on the GPU, or another \
                 process freed memory",
                Bytes(verification.allocated_bytes)
            ));
        }
        self.output.text(&format!("{text}\n"))
    }

    /// Reports that all of the memory is allocated.
    pub(super) fn on_holding(
        &mut self,
        allocated_bytes: u64,
        duration: Option<Duration>,
    ) -> Result<()> {
        self.write_step("holding", allocated_bytes, None)?;
        if self.json.is_stdout() {
            return Ok(());
        }
        let until = match duration {
            Some(duration) => format!("for {}s", duration.as_secs_f64()),
            None => "until Ctrl-C".to_owned(),
        };
        self.output.info(&format!("holding {} {until}", Bytes(allocated_bytes)));
        Ok(())
    }

    /// Reports that it stopped before all of the memory was allocated, or early.
    pub(super) fn on_stop(&mut self, allocated: u64, requested: u64, reason: &str) -> Result<()> {
        self.write_end("stopped", allocated, requested, reason)?;
        if self.json.is_stdout() {
            return Ok(());
        }
        self.output.data(&format!(
            "stopped at {} of {}: {reason}\n",
            Bytes(allocated),
            Bytes(requested)
        ))
    }

    /// Reports that all of the memory was allocated and is released as planned.
    pub(super) fn on_released(&mut self, allocated: u64, reason: &str) -> Result<()> {
        self.write_end("released", allocated, allocated, reason)?;
        if self.json.is_stdout() {
            return Ok(());
        }
        self.output.info(&format!("released {} ({reason})", Bytes(allocated)));
        Ok(())
    }

    fn write_step(&mut self, event: &str, allocated: u64, free: Option<u64>) -> Result<()> {
        let step = json!({"allocated_bytes": allocated, "free_bytes": free});
        self.write_event(event, step)
    }

    fn write_end(
        &mut self,
        event: &str,
        allocated_bytes: u64,
        requested_bytes: u64,
        reason: &str,
    ) -> Result<()> {
        let end = json!({
            "allocated_bytes": allocated_bytes,
            "requested_bytes": requested_bytes,
            "reason": reason,
        });
        self.write_event(event, end)
    }

    fn write_event(&mut self, event: &str, details: impl Serialize) -> Result<()> {
        self.json.write(&Event { schema: JSON_SCHEMA, event, details }, self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_described_as_far_as_they_are_known() {
        let mut process = OtherProcess {
            pid: 4242,
            used_bytes: Some(4 << 30),
            command: Some("python train.py".to_owned()),
            user: Some("ada".to_owned()),
            container: Some("docker 3f4e5a6b7c8d".to_owned()),
        };
        assert_eq!(
            process_line(&process),
            "   4.0 GiB  pid 4242  python train.py, ada, docker 3f4e5a6b7c8d"
        );
        process = OtherProcess {
            used_bytes: None,
            command: None,
            user: None,
            container: None,
            ..process
        };
        assert_eq!(process_line(&process), "   unknown  pid 4242  (unknown command)");
    }
}
