//! What XLA has dumped of a program after its last pass: `module_….after_optimizations.hlo.pb` in the directory
//! of `--xla_dump_to`.

use super::ListedBuffer;
use super::log::Log;
use super::message::{LoggedProgramNeed, Message};
use super::number::Size;
use crate::bytes::Bytes;
use crate::error::Result;
use crate::program::memory::{Buffer, Names, Owner};
use crate::program::{Program, ProgramMemory};

/// Buffers of a program that are listed.
const MAX_BUFFERS: usize = 15;

impl Log {
    /// Makes a log of a dumped program: what it needs, and its largest buffers.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the bytes are no such dump, or have no buffer assignment.
    pub fn from_program_dump(bytes: &[u8], source: impl Into<String>) -> Result<Log> {
        let memory = ProgramMemory::from_dump(&Program::default(), bytes, &Names::default())?;
        let source = source.into();
        let sum = |is: fn(&Buffer) -> bool| {
            let buffers = memory.buffers.iter().filter(|buffer| is(buffer));
            let bytes = buffers.map(|buffer| buffer.peak_bytes);
            Size::exact(bytes.fold(0, u64::saturating_add))
        };
        let need = LoggedProgramNeed {
            arguments: sum(|buffer| buffer.parameter.is_some()),
            live_out: sum(|buffer| buffer.owner == Owner::Outputs),
            temporaries: Size::exact(memory.temp_bytes),
            total: Size::exact(memory.occupied_bytes()),
        };
        let mut log = Log::new(source.clone());
        let text = format!("`{source}` needs {} total", Bytes(need.total.bytes));
        log.push(0, text, Message::DumpedProgram { need });
        let mut largest: Vec<&Buffer> =
            memory.buffers.iter().filter(|buffer| buffer.peak_bytes > 0).collect();
        largest.sort_by_key(|buffer| std::cmp::Reverse(buffer.peak_bytes));
        let listed = largest.into_iter().take(MAX_BUFFERS).map(|buffer| ListedBuffer {
            bytes: buffer.peak_bytes,
            shape: buffer.shape.clone(),
            operation: buffer.operation.clone(),
            site: memory.user_site(buffer.frame).unwrap_or_default().to_owned(),
            is_argument: buffer.parameter.is_some(),
        });
        log.buffers.extend(listed);
        log.finish();
        Ok(log)
    }
}
