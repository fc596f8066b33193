//! XLA flags that the user has set, in `XLA_FLAGS` or in the options of one compile. No compile attempt
//! overrides one of them.

use std::sync::OnceLock;

use vramfit_model::program::options;
use vramfit_model::program::proto::OptionValue;
use vramfit_model::settings::XlaFlags;

/// What the name of each flag of XLA's dump begins with.
const DUMP_PREFIX: &str = "xla_dump_";
/// Flags of the dump that say of what or in which form, and alone dump nothing.
const DUMP_DETAILS: &[&str] = &[
    "xla_dump_hlo_module_re",
    "xla_dump_hlo_pass_re",
    "xla_dump_hlo_pipeline_re",
    "xla_dump_emitter_re",
    "xla_dump_hlo_as_long_text",
    "xla_dump_hlo_to_subfolder",
    "xla_dump_max_hlo_modules",
    "xla_dump_compress_protos",
    "xla_dump_disable_metadata",
    "xla_dump_enable_mlir_pretty_form",
    "xla_dump_full_hlo_config",
    "xla_dump_include_timestamp",
    "xla_dump_large_constants",
    "xla_dump_module_metadata",
    ENABLES_DUMPS,
    ENABLED_DUMPS,
];
/// The flag that switches all dumps off, and its name before JAX 0.7.
pub(crate) const ENABLES_DUMPS: &str = "xla_enable_dumping";
pub(crate) const ENABLED_DUMPS: &str = "xla_detailed_logging_and_dumping";

/// The flags that the user has set for one compile.
pub(crate) struct UserFlags<'a> {
    env_flags: XlaFlags,
    options: &'a [u8],
    /// Whether `XLA_FLAGS` is the name of a file with flags.
    is_file: bool,
}

/// Returns `XLA_FLAGS` as XLA has read it: once in a process, before the first device is there.
pub(crate) fn read_environment() -> &'static str {
    static XLA_FLAGS: OnceLock<String> = OnceLock::new();
    XLA_FLAGS.get_or_init(|| std::env::var("XLA_FLAGS").unwrap_or_default())
}

impl<'a> UserFlags<'a> {
    /// Reads the environment, as XLA does in this process, for a compile with these options.
    pub(crate) fn read(options: &'a [u8]) -> Self {
        let text = read_environment();
        // A text that does not begin with a flag is the name of a file with flags.
        let is_file = !text.trim().is_empty() && !text.trim_start().starts_with("--");
        let text = match is_file {
            true => std::fs::read_to_string(text.trim()).unwrap_or_default(),
            false => text.to_owned(),
        };
        UserFlags { env_flags: XlaFlags::parse(&text), options, is_file }
    }

    /// Returns whether the user has set a flag.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        options::flag(self.options, name).is_some() || self.env_flags.value(name).is_some()
    }

    /// Returns the names of the flags of XLA's dump that the user has set.
    pub(crate) fn dump_flags(&self) -> impl Iterator<Item = String> {
        let in_options = options::flag_names(self.options).into_iter();
        let names = self.env_flags.names().map(str::to_owned).chain(in_options);
        names.filter(|name| name.starts_with(DUMP_PREFIX) || DUMP_DETAILS.contains(&name.as_str()))
    }

    /// Returns `true` if XLA writes a dump for the user, to a folder or to standard output.
    pub(crate) fn writes_dump(&self) -> bool {
        self.dump_flags().any(|name| !DUMP_DETAILS.contains(&name.as_str()) && self.is_on(&name))
    }

    /// Returns `true` if a flag has a value other than "no" and the empty text.
    fn is_on(&self, name: &str) -> bool {
        let is_text_on =
            |text: &str| !matches!(text.to_ascii_lowercase().as_str(), "false" | "0" | "");
        match options::flag(self.options, name) {
            Some(OptionValue::Bool(value)) => value,
            Some(OptionValue::Int(value)) => value != 0,
            Some(OptionValue::Text(text)) => is_text_on(&text),
            None => match self.env_flags.bool(name) {
                Some(value) => value,
                None => self.env_flags.value(name).is_some_and(is_text_on),
            },
        }
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
                let number = self.env_flags.value(name).and_then(|text| text.parse().ok());
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
        UserFlags { env_flags: XlaFlags::parse(flags), options, is_file: false }
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
    fn a_dump_is_written_where_a_flag_asks_for_one() {
        for (text, writes) in [
            ("", false),
            ("--xla_gpu_enable_triton_gemm=true", false),
            ("--xla_dump_to=", false),
            ("--xla_dump_to=/tmp/dump", true),
            ("--xla_dump_to=-", true),
            ("--xla_dump_to=sponge", true),
            ("--xla_dump_hlo_as_text", true),
            ("--xla_dump_hlo_as_proto=false", false),
            ("--xla_dump_hlo_snapshots=1", true),
            // Alone they dump nothing, but would be in the way of another dump.
            ("--xla_dump_hlo_module_re=jit_step", false),
            ("--xla_dump_max_hlo_modules=2", false),
            ("--xla_dump_compress_protos=true", false),
            ("--xla_enable_dumping", false),
        ] {
            assert_eq!(flags_of(text, &[]).writes_dump(), writes, "{text}");
        }
        let to = |folder: &str| {
            let folder = OptionValue::Text(folder.to_owned());
            options::with_flags(&[], &[("xla_dump_to", folder)])
        };
        assert!(flags_of("", &to("/tmp/dump")).writes_dump());
        assert!(!flags_of("--xla_dump_to=/tmp/dump", &to("")).writes_dump());
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
