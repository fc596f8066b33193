//! The description of a GPU that XLA's compiler takes: a `GpuTargetConfigProto` in text form, as
//! `PJRT_TopologyDescription_Create` wants it in the option `target_config`.

use std::fmt::Write as _;

use super::Gpu;

/// The cuDNN that the compiler may assume. A live client reports the one that is installed; JAX's
/// CUDA wheels have required 9.8 or newer since 0.6, and XLA's own target files name 9.10.
pub(super) const CUDNN_VERSION: (u32, u32, u32) = (9, 10, 0);

/// Returns the GPU as the text of XLA's `GpuTargetConfigProto`.
///
/// Only fields that every plugin from JAX 0.4.35 to 0.11 knows are written: the text parser refuses
/// the whole text for one field it does not know. All of them are written, because XLA divides by
/// several without a check and the process dies.
///
/// `cuda_compute_capability` stays without its `feature_extension`: the plugin of JAX 0.6.2 refuses
/// that field, and every plugin from 0.6.2 to 0.10.2 compiles for `sm_90a`, `sm_100a` and `sm_103a`
/// without it, as a live client does (looked up in the dumped PTX of each release).
pub fn target_config_text(gpu: &Gpu) -> String {
    let mut text = String::with_capacity(1024);
    let mut field = |name: &str, value: u64| {
        writeln!(text, "  {name}: {value}").expect("writing to a string does not fail");
    };
    field("threads_per_block_limit", 1024);
    field("threads_per_warp", 32);
    field("shared_memory_per_block", gpu.shared_memory_per_block_bytes.into());
    field("shared_memory_per_core", gpu.shared_memory_per_core_bytes.into());
    field("threads_per_core_limit", gpu.max_threads_per_core.into());
    field("core_count", gpu.core_count.into());
    field("fpus_per_core", gpu.fp32_lanes_per_core.into());
    field("block_dim_limit_x", 2_147_483_647);
    field("block_dim_limit_y", 65_535);
    field("block_dim_limit_z", 65_535);
    field("memory_bandwidth", gpu.bandwidth_bytes_per_s);
    field("l2_cache_size", gpu.l2_bytes);
    field("device_memory_size", gpu.total_memory_bytes);
    field("shared_memory_per_block_optin", gpu.shared_memory_per_block_optin_bytes.into());
    field("registers_per_core_limit", gpu.registers_per_core.into());
    field("registers_per_block_limit", gpu.registers_per_core.into());
    let (major, minor) = gpu.compute_capability;
    let (dnn_major, dnn_minor, dnn_patch) = CUDNN_VERSION;
    format!(
        "gpu_device_info {{\n{text}  clock_rate_ghz: {clock}\n  cuda_compute_capability {{ major: \
         {major} minor: {minor} }}\n}}\nplatform_name: \"CUDA\"\ndnn_version_info {{ major: \
         {dnn_major} minor: {dnn_minor} patch: {dnn_patch} }}\ndevice_description_str: \
         \"{description}\"\n",
        clock = gpu.clock_ghz,
        description = escape(&gpu.description),
    )
}

/// Escapes a string for a text proto. A description may come from a user's own file.
fn escape(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c if c.is_control() => vec![' '],
            c => vec![c],
        })
        .collect()
}
