//! Why the NVIDIA driver is not available, and what to do about it.

use nvml_wrapper::error::NvmlError;
use vramfit_model::{Error, ErrorKind};

/// Why the driver cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverUnavailable {
    /// The driver's library is not on this machine, or cannot be loaded.
    LibraryMissing {
        /// The name or path that was tried.
        library: String,
        /// What the dynamic loader said.
        cause: String,
    },
    /// The library lacks a required function.
    TooOld {
        /// The name or path of the library.
        library: String,
        /// The function that it lacks.
        function: String,
    },
    /// The driver works, but shows no GPU to this process.
    NoGpus,
    /// The library exists, but the kernel module is not loaded or finds no GPU.
    NotLoaded,
    /// The library and the kernel module have different versions, as after an update.
    VersionMismatch,
    /// This user or this container may not use the driver.
    NoPermission,
    /// A GPU has fallen off the bus.
    GpuLost,
    /// A GPU's power cables are not plugged in.
    NoPower,
    /// Anything else, in the driver's words.
    Other(String),
}

impl DriverUnavailable {
    /// Classifies an error that NVML returned when `library` was opened.
    pub(crate) fn from_nvml(error: &NvmlError, library: &str) -> Self {
        match error {
            NvmlError::LibloadingError(cause) => DriverUnavailable::LibraryMissing {
                library: library.to_owned(),
                cause: cause.to_string(),
            },
            NvmlError::FailedToLoadSymbol(_) => DriverUnavailable::TooOld {
                library: library.to_owned(),
                function: "nvmlInit_v2".to_owned(),
            },
            NvmlError::DriverNotLoaded => DriverUnavailable::NotLoaded,
            NvmlError::LibRmVersionMismatch => DriverUnavailable::VersionMismatch,
            NvmlError::NoPermission | NvmlError::OperatingSystem => DriverUnavailable::NoPermission,
            NvmlError::GpuLost => DriverUnavailable::GpuLost,
            NvmlError::InsufficientPower => DriverUnavailable::NoPower,
            other => DriverUnavailable::Other(other.to_string()),
        }
    }

    fn describe(&self) -> (String, Option<&str>, &'static str) {
        match self {
            DriverUnavailable::LibraryMissing { library, cause } => (
                format!("`{library}` cannot be opened"),
                Some(cause),
                "install NVIDIA's driver; in a container, start it with `--gpus all` or NVIDIA's \
                 runtime",
            ),
            DriverUnavailable::TooOld { library, function } => (
                format!("`{library}` lacks the function `{function}`"),
                None,
                "check that this is the library of an NVIDIA driver, or update the driver",
            ),
            DriverUnavailable::NoGpus => (
                "the NVIDIA driver shows no GPU to this process".to_owned(),
                None,
                "`CUDA_VISIBLE_DEVICES` may hide the GPUs; `nvidia-smi -L` lists all of them",
            ),
            DriverUnavailable::NotLoaded => (
                "the NVIDIA driver is not loaded".to_owned(),
                None,
                "load it with `sudo modprobe nvidia`; if that fails, `sudo dmesg | grep -i nvrm` shows why",
            ),
            DriverUnavailable::VersionMismatch => (
                "the loaded NVIDIA kernel module and the driver libraries have different versions"
                    .to_owned(),
                None,
                "the driver was updated while the old one was loaded: reboot, or restart the container if \
                 this is one",
            ),
            DriverUnavailable::NoPermission => (
                "no permission to use the NVIDIA driver".to_owned(),
                None,
                "give this user or container access to `/dev/nvidia*`",
            ),
            DriverUnavailable::GpuLost => (
                "a GPU has fallen off the bus, and the NVIDIA driver does not respond".to_owned(),
                None,
                "reboot; if it happens again, check power supply, temperature and PCIe slot",
            ),
            DriverUnavailable::NoPower => (
                "a GPU has insufficient power, and the NVIDIA driver does not respond".to_owned(),
                None,
                "connect the GPU's power cables",
            ),
            DriverUnavailable::Other(cause) => (
                "the NVIDIA driver does not respond".to_owned(),
                Some(cause),
                "check `nvidia-smi`, which uses the same driver, first",
            ),
        }
    }
}

impl From<DriverUnavailable> for Error {
    fn from(unavailable: DriverUnavailable) -> Self {
        let (message, cause, hint) = unavailable.describe();
        let error = Error::new(ErrorKind::NoDriver, message).hint(hint);
        match cause {
            Some(cause) => error.cause(cause),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_hint() {
        let cases = [
            (NvmlError::DriverNotLoaded, "modprobe"),
            (NvmlError::LibRmVersionMismatch, "reboot"),
            (NvmlError::NoPermission, "/dev/nvidia"),
            (NvmlError::GpuLost, "PCIe slot"),
            (NvmlError::InsufficientPower, "power cables"),
            (NvmlError::Unknown, "nvidia-smi"),
        ];
        for (nvml_error, expected) in cases {
            let error = Error::from(DriverUnavailable::from_nvml(&nvml_error, "libnvidia-ml.so.1"));
            assert_eq!(error.kind(), ErrorKind::NoDriver);
            let hint = error.hint_text().expect("every case has a hint");
            assert!(hint.contains(expected), "{error}: {hint}");
        }
    }
}
