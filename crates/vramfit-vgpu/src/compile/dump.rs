//! Reads from XLA's dump which values occupy the memory of a program.
//!
//! Since JAX 0.10.1 a serialized executable does not say which value is in which buffer; the dump that XLA
//! writes after its last pass does, in every release. Each compile dumps into a temporary folder, which is
//! removed right after it was read.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use vramfit_model::program::proto::OptionValue;

use crate::compile::user_flags::{ENABLED_DUMPS, ENABLES_DUMPS, UserFlags};

/// The flag for the folder.
const FLAG: &str = "xla_dump_to";
/// Ends the name of the file that holds the scheduled module and its buffer assignment.
const SUFFIX: &str = "gpu_after_optimizations.hlo.pb";
/// Ends the name of the file that holds the module before the first pass.
const ORIGINAL_SUFFIX: &str = ".before_optimizations.hlo.pb";
/// The defaults of flags with which the dump would lack what is read here, be another kind of file, or take long.
const DEFAULTS: &[(&str, OptionValue)] = &[
    (ENABLES_DUMPS, OptionValue::Bool(true)),
    (ENABLED_DUMPS, OptionValue::Bool(true)),
    ("xla_dump_hlo_module_re", OptionValue::Text(String::new())),
    ("xla_dump_hlo_pass_re", OptionValue::Text(String::new())),
    ("xla_dump_emitter_re", OptionValue::Text(String::new())),
    ("xla_dump_max_hlo_modules", OptionValue::Int(-1)),
    ("xla_dump_hlo_as_text", OptionValue::Bool(false)),
    ("xla_dump_hlo_as_dot", OptionValue::Bool(false)),
    ("xla_dump_hlo_as_html", OptionValue::Bool(false)),
    ("xla_dump_hlo_as_url", OptionValue::Bool(false)),
    ("xla_dump_hlo_snapshots", OptionValue::Bool(false)),
    ("xla_dump_hlo_unoptimized_snapshots", OptionValue::Bool(false)),
    ("xla_dump_hlo_to_subfolder", OptionValue::Bool(false)),
    ("xla_dump_compress_protos", OptionValue::Bool(false)),
    ("xla_dump_disable_metadata", OptionValue::Bool(false)),
    ("xla_dump_fusion_visualization", OptionValue::Bool(false)),
    ("xla_dump_module_metadata", OptionValue::Bool(false)),
];
/// Larger than the dump of any program that compiles in a day.
const MAX_BYTES: u64 = 2 << 30;

/// A folder for the dump of one compile.
pub(crate) struct Dump {
    folder: TempDir,
}

impl Dump {
    /// Makes a folder, in that of the run if there is one: it is removed even if XLA ends the process. `None` if
    /// none can be made.
    pub(crate) fn new(run: Option<&Path>) -> Option<Self> {
        let mut new = tempfile::Builder::new();
        new.prefix("vramfit-");
        let in_run = run.and_then(|run| new.tempdir_in(run).ok());
        let folder = in_run.or_else(|| new.tempdir().ok())?;
        Some(Dump { folder })
    }

    /// Returns the flags that make XLA dump into the folder, and as little else as possible: what the user
    /// has set for another dump is taken back for this one.
    pub(crate) fn flags(&self, user_flags: &UserFlags<'_>) -> Vec<(&'static str, OptionValue)> {
        let users: Vec<String> = user_flags.dump_flags().collect();
        let defaults = DEFAULTS.iter().filter(|flag| users.iter().any(|name| name == flag.0));
        let mut flags: Vec<_> = defaults.map(|(name, value)| (*name, value.clone())).collect();
        let folder = self.folder.path().display().to_string();
        flags.extend([
            (FLAG, OptionValue::Text(folder)),
            ("xla_dump_hlo_as_proto", OptionValue::Bool(true)),
        ]);
        flags
    }

    /// Returns the module that was compiled with the flags, and its buffer assignment. `None` if the
    /// dump does not contain them.
    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        self.read_file(SUFFIX)
    }

    /// Returns the module before XLA's passes. `None` if the dump does not contain it.
    pub(crate) fn read_original(&self) -> Option<Vec<u8>> {
        self.read_file(ORIGINAL_SUFFIX)
    }

    fn read_file(&self, suffix: &str) -> Option<Vec<u8>> {
        let files = fs::read_dir(self.folder.path()).ok()?.flatten();
        let mut dumps = files.filter(|file| file.file_name().to_string_lossy().ends_with(suffix));
        let dump = dumps.next()?;
        (dump.metadata().ok()?.len() <= MAX_BYTES).then(|| fs::read(dump.path()).ok())?
    }
}
