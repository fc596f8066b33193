//! What the CUDA plugin reads from the environment by itself, past the client's options.

use super::flags::XlaFlags;

/// The plugin's own variables and flags, as far as they decide how memory is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSettings {
    /// `TF_FORCE_UNIFIED_MEMORY`.
    pub unified_memory: bool,
    /// `TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC`: bytes, or -1 for the whole limit.
    pub cuda_async_prealloc: i64,
    /// `XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB` in bytes: the limit of pinned host memory.
    pub host_limit_bytes: u64,
    /// `--xla_gpu_enable_allocator_spatial_partitioning`, where it is set.
    pub spatial_partitioning: Option<bool>,
    /// What the plugin would log about values it ignores.
    pub ignored: Vec<String>,
}

/// A value at which the plugin ends the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Why, as a clause.
    pub message: String,
}

const GIB: u64 = 1 << 30;

impl PluginSettings {
    /// Reads them; `get` returns a variable's value.
    ///
    /// # Errors
    /// [`Abort`] where the real plugin ends the process with a failed check.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<PluginSettings, Abort> {
        let mut ignored = Vec::new();
        let mut truth = |name: &str| match get(name).map(|text| parse_bool(&text)) {
            None => false,
            Some(Some(value)) => value,
            Some(None) => {
                ignored.push(format!("`{name}` is neither true nor false and counts as false"));
                false
            }
        };
        let unified_memory = truth("TF_FORCE_UNIFIED_MEMORY");
        let host_preallocated = truth("XLA_PJRT_GPU_HOST_MEMORY_PREALLOCATE");
        let host_default = if host_preallocated { 16 } else { 64 };
        let host_limit = get("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB")
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(host_default);
        let name = "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC";
        let cuda_async_prealloc = match get(name) {
            None => 0,
            Some(text) => text.trim().parse().map_err(|_| Abort {
                message: format!("`{name}` is not a whole number: {text}"),
            })?,
        };
        let flags = XlaFlags::parse(&get("XLA_FLAGS").unwrap_or_default());
        Ok(PluginSettings {
            unified_memory,
            cuda_async_prealloc,
            host_limit_bytes: host_limit * GIB,
            spatial_partitioning: flags.bool("xla_gpu_enable_allocator_spatial_partitioning"),
            ignored,
        })
    }
}

/// Reads a truth value as the plugin's own variables have it, which is not as JAX's have it.
fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<PluginSettings, Abort> {
        PluginSettings::read(|name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_set_is_the_default() {
        let settings = read(&[]).unwrap();
        assert!(!settings.unified_memory);
        assert_eq!(settings.cuda_async_prealloc, 0);
        assert_eq!(settings.host_limit_bytes, 64 * GIB);
        assert_eq!(settings.spatial_partitioning, None);
        assert!(settings.ignored.is_empty());
    }

    #[test]
    fn four_words_mean_true() {
        for (text, value, told) in [
            ("1", true, 0),
            ("TRUE", true, 0),
            ("False", false, 0),
            ("yes", false, 1),
            ("", false, 1),
        ] {
            let settings = read(&[("TF_FORCE_UNIFIED_MEMORY", text)]).unwrap();
            assert_eq!(settings.unified_memory, value, "{text}");
            assert_eq!(settings.ignored.len(), told, "{text}");
        }
    }

    #[test]
    fn a_preallocated_host_pool_is_smaller() {
        let on = ("XLA_PJRT_GPU_HOST_MEMORY_PREALLOCATE", "true");
        assert_eq!(read(&[on]).unwrap().host_limit_bytes, 16 * GIB);
        let limit = ("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB", "8");
        assert_eq!(read(&[on, limit]).unwrap().host_limit_bytes, 8 * GIB);
    }

    #[test]
    fn a_bad_amount_for_cuda_async_ends_the_process() {
        let name = "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC";
        assert_eq!(read(&[(name, "-1")]).unwrap().cuda_async_prealloc, -1);
        assert!(read(&[(name, "1GiB")]).unwrap_err().message.contains(name));
    }

    #[test]
    fn the_last_flag_counts() {
        let flag = "--xla_gpu_enable_allocator_spatial_partitioning";
        let flags = format!("{flag}=false --xla_dump_to=/tmp/x {flag}");
        assert_eq!(read(&[("XLA_FLAGS", &flags)]).unwrap().spatial_partitioning, Some(true));
    }
}
