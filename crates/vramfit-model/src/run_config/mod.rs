//! What a dry run is to do, as one value: made from the options of a command, read by the plugin and by the Python
//! package in each process of the program, and written at the head of the trace.
//!
//! What this does not say is how the program is started and where results go (`DryrunSpec` of the command line), and
//! what JAX makes of its own settings in the process ([`crate::trace::Header`]).

mod step_limit;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::gpu::{Calibration, GpuSelection};

pub use step_limit::{FEW_CALLS, STEADY_CALLS, StepLimit};

/// The environment variable with the path of the file that holds the configuration. A process that has it is part of a
/// dry run, and its GPUs are virtual.
pub const RUN_CONFIG_VARIABLE: &str = "VRAMFIT_RUN_CONFIG";

/// What a dry run is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunConfig {
    /// The GPUs of each host, with the total memory that they are to have.
    pub gpus: GpuSelection,
    /// Bytes that other programs use on each GPU (`--occupied`).
    pub occupied_bytes: u64,
    /// Bytes of host memory that are free for the program (`--host-memory`); `None` where that is not known.
    pub host_memory_bytes: Option<u64>,
    /// Estimate of what a CUDA context takes on each GPU, outside every pool, in bytes.
    pub context_bytes: u64,
    /// Which processes share the memory of the GPUs.
    pub sharing: Sharing,
    /// The host that the program runs on, of several; `None` for one.
    pub host: Option<HostConfig>,
    /// Bytes that `--limit` asked for, for the report: JAX itself reads a fraction.
    pub requested_limit_bytes: Option<u64>,
    /// Whether the pools have far more memory than the GPUs, while programs are compiled for the GPUs and see their
    /// limit: to measure a program that does not fit.
    pub unlimited: bool,
    /// After which training steps the run ends.
    pub steps: Option<StepLimit>,
    /// Name of the function that is the training step; `None` where it is detected.
    pub step: Option<String>,
    /// The plan to apply.
    pub plan: Option<PathBuf>,
    /// Where to record the sites that a plan could change.
    pub plan_sites: Option<PathBuf>,
    /// Whether the memory of programs is attributed to owners.
    pub attribution: bool,
    /// Whether large programs are compiled without Triton GEMM, too ([`crate::trace::Event::Variant`]).
    pub autotune_range: bool,
    /// File of autotuning results that were recorded on a GPU, for the compiler.
    pub autotune_results: Option<PathBuf>,
    /// Rates measured on a GPU, for estimates of time.
    pub calibration: Option<Calibration>,
    /// Whether small values are computed.
    pub values: bool,
    /// Whether host callbacks are called whose arguments were not computed.
    pub callbacks: bool,
    /// What values that were not computed read as.
    pub fill: Fill,
    /// How many bytes of host memory the contents of arrays may take that were uploaded to the GPU.
    pub upload_cap_bytes: u64,
    /// Folder in which the compiler's results are kept and found; `None` if all programs are compiled.
    pub compilation_cache: Option<PathBuf>,
    /// The variables for JAX that the command set itself, and not the user.
    pub set_by_vramfit: Vec<String>,
    /// Folder of the run, for what its processes leave for the command.
    pub folder: PathBuf,
    /// The trace to write; processes after the first append their number. Empty for none.
    pub trace: PathBuf,
    /// Folder for the checkpoints of the program, in place of its own.
    pub checkpoints: PathBuf,
}

/// Which processes draw on the memory of the same virtual GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Each process has the GPUs to itself.
    #[default]
    Private,
    /// The processes that one dry run starts.
    Run,
    /// The processes of all dry runs that give the GPUs this name (`--share-as`).
    Named(String),
}

impl Sharing {
    /// Returns `private`, `run` or `named`.
    pub fn kind(&self) -> &'static str {
        match self {
            Sharing::Private => "private",
            Sharing::Run => "run",
            Sharing::Named(_) => "named",
        }
    }
}

/// One of the hosts that run a program together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostConfig {
    /// Which one it is.
    pub index: u32,
    /// How many there are.
    pub count: u32,
    /// The launcher whose variables the program finds in its environment.
    pub launcher: Option<Launcher>,
    /// Folder in which hosts leave what they tell those that are run after them.
    pub folder: PathBuf,
}

/// A launcher that starts a program on the hosts of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// One task per node; JAX then takes one GPU per task unless the program names others.
    Slurm,
    /// `mpirun` of Open MPI, one process per node.
    Openmpi,
    /// An indexed Job of Kubernetes.
    Kubernetes,
}

impl Launcher {
    /// Returns the name that the option `--launcher` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Launcher::Slurm => "slurm",
            Launcher::Openmpi => "openmpi",
            Launcher::Kubernetes => "kubernetes",
        }
    }
}

/// What values that were not computed read as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// 0.
    #[default]
    Zeros,
    /// 1.
    Ones,
}

impl Default for RunConfig {
    /// Without GPUs, paths and options.
    fn default() -> Self {
        RunConfig {
            gpus: GpuSelection::default(),
            occupied_bytes: 0,
            host_memory_bytes: None,
            context_bytes: 0,
            sharing: Sharing::Private,
            host: None,
            requested_limit_bytes: None,
            unlimited: false,
            steps: None,
            step: None,
            plan: None,
            plan_sites: None,
            attribution: true,
            autotune_range: false,
            autotune_results: None,
            calibration: None,
            values: true,
            callbacks: true,
            fill: Fill::Zeros,
            upload_cap_bytes: DEFAULT_UPLOAD_CAP_BYTES,
            compilation_cache: None,
            set_by_vramfit: Vec::new(),
            folder: PathBuf::new(),
            trace: PathBuf::new(),
            checkpoints: PathBuf::new(),
        }
    }
}

/// Enough for the labels of a data set and every checkpoint of a small model, small enough for a laptop.
const DEFAULT_UPLOAD_CAP_BYTES: u64 = 2 << 30;

impl RunConfig {
    /// Returns the configuration of a run whose processes share these GPUs, everything else being the default.
    pub fn new(gpus: GpuSelection) -> Self {
        RunConfig {
            context_bytes: gpus.gpu.context_bytes_estimate,
            gpus,
            sharing: Sharing::Run,
            ..RunConfig::default()
        }
    }

    /// Returns the configuration of the dry run that a process with these variables is part of; `None` for a process
    /// that is part of none.
    ///
    /// # Errors
    /// Those of [`RunConfig::read`].
    pub fn from_environment<V: AsRef<OsStr>>(
        variable: impl Fn(&str) -> Option<V>,
    ) -> Result<Option<Self>> {
        let path = variable(RUN_CONFIG_VARIABLE);
        let path = path.as_ref().map(AsRef::as_ref).filter(|path| !path.is_empty());
        path.map(|path| RunConfig::read(Path::new(path))).transpose()
    }

    /// Reads the file that [`RUN_CONFIG_VARIABLE`] names.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`] where it cannot be read, [`crate::ErrorKind::InvalidFile`] where it holds something else.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = std::fs::read(path).map_err(|error| {
            Error::io(format!("cannot read the configuration of the dry run, `{shown}`"))
                .cause(error)
                .hint("the dry run that started this process may have ended: unset the variable `VRAMFIT_RUN_CONFIG`")
        })?;
        serde_json::from_slice(&text).map_err(|error| {
            let what = format!("`{shown}` is not the configuration of a dry run");
            Error::invalid_file(what).cause(error)
        })
    }

    /// Writes the file that [`RUN_CONFIG_VARIABLE`] names.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`] where it cannot be written, [`crate::ErrorKind::InvalidArgument`] for a path in it that
    /// is not UTF-8.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|error| {
            Error::invalid_argument("a path of the dry run is not UTF-8")
                .cause(error)
                .hint("name the files of the dry run, and the temporary directory, in UTF-8")
        })?;
        std::fs::write(path, text)
            .map_err(|error| Error::io(format!("cannot write `{}`", path.display())).cause(error))
    }

    /// Returns the total memory of each GPU as its pool sees it, in bytes.
    pub fn pool_total_bytes(&self) -> u64 {
        /// More than a program needs that somebody wants to fit.
        const UNLIMITED_FACTOR: u64 = 64;
        let total_bytes = self.gpus.gpu.total_memory_bytes;
        if self.unlimited { total_bytes.saturating_mul(UNLIMITED_FACTOR) } else { total_bytes }
    }

    /// Returns the file through which the processes of this run share its GPUs.
    pub fn shared_gpu_file(&self) -> PathBuf {
        self.folder.join("gpu-memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn config() -> RunConfig {
        RunConfig {
            steps: Some(StepLimit::Steady),
            sharing: Sharing::Named("desk".to_owned()),
            host: Some(HostConfig {
                index: 3,
                count: 8,
                launcher: Some(Launcher::Slurm),
                folder: "/tmp/messages".into(),
            }),
            fill: Fill::Ones,
            ..RunConfig::new("h100-80gx8".parse().expect("in the catalog"))
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("run.json");
        for gpu in crate::gpu::all() {
            let gpus = gpu.name.parse().expect("in the catalog");
            let config = RunConfig { gpus, ..config() };
            config.write(&path).expect("written");
            assert_eq!(RunConfig::read(&path).expect("read"), config);
            let variable = |name: &str| (name == RUN_CONFIG_VARIABLE).then(|| path.as_os_str());
            assert_eq!(RunConfig::from_environment(variable).expect("read"), Some(config));
        }
    }

    #[test]
    fn a_process_without_the_variable_is_part_of_no_dry_run() {
        assert_eq!(RunConfig::from_environment(|_| None::<&str>).expect("nothing to read"), None);
        assert_eq!(RunConfig::from_environment(|_| Some("")).expect("nothing to read"), None);
        let gone = RunConfig::from_environment(|_| Some("/none/run.json")).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Io);
        assert!(gone.hint_text().is_some());
    }

    #[test]
    fn every_field_is_documented() {
        let page = include_str!("../../../../docs/reference/trace-format.md");
        let (_, section) = page.split_once("## Run configuration").expect("a section");
        let (section, _) = section.split_once("\n## ").expect("one more section");
        let written = serde_json::to_value(config()).expect("a value");
        for key in written.as_object().expect("an object").keys() {
            assert!(section.contains(&format!("`{key}`")), "{key} is not documented");
        }
    }

    #[test]
    fn paths_that_json_cannot_hold_are_refused() {
        use std::os::unix::ffi::OsStrExt;
        let trace = PathBuf::from(OsStr::from_bytes(b"/tmp/\xff.trace"));
        let config = RunConfig { trace, ..config() };
        let error = config.write(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn an_unlimited_pool_has_more_than_the_gpu() {
        let config = RunConfig { unlimited: true, ..config() };
        assert!(config.pool_total_bytes() > 50 * config.gpus.gpu.total_memory_bytes);
    }
}
