//! Whether two programs are the same for devices that run them together.
//!
//! Where a program was written is no part of it: hosts may call `jax.jit` in different lines, and find the script under
//! different paths. Nor is the number that XLA gives a module, which counts what the process compiled before.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::proto::{Field, Fields};

/// Fields of XLA's `HloModuleProto`.
mod module {
    pub(super) const COMPUTATIONS: u32 = 3;
    pub(super) const ID: u32 = 5;
    pub(super) const PROFILE_INFO: u32 = 13;
    pub(super) const STACK_FRAME_INDEX: u32 = 17;
}

/// The field of `HloComputationProto` with its instructions.
const INSTRUCTIONS: u32 = 2;
/// The field of `HloInstructionProto` with names, lines and stack frames.
const METADATA: u32 = 7;

/// Returns a hash of what a module computes, from its `HloModuleProto`.
pub(super) fn fingerprint(module: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for field in Fields::of(module) {
        match field.number {
            module::ID | module::PROFILE_INFO | module::STACK_FRAME_INDEX => {}
            module::COMPUTATIONS => hash_computation(field, &mut hasher),
            _ => hash_field(field, &mut hasher),
        }
    }
    hasher.finish()
}

fn hash_computation(computation: Field<'_>, hasher: &mut DefaultHasher) {
    for field in Fields::of(computation.content) {
        if field.number == INSTRUCTIONS {
            let fields = Fields::of(field.content).filter(|field| field.number != METADATA);
            fields.for_each(|field| hash_field(field, hasher));
        } else {
            hash_field(field, hasher);
        }
    }
}

fn hash_field(field: Field<'_>, hasher: &mut DefaultHasher) {
    (field.number, field.content).hash(hasher);
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::program::proto::{HloInstructionProto, HloModuleProto, OpMetadata};

    fn module(metadata: Option<OpMetadata>, opcode: &str) -> Vec<u8> {
        let instruction = HloInstructionProto {
            opcode: opcode.into(),
            metadata,
            ..HloInstructionProto::default()
        };
        HloModuleProto::of(vec![instruction]).encode_to_vec()
    }

    #[test]
    fn lines_and_numbers_of_modules_do_not_count() {
        let at = |line| {
            let metadata = OpMetadata { source_line: line, ..OpMetadata::default() };
            module(Some(metadata), "add")
        };
        assert_eq!(fingerprint(&at(3)), fingerprint(&at(4)));
        assert_eq!(fingerprint(&at(3)), fingerprint(&module(None, "add")));
        assert_ne!(fingerprint(&at(3)), fingerprint(&module(None, "multiply")));
        let numbered = |id: u8| [module(None, "add"), vec![5 << 3, id]].concat();
        assert_eq!(fingerprint(&numbered(1)), fingerprint(&numbered(2)));
    }
}
