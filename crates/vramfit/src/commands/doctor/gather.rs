//! Gathers the information that the checks are based on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vramfit_advice::doctor::{Driver, Inventory, SystemInfo, VirtualGpu};
use vramfit_analysis::Result;
use vramfit_gpu::GpuOverrides;
use vramfit_model::host::Host;
use vramfit_model::run_config::RunConfig;
use vramfit_runner::Context;
use vramfit_runner::environment::variable;

use super::{Args, Required, driver, probe, query_python};

/// Gathers everything: queries the driver and Python at the same time, then probes JAX.
///
/// # Errors
/// `command-not-found` if Python does not respond, `unknown-gpu` for a virtual GPU that does not exist.
pub(super) fn gather(args: &Args, python_is_named: bool, context: &Context) -> Result<SystemInfo> {
    let python = context.python.clone().unwrap_or_else(|| "python3".into());
    let virtual_gpu = virtual_gpu()?;
    let (driver, inventory) = std::thread::scope(|scope| {
        let driver = scope.spawn(|| driver::query(args.timeout));
        let inventory = query_python::inventory(&python, args.timeout);
        let timed_out = |_| Driver::TimedOut(args.timeout.as_secs());
        (driver.join().unwrap_or_else(timed_out), inventory)
    });
    let inventory = inventory?;
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| {
            let lossy = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
            (lossy(name), lossy(value))
        })
        .collect();
    if args.no_preallocate {
        environment.insert("XLA_PYTHON_CLIENT_PREALLOCATE".to_owned(), "false".to_owned());
    }
    let has_driver = matches!(driver, Driver::Available(_)) && virtual_gpu.is_none();
    let mut host_during_probe: Option<Host> = None;
    let probe = match inventory.version("jax") {
        _ if args.no_jax => vramfit_advice::doctor::JaxProbe::default(),
        None => vramfit_advice::doctor::JaxProbe::default(),
        Some(_) => probe::run(&python, args, || {
            host_during_probe = has_driver.then(|| driver::query_again(args.timeout)).flatten();
        }),
    };
    Ok(SystemInfo {
        driver,
        host_environment: vramfit_gpu::host_environment(),
        shared_memory_bytes: shared_memory(),
        shadowing_libraries: find_shadowing_libraries(&environment),
        dry_run: match virtual_gpu {
            Some(_) => None,
            None if args.no_jax => None,
            None => query_python::dry_run(&python, context),
        },
        other_active_environment: other_active_environment(&inventory, &environment)
            .filter(|_| !python_is_named),
        environment,
        inventory,
        probe,
        host_during_probe,
        require_gpu: args.require == Some(Required::Gpu),
        skips_jax: args.no_jax,
        virtual_gpu,
    })
}

/// Returns the virtual GPU of the dry run that this process runs in.
fn virtual_gpu() -> Result<Option<VirtualGpu>> {
    let Some(run) = RunConfig::from_environment(variable)? else {
        return Ok(None);
    };
    let budgets = GpuOverrides::default().budgets(variable)?;
    let gpu = run.gpus.gpu;
    Ok(Some(VirtualGpu {
        count: u32::try_from(budgets.len()).unwrap_or(u32::MAX),
        total_bytes: gpu.total_memory_bytes,
        occupied_bytes: budgets.iter().map(|budget| budget.occupied_bytes).max().unwrap_or(0),
        context_bytes: run.context_bytes,
        name: gpu.name,
        description: gpu.description,
    }))
}

/// Returns the size of `/dev/shm`, where there is one.
fn shared_memory() -> Option<u64> {
    let found = rustix::fs::statvfs("/dev/shm").ok()?;
    found.f_blocks.checked_mul(found.f_frsize)
}

/// The libraries that JAX loads from NVIDIA's packages.
const CUDA_LIBRARIES: [&str; 10] = [
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

/// Lists the files in `LD_LIBRARY_PATH` that could be loaded instead of those of NVIDIA's packages, one
/// per library and directory.
fn find_shadowing_libraries(environment: &BTreeMap<String, String>) -> Vec<String> {
    let path = environment.get("LD_LIBRARY_PATH").map_or("", String::as_str);
    let mut found = Vec::new();
    for folder in path.split(':').filter(|folder| !folder.is_empty()) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        for library in CUDA_LIBRARIES {
            let name = names.iter().find(|name| name.starts_with(library));
            found.extend(name.map(|name| Path::new(folder).join(name).display().to_string()));
        }
    }
    found
}

/// Returns the active virtual environment, if it is not that of the Python.
fn other_active_environment(
    inventory: &Inventory,
    environment: &BTreeMap<String, String>,
) -> Option<String> {
    let active = environment.get("VIRTUAL_ENV")?;
    if active.is_empty() {
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
        for name in ["libcudnn.so.9", "libcudnn.so.9.1", "libnccl.so", "libc.so.6"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let path = folder.path().display();
        let environment = |value: String| BTreeMap::from([("LD_LIBRARY_PATH".to_owned(), value)]);
        assert_eq!(
            find_shadowing_libraries(&environment(format!("/nowhere::{path}"))),
            [format!("{path}/libcudnn.so.9"), format!("{path}/libnccl.so")]
        );
        assert!(find_shadowing_libraries(&BTreeMap::new()).is_empty());
    }
}
