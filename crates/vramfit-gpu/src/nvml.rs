//! Opening NVML, NVIDIA's management library.

use std::ffi::{OsStr, OsString};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH as OTHER_VERSION;

use crate::Absence;

/// The name under which every driver installs it. The one without the number comes with
/// development packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The variable that names another file.
const VARIABLE: &str = "VRAMFIT_NVML";

/// The library to open: what the variable names, else what the dynamic loader finds.
pub(crate) fn library() -> OsString {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    named.unwrap_or_else(|| LIBRARY.into())
}

/// Opens the library and starts a session with the driver.
pub(crate) fn open(library: &OsStr) -> Result<Nvml, Absence> {
    Nvml::builder()
        .lib_path(library)
        .init()
        .map_err(|error| Absence::of_nvml(&error, &library.to_string_lossy()))
}

/// Says why a figure is not known, in a clause that fits behind its name.
pub(crate) fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::NotSupported => "not supported by this card".to_owned(),
        NvmlError::NoPermission => "this user may not ask for it".to_owned(),
        NvmlError::GpuLost => "the card fell off the bus".to_owned(),
        NvmlError::ResetRequired => "the card must be reset first".to_owned(),
        NvmlError::InsufficientPower => "the card's power cables are not plugged in".to_owned(),
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            "this driver is too old to tell it".to_owned()
        }
        other => other.to_string(),
    }
}

/// Says whether a driver refused because it does not know a function, so that an older one may do.
pub(crate) fn is_unknown_function(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::UnexpectedVariant(OTHER_VERSION)
    )
}

/// The figures that could not be learnt, gathered by reason so that a lost card is one line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unknown {
    reasons: Vec<(String, Vec<&'static str>)>,
}

impl Unknown {
    /// Returns what was learnt, or notes that `what` was not.
    pub(crate) fn note<T>(
        &mut self,
        what: &'static str,
        result: Result<T, NvmlError>,
    ) -> Option<T> {
        result
            .map_err(|error| self.because(what, reason(&error)))
            .ok()
    }

    /// Notes that `what` is not known because of `reason`.
    pub(crate) fn because(&mut self, what: &'static str, reason: String) {
        match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(what),
            None => self.reasons.push((reason, vec![what])),
        }
    }

    /// Returns one clause a reason: `memory, power: the card fell off the bus`.
    pub(crate) fn clauses(&self) -> Vec<String> {
        self.reasons
            .iter()
            .map(|(reason, names)| format!("{}: {reason}", names.join(", ")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_for_one_reason_is_one_clause() {
        let mut unknown = Unknown::default();
        assert_eq!(unknown.note("name", Ok("T4")), Some("T4"));
        assert_eq!(unknown.note::<u32>("memory", Err(NvmlError::GpuLost)), None);
        unknown.note::<u32>("display", Err(NvmlError::NotSupported));
        unknown.note::<u32>("power", Err(NvmlError::GpuLost));
        assert_eq!(
            unknown.clauses(),
            [
                "memory, power: the card fell off the bus",
                "display: not supported by this card"
            ]
        );
    }
}
