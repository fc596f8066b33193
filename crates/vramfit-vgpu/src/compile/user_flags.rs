//! XLA flags that the user has set, in `XLA_FLAGS` or in the options of one compile. They hold: no
//! compile attempt of ours changes one of them.

use vramfit_core::program::options;
use vramfit_core::program::wire::OptionValue;
use vramfit_core::settings::XlaFlags;

/// The flags that count for one compile.
pub(crate) struct Choices<'a> {
    flags: XlaFlags,
    options: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Reads the environment, as XLA does in this process, for a compile with these options.
    pub(crate) fn read(options: &'a [u8]) -> Self {
        let text = std::env::var("XLA_FLAGS").unwrap_or_default();
        // A text that does not begin with a flag is the name of a file with flags.
        let text = match text.trim_start().starts_with("--") {
            true => text,
            false => std::fs::read_to_string(text.trim()).unwrap_or_default(),
        };
        Choices {
            flags: XlaFlags::parse(&text),
            options,
        }
    }

    /// Says whether the user has set a flag.
    pub(crate) fn has(&self, name: &str) -> bool {
        options::flag(self.options, name).is_some() || self.flags.value(name).is_some()
    }

    /// Says whether the user has set a flag to something else than this: an integer, or for a flag
    /// that is true or false, 0 or 1.
    pub(crate) fn contradict(&self, name: &str, value: i64) -> bool {
        match options::flag(self.options, name) {
            Some(OptionValue::Bool(chosen)) => i64::from(chosen) != value,
            Some(OptionValue::Int(chosen)) => chosen != value,
            Some(_) => true,
            None if self.flags.value(name).is_none() => false,
            None => {
                let truth = self.flags.bool(name).map(i64::from);
                let number = self.flags.value(name).and_then(|text| text.parse().ok());
                number.or(truth) != Some(value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRITON: &str = "xla_gpu_enable_triton_gemm";
    const FUSION: &str = "xla_gpu_cudnn_gemm_fusion_level";

    fn choices<'a>(flags: &str, options: &'a [u8]) -> Choices<'a> {
        Choices {
            flags: XlaFlags::parse(flags),
            options,
        }
    }

    #[test]
    fn what_was_not_set_contradicts_nothing() {
        let none = choices("--xla_dump_to=/tmp", &[]);
        assert!(!none.has(TRITON) && !none.contradict(TRITON, 0));
    }

    #[test]
    fn flags_of_the_environment_count() {
        for (text, value, contradicts) in [
            ("--xla_gpu_enable_triton_gemm", 0, true),
            ("--xla_gpu_enable_triton_gemm=true", 0, true),
            ("--xla_gpu_enable_triton_gemm=False", 0, false),
            ("--xla_gpu_enable_triton_gemm=0", 0, false),
        ] {
            let chosen = choices(text, &[]);
            assert!(chosen.has(TRITON), "{text}");
            assert_eq!(chosen.contradict(TRITON, value), contradicts, "{text}");
        }
        assert!(choices("--xla_gpu_cudnn_gemm_fusion_level=2", &[]).contradict(FUSION, 0));
        assert!(!choices("--xla_gpu_cudnn_gemm_fusion_level=0", &[]).contradict(FUSION, 0));
    }

    #[test]
    fn options_of_the_compile_count_before_the_environment() {
        let options = options::with_flags(&[], &[(TRITON, OptionValue::Bool(false))]);
        let chosen = choices("--xla_gpu_enable_triton_gemm=true", &options);
        assert!(chosen.has(TRITON) && !chosen.contradict(TRITON, 0));
        let options = options::with_flags(&[], &[(TRITON, OptionValue::Bool(true))]);
        assert!(choices("", &options).contradict(TRITON, 0));
    }
}
