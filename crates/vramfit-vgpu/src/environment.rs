//! The environment variables by which `vramfit dryrun` configures the plugin.

use std::env;
use std::path::{Path, PathBuf};

use vramfit_core::gpu::{self, Calibration, Gpu};
use vramfit_core::trace::StepLimit;
use vramfit_core::{Bytes, Error, Result};

use crate::device::sharing::{SharingScope, visible_gpus};
use crate::pjrt::status::PjrtResult;

/// The values that unknown arrays read as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fill {
    #[default]
    Zeros,
    Ones,
    /// Not a number (for integers: zero).
    Nan,
    /// Uniform in [0, 1), the same in every run (for integers: any bits).
    Random,
}

/// The configuration of the virtual machine.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// The model of its GPUs.
    pub(crate) gpu: Gpu,
    /// How many GPUs the machine has.
    pub(crate) machine_gpus: u32,
    /// The numbers of the GPUs that are visible to this process, in the order of its devices.
    pub(crate) visible_gpus: Vec<u32>,
    /// The path of the trace; `None` if no trace is written.
    pub(crate) trace: Option<PathBuf>,
    /// The bytes of `--limit`, for the report.
    pub(crate) requested_limit_bytes: Option<u64>,
    /// Bytes of each GPU that other programs use.
    pub(crate) occupied_bytes: u64,
    /// Whether the pools have far more memory than the GPU, while programs are compiled for the GPU and
    /// see its limit: to measure a program that does not fit.
    pub(crate) unlimited: bool,
    /// With which processes the memory of the GPUs is shared.
    pub(crate) sharing: SharingScope,
    /// After which training steps the run ends.
    pub(crate) steps: Option<StepLimit>,
    /// The name of the program that is the training step; `None` if it is detected.
    pub(crate) step_name: Option<String>,
    /// The values that unknown arrays read as.
    pub(crate) fill: Fill,
    /// Whether programs are evaluated when their values are read.
    pub(crate) computes_values: bool,
    /// Estimated bytes of the CUDA context on each GPU.
    pub(crate) context_bytes: u64,
    /// How many bytes of uploaded values are kept at most.
    pub(crate) upload_cap_bytes: u64,
    /// Whether large programs are also measured without Triton GEMM.
    pub(crate) autotune_range: bool,
    /// Autotuning results recorded on a GPU, for the compiler.
    pub(crate) autotune_results: Option<String>,
    /// Rates measured on a GPU, for estimates of time.
    pub(crate) calibration: Option<Calibration>,
    /// A folder for the compiler's log; `None` if it is not captured.
    pub(crate) compiler_log: Option<PathBuf>,
    /// A folder in which the compiler's results are kept and found; `None` if all programs are compiled.
    pub(crate) compilation_cache: Option<PathBuf>,
    /// Whether the memory of programs is attributed to owners.
    pub(crate) attribution: bool,
    /// Whether the number of calls of each API function is printed at the end.
    pub(crate) print_calls: bool,
}

/// Default of `VRAMFIT_UPLOAD_CAP`: enough for the labels of a data set and
/// every checkpoint of a small model, small enough for a laptop.
const DEFAULT_UPLOAD_CAP: u64 = 2 << 30;

impl Environment {
    /// Returns how many devices this process has.
    pub(crate) fn devices(&self) -> u32 {
        self.visible_gpus.len() as u32
    }

    /// Returns the total memory of each GPU, as the pools have it.
    pub(crate) fn pool_total_bytes(&self) -> u64 {
        /// More than a program needs that somebody wants to fit.
        const UNLIMITED_FACTOR: u64 = 64;
        match self.unlimited {
            true => self.gpu.total_memory_bytes * UNLIMITED_FACTOR,
            false => self.gpu.total_memory_bytes,
        }
    }

    /// Reads the `VRAMFIT_*` variables.
    ///
    /// # Errors
    /// For invalid values.
    pub(crate) fn read() -> PjrtResult<Self> {
        let name = non_empty_var("VRAMFIT_GPU").unwrap_or_else(|| "h100-80g".to_owned());
        let gpu = gpu::find(&name)?;
        let gpu = match parse_bytes("VRAMFIT_TOTAL")? {
            Some(total) => gpu.with_total(total)?,
            None => gpu,
        };
        let context_bytes = parse_bytes("VRAMFIT_CONTEXT")?.unwrap_or(gpu.context_bytes_estimate);
        let sharing = match (non_empty_var("VRAMFIT_SHARED"), env::var_os("VRAMFIT_SHARED_FILE")) {
            (Some(name), _) => SharingScope::Named(name),
            (None, Some(path)) if !path.is_empty() => SharingScope::Run(PathBuf::from(path)),
            (None, _) => SharingScope::Private,
        };
        let machine_gpus = parse_number("VRAMFIT_GPU_COUNT")?.unwrap_or(1).clamp(1, 4096) as u32;
        let list = env::var("CUDA_VISIBLE_DEVICES").ok();
        Ok(Environment {
            machine_gpus,
            visible_gpus: visible_gpus(&sharing, machine_gpus, list.as_deref())?,
            sharing,
            unlimited: flag("VRAMFIT_UNLIMITED").unwrap_or(false),
            trace: env::var_os("VRAMFIT_TRACE").map(PathBuf::from),
            requested_limit_bytes: parse_bytes("VRAMFIT_LIMIT")?,
            occupied_bytes: parse_bytes("VRAMFIT_OCCUPIED")?.unwrap_or(0),
            steps: parse_step_limit(non_empty_var("VRAMFIT_STEPS").as_deref())?,
            step_name: non_empty_var("VRAMFIT_STEP"),
            fill: parse_fill(non_empty_var("VRAMFIT_FILL").as_deref())?,
            computes_values: flag("VRAMFIT_VALUES").unwrap_or(true),
            context_bytes,
            upload_cap_bytes: parse_bytes("VRAMFIT_UPLOAD_CAP")?.unwrap_or(DEFAULT_UPLOAD_CAP),
            autotune_range: flag("VRAMFIT_AUTOTUNE_RANGE").unwrap_or(false),
            autotune_results: non_empty_var("VRAMFIT_AUTOTUNE_RESULTS"),
            calibration: env::var_os("VRAMFIT_CALIBRATION")
                .filter(|path| !path.is_empty())
                .map(|path| Calibration::read(Path::new(&path), &gpu))
                .transpose()?,
            compiler_log: env::var_os("VRAMFIT_COMPILER_LOG").map(PathBuf::from),
            compilation_cache: non_empty_var("VRAMFIT_COMPILATION_CACHE").map(PathBuf::from),
            attribution: flag("VRAMFIT_ATTRIBUTION").unwrap_or(true),
            print_calls: flag("VRAMFIT_PJRT_CALLS").unwrap_or(false),
            gpu,
        })
    }
}

fn non_empty_var(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn flag(name: &str) -> Option<bool> {
    non_empty_var(name).map(|value| value != "0")
}

fn parse_number(name: &str) -> Result<Option<u64>> {
    let parse = |value: String| {
        value.parse().map_err(|_| {
            Error::invalid_argument(format!("`{name}` is not a whole number: {value}"))
        })
    };
    non_empty_var(name).map(parse).transpose()
}

fn parse_bytes(name: &str) -> Result<Option<u64>> {
    non_empty_var(name).map(|value| value.parse::<Bytes>().map(|bytes| bytes.0)).transpose()
}

fn parse_step_limit(value: Option<&str>) -> Result<Option<StepLimit>> {
    let limit = value.map(str::parse).transpose();
    limit.map_err(|error: Error| error.context("`VRAMFIT_STEPS`"))
}

fn parse_fill(value: Option<&str>) -> Result<Fill> {
    match value {
        None | Some("zeros") => Ok(Fill::Zeros),
        Some("ones") => Ok(Fill::Ones),
        Some("nan") => Ok(Fill::Nan),
        Some("random") => Ok(Fill::Random),
        Some(other) => Err(Error::invalid_argument(format!(
            "`VRAMFIT_FILL` is `{other}`, not `zeros`, `ones`, `nan` or `random`"
        ))),
    }
}
