//! What is told of holding: lines for people, or one JSON object a step.

use std::time::Duration;

use serde::Serialize;
use vramfit_core::{Bytes, Result};

use super::holder::{Other, Room, Verdict};
use crate::output::Output;

/// Why not even a beginning is made: less is free than was asked for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Shortage {
    gpu: u32,
    #[serde(skip)]
    whose: &'static str,
    asked_bytes: u64,
    free_bytes: u64,
    total_bytes: Option<u64>,
    holders: Vec<Other>,
}

impl Shortage {
    pub(super) fn new(asked_bytes: u64, room: &Room, holders: Vec<Other>) -> Self {
        Shortage {
            gpu: room.gpu,
            whose: room.whose,
            asked_bytes,
            free_bytes: room.free_bytes,
            total_bytes: room.total_bytes,
            holders,
        }
    }

    fn text(&self) -> String {
        let of = self.total_bytes.map_or(String::new(), |total| {
            format!(" of {} that programs can use", Bytes(total))
        });
        let mut text = format!(
            "cannot hold {}: {} has {} free{of}",
            Bytes(self.asked_bytes),
            self.whose,
            Bytes(self.free_bytes),
        );
        for other in &self.holders {
            text.push_str(&format!("\n  {}", holder_line(other)));
        }
        text
    }
}

/// One line about a process: what it holds, its number, its command and whose it is.
fn holder_line(other: &Other) -> String {
    let used = other
        .used_bytes
        .map_or_else(|| "unknown".to_owned(), |bytes| Bytes(bytes).to_string());
    let command = other
        .command
        .as_deref()
        .unwrap_or("(not to be seen from here)");
    let mut line = format!("{used:>10}  pid {}  {command}", other.pid);
    for more in [&other.user, &other.container].into_iter().flatten() {
        line.push_str(&format!(", {more}"));
    }
    line
}

/// One thing that happened, as JSON shows it.
#[derive(Serialize)]
struct Line<'a, T: Serialize> {
    schema: u32,
    event: &'a str,
    #[serde(flatten)]
    what: T,
}

#[derive(Serialize)]
struct Begin<'a> {
    gpu: u32,
    gpu_name: &'a str,
    asked_bytes: u64,
    free_bytes: Option<u64>,
    total_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Step {
    held_bytes: u64,
    free_bytes: Option<u64>,
}

#[derive(Serialize)]
struct End<'a> {
    held_bytes: u64,
    asked_bytes: u64,
    reason: &'a str,
}

/// Tells what happens, in one of the two forms.
#[derive(Debug)]
pub(super) struct Told<'a> {
    output: &'a mut Output,
    json: bool,
}

impl<'a> Told<'a> {
    pub(super) fn new(output: &'a mut Output, json: bool) -> Self {
        Told { output, json }
    }

    /// Less is free than was asked for.
    pub(super) fn refused(&mut self, shortage: &Shortage) -> Result<()> {
        if self.json {
            return self.line("refused", shortage);
        }
        self.output.text(&format!("{}\n", shortage.text()))
    }

    /// What there was before the first step.
    pub(super) fn begin(&mut self, asked_bytes: u64, room: &Room) -> Result<()> {
        let known = room.total_bytes.is_some();
        if self.json {
            let begin = Begin {
                gpu: room.gpu,
                gpu_name: &room.gpu_name,
                asked_bytes,
                free_bytes: known.then_some(room.free_bytes),
                total_bytes: room.total_bytes,
            };
            return self.line("begin", begin);
        }
        let size = room.total_bytes.map_or(String::new(), |total| {
            format!(
                ", {} has {} free of {}",
                room.whose,
                Bytes(room.free_bytes),
                Bytes(total)
            )
        });
        let head = format!("GPU {}: {}{size}\n", room.gpu, room.gpu_name);
        self.output
            .data(&format!("{head}{:>10}  {:>10}\n", "held", "free"))
    }

    /// One step more is held.
    pub(super) fn step(&mut self, held_bytes: u64, free_bytes: Option<u64>) -> Result<()> {
        if self.json {
            let step = Step {
                held_bytes,
                free_bytes,
            };
            return self.line("step", step);
        }
        let free = free_bytes.map_or_else(|| "unknown".to_owned(), |free| Bytes(free).to_string());
        let held = Bytes(held_bytes).to_string();
        self.output.data(&format!("{held:>10}  {free:>10}\n"))
    }

    /// What `--verify` found.
    pub(super) fn verified(&mut self, verdict: &Verdict) -> Result<()> {
        if self.json {
            return self.line("verified", verdict);
        }
        let counted = Bytes(verdict.counted_bytes);
        let mut text = match verdict.read_back {
            Some(true) => "verified: what was written everywhere was read back".to_owned(),
            Some(false) => "not verified: what was written was not read back".to_owned(),
            None => "verified in the books only".to_owned(),
        };
        if let Some(note) = &verdict.note {
            text.push_str(&format!("; {note}"));
        }
        text.push_str(&format!("\n  {counted} less free than before"));
        if verdict.counted_bytes < verdict.held_bytes {
            text.push_str(&format!(
                ", which is not the {} that are held: they are not all on the GPU, or someone \
                 else gave memory back",
                Bytes(verdict.held_bytes)
            ));
        }
        self.output.text(&format!("{text}\n"))
    }

    /// All is held.
    pub(super) fn holding(&mut self, held_bytes: u64, time: Option<Duration>) -> Result<()> {
        if self.json {
            return self.line(
                "holding",
                Step {
                    held_bytes,
                    free_bytes: None,
                },
            );
        }
        let until = match time {
            Some(time) => format!("for {}s", time.as_secs_f64()),
            None => "until Ctrl-C".to_owned(),
        };
        self.output
            .info(&format!("holding {} {until}", Bytes(held_bytes)));
        Ok(())
    }

    /// Not all could be held.
    pub(super) fn stopped(&mut self, held: u64, asked: u64, reason: &str) -> Result<()> {
        if self.json {
            return self.end("stopped", held, asked, reason);
        }
        self.output.data(&format!(
            "stopped at {} of {}: {reason}\n",
            Bytes(held),
            Bytes(asked)
        ))
    }

    /// All was held, to the end.
    pub(super) fn done(&mut self, held: u64, reason: &str) -> Result<()> {
        if self.json {
            return self.end("done", held, held, reason);
        }
        self.output
            .info(&format!("gave back {}: {reason}", Bytes(held)));
        Ok(())
    }

    fn end(&mut self, event: &str, held: u64, asked: u64, reason: &str) -> Result<()> {
        let end = End {
            held_bytes: held,
            asked_bytes: asked,
            reason,
        };
        self.line(event, end)
    }

    fn line(&mut self, event: &str, what: impl Serialize) -> Result<()> {
        self.output.json(&Line {
            schema: 1,
            event,
            what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_named_as_far_as_they_are_known() {
        let mut other = Other {
            pid: 4242,
            used_bytes: Some(4 << 30),
            command: Some("python train.py".to_owned()),
            user: Some("ada".to_owned()),
            container: Some("docker 3f4e5a6b7c8d".to_owned()),
        };
        assert_eq!(
            holder_line(&other),
            "   4.0 GiB  pid 4242  python train.py, ada, docker 3f4e5a6b7c8d"
        );
        other = Other {
            used_bytes: None,
            command: None,
            user: None,
            container: None,
            ..other
        };
        assert_eq!(
            holder_line(&other),
            "   unknown  pid 4242  (not to be seen from here)"
        );
    }
}
