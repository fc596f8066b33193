//! What `vramfit dryrun` tells the plugin, through the environment.

use std::env;
use std::path::PathBuf;

use vramfit_core::gpu::{self, Gpu};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use crate::device::sharing::{SharingScope, visible_gpus};
use crate::pjrt::status::PjrtResult;

/// Values that a read of an unknown array gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Zeros.
    #[default]
    Zeros,
    /// Ones.
    Ones,
    /// Not a number (for integers: zero).
    Nan,
    /// Uniform in [0, 1), the same in every run (for integers: any bits).
    Random,
}

/// The virtual machine that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// The card.
    pub(crate) gpu: Gpu,
    /// How many of them the machine has.
    pub(crate) machine_gpus: u32,
    /// The numbers of those that this process sees, in the order of its devices.
    pub(crate) gpus: Vec<u32>,
    /// Where the trace is written; nowhere when `None`.
    pub(crate) trace: Option<PathBuf>,
    /// The bytes that were asked for with `--limit`, for the report.
    pub(crate) requested_limit_bytes: Option<u64>,
    /// Bytes that something else holds on each card.
    pub(crate) reserved_bytes: u64,
    /// With which processes the memory of the GPUs is shared.
    pub(crate) sharing: SharingScope,
    /// After this many executions of one program the run is ended.
    pub(crate) steps: Option<u64>,
    /// The name of the program that is the training step, where it is not to be searched for.
    pub(crate) step: Option<String>,
    /// What unknown values read as.
    pub(crate) fill: Fill,
    /// Whether values that programs compute are computed when they are read.
    pub(crate) computes_values: bool,
    /// What the CUDA context is estimated to hold on each card.
    pub(crate) context_bytes: u64,
    /// How many bytes of uploaded values are kept at most.
    pub(crate) upload_cap_bytes: u64,
    /// Whether large programs are compiled a second way, to be measured.
    pub(crate) autotune_range: bool,
    /// Autotuning results recorded on a card, for the compiler.
    pub(crate) autotune_results: Option<String>,
    /// A folder for what the compiler says, where that is wanted.
    pub(crate) compiler_log: Option<PathBuf>,
    /// Whether it is to be found out where the memory of programs goes.
    pub(crate) attribution: bool,
    /// Whether the table of calls is printed at the end.
    pub(crate) print_calls: bool,
}

/// Uploads kept unless `VRAMFIT_UPLOAD_CAP` says otherwise: enough for a data set's labels and
/// every checkpoint of a small model, small enough for a laptop.
const DEFAULT_UPLOAD_CAP: u64 = 2 << 30;

impl Environment {
    /// Returns how many devices this process has.
    pub(crate) fn devices(&self) -> u32 {
        self.gpus.len() as u32
    }

    /// Reads the `VRAMFIT_*` variables.
    ///
    /// # Errors
    /// For values that make no sense.
    pub(crate) fn read() -> PjrtResult<Self> {
        let name = non_empty_var("VRAMFIT_GPU").unwrap_or_else(|| "h100-80g".to_owned());
        let gpu = gpu::find(&name)?;
        let gpu = match parse_bytes("VRAMFIT_TOTAL")? {
            Some(total) => gpu.with_total(total)?,
            None => gpu,
        };
        let context_bytes = parse_bytes("VRAMFIT_CONTEXT")?.unwrap_or(gpu.context_bytes_estimate);
        let sharing = match (
            non_empty_var("VRAMFIT_SHARED"),
            env::var_os("VRAMFIT_SHARED_FILE"),
        ) {
            (Some(name), _) => SharingScope::Named(name),
            (None, Some(path)) if !path.is_empty() => SharingScope::Run(PathBuf::from(path)),
            (None, _) => SharingScope::Private,
        };
        let machine_gpus = parse_number("VRAMFIT_GPU_COUNT")?
            .unwrap_or(1)
            .clamp(1, 4096) as u32;
        let list = env::var("CUDA_VISIBLE_DEVICES").ok();
        Ok(Environment {
            machine_gpus,
            gpus: visible_gpus(&sharing, machine_gpus, list.as_deref())?,
            sharing,
            trace: env::var_os("VRAMFIT_TRACE").map(PathBuf::from),
            requested_limit_bytes: parse_bytes("VRAMFIT_LIMIT")?,
            reserved_bytes: parse_bytes("VRAMFIT_TAKEN")?.unwrap_or(0),
            steps: parse_number("VRAMFIT_STEPS")?,
            step: non_empty_var("VRAMFIT_STEP"),
            fill: parse_fill(non_empty_var("VRAMFIT_FILL").as_deref())?,
            computes_values: non_empty_var("VRAMFIT_VALUES").is_none_or(|value| value != "0"),
            context_bytes,
            upload_cap_bytes: parse_bytes("VRAMFIT_UPLOAD_CAP")?.unwrap_or(DEFAULT_UPLOAD_CAP),
            autotune_range: non_empty_var("VRAMFIT_BRACKET").is_some_and(|value| value != "0"),
            autotune_results: non_empty_var("VRAMFIT_AUTOTUNE_RESULTS"),
            compiler_log: env::var_os("VRAMFIT_COMPILER_LOG").map(PathBuf::from),
            attribution: non_empty_var("VRAMFIT_OWNERS").is_none_or(|value| value != "0"),
            print_calls: non_empty_var("VRAMFIT_PJRT_CALLS").is_some_and(|value| value != "0"),
            gpu,
        })
    }
}

fn non_empty_var(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn parse_number(name: &str) -> Result<Option<u64>> {
    let parse = |value: String| {
        value.parse().map_err(|_| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("`{name}` is no whole number: {value}"),
            )
        })
    };
    non_empty_var(name).map(parse).transpose()
}

fn parse_bytes(name: &str) -> Result<Option<u64>> {
    non_empty_var(name)
        .map(|value| value.parse::<Bytes>().map(|bytes| bytes.0))
        .transpose()
}

fn parse_fill(value: Option<&str>) -> Result<Fill> {
    match value {
        None | Some("zeros") => Ok(Fill::Zeros),
        Some("ones") => Ok(Fill::Ones),
        Some("nan") => Ok(Fill::Nan),
        Some("random") => Ok(Fill::Random),
        Some(other) => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("`VRAMFIT_FILL` is `{other}`, not `zeros`, `ones`, `nan` or `random`"),
        )),
    }
}
