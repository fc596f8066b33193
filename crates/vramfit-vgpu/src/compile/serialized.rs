//! A compiled program as bytes: what JAX's compilation cache stores and `serialize_executable`
//! returns. It is loaded without compiling.

use std::sync::Arc;

use prost::Message;
use vramfit_model::program::memory::Pass;
use vramfit_model::program::{Program, ProgramTime};

use crate::compile::compiled::{CompileDiagnostics, CompiledProgram};
use crate::compile::stderr_capture::Warning;
use crate::pjrt::status::{PjrtResult, Status};

/// To be increased when a field changes its meaning.
const SCHEMA: u32 = 1;

/// A program with what it was compiled from.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SerializedProgram {
    #[prost(uint32, tag = "1")]
    schema: u32,
    /// The executable as the CUDA plugin serialized it.
    #[prost(bytes = "vec", tag = "2")]
    serialized: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    options: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    code: Vec<u8>,
    #[prost(string, tag = "5")]
    compile_attempt: String,
    /// What occupies its memory; empty if not known.
    #[prost(bytes = "vec", tag = "6")]
    memory: Vec<u8>,
    /// The compiler's warnings about memory.
    #[prost(message, repeated, tag = "7")]
    warnings: Vec<Warning>,
    /// How long an execution takes; empty if not known.
    #[prost(bytes = "vec", tag = "8")]
    time: Vec<u8>,
    /// The arguments that an output replaces and that are not donated.
    #[prost(uint32, repeated, tag = "9")]
    replaced_arguments: Vec<u32>,
    /// Which pass of a differentiated function it is, where each is a program of its own.
    #[prost(enumeration = "Pass", optional, tag = "10")]
    pass: Option<i32>,
}

impl SerializedProgram {
    pub(crate) fn from_compiled(compiled: &CompiledProgram) -> Self {
        let diagnostics = &compiled.diagnostics;
        SerializedProgram {
            schema: SCHEMA,
            serialized: compiled.serialized.clone(),
            options: compiled.host_program.options.clone(),
            code: compiled.host_program.code.clone(),
            compile_attempt: compiled.compile_attempt.clone(),
            memory: diagnostics.memory.clone(),
            replaced_arguments: diagnostics.replaced_arguments.clone(),
            pass: diagnostics.pass.map(i32::from),
            warnings: diagnostics.warnings.clone(),
            time: diagnostics.time.as_ref().map(ProgramTime::to_stored).unwrap_or_default(),
        }
    }

    /// # Errors
    /// When the bytes were not made here: a program that was compiled and stored on a real GPU, or
    /// by a later version.
    pub(crate) fn parse(bytes: &[u8]) -> PjrtResult<Self> {
        SerializedProgram::decode(bytes)
            .ok()
            .filter(|serialized| serialized.schema == SCHEMA)
            .ok_or_else(|| {
                Status::invalid_argument(
                    "vramfit: this executable was not serialized on a virtual GPU of this version; \
                 use a separate compilation cache for the dry run",
                )
            })
    }

    /// Returns the compiled program, with other compile options if they are provided.
    pub(crate) fn into_compiled(
        self,
        options: Option<Vec<u8>>,
    ) -> PjrtResult<Arc<CompiledProgram>> {
        let options = options.unwrap_or(self.options);
        let program = Program::parse(&self.serialized, &options)?;
        Ok(CompiledProgram::new(
            program,
            self.code,
            self.serialized,
            options,
            self.compile_attempt,
            CompileDiagnostics {
                memory: self.memory,
                replaced_arguments: self.replaced_arguments,
                pass: self.pass.and_then(|pass| Pass::try_from(pass).ok()),
                time: ProgramTime::from_stored(&self.time),
                warnings: self.warnings,
            },
        ))
    }
}
