//! A copy of the library with a machine of its own, for tests.

use std::path::{Path, PathBuf};

use crate::description::{Description, sibling_path};
use crate::device_allocations::DeviceAllocations;

/// A pretended machine: `VRAMFIT_NVML` and `VRAMFIT_CUDA` set to [`FakeDriver::library`] lead to it.
#[derive(Debug)]
pub struct FakeDriver {
    library: PathBuf,
}

impl FakeDriver {
    /// Puts a copy of the library and its machine into a folder.
    ///
    /// # Panics
    /// If the library is not built, or the folder cannot be written to.
    pub fn new(folder: &Path, host: &Description) -> FakeDriver {
        FakeDriver::without(folder, host, &[])
    }

    /// As [`FakeDriver::new`], for a driver too old to have some `functions`.
    ///
    /// Their names are changed where the dynamic loader compares them, so that looking one up fails
    /// as it does in a library without it.
    ///
    /// # Panics
    /// Moreover, if the library has no such function anyway.
    pub fn without(folder: &Path, host: &Description, functions: &[&str]) -> FakeDriver {
        let library = folder.join("libdriver.so");
        let mut bytes = std::fs::read(built_library()).expect("the library can be read");
        for function in functions {
            remove_symbol(&mut bytes, function);
        }
        std::fs::write(&library, bytes).expect("the copy can be written");
        let driver = FakeDriver { library };
        driver.describe(host);
        driver
    }

    /// Changes the machine, also for those who have it open.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn describe(&self, host: &Description) {
        let text = serde_json::to_string_pretty(host).expect("a machine is plain values");
        std::fs::write(sibling_path(&self.library, ".json"), text)
            .expect("the machine can be written");
    }

    /// The library to open.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Who holds what.
    pub fn device_allocations(&self) -> DeviceAllocations {
        DeviceAllocations::of(&self.library)
    }
}

/// The library as Cargo built it: for every crate that depends on this one, beside its test programs.
fn built_library() -> PathBuf {
    let program = std::env::current_exe().expect("a test program has a path");
    let folder = program.parent().expect("a program lies in a folder");
    folder.join("libfake_driver.so")
}

/// Changes the first letter of a function's name. Names in the table lie between zero bytes.
fn remove_symbol(library: &mut [u8], function: &str) {
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let places: Vec<usize> = library
        .windows(name.len())
        .enumerate()
        .filter(|(_, window)| *window == name)
        .map(|(at, _)| at + 1)
        .collect();
    assert!(!places.is_empty(), "the library has no `{function}`");
    for at in places {
        library[at] = b'-';
    }
}
