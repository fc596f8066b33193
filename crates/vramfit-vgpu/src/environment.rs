//! What `vramfit dryrun` tells the plugin, through the environment.

use std::env;
use std::path::PathBuf;

use vramfit_core::gpu::{self, Gpu};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

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
    /// How many of them.
    pub(crate) devices: u32,
    /// Where the trace is written; nowhere when `None`.
    pub(crate) trace: Option<PathBuf>,
    /// The bytes that were asked for with `--limit`, for the report.
    pub(crate) asked_limit_bytes: Option<u64>,
    /// Bytes that something else holds on each card.
    pub(crate) taken_bytes: u64,
    /// The name of the machine that several processes share.
    pub(crate) shared: Option<String>,
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
    pub(crate) bracket: bool,
    /// Autotuning results recorded on a card, for the compiler.
    pub(crate) autotune_results: Option<String>,
    /// A folder for what the compiler says, where that is wanted.
    pub(crate) compiler_log: Option<PathBuf>,
    /// Whether it is to be found out where the memory of programs goes.
    pub(crate) owners: bool,
    /// Whether the table of calls is printed at the end.
    pub(crate) print_calls: bool,
}

/// Uploads kept unless `VRAMFIT_UPLOAD_CAP` says otherwise: enough for a data set's labels and
/// every checkpoint of a small model, small enough for a laptop.
const DEFAULT_UPLOAD_CAP: u64 = 2 << 30;

impl Environment {
    /// Reads the `VRAMFIT_*` variables.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] and [`ErrorKind::UnknownGpu`] for values that make no sense.
    pub(crate) fn read() -> Result<Self> {
        let name = text("VRAMFIT_GPU").unwrap_or_else(|| "h100-80g".to_owned());
        let gpu = gpu::find(&name)?;
        let gpu = match bytes("VRAMFIT_TOTAL")? {
            Some(total) => gpu.with_total(total)?,
            None => gpu,
        };
        let context_bytes = bytes("VRAMFIT_CONTEXT")?.unwrap_or(gpu.context_bytes_estimate);
        Ok(Environment {
            devices: visible(
                number("VRAMFIT_GPU_COUNT")?.unwrap_or(1).clamp(1, 4096) as u32,
                env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(),
            ),
            trace: env::var_os("VRAMFIT_TRACE").map(PathBuf::from),
            asked_limit_bytes: bytes("VRAMFIT_LIMIT")?,
            taken_bytes: bytes("VRAMFIT_TAKEN")?.unwrap_or(0),
            shared: text("VRAMFIT_SHARED"),
            steps: number("VRAMFIT_STEPS")?,
            step: text("VRAMFIT_STEP"),
            fill: fill(text("VRAMFIT_FILL").as_deref())?,
            computes_values: text("VRAMFIT_VALUES").is_none_or(|value| value != "0"),
            context_bytes,
            upload_cap_bytes: bytes("VRAMFIT_UPLOAD_CAP")?.unwrap_or(DEFAULT_UPLOAD_CAP),
            bracket: text("VRAMFIT_BRACKET").is_some_and(|value| value != "0"),
            autotune_results: text("VRAMFIT_AUTOTUNE_RESULTS"),
            compiler_log: env::var_os("VRAMFIT_COMPILER_LOG").map(PathBuf::from),
            owners: text("VRAMFIT_OWNERS").is_none_or(|value| value != "0"),
            print_calls: text("VRAMFIT_PJRT_CALLS").is_some_and(|value| value != "0"),
            gpu,
        })
    }
}

/// Returns how many of `count` cards `CUDA_VISIBLE_DEVICES` leaves, read as the driver reads it:
/// the list ends before the first entry that is no card. (Cards named by UUID are taken as seen.)
fn visible(count: u32, list: Option<&str>) -> u32 {
    let Some(list) = list else { return count };
    let is_card = |entry: &&str| match entry.trim().parse::<i64>() {
        Ok(index) => (0..i64::from(count)).contains(&index),
        Err(_) => entry.trim().starts_with("GPU-") || entry.trim().starts_with("MIG-"),
    };
    list.split(',')
        .take_while(is_card)
        .count()
        .min(count as usize) as u32
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Result<Option<u64>> {
    let parse = |value: String| {
        value.parse().map_err(|_| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("`{name}` is no whole number: {value}"),
            )
        })
    };
    text(name).map(parse).transpose()
}

fn bytes(name: &str) -> Result<Option<u64>> {
    text(name)
        .map(|value| value.parse::<Bytes>().map(|bytes| bytes.0))
        .transpose()
}

fn fill(value: Option<&str>) -> Result<Fill> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_cards_are_counted_as_the_driver_does() {
        for (list, count) in [
            (None, 4),
            (Some("0,2"), 2),
            (Some("1"), 1),
            (Some("0,9,1"), 1),
            (Some("-1"), 0),
            (Some(""), 0),
            (Some("GPU-5c7e"), 1),
        ] {
            assert_eq!(visible(4, list), count, "{list:?}");
        }
    }
}
