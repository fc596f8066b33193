//! What decides which GPUs a client has: the configuration of the dry run, and the options of the C API.

use vramfit_model::run_config::{RUN_CONFIG_VARIABLE, RunConfig};
use vramfit_model::settings::Value;

use crate::device::sharing;
use crate::pjrt::abi::client::NamedValue;
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status};

/// Reads the configuration of the dry run that this process is part of.
///
/// # Errors
/// For a process that is part of none, and those of [`RunConfig::read`].
pub(crate) fn read_run_config() -> PjrtResult<RunConfig> {
    let run = RunConfig::from_environment(|name| std::env::var_os(name))?;
    run.ok_or_else(|| {
        Status::failed_precondition(format!(
            "vramfit: no virtual GPU: `{RUN_CONFIG_VARIABLE}` is not set; start the program with `vramfit dryrun`"
        ))
    })
}

/// Returns the numbers of the GPUs that CUDA shows this process.
///
/// # Errors
/// When the file of shared GPUs cannot be used.
pub(super) fn visible_gpus(run: &RunConfig) -> PjrtResult<Vec<u32>> {
    let list = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    sharing::visible_gpus(run, list.as_deref())
}

/// Converts an option of the C API.
pub(crate) unsafe fn named_value(value: &NamedValue) -> (String, Value) {
    let name = pointers::text(value.name, value.name_size);
    let value = match value.r#type {
        0 => Value::String(pointers::text(value.value.string, value.value_size)),
        1 => Value::Int64(value.value.int64),
        2 => Value::Int64List(pointers::list(value.value.int64_list, value.value_size).to_vec()),
        3 => Value::Float(value.value.float),
        _ => Value::Bool(value.value.bool),
    };
    (name, value)
}
