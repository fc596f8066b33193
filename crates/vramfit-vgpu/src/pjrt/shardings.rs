//! The shardings extension: how parameters and outputs of a program are sharded over its devices.

use std::ptr;

use crate::compile::compiled::CachedStrings;
use crate::compile::executable;
use crate::pjrt::abi::extension::{ExecutableShardingsArgs, ShardingsExtension};
use crate::pjrt::args::entry_point;
use crate::pjrt::status::PjrtResult;

/// Replaces both functions.
///
/// # Safety
/// `extension` is a copy of the original extension, `size` bytes long.
pub(crate) unsafe fn replace(extension: *mut ShardingsExtension, size: usize) {
    if size >= size_of::<ShardingsExtension>() {
        (*extension).parameter_shardings = entry_point!(parameters);
        (*extension).output_shardings = entry_point!(outputs);
    }
}

fn set_shardings(args: &mut ExecutableShardingsArgs, count: usize, shardings: &CachedStrings) {
    args.count = count;
    // Null means that the program is not partitioned. It is also right for a program without outputs:
    // JAX rejects an empty list as inconsistent.
    let is_known = count > 0 && shardings.pointers.len() == count;
    (args.shardings, args.sharding_sizes) = match is_known {
        true => (shardings.pointers.as_ptr(), shardings.sizes.as_ptr()),
        false => (ptr::null(), ptr::null()),
    };
}

pub(crate) unsafe fn parameters(args: &mut ExecutableShardingsArgs) -> PjrtResult {
    let compiled = &executable::from_raw(args.executable)?.compiled;
    set_shardings(args, compiled.program.parameters.len(), &compiled.info.parameter_shardings);
    Ok(())
}

pub(crate) unsafe fn outputs(args: &mut ExecutableShardingsArgs) -> PjrtResult {
    let compiled = &executable::from_raw(args.executable)?.compiled;
    set_shardings(args, compiled.program.outputs.len(), &compiled.info.output_shardings);
    Ok(())
}
