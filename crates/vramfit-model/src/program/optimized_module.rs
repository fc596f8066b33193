//! An optimized module as it is stored: in XLA's dump, or in a serialized executable.

use prost::Message;

use super::Program;
use super::hlo::HloGraph;
use super::proto::{BufferAssignmentProto, HloModuleProto, HloProto};
use crate::error::{Error, Result};

/// An optimized module, decoded.
#[derive(Clone, Debug, Default)]
pub struct OptimizedModule {
    module: HloModuleProto,
    /// Which value lies in which buffer, where it is known.
    assignment: Option<BufferAssignmentProto>,
}

impl OptimizedModule {
    /// Decodes what XLA dumped of a module after its last pass.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the bytes are no such dump.
    pub fn from_dump(dump: &[u8]) -> Result<Self> {
        let invalid = || Error::invalid_file("cannot read the module that XLA dumped");
        let dumped = HloProto::decode(dump).map_err(|error| invalid().cause(error))?;
        let module = dumped.hlo_module.ok_or_else(invalid)?;
        Ok(OptimizedModule { module, assignment: dumped.buffer_assignment })
    }

    /// Decodes the module in a program's executable. It has no buffer assignment, and since JAX 0.10.2 it does not
    /// say how often loops run.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the program was not made by [`Program::parse`].
    pub fn from_executable(program: &Program) -> Result<Self> {
        let module = HloModuleProto::decode(program.module_proto()?.as_slice());
        let module = module.map_err(|error| {
            Error::invalid_file("cannot read the module of the executable").cause(error)
        })?;
        Ok(OptimizedModule { module, assignment: None })
    }

    /// Returns the graph of its instructions.
    pub fn graph(&self) -> HloGraph<'_> {
        HloGraph::new(&self.module)
    }

    /// Returns XLA's buffer assignment, where it is known.
    pub fn assignment(&self) -> Option<&BufferAssignmentProto> {
        self.assignment.as_ref()
    }
}
