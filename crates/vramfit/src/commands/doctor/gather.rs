//! Gathers the facts that the checks rest on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vramfit_core::doctor::{Driver, Facts, Inventory, VirtualCard};
use vramfit_core::host::Host;
use vramfit_core::{Result, gpu};
use vramfit_gpu::GpuOverrides;

use super::{ask, driver, trial};
use crate::context::Context;
use crate::environment::variable;

/// What is to be examined.
pub(super) struct Wish {
    /// Whether the trial ends with a few steps of training.
    pub(super) training: bool,
    /// Whether the trial takes the pool that is asked for.
    pub(super) preallocate: bool,
    /// Whether a GPU must compute.
    pub(super) require_gpu: bool,
    /// The most that the driver, and each step of the trial, may take.
    pub(super) limit: Duration,
    /// Whether the user said which Python it is.
    pub(super) python_is_named: bool,
}

/// Looks at everything. The driver and the Python are asked at the same time, then JAX is tried.
///
/// # Errors
/// `command-not-found` for a Python that cannot be asked, `unknown-gpu` for a virtual GPU that does
/// not exist.
pub(super) fn facts(wish: &Wish, context: &Context) -> Result<Facts> {
    let python = context.python.clone().unwrap_or_else(|| "python3".into());
    let virtual_gpu = virtual_gpu()?;
    let (driver, inventory) = std::thread::scope(|scope| {
        let driver = scope.spawn(|| driver::ask(wish.limit));
        let inventory = ask::inventory(&python, wish.limit);
        let silent = |_| Driver::Silent(wish.limit.as_secs());
        (driver.join().unwrap_or_else(silent), inventory)
    });
    let inventory = inventory?;
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| {
            let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
            (text(name), text(value))
        })
        .collect();
    if !wish.preallocate {
        environment.insert(
            "XLA_PYTHON_CLIENT_PREALLOCATE".to_owned(),
            "false".to_owned(),
        );
    }
    let answers = matches!(driver, Driver::Machine(_)) && virtual_gpu.is_none();
    let mut machine_during_trial: Option<Host> = None;
    let trial = match inventory.version("jax") {
        None => vramfit_core::doctor::Trial::default(),
        Some(_) => trial::run(&python, wish, || {
            machine_during_trial = answers.then(|| driver::ask_again(wish.limit)).flatten();
        }),
    };
    Ok(Facts {
        driver,
        surroundings: vramfit_gpu::host_environment(),
        shared_memory_bytes: shared_memory(),
        shadowing_libraries: shadowing(&environment),
        dry_run: match virtual_gpu {
            Some(_) => None,
            None => ask::dry_run(&python, context),
        },
        other_environment: other_environment(wish, &inventory, &environment),
        environment,
        inventory,
        trial,
        machine_during_trial,
        require_gpu: wish.require_gpu,
        virtual_gpu,
    })
}

/// Returns the virtual GPU of the dry run that we are in.
fn virtual_gpu() -> Result<Option<VirtualCard>> {
    let Some(name) = variable("VRAMFIT_GPU").filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let gpu = gpu::find(&name)?;
    let budgets = GpuOverrides::default().budgets(variable)?;
    let context = variable("VRAMFIT_CONTEXT").and_then(|text| text.parse().ok());
    Ok(Some(VirtualCard {
        count: u32::try_from(budgets.len()).unwrap_or(u32::MAX),
        total_bytes: gpu.total_memory_bytes,
        held_bytes: budgets
            .iter()
            .map(|budget| budget.occupied_bytes)
            .max()
            .unwrap_or(0),
        context_bytes: context.unwrap_or(gpu.context_bytes_estimate),
        name: gpu.name,
        description: gpu.description,
    }))
}

/// Returns the size of `/dev/shm`, where there is one.
fn shared_memory() -> Option<u64> {
    let found = rustix::fs::statvfs("/dev/shm").ok()?;
    found.f_blocks.checked_mul(found.f_frsize)
}

/// What the libraries are called that JAX loads from NVIDIA's packages.
const LIBRARIES: [&str; 10] = [
    "libcublas.so",
    "libcublasLt.so",
    "libcudart.so",
    "libcudnn.so",
    "libcufft.so",
    "libcupti.so",
    "libcusolver.so",
    "libcusparse.so",
    "libnccl.so",
    "libnvrtc.so",
];

/// Lists the files in the directories of `LD_LIBRARY_PATH` that could be loaded in place of those of
/// the packages, one a library and directory.
fn shadowing(environment: &BTreeMap<String, String>) -> Vec<String> {
    let path = environment
        .get("LD_LIBRARY_PATH")
        .map_or("", String::as_str);
    let mut found = Vec::new();
    for folder in path.split(':').filter(|folder| !folder.is_empty()) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        for library in LIBRARIES {
            let name = names.iter().find(|name| name.starts_with(library));
            found.extend(name.map(|name| Path::new(folder).join(name).display().to_string()));
        }
    }
    found
}

/// Returns the virtual environment that is active, where it is not that of the Python.
fn other_environment(
    wish: &Wish,
    inventory: &Inventory,
    environment: &BTreeMap<String, String>,
) -> Option<String> {
    let active = environment.get("VIRTUAL_ENV")?;
    if wish.python_is_named || active.is_empty() {
        return None;
    }
    // The same folder may be reached by several names.
    let real = |path: &str| std::fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
    let own = inventory.environment.as_deref().map(real);
    (own != Some(real(active))).then(|| active.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_in_the_path_are_found_once_each() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        for name in [
            "libcudnn.so.9",
            "libcudnn.so.9.1",
            "libnccl.so",
            "libc.so.6",
        ] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let path = folder.path().display();
        let environment = |value: String| BTreeMap::from([("LD_LIBRARY_PATH".to_owned(), value)]);
        assert_eq!(
            shadowing(&environment(format!("/nowhere::{path}"))),
            [
                format!("{path}/libcudnn.so.9"),
                format!("{path}/libnccl.so")
            ]
        );
        assert!(shadowing(&BTreeMap::new()).is_empty());
    }
}
