//! Topologies: descriptions of the GPUs that the real plugin compiles for. They are its objects.

use std::ptr;

use vramfit_model::gpu::target_config_text;
use vramfit_model::trace::Header;

use crate::device::client_options::{named_value, read_run_config, visible_gpus};
use crate::pjrt::abi::TopologyDescription;
use crate::pjrt::abi::client::{NamedUnion, NamedValue, TopologyDescriptionCreateArgs};
use crate::pjrt::cuda_plugin::{self, zeroed_struct};
use crate::pjrt::pointers::{self, list_parts, text_parts};
use crate::pjrt::status::PjrtResult;

/// The options of a topology: the GPU, and slices x hosts x devices.
fn gpu_options(header: &Header) -> (String, String) {
    let shape = format!("1x{}x{}", header.hosts, header.devices);
    (target_config_text(header.gpu()), shape)
}

/// Returns what determines the topology of a process, for the compiler.
pub(crate) fn description(header: &Header) -> String {
    let (config, shape) = gpu_options(header);
    format!("{shape}\n{config}")
}

/// Creates a topology of the virtual GPUs with the real plugin, which needs no GPU for it.
pub(crate) unsafe fn create_for_gpu(header: &Header) -> PjrtResult<*mut TopologyDescription> {
    let (config, shape) = gpu_options(header);
    let options = [string_option("target_config", &config), string_option("topology", &shape)];
    let mut args: TopologyDescriptionCreateArgs = zeroed_struct();
    (args.create_options, args.num_options) = list_parts(&options);
    cuda_plugin::get()?.call("PJRT_TopologyDescription_Create", &mut args)?;
    Ok(args.topology)
}

fn string_option(name: &'static str, value: &str) -> NamedValue {
    let mut option: NamedValue = zeroed_struct();
    (option.name, option.name_size) = text_parts(name);
    option.value = NamedUnion { string: value.as_ptr().cast() };
    option.value_size = value.len();
    option
}

/// Creates a topology without a client. The real plugin would search for a GPU if none is
/// described; so the virtual one is described.
pub(crate) unsafe fn create(args: &mut TopologyDescriptionCreateArgs) -> PjrtResult {
    let provided = pointers::list(args.create_options, args.num_options);
    let has = |name: &str| provided.iter().any(|option| named_value(option).0 == name);
    let (has_target, has_shape) = (has("target_config"), has("topology"));
    let run = read_run_config()?;
    let config = target_config_text(&run.gpus.gpu);
    let shape = format!("1x1x{}", visible_gpus(&run)?.len());
    let mut options = provided.to_vec();
    if !has_target {
        options.push(string_option("target_config", &config));
    }
    if !has_shape {
        options.push(string_option("topology", &shape));
    }
    (args.create_options, args.num_options) = list_parts(&options);
    let result = cuda_plugin::get()?.call("PJRT_TopologyDescription_Create", args);
    args.create_options = ptr::null();
    args.num_options = 0;
    result
}
