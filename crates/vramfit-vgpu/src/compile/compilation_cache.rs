//! A folder of what XLA's compiler made of programs, so that a later run of the same program needs no
//! compiler (`VRAMFIT_COMPILATION_CACHE`).
//!
//! JAX's own cache lies above the plugin: with it a program is loaded, not compiled, and that is visible
//! in JAX and in the report. This one lies below: all but the time is as if the compiler had run.
//! An entry is everything that a compile leaves behind: the executable, XLA's dump, and the log.
//! Failed compiles are not kept.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use prost::Message;
use sha2::{Digest, Sha256};

use crate::pjrt::cuda_plugin;

/// Entries of other versions are not read: this one may ask the compiler for something else.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Entries that are larger are not kept: a program with its data as constants is rarely compiled twice.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// The beginnings of variables that XLA and the CUDA libraries read.
const READ_BY_COMPILER: &[&str] = &["XLA_", "TF_", "CUDA_", "NVIDIA_", "LD_LIBRARY_PATH"];

/// What a compile leaves behind.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CompilerOutput {
    /// The executable as the CUDA plugin serialized it.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) serialized: Vec<u8>,
    /// The module after the last pass, with its buffer assignment, where XLA was to dump it.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) dump: Option<Vec<u8>>,
    /// What the compiler wrote to standard error, where that was captured.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) log: Vec<u8>,
    /// Whether the compile has shown that XLA has no cost model for the GPU.
    #[prost(bool, tag = "4")]
    pub(crate) has_no_cost_model: bool,
    /// The module before the first pass, where XLA was to dump it.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) original: Option<Vec<u8>>,
}

/// The place of one compile in the cache.
pub(crate) struct CacheEntry(PathBuf);

impl CacheEntry {
    /// Returns the place of a compile that is determined by these parts, besides the compiler itself and the
    /// environment. `None` if the compiler cannot be identified.
    pub(crate) fn new(folder: &Path, parts: &[&[u8]]) -> Option<Self> {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        };
        add(VERSION.as_bytes());
        static COMPILER: OnceLock<Option<String>> = OnceLock::new();
        let compiler = COMPILER.get_or_init(compiler_identity).as_ref()?;
        add(compiler.as_bytes());
        add(environment().as_bytes());
        parts.iter().for_each(|part| add(part));
        let name: String = digest.finalize().iter().map(hex).collect();
        // A folder with every file of the cache in it is slow to list.
        let (group, name) = name.split_at(2);
        Some(CacheEntry(folder.join(group).join(name)))
    }

    pub(crate) fn read(&self) -> Option<CompilerOutput> {
        let output = CompilerOutput::decode(fs::read(&self.0).ok()?.as_slice()).ok()?;
        (!output.serialized.is_empty()).then_some(output)
    }

    /// Keeps a result. A folder that cannot be written costs time, not results.
    pub(crate) fn write(&self, output: &CompilerOutput) {
        let Some(folder) = self.0.parent() else {
            return;
        };
        if output.encoded_len() > MAX_BYTES {
            return;
        }
        let write = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            // Under its name only when it is whole: other processes read and write here.
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(&output.encode_to_vec())?;
            file.persist(&self.0)?;
            Ok(())
        };
        let _ = write();
    }
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

/// Returns which compiler this is: the size of the CUDA plugin, and the releases of the packages beside it, of
/// which one has `ptxas`. Neither its path nor its date: a service for CI installs the same one every day.
fn compiler_identity() -> Option<String> {
    let library = cuda_plugin::library_path()?;
    // `site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so`
    let packages = fs::read_dir(library.ancestors().nth(3)?).ok()?.flatten();
    let names = packages.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let releases: BTreeSet<String> = names
        .filter(|name| name.ends_with(".dist-info"))
        .filter(|name| name.starts_with("jax") || name.starts_with("nvidia"))
        .collect();
    let size = fs::metadata(&library).ok()?.len();
    // A plugin that no package has brought may be of any version.
    (!releases.is_empty()).then(|| format!("{size} {releases:?}"))
}

/// Returns the variables of this process that the compiler reads.
fn environment() -> String {
    let variables = std::env::vars_os().map(|(name, value)| {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        format!("{name}={value}\n")
    });
    let read = |line: &String| READ_BY_COMPILER.iter().any(|start| line.starts_with(start));
    variables.filter(read).collect::<BTreeSet<_>>().into_iter().collect()
}
