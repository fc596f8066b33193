//! Why there is no driver to ask, and what cures it.

use nvml_wrapper::error::NvmlError;
use vramfit_core::{Error, ErrorKind};

/// Why the driver cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// The driver's library is not on this machine, or cannot be loaded.
    LibraryMissing {
        /// The name or path that was tried.
        library: String,
        /// What the dynamic loader said.
        cause: String,
    },
    /// The library is too old to have a function that is needed.
    TooOld {
        /// The name or path of the library.
        library: String,
        /// The function.
        function: String,
    },
    /// The driver works and shows no card to this process.
    NoCards,
    /// The library is here, the kernel module is not loaded or does not find a card.
    NotLoaded,
    /// The library and the kernel module come from different versions: an update came in between.
    VersionMismatch,
    /// This user or this container may not use the driver.
    NoPermission,
    /// A card fell off the bus.
    CardLost,
    /// A card's power cables are not plugged in.
    NoPower,
    /// Anything else, in the driver's words.
    Other(String),
}

impl Absence {
    /// Tells what an error of NVML means when it comes while opening the library at `library`.
    pub(crate) fn of_nvml(error: &NvmlError, library: &str) -> Self {
        match error {
            NvmlError::LibloadingError(cause) => Absence::LibraryMissing {
                library: library.to_owned(),
                cause: cause.to_string(),
            },
            NvmlError::FailedToLoadSymbol(_) => Absence::TooOld {
                library: library.to_owned(),
                function: "nvmlInit_v2".to_owned(),
            },
            NvmlError::DriverNotLoaded => Absence::NotLoaded,
            NvmlError::LibRmVersionMismatch => Absence::VersionMismatch,
            NvmlError::NoPermission | NvmlError::OperatingSystem => Absence::NoPermission,
            NvmlError::GpuLost => Absence::CardLost,
            NvmlError::InsufficientPower => Absence::NoPower,
            other => Absence::Other(other.to_string()),
        }
    }

    fn words(&self) -> (String, Option<&str>, &'static str) {
        match self {
            Absence::LibraryMissing { library, cause } => (
                format!("`{library}` cannot be opened"),
                Some(cause),
                "install NVIDIA's driver; in a container, start it with `--gpus all` or NVIDIA's \
                 runtime",
            ),
            Absence::TooOld { library, function } => (
                format!("`{library}` has no function `{function}`"),
                None,
                "name the library of an NVIDIA driver, or update the driver",
            ),
            Absence::NoCards => (
                "NVIDIA's driver shows no card to this process".to_owned(),
                None,
                "`CUDA_VISIBLE_DEVICES` may hide the cards; `nvidia-smi -L` lists those that are there",
            ),
            Absence::NotLoaded => (
                "NVIDIA's driver is not loaded".to_owned(),
                None,
                "load it with `sudo modprobe nvidia`; `sudo dmesg | grep -i nvrm` says why it is not",
            ),
            Absence::VersionMismatch => (
                "NVIDIA's driver in memory and its libraries are of different versions".to_owned(),
                None,
                "the driver was updated while the old one ran: restart the machine; in a container, \
                 start the container anew",
            ),
            Absence::NoPermission => (
                "NVIDIA's driver may not be used here".to_owned(),
                None,
                "give this user or container access to the files `/dev/nvidia*`",
            ),
            Absence::CardLost => (
                "a card fell off the bus, and NVIDIA's driver does not answer".to_owned(),
                None,
                "restart the machine; if it happens again, suspect power, heat or the slot",
            ),
            Absence::NoPower => (
                "a card lacks power, and NVIDIA's driver does not answer".to_owned(),
                None,
                "plug in the card's power cables",
            ),
            Absence::Other(cause) => (
                "NVIDIA's driver does not answer".to_owned(),
                Some(cause),
                "`nvidia-smi` asks the same driver: make that work first",
            ),
        }
    }
}

impl From<Absence> for Error {
    fn from(absence: Absence) -> Self {
        let (message, cause, hint) = absence.words();
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
    fn every_case_says_what_to_do() {
        let cases = [
            (NvmlError::DriverNotLoaded, "modprobe"),
            (NvmlError::LibRmVersionMismatch, "restart the machine"),
            (NvmlError::NoPermission, "/dev/nvidia"),
            (NvmlError::GpuLost, "the slot"),
            (NvmlError::InsufficientPower, "power cables"),
            (NvmlError::Unknown, "nvidia-smi"),
        ];
        for (error, cure) in cases {
            let told = Error::from(Absence::of_nvml(&error, "libnvidia-ml.so.1"));
            assert_eq!(told.kind(), ErrorKind::NoDriver);
            let hint = told.hint_text().expect("every case has a cure");
            assert!(hint.contains(cure), "{told}: {hint}");
        }
    }
}
