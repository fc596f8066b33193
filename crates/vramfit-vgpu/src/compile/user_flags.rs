//! XLA flags that the user has set, in `XLA_FLAGS` or in the options of one compile. No compile attempt
//! overrides one of them.

use vramfit_core::program::options;
use vramfit_core::program::proto::OptionValue;
use vramfit_core::settings::XlaFlags;

/// The flags that the user has set for one compile.
pub(crate) struct UserFlags<'a> {
    env_flags: XlaFlags,
    options: &'a [u8],
    /// Whether `XLA_FLAGS` is the name of a file with flags.
    is_file: bool,
}

impl<'a> UserFlags<'a> {
    /// Reads the environment, as XLA does in this process, for a compile with these options.
    pub(crate) fn read(options: &'a [u8]) -> Self {
        let text = std::env::var("XLA_FLAGS").unwrap_or_default();
        // A text that does not begin with a flag is the name of a file with flags.
        let is_file = !text.trim().is_empty() && !text.trim_start().starts_with("--");
        let text = match is_file {
            true => std::fs::read_to_string(text.trim()).unwrap_or_default(),
            false => text,
        };
        UserFlags {
            env_flags: XlaFlags::parse(&text),
            options,
            is_file,
        }
    }

    /// Returns whether the user has set a flag.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        options::flag(self.options, name).is_some() || self.env_flags.value(name).is_some()
    }

    /// Returns `true` if the flags are in a file, or if one of them names a file that the compiler reads or writes.
    pub(crate) fn name_files(&self) -> bool {
        const ENDINGS: &[&str] = &["_to", "_from", "_file", "_dir", "_path"];
        let names_file = |name: &str| ENDINGS.iter().any(|ending| name.ends_with(ending));
        let mut in_options = options::flag_names(self.options).into_iter();
        self.is_file
            || self.env_flags.names().any(names_file)
            || in_options.any(|name| names_file(&name))
    }

    /// Returns whether the user has set a flag to another value than this: an integer, or 0 or 1 for a
    /// boolean flag.
    pub(crate) fn conflicts_with(&self, name: &str, value: i64) -> bool {
        match options::flag(self.options, name) {
            Some(OptionValue::Bool(chosen)) => i64::from(chosen) != value,
            Some(OptionValue::Int(chosen)) => chosen != value,
            Some(_) => true,
            None if self.env_flags.value(name).is_none() => false,
            None => {
                let boolean = self.env_flags.bool(name).map(i64::from);
                let number = self
                    .env_flags
                    .value(name)
                    .and_then(|text| text.parse().ok());
                number.or(boolean) != Some(value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRITON: &str = "xla_gpu_enable_triton_gemm";
    const FUSION: &str = "xla_gpu_cudnn_gemm_fusion_level";

    fn flags_of<'a>(flags: &str, options: &'a [u8]) -> UserFlags<'a> {
        UserFlags {
            env_flags: XlaFlags::parse(flags),
            options,
            is_file: false,
        }
    }

    #[test]
    fn flags_that_are_not_set_conflict_with_nothing() {
        let none = flags_of("--xla_dump_to=/tmp", &[]);
        assert!(!none.is_set(TRITON) && !none.conflicts_with(TRITON, 0));
    }

    #[test]
    fn flags_of_the_environment_are_read() {
        for (text, value, conflicts) in [
            ("--xla_gpu_enable_triton_gemm", 0, true),
            ("--xla_gpu_enable_triton_gemm=true", 0, true),
            ("--xla_gpu_enable_triton_gemm=False", 0, false),
            ("--xla_gpu_enable_triton_gemm=0", 0, false),
        ] {
            let chosen = flags_of(text, &[]);
            assert!(chosen.is_set(TRITON), "{text}");
            assert_eq!(chosen.conflicts_with(TRITON, value), conflicts, "{text}");
        }
        assert!(flags_of("--xla_gpu_cudnn_gemm_fusion_level=2", &[]).conflicts_with(FUSION, 0));
        assert!(!flags_of("--xla_gpu_cudnn_gemm_fusion_level=0", &[]).conflicts_with(FUSION, 0));
    }

    #[test]
    fn flags_that_name_files_are_known() {
        let dump = options::with_flags(&[], &[("xla_dump_to", OptionValue::Bool(true))]);
        assert!(flags_of("", &dump).name_files());
        assert!(flags_of("--xla_gpu_kernel_cache_file=/tmp/k", &[]).name_files());
        assert!(!flags_of("--xla_gpu_enable_triton_gemm=false", &[]).name_files());
    }

    #[test]
    fn options_of_the_compile_override_the_environment() {
        let options = options::with_flags(&[], &[(TRITON, OptionValue::Bool(false))]);
        let chosen = flags_of("--xla_gpu_enable_triton_gemm=true", &options);
        assert!(chosen.is_set(TRITON) && !chosen.conflicts_with(TRITON, 0));
        let options = options::with_flags(&[], &[(TRITON, OptionValue::Bool(true))]);
        assert!(flags_of("", &options).conflicts_with(TRITON, 0));
    }
}
