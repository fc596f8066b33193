//! A compiled program as bytes: what JAX's compilation cache stores and `serialize_executable`
//! returns. It is read back without compiling.

use std::sync::Arc;

use prost::Message;
use vramfit_core::program::Program;

use crate::compile::compiled::Compiled;
use crate::compile::stderr_capture::Warning;
use crate::pjrt::status::{Answer, Code, Status};

/// Raised when a field changes its meaning.
const SCHEMA: u32 = 1;

/// The stored form.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Record {
    #[prost(uint32, tag = "1")]
    schema: u32,
    /// What the CUDA plugin serialised.
    #[prost(bytes = "vec", tag = "2")]
    serialized: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    options: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    code: Vec<u8>,
    #[prost(string, tag = "5")]
    rung: String,
    /// Where its memory goes; empty when that is not known.
    #[prost(bytes = "vec", tag = "6")]
    memory: Vec<u8>,
    /// What the compiler warned of.
    #[prost(message, repeated, tag = "7")]
    warnings: Vec<WarningRecord>,
}

/// A warning in the stored form.
#[derive(Clone, PartialEq, Message)]
struct WarningRecord {
    #[prost(string, tag = "1")]
    source: String,
    #[prost(string, tag = "2")]
    text: String,
}

impl Record {
    pub(crate) fn of(compiled: &Compiled) -> Self {
        Record {
            schema: SCHEMA,
            serialized: compiled.serialized.clone(),
            options: compiled.options.clone(),
            code: compiled.code.clone(),
            rung: compiled.rung.clone(),
            memory: compiled.memory.clone(),
            warnings: compiled
                .warnings
                .iter()
                .cloned()
                .map(|Warning { source, text }| WarningRecord { source, text })
                .collect(),
        }
    }

    /// # Errors
    /// When the bytes are none of ours: a program that was compiled and stored on a real GPU, or
    /// by a later version.
    pub(crate) fn read(bytes: &[u8]) -> Answer<Self> {
        Record::decode(bytes)
            .ok()
            .filter(|record| record.schema == SCHEMA)
            .ok_or_else(|| {
                Status::new(
                    Code::InvalidArgument,
                    "vramfit: this executable was not serialised on a virtual GPU of this version; \
                 give the dry run a compilation cache of its own",
                )
            })
    }

    /// Makes the program again, with other compile options if they are given.
    pub(crate) fn into_compiled(self, options: Option<Vec<u8>>) -> Answer<Arc<Compiled>> {
        let options = options.unwrap_or(self.options);
        let program = Program::parse(&self.serialized, &options)?;
        Ok(Compiled::new(
            program,
            self.code,
            self.serialized,
            options,
            self.rung,
            self.memory,
            self.warnings
                .into_iter()
                .map(|WarningRecord { source, text }| Warning { source, text })
                .collect(),
        ))
    }
}
