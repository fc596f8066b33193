//! Opening NVML, NVIDIA's management library.

use std::ffi::{OsStr, OsString};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH as OTHER_VERSION;

use crate::DriverUnavailable;

/// The name under which every driver installs it. The one without the number comes with
/// development packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The variable that names another file.
const LIBRARY_VARIABLE: &str = "VRAMFIT_NVML";

/// Returns the library to open: that of the variable, else what the dynamic loader finds.
pub(crate) fn library() -> OsString {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    named.unwrap_or_else(|| LIBRARY.into())
}

/// Opens the library and starts a session with the driver.
pub(crate) fn open(library: &OsStr) -> Result<Nvml, DriverUnavailable> {
    Nvml::builder()
        .lib_path(library)
        .init()
        .map_err(|error| DriverUnavailable::from_nvml(&error, &library.to_string_lossy()))
}

/// Returns why a reading is unavailable, as a clause.
pub(crate) fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::NotSupported => "not supported by this GPU".to_owned(),
        NvmlError::NoPermission => "no permission to read it".to_owned(),
        NvmlError::GpuLost => "the GPU has fallen off the bus".to_owned(),
        NvmlError::ResetRequired => "the GPU must be reset first".to_owned(),
        NvmlError::InsufficientPower => "the GPU's power cables are not connected".to_owned(),
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            "not supported by this driver version".to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns whether the driver does not know a function, so that an older one may work.
pub(crate) fn is_unknown_function(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::UnexpectedVariant(OTHER_VERSION)
    )
}

/// Readings that are unavailable, grouped by reason so that a lost GPU is one line.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnavailableReadings {
    by_reason: Vec<(String, Vec<&'static str>)>,
}

impl UnavailableReadings {
    /// Returns the reading, or notes why there is none.
    pub(crate) fn ok_or_note<T>(
        &mut self,
        what: &'static str,
        result: Result<T, NvmlError>,
    ) -> Option<T> {
        result.map_err(|error| self.note(what, reason(&error))).ok()
    }

    /// Notes that `what` is unavailable, and why.
    pub(crate) fn note(&mut self, what: &'static str, reason: String) {
        match self.by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(what),
            None => self.by_reason.push((reason, vec![what])),
        }
    }

    /// Returns one clause per reason: `memory, power: the GPU has fallen off the bus`.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.by_reason
            .iter()
            .map(|(reason, names)| format!("{}: {reason}", names.join(", ")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_grouped_by_reason() {
        let mut unknown = UnavailableReadings::default();
        assert_eq!(unknown.ok_or_note("name", Ok("T4")), Some("T4"));
        assert_eq!(unknown.ok_or_note::<u32>("memory", Err(NvmlError::GpuLost)), None);
        unknown.ok_or_note::<u32>("display", Err(NvmlError::NotSupported));
        unknown.ok_or_note::<u32>("power", Err(NvmlError::GpuLost));
        assert_eq!(
            unknown.reasons(),
            ["memory, power: the GPU has fallen off the bus", "display: not supported by this GPU"]
        );
    }
}
